-- SPDX-License-Identifier: MIT
-- The end of a run: judges what came of it, stores it, accepts it exactly once. Until the row is
-- accepted every step may be repeated, by this engine or another; `result.json` on disk is the
-- whole of it, so that what was stored once needs no box any more.
local collect = require "crewbox.engine.collect"
local core = require "crewbox.core"
local events = require "crewbox.engine.events"
local fault = require "crewbox.engine.fault"
local json = require "crewbox.json"
local paths = require "crewbox.paths"
local provider = require "crewbox.engine.provider"

local M = {}

local TEXT_MAX = 256 * 1024
local STDERR_TAIL = 16 * 1024

local function file(job, name) return paths.run_file(job.engine.state, job.id, name) end

-- ---- judging ------------------------------------------------------------------------------

local LOST_TEXT = {
  box_lost = "the box is gone",
  box_replaced = "the box was replaced by another one under the same id",
  supervisor_lost = "the supervisor in the box is gone, and with it the word of how the agent ended",
}

-- State and reason from how the supervisor says it ended; nil where the harness has to judge.
local function by_supervisor(job, finish)
  local state = finish.state
  if finish.lost then
    if job.stopping == "cancel" then return "cancelled", "cancelled", "cancelled" end
    return "lost", finish.lost, LOST_TEXT[finish.lost] or "the run was lost"
  end
  if state.why == "stopped" and job.stopping == "cancel" then return "cancelled", "cancelled", "cancelled" end
  if state.why == "guard" then
    return "timed_out", "guard", ("ended by its limit of %s s"):format(tostring(job.row.options.timeout_s))
  end
  if state.why == "start_deadline" then
    return "failed", "stalled_start", ("the agent said nothing within %s s of its start"):format(tostring(job.harness.start_deadline_s))
  end
  if state.why == "spawn_failed" then
    return "failed", "start_failed", "the agent could not be started: " .. tostring(state.error or "no words")
  end
  if state.oom then return "failed", "oom", "the box ran out of memory" end
  return nil
end

local function tail(path, n)
  local f = io.open(path, "rb")
  if not f then return "" end
  local size = f:seek("end")
  f:seek("set", math.max(0, size - n))
  local bytes = f:read("*a")
  f:close()
  return bytes or ""
end

-- Lengths bounded, secrets masked: what comes from a box is data.
local function clean(job, value, depth)
  if type(value) == "string" then
    local text = job.redactor:mask(value)
    if #text > TEXT_MAX then text = text:sub(1, TEXT_MAX) .. "\n[crewbox: the rest was left out]" end
    return text
  end
  if type(value) ~= "table" then return value end
  if depth > 8 then return nil end
  local out = value[1] ~= nil and json.array {} or {}
  for k, v in pairs(value) do out[k] = clean(job, v, depth + 1) end
  return out
end

local function timing_of(job, settle_began)
  local p = job.row.progress
  local prepare, launch = job.row.options.prepare_ms or 0, p.launch_ms or 0
  local settle = core.sys.now_ms() - settle_began
  return { prepare_ms = prepare, launch_ms = launch, agent_ms = p.age_ms, collect_ms = settle, own_ms = prepare + launch + settle }
end

-- ---- storing and accepting ------------------------------------------------------------------

-- On the disk when this returns; what waits for the disk is not the host's loop.
local function write(job, name, bytes)
  return job.engine.loop:await(job.engine.io:write_file { path = file(job, name), data = bytes })
end

-- Everything durable before the row says so.
local function store(job, final)
  local ok, e
  if final.findings then
    ok, e = write(job, "findings.md", final.findings)
    if not ok then return nil, e end
  end
  final.findings = nil
  ok, e = write(job, "result.json", json.encode(final))
  if not ok then return nil, e end
  fault.at("result_written")
  return true
end

--- Whether the result of this run is on disk already, by an engine that did not come to accept it.
function M.stored(job)
  local bytes = core.sys.read_file(file(job, "result.json"), 16 * 1024 * 1024)
  local final = bytes and json.decode(bytes)
  if type(final) ~= "table" or type(final.outcome) ~= "table" or not job.engine.store.FINAL[final.state] then return false end
  job.final = final
  return true
