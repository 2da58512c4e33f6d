-- SPDX-License-Identifier: MIT
-- The tables, as a list of migrations: number N brings a database from schema N-1 to N. A
-- migration that was released is never edited. What the columns mean: section 2 of
-- docs/reference/interfaces.md.
local M = {}

local FINAL = "('succeeded','failed','cancelled','timed_out','lost')"

-- 1: the four tables. Times are unix seconds.
M[1] = {
  [[CREATE TABLE engine(
    owner TEXT PRIMARY KEY,
    epoch INTEGER NOT NULL UNIQUE,
    pid INTEGER NOT NULL,
    pid_start TEXT NOT NULL,
    host TEXT NOT NULL,
    started_at REAL NOT NULL,
    expires_at REAL NOT NULL)]],

  [[CREATE TABLE box(
    id TEXT PRIMARY KEY,
    provider TEXT NOT NULL,
    generation TEXT NOT NULL,
    nonce TEXT NOT NULL UNIQUE,
    remote_id TEXT,
    domain TEXT,
    state TEXT NOT NULL CHECK(state IN ('creating','live','gone')),
    lease_until REAL,
    deadline REAL,
    paused_at REAL,
    owner TEXT,
    epoch INTEGER,
    created_at REAL NOT NULL,
    updated_at REAL NOT NULL,
    error TEXT)]],
  "CREATE INDEX box_state ON box(state) WHERE state != 'gone'",
  [[CREATE TRIGGER box_gone_is_final BEFORE UPDATE OF state ON box
    WHEN OLD.state = 'gone' AND NEW.state != 'gone'
    BEGIN SELECT RAISE(ABORT, 'a box that is gone does not come back'); END]],

  [[CREATE TABLE run(
    id TEXT PRIMARY KEY,
    kind TEXT NOT NULL CHECK(kind IN ('agent','command','server')),
    box_id TEXT REFERENCES box(id),
    launch_seq INTEGER NOT NULL DEFAULT 1,
    state TEXT NOT NULL DEFAULT 'preparing' CHECK(state IN ('preparing','starting','running',
      'succeeded','failed','cancelled','timed_out','lost')),
    reason TEXT,
    agent TEXT NOT NULL,
    model TEXT,
    title TEXT NOT NULL DEFAULT '',
    repo TEXT,
    options TEXT NOT NULL DEFAULT '{}',
    env_names TEXT NOT NULL DEFAULT '[]',
    cancel_asked INTEGER NOT NULL DEFAULT 0,
    claim_owner TEXT,
    claim_until REAL,
    epoch INTEGER,
    out_offset INTEGER NOT NULL DEFAULT 0,
    err_offset INTEGER NOT NULL DEFAULT 0,
    progress TEXT NOT NULL DEFAULT '{}',
    outcome TEXT,
    session_id TEXT,
    created_at REAL NOT NULL,
    started_at REAL,
    finished_at REAL,
    accepted_at REAL,
    updated_at REAL NOT NULL)]],
  "CREATE INDEX run_created ON run(created_at)",
  "CREATE INDEX run_active ON run(state) WHERE state IN ('preparing','starting','running')",
  "CREATE INDEX run_box ON run(box_id)",
  [[CREATE TRIGGER run_final_is_final BEFORE UPDATE OF state ON run
    WHEN OLD.state IN ]] .. FINAL .. [[ AND NEW.state != OLD.state
    BEGIN SELECT RAISE(ABORT, 'a run does not leave its final state'); END]],
  [[CREATE TRIGGER run_is_linear BEFORE UPDATE OF state ON run
    WHEN (OLD.state = 'starting' AND NEW.state = 'preparing')
      OR (OLD.state = 'running' AND NEW.state IN ('preparing','starting'))
    BEGIN SELECT RAISE(ABORT, 'a run does not go back'); END]],
  [[CREATE TRIGGER run_accepted_once BEFORE UPDATE ON run
    WHEN OLD.accepted_at IS NOT NULL AND (NEW.accepted_at IS NOT OLD.accepted_at
      OR NEW.outcome IS NOT OLD.outcome OR NEW.reason IS NOT OLD.reason)
    BEGIN SELECT RAISE(ABORT, 'an accepted run does not change'); END]],

  -- The call: who awaits a run. Columns of the code sandbox's table, and what closes its holes:
  -- the run and launch a completion is for, provider kind and settings generation, the collected
  -- result and whether it was accounted, a claim that expires, a bounded number of dispatches.
  [[CREATE TABLE pending_sandbox_run(
    turn_id TEXT PRIMARY KEY,
    run_id TEXT REFERENCES run(id),
    agent_handle TEXT NOT NULL,
    agent_id TEXT NOT NULL DEFAULT '',
    role TEXT NOT NULL DEFAULT '',
    sandbox_id TEXT NOT NULL DEFAULT '',
    coding_agent TEXT NOT NULL DEFAULT '',
    command_id TEXT NOT NULL DEFAULT '',
    status TEXT NOT NULL DEFAULT 'launching' CHECK(status IN ('launching','running',
      'awaiting_clarification','resumed','done','failed','reseed')),
    launch_seq INTEGER NOT NULL DEFAULT 0,
    provider TEXT NOT NULL DEFAULT '',
    generation TEXT NOT NULL DEFAULT '',
    plan TEXT NOT NULL DEFAULT '{}',
    task_description TEXT NOT NULL DEFAULT '',
    success_criteria TEXT NOT NULL DEFAULT '[]',
    conversation_key TEXT NOT NULL DEFAULT '',
    notification_metadata TEXT NOT NULL DEFAULT '{}',
    branch TEXT NOT NULL DEFAULT '',
    session_id TEXT NOT NULL DEFAULT '',
    question TEXT NOT NULL DEFAULT '',
    audience TEXT NOT NULL DEFAULT '',
    trace_id TEXT NOT NULL DEFAULT '',
    span_id TEXT NOT NULL DEFAULT '',
    budget_remaining INTEGER NOT NULL DEFAULT 0,
    delegation_depth INTEGER NOT NULL DEFAULT 0,
    delegation_chain TEXT NOT NULL DEFAULT '[]',
    pause_ttl_seconds REAL NOT NULL DEFAULT 0,
    execute_state TEXT NOT NULL DEFAULT '{}',
    collected TEXT,
    accounted INTEGER NOT NULL DEFAULT 0,
    attempts INTEGER NOT NULL DEFAULT 0,
    claim_owner TEXT,
    claim_until REAL,
    owner TEXT,
    owner_epoch INTEGER,
    paused_at REAL,
    created_at REAL NOT NULL,
    updated_at REAL NOT NULL)]],
  "CREATE INDEX call_status ON pending_sandbox_run(status)",
  "CREATE INDEX call_seat ON pending_sandbox_run(agent_handle, status)",
  [[CREATE INDEX call_conversation ON pending_sandbox_run(conversation_key)
    WHERE status IN ('awaiting_clarification','reseed')]],
  "CREATE INDEX call_paused ON pending_sandbox_run(paused_at) WHERE paused_at IS NOT NULL",
  [[CREATE UNIQUE INDEX call_one_active ON pending_sandbox_run(agent_handle)
    WHERE status IN ('launching','running','awaiting_clarification','resumed','reseed')]],
}

return M
