-- SPDX-License-Identifier: MIT
-- One run in the hands of this engine: the row, what is in memory about it, and the way from its
-- state to the end. Each step may be repeated by another engine that finds the row; a write that
-- answers `fenced` means that one did, and this job stops without a word.
local box = require "crewbox.engine.box"
local coordinator = require "crewbox.engine.coordinator"
local core = require "crewbox.core"
local err = require "crewbox.err"
local events = require "crewbox.engine.events"
local fault = require "crewbox.engine.fault"
local harnesses = require "crewbox.harness"
local launch = require "crewbox.engine.launch"
local monitor = require "crewbox.engine.monitor"
local provider = require "crewbox.engine.provider"
local secrets = require "crewbox.engine.secrets"
local stop = require "crewbox.engine.stop"

local M = {}

local Job = {}
Job.__index = Job

--- @param engine table
--- @param row table    a claimed run
--- @param o {values?: table<string, string>, api_key?: string}  what only memory knows
function M.new(engine, row, o)
  local job = setmetatable({
    engine = engine,
    id = row.id,
    row = row,
    harness = harnesses.get(row.agent),
    provider = nil,      -- engine/provider.lua
    api_key = o.api_key, -- of the provider, where it came with the run
    values = o.values,   -- environment of the agent; nil: gone with the engine that had it
    secrets = {},        -- {name, value} of them
    redactor = nil,
    secrets_known = true, -- false: not even the box has them any more
    skipped = {},        -- names too short to mask
    box = nil,           -- BOX of the provider
    box_row = nil,
    box_gone = false,    -- the lease keeper was told so
    keeper = nil,        -- task
    watch_op = nil,      -- while the run is followed
    stopper = nil,       -- task of engine/stop.lua
    box_killed = false,  -- by us, because no supervisor answered
    lease_end_at = nil,
    arch = nil, box_path = nil, supervisor = nil, -- of the box, see launch.learn
    unstarted = false,   -- this engine has put the launch into the box, and nobody has started it yet
    home = nil,          -- in the box
    run_dir = nil,
    as_root = false,     -- the supervisor runs as root of the box
    reader = nil,        -- of the harness
    stopping = nil,      -- why a stop was asked: "cancel", "loop", "terminal"
    stop_sent = false,   -- the box has been told, or the box server is being told
    over = false,        -- nothing of the run goes on in its box
    began_ms = core.sys.now_ms(),
    task = nil,
  }, Job)
  job:set_secrets(secrets.list(o.values or {}, job.harness and job.harness.settings or {}))
  return job
end

--- What is masked from now on.
function Job:set_secrets(list)
  self.secrets = list
  self.redactor, self.skipped = secrets.redactor(list)
end

--- Has the state of the run looked at now instead of at the next tick.
function Job:poke()
  if self.watch_op then self.engine.watch:poke(self.watch_op) end
end

--- The error of a run that ends: state and reason of its row.
function Job:ends(state, reason, message)
  return err.new(reason or state, message, { final_state = state, reason = reason })
end

function Job:fence()
  return self.engine.fence
end

--- Between steps: a person may have asked for the end.
function Job:checkpoint()
  if self.row.cancel_asked then return nil, self:ends("cancelled", "cancelled", "cancelled before the agent started") end
  return true
end

--- A person asks for the end.
function Job:cancel()
  if self.row.cancel_asked and self.stopping == "cancel" then return end
  self.row.cancel_asked = true
  stop.ask(self, "cancel", 0)
end

-- A harmless request, repeated while its failure may pass.
local TRY_MS = 60000
local BACKOFF_MS = { 100, 250, 500, 1000, 2000, 4000 }