end

--- Accepts what is stored: one compare-and-set.
--- @async
--- @return true? accepted
--- @return crewbox.Error? err `fenced`
function M.accept(job)
  local final = job.final
  if not events.has(job, "run_finished") then
    events.tell(job, "run_finished", { state = final.state, reason = final.reason, success = final.outcome.success })
  end
  local ok, e = job.engine.store:accept_run(job.id, final, job:fence(), core.sys.wall())
  if not ok then return nil, e end
  fault.at("accepted")
  job.row.state = final.state
  if job.row.box_id and not job.box_row then job.box_row = job.engine.store:box(job.row.box_id) end
  if job.box_row and job.box_row.state == "gone" then job.box_row = nil end
  return true
end

local function finish_with(job, state, reason, outcome, findings)
  outcome = clean(job, outcome, 0)
  json.array(outcome.notes)
  job.final = {
    state = state,
    reason = reason,
    outcome = outcome,
    session_id = outcome.session_id and tostring(outcome.session_id):sub(1, 200) or nil,
    finished_at = core.sys.wall(),
    findings = findings,
  }
  local ok, e = store(job, job.final)
  if not ok then return nil, e end
  return M.accept(job)
end

--- Ends a run that never came to its own end.
--- @async
function M.refuse(job, state, reason, message)
  return finish_with(job, state, reason, {
    success = false, text = message, error = message, notes = {}, timing = timing_of(job, core.sys.now_ms()),
  })
end

--- Collects, judges, stores and accepts a run that is over in its box.
--- @async
--- @param finish {state: table?, lost: string?}
--- @return true? accepted
--- @return crewbox.Error? err
function M.settle(job, finish)
  local began = core.sys.now_ms()
  local state, reason, message = by_supervisor(job, finish)
  local notes = {}
  local function note(text)
    if text then notes[#notes + 1] = text end
  end

  local findings, patch, e
  local box_there = finish.lost ~= "box_lost" and finish.lost ~= "box_replaced" and not job.box_gone and not job.box_killed
  if box_there and finish.state then
    local why
    findings, why, e = collect.findings(job, finish.state)
    if e then return nil, e end
    note(why)
  end
  if box_there and job.row.options.tree then
    patch, e = collect.patch(job)
    if e and not provider.is_staying(e) then return nil, e end
    if e and e.code == "contains_secret" then
      state, reason, message = "failed", "contains_secret", e.message
    elseif e then
      note(e.message)
      if not state then state, reason, message = "failed", "collect_failed", e.message end
    elseif finish.lost then
      note("the agent may have been at work while its changes were collected")
    end
    for i, left in ipairs(patch and patch.skipped or {}) do
      if i > 10 then
        note(("%d more paths were left out of the patch"):format(#patch.skipped - 10))
        break
      end
      note(("%s was left out of the patch: %s"):format(left.path, left.reason))
    end
    if not job.secrets_known then
      note("the engine and the box had lost the run's secrets: the changes were checked for known shapes only")
    end
  end
  fault.at("collected")

  local s = finish.state or {}
  local outcome = job.reader:finish {
    exit = s.exit, signal = s.signal, why = s.why, findings = findings, stderr = tail(file(job, "err.log"), STDERR_TAIL),
    -- An engine that is gone now may have asked for the end: the stream says whether it was after the last word.
    stopped_after_terminal = s.why == "stopped" and job.stopping ~= "cancel" and job.reader:terminal(),
  }
  outcome.notes = outcome.notes or {}
  for _, text in ipairs(notes) do outcome.notes[#outcome.notes + 1] = text end
  if state then
    outcome.success, outcome.error = false, message
    if state ~= "failed" and (outcome.text or "") == "" then outcome.text = message end
  else
    state, reason = outcome.success and "succeeded" or "failed", outcome.reason
  end
  outcome.reason = reason
  outcome.exit, outcome.signal, outcome.why = s.exit, s.signal, s.why
  outcome.changed = patch and #patch.changed or nil
  outcome.changes = patch and patch.changed or nil
  outcome.patch_bytes = patch and patch.bytes or nil
  outcome.timing = timing_of(job, began)
  return finish_with(job, state, reason, outcome, findings)
end

return M
