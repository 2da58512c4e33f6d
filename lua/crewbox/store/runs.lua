-- SPDX-License-Identifier: MIT
-- Queries on `run`. Rows come back with their JSON columns decoded: options, env_names, progress,
-- outcome.
local core = require "crewbox.core"
local engines = require "crewbox.store.engines"
local err = require "crewbox.err"
local json = require "crewbox.json"

local M = {}

M.FINAL = { succeeded = true, failed = true, cancelled = true, timed_out = true, lost = true }

-- What a write of an engine to a run it has claimed must find. Ends with owner, epoch.
local MINE = " AND claim_owner = ? AND (epoch IS NULL OR epoch <= ?) AND accepted_at IS NULL"

local function decoded(text, fallback)
  if type(text) ~= "string" then return fallback end
  local value = json.decode(text)
  return type(value) == "table" and value or fallback
end

local function view(row)
  row.options = decoded(row.options, {})
  row.env_names = decoded(row.env_names, {})
  row.progress = decoded(row.progress, {})
  row.outcome = decoded(row.outcome, nil)
  row.cancel_asked = row.cancel_asked == 1
  return row
end

local function views(rows, e)
  if not rows then return nil, e end
  for _, row in ipairs(rows) do view(row) end
  return rows
end

--- Writes a new run. Its claim is the preparing client's until an engine takes it over.
--- @async
--- @param run table {id, kind, agent, model?, title, repo?, options, env_names, claim_owner, claim_s}
function M:add_run(run, now)
  return self:change([[INSERT INTO run(id, kind, agent, model, title, repo, options, env_names,
    claim_owner, claim_until, created_at, updated_at) VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)]],
    { run.id, run.kind, run.agent, run.model or core.null, run.title, run.repo or core.null,
      json.encode(run.options), json.encode(json.array(run.env_names)), run.claim_owner, now + run.claim_s, now, now })
end

--- @async
--- @return table? run nil without an error: there is none
--- @return crewbox.Error? err
function M:run(id)
  local rows, e = views(self:rows("SELECT * FROM run WHERE id = ?", { id }))
  if not rows then return nil, e end
  return rows[1]
end