--- Calls fn() -> value | nil, err until it gives a value, a failure that stays, or time is up.
--- @async
function Job:try(fn)
  local deadline = core.sys.now_ms() + TRY_MS
  local n = 0
  while true do
    local value, e = fn()
    if value ~= nil then return value end
    if not provider.is_passing(e) or core.sys.now_ms() > deadline or self.box_gone then return nil, e end
    if e.code == "unreachable" then self.engine:server_lost(self.provider) end
    n = n + 1
    local pause = math.max(BACKOFF_MS[math.min(n, #BACKOFF_MS)], e.retry_after_ms or 0)
    local ok
    ok, e = self.engine.loop:sleep(math.min(pause, 30000))
    if not ok then return nil, e end
  end
end

--- Runs a program in the box to its end.
--- @async
--- @param o table of the verb exec, without box
--- @return table? result {exit, stdout, stderr}
--- @return crewbox.Error? err
function Job:exec(o)
  o.box = self.box
  return self:try(function() return self.engine.loop:await(self.provider.verbs:exec(o)) end)
end

-- ---- the way -----------------------------------------------------------------------------

local function open(job)
  if not job.harness then
    return nil, job:ends("failed", "start_failed", "this crewbox knows no agent " .. job.row.agent)
  end
  local e
  job.provider, e = job.engine:provider_for(job.row, job.api_key)
  if not job.provider then return nil, job:ends("lost", "box_lost", provider.words(e)) end
  return true
end

local function credentials(job)
  if job.row.state ~= "preparing" or job.values or #job.row.env_names == 0 then return true end
  return nil, job:ends("failed", "credentials_gone", ("the engine was restarted before the agent had started, and with it "
    .. "went the values of %s: start the run again"):format(table.concat(job.row.env_names, ", ")))
end

-- An agent that froze at its start gets a second launch, where its values are still there.
local function may_try_again(job, finish)
  return finish.state ~= nil and finish.state.why == "start_deadline" and job.row.launch_seq == 1 and
    not job.row.cancel_asked and (job.values ~= nil or #job.row.env_names == 0)
end

local function way(job)
  local ok, e = open(job)
  if not ok then return nil, e end
  if coordinator.stored(job) then return coordinator.accept(job) end

  fault.at("row_written")
  if not events.has(job, "run_started") then
    events.tell(job, "run_started", { agent = job.row.agent, title = job.row.title })
    for _, name in ipairs(job.skipped) do
      events.tell(job, "not_masked", { name = name, why = "its value is shorter than 8 bytes" })
    end
  end
  ok, e = credentials(job)
  if not ok then return nil, e end
  ok, e = job:checkpoint()
  if not ok then return nil, e end

  ok, e = box.acquire(job)
  if not ok then return nil, e end
  if job.row.state == "preparing" then
    ok, e = launch.put(job)
    if not ok then return nil, e end
  else
    ok, e = launch.learn(job)
    if not ok then return nil, e end
    if not job.values then
      job.secrets_known, e = launch.recall(job)
      if e then return nil, e end
    end
  end
  if job.row.state == "starting" then
    ok, e = launch.start(job)
  elseif job.row.launch_seq > 1 then
    ok, e = launch.start_once(job)
  end
  if not ok then return nil, e end
  if job.row.cancel_asked then job:cancel() end
  local finish
  finish, e = monitor.follow(job)
  if finish and may_try_again(job, finish) then
    ok, e = launch.again(job)
    if not ok then return nil, e end
    finish, e = monitor.follow(job)
  end
  if not finish then return nil, e end
  fault.at("finished_seen")
  return coordinator.settle(job, finish)
end

-- Whether an error ends the run. Once its agent has started, only what is certain does: a full
-- disk or a provider that does not answer says nothing about a run that may be finished.
local function is_the_end(job, e)
  if e.code == "fenced" or e.code == "closed" then return false end
  return e.final_state ~= nil or e.code == "box_lost" or job.row.state ~= "running"
end

-- The end of a run that did not come as far as its own end.
local function ended_early(job, e)
  local state, reason = e.final_state, e.reason
  if not state then
    state, reason = "failed", "start_failed"
    if e.code == "box_lost" then state, reason = "lost", "box_lost" end
  end
  if job.row.cancel_asked then state, reason = "cancelled", "cancelled" end
  return coordinator.refuse(job, state, reason, provider.words(e))
end

-- pcall of a step; a defect becomes an error like others, with its trace in the log.
local function guarded(job, step, ...)
  local ran, ok, e = pcall(step, job, ...)
  if ran then return ok, e end
  job.engine:log(("run %s: %s"):format(job.id, tostring(ok)))
  return nil, err.new("defect", "a defect of crewbox: " .. tostring(ok):match("^[^\n]*"))
end

--- Takes the run to its end. Returns when it is accepted, when another engine has it, or when
--- this engine closes.
--- @async
--- @return boolean accepted
--- @return crewbox.Error? err why it is not
function M.drive(job)
  local ok, e = guarded(job, way)
  local function closing() return job.task ~= nil and job.task.cancelled end
  -- A defect behind the start is tried again by the next who takes it, then it ends the run.
  local hopeless = e and e.code == "defect" and job.row.progress.defect
  if not ok and not closing() and (hopeless or is_the_end(job, e)) then
    if hopeless then e = job:ends("failed", "collect_failed", e.message) end
    ok, e = guarded(job, ended_early, e)
  elseif e and e.code == "defect" then
    local p = job.row.progress
    p.defect = true
    job.engine.store:run_progress(job.id, p, job.row.out_offset, job.row.err_offset, job:fence(), core.sys.wall())
  end
  job.over = true
  if job.keeper then job.keeper:cancel() end
  if job.stopper then job.stopper:cancel() end
  if ok == true and job.box_row and job.provider and not closing() then
    job.engine.loop:shield(function() box.kill(job.engine, job.provider, job.box_row) end)
  end
  return ok == true, e
end

return M
