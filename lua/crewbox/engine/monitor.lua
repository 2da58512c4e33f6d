-- SPDX-License-Identifier: MIT
-- Follows a run in its box: stores the logs and how far it is, feeds the harness's reader, and
-- asks for the end where the agent has said its last word but does not leave.
local core = require "crewbox.core"
local err = require "crewbox.err"
local events = require "crewbox.engine.events"
local log = require "crewbox.engine.log"
local paths = require "crewbox.paths"
local stop = require "crewbox.engine.stop"

local M = {}

local INTERVAL_MS = { here = 1000, remote = 5000 }
local EAGER_MS = { 60, 120, 250, 500 } -- a short run need not wait for its first tick
local ACTION_MAX = 200

-- The counters of the state file that a person may want to see.
local SHOWN = { "phase", "age_ms", "quiet_ms", "stopped", "out_end", "err_end", "pid" }

local function open_logs(job)
  local state, row, p = job.engine.state, job.row, job.row.progress
  job.out = log.open(paths.run_file(state, job.id, "out.log"), job.redactor, row.out_offset, p.out_size or 0)
  job.err = log.open(paths.run_file(state, job.id, "err.log"), job.redactor, row.err_offset, p.err_size or 0)
  -- The reader is made anew from what is stored: it stands where it stood.
  job.reader = job.harness:reader(job.row.options.harness)
  for bytes in job.out:pieces() do job.reader:feed(bytes) end
end

-- Stores the new bytes of one stream. gaps: {stream, from, to} of this turn, in order; the bytes on
-- both sides of a gap stand next to each other.
local function add(job, name, bytes, gaps)
  local target = job[name]
  local function feed(clean, e)
    if not clean then return nil, e end
    if name == "out" and clean ~= "" then job.reader:feed(clean) end
    return true
  end
  local at = 1
  for _, gap in ipairs(gaps or {}) do
    if gap.stream == name then
      local n = math.max(0, gap.from - target:next_offset())
      local ok, e = feed(target:add(bytes:sub(at, at + n - 1), false))
      if ok then ok, e = feed(target:gap(gap.to)) end
      if not ok then return nil, e end
      at = at + n
    end
  end
  return feed(target:add(bytes:sub(at), false))
end

local function flush(job)
  for _, name in ipairs { "out", "err" } do
    local clean, e = job[name]:add("", true)
    if not clean then return nil, e end
    if name == "out" and clean ~= "" then job.reader:feed(clean) end
  end
  return true
end

local function store_progress(job, state)
  local row = job.row
  local p = row.progress
  for _, key in ipairs(SHOWN) do p[key] = state[key] end
  local shown = job.reader:progress()
  local action = shown.action and job.redactor:mask(shown.action):sub(1, ACTION_MAX)
  local changed = action ~= p.action or shown.turns ~= p.turns or shown.tokens ~= p.tokens
  p.action, p.turns, p.tokens = action, shown.turns, shown.tokens
  p.out_size, p.err_size = job.out.size, job.err.size
  p.lease_end_at = job.lease_end_at
  local ok, e = job.engine.store:run_progress(job.id, p, job.out.offset, job.err.offset, job:fence(), core.sys.wall())
  if not ok then return nil, e end
  row.out_offset, row.err_offset = job.out.offset, job.err.offset
  if changed then
    events.tell(job, "progress", { action = p.action, turns = p.turns, tokens = p.tokens, out_bytes = p.out_end })
  end
  return true
end

-- Where the reader has seen the last word, or a loop that the agent does not leave by itself.
local function ask_for_end(job)
  local why = job.reader.stop_reason and job.reader:stop_reason()
  if why then
    if stop.ask(job, "loop", 0) then events.tell(job, "agent_stopped", { why = job.redactor:mask(why):sub(1, ACTION_MAX) }) end
  elseif job.reader:terminal() then
    stop.ask(job, "terminal", (job.harness.grace_s or 10) * 1000)
  else
    stop.withdraw(job, "terminal") -- it went on after what looked like its last word
  end
end

local function on_progress(job, event)
  local ok, e = add(job, "out", event.out or "", event.gaps)
  if ok then ok, e = add(job, "err", event.err or "", event.gaps) end
  if not ok then return nil, e end
  ask_for_end(job)
  return store_progress(job, event.state or {})
end

local function eager(job)
  for _, ms in ipairs(EAGER_MS) do
    if not job.engine.loop:sleep(ms) or job.over then return end
    job:poke()
  end
end

local function follow(job)
  local engine, provider = job.engine, job.provider
  local ms = function(s) return s and s > 0 and math.floor(s * 1000) or nil end
  local op, e = engine.watch:run {
    provider = provider.verbs, box = job.box, run = job.id, launch_seq = job.row.launch_seq, run_dir = job.run_dir,
    interval_ms = INTERVAL_MS[provider.remote and "remote" or "here"],
    out_offset = job.out:next_offset(), err_offset = job.err:next_offset(),
    stall_ms = ms(job.harness.stall_s), lease_end_at = job.lease_end_at,
  }
  local stream
  stream, e = engine.loop:stream(op, e)
  if not stream then return nil, e end
  job.watch_op = op
  local hurry = engine.loop:spawn(eager, job)
  local finish
  while not finish do
    local event
    event, e = stream:next()
    if not event then
      if not e then e = err.new("supervisor_lost", "the watch ended without a word") end
      break
    end
    local ok = true
    if event.event == "progress" then
      ok, e = on_progress(job, event)
    elseif event.event == "stalled" then
      events.tell(job, "stalled", { why = event.why, quiet_ms = event.state and event.state.quiet_ms })
    elseif event.event == "unreachable" then
      engine:server_lost(provider)
    elseif event.event == "finished" then
      finish = { state = event.state }
    elseif event.event == "lost" then
      finish = { lost = event.reason or "box_lost", state = nil }
    end
    if not ok then break end
  end
  job.watch_op = nil
  hurry:cancel()
  stream:close()
  if not finish then return nil, e end
  job.over = true
  local ok
  ok, e = flush(job)
  if not ok then return nil, e end
  return finish
end

--- Follows the run from where its logs end to its end in the box.
--- @async
--- @return {state: table?, lost: string?}? finish
--- @return crewbox.Error? err
function M.follow(job)
  open_logs(job)
  return follow(job)
end

return M