--- The run a person means: its id, the beginning of one, or "last".
--- @async
--- @return table? run
--- @return crewbox.Error? err `not_found`, `invalid` when several begin so
function M:find_run(word)
  local rows, e
  if word == "last" then
    rows, e = views(self:rows("SELECT * FROM run ORDER BY created_at DESC, id DESC LIMIT 1"))
    if rows and #rows == 0 then return nil, err.new("not_found", "there is no run yet") end
  else
    rows, e = views(self:rows("SELECT * FROM run WHERE substr(id, 1, ?) = ? ORDER BY id LIMIT 2", { #word, word }))
    if rows and (#rows == 0 or word == "") then
      return nil, err.new("not_found", ("there is no run %s; `crewbox runs` lists them"):format(word))
    end
    if rows and #rows > 1 then
      return nil, err.new("invalid", ("several runs begin with %s; give more of the id"):format(word))
    end
  end
  if not rows then return nil, e end
  return rows[1]
end

--- Newest first.
--- @async
--- @param o {limit: number?, active: boolean?}?
function M:runs(o)
  o = o or {}
  local where = o.active and "WHERE accepted_at IS NULL" or ""
  return views(self:rows(("SELECT * FROM run %s ORDER BY created_at DESC, id DESC LIMIT ?"):format(where),
    { o.limit or 50 }))
end

--- Number of runs that are not over.
--- @async
function M:count_active()
  local rows, e = self:rows("SELECT count(*) AS n FROM run WHERE accepted_at IS NULL")
  if not rows then return nil, e end
  return rows[1].n
end

--- One engine gets a run: from nobody, from a claim that ran out, or from `from`.
--- @async
--- @param fence table {owner, epoch}
--- @param from string? a claim that is handed over
--- @return table? run the row, now ours
--- @return crewbox.Error? err `already_claimed`
function M:claim_run(id, fence, now, from)
  local results, e = self:batch {
    { [[UPDATE run SET claim_owner = ?, claim_until = ?, epoch = ?, updated_at = ?
        WHERE id = ? AND accepted_at IS NULL AND (epoch IS NULL OR epoch <= ?)
        AND (claim_owner IS NULL OR claim_until < ? OR claim_owner = ?)]],
      { fence.owner, now + engines.LEASE_S, fence.epoch, now, id, fence.epoch, now, from or "" }, changes = 1 },
    { "SELECT * FROM run WHERE id = ?", { id } },
  }
  if not results then
    if e.code == "fenced" then return nil, err.new("already_claimed", "another engine has this run") end
    return nil, e
  end
  return view(results[2].rows[1])
end

--- Removes a run that its client could not hand over.
--- @async
--- @return boolean? removed false when an engine has it
function M:remove_unclaimed(id, claim)
  local changes, e = self:change("DELETE FROM run WHERE id = ? AND claim_owner = ? AND state = 'preparing' AND epoch IS NULL",
    { id, claim })
  if not changes then return nil, e end
  return changes > 0
end

--- Runs that nobody looks after.
--- @async
function M:orphans(now)
  return views(self:rows([[SELECT * FROM run WHERE accepted_at IS NULL
    AND (claim_owner IS NULL OR claim_until < ?) ORDER BY created_at]], { now }))
end

--- Lets go of a run.
--- @async
function M:release_run(id, fence)
  return self:change("UPDATE run SET claim_owner = NULL, claim_until = NULL WHERE id = ?" .. MINE,
    { id, fence.owner, fence.epoch })
end

--- Runs of this engine that somebody wants cancelled.
--- @async
--- @return string[]? ids
--- @return crewbox.Error? err
function M:cancels_for(owner)
  local rows, e = self:rows("SELECT id FROM run WHERE claim_owner = ? AND cancel_asked = 1 AND accepted_at IS NULL", { owner })
  if not rows then return nil, e end
  local ids = {}
  for i, row in ipairs(rows) do ids[i] = row.id end
  return ids
end

--- A person asks for the end of a run.
--- @async
--- @return boolean? asked false when the run is over already
--- @return crewbox.Error? err
function M:ask_cancel(id, now)
  local changes, e = self:change("UPDATE run SET cancel_asked = 1, updated_at = ? WHERE id = ? AND accepted_at IS NULL", { now, id })
  if not changes then return nil, e end
  return changes > 0
end

--- `preparing -> starting`: everything is in the box.
--- @async
function M:run_starting(id, launch_seq, progress, fence, now)
  return self:fenced("UPDATE run SET state = 'starting', launch_seq = ?, progress = ?, updated_at = ?" ..
    " WHERE id = ? AND state = 'preparing'" .. MINE,
    { launch_seq, json.encode(progress), now, id, fence.owner, fence.epoch })
end

--- `starting -> running`: the supervisor has been started.
--- @async
function M:run_running(id, progress, fence, now)
  return self:fenced("UPDATE run SET state = 'running', started_at = ?, progress = ?, updated_at = ?" ..
    " WHERE id = ? AND state = 'starting'" .. MINE,
    { now, json.encode(progress), now, id, fence.owner, fence.epoch })
end

--- A second launch within a run: everything of the first one is over.
--- @async
function M:run_relaunched(id, launch_seq, progress, fence, now)
  return self:fenced("UPDATE run SET launch_seq = ?, progress = ?, out_offset = 0, err_offset = 0, updated_at = ?" ..
    " WHERE id = ? AND launch_seq < ?" .. MINE,
    { launch_seq, json.encode(progress), now, id, launch_seq, fence.owner, fence.epoch })
end

--- How far a run is, and how much of its logs is stored.
--- @async
function M:run_progress(id, progress, out_offset, err_offset, fence, now)
  return self:fenced("UPDATE run SET progress = ?, out_offset = ?, err_offset = ?, updated_at = ? WHERE id = ?" .. MINE,
    { json.encode(progress), out_offset, err_offset, now, id, fence.owner, fence.epoch })
end

--- The end of a run: one compare-and-set, which is the acceptance of a run without a call.
--- @async
--- @param final table {state, reason?, outcome, session_id?, finished_at}
--- @return true? accepted
--- @return crewbox.Error? err `fenced`
function M:accept_run(id, final, fence, now)
  if not M.FINAL[final.state] then error("not a final state: " .. tostring(final.state), 2) end
  return self:fenced([[UPDATE run SET state = ?, reason = ?, outcome = ?, session_id = ?, finished_at = ?,
    accepted_at = ?, claim_owner = NULL, claim_until = NULL, updated_at = ? WHERE id = ?]] .. MINE,
    { final.state, final.reason or core.null, json.encode(final.outcome), final.session_id or core.null,
      final.finished_at, now, now, id, fence.owner, fence.epoch })
end

return M
