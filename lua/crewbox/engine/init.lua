-- SPDX-License-Identifier: MIT
-- An engine: it claims runs of one state folder and takes each to its end. The `crewbox engine`
-- process holds one, and so does a Lua host that calls crewbox.open; several may share a folder,
-- each run has one of them, and what a dead one had goes to another.
local config = require "crewbox.config"
local core = require "crewbox.core"
local err = require "crewbox.err"
local job = require "crewbox.engine.job"
local local_server = require "crewbox.engine.local_server"
local provider = require "crewbox.engine.provider"
local recovery = require "crewbox.engine.recovery"

local M = {}

local Engine = {}
Engine.__index = Engine

local RENEW_MS = 5000
local SWEEP_MS = 2000
local LATER_MS = 10000 -- until a run that was put off is tried again

--- @param o {loop, store, state, config, environ?, on_event?, log?}
---   on_event(event, job): called with each event of a run, already masked
---   log(line): where words for an operator go
--- @return table? engine
--- @return crewbox.Error? err
--- @async
function M.open(o)
  local owner = "e" .. core.sys.random_id(12)
  local watch, e = core.watch(o.loop.io, { max_parallel = 64 })
  if not watch then return nil, e end
  local epoch
  epoch, e = o.store:add_engine(owner, core.sys.wall())
  if not epoch then return nil, e end
  return setmetatable({
    loop = o.loop,
    io = o.loop.io,
    store = o.store,
    state = o.state,
    config = o.config,
    environ = o.environ, -- nil: the process's
    now_ms = core.sys.now_ms,
    watch = watch,
    fence = { owner = owner, epoch = epoch },
    arch = M.arch(),
    on_event = o.on_event,
    write_log = o.log or function(line) io.stderr:write("crewbox engine: ", line, "\n") end,
    jobs = {},         -- run id -> job
    providers = {},    -- kind:generation -> provider
    old_providers = {}, -- replaced by ones with a newer key
    unfit = {},        -- ids of runs whose provider today's settings do not reach
    killing = {},      -- box id -> true
    later = {},        -- run id -> when it may be tried again
    tasks = {},        -- the engine's own
    running = 0,       -- background work in flight
    changed = o.loop:signal(), -- a job began or ended
    sweep_now = o.loop:signal(),
    restoring = false, -- the box server is being looked after
    retired = false,   -- takes no more runs
    closing = false,
    dead = false,      -- another engine declared us dead; until `rejoin`
  }, Engine)
end

--- Architecture of this machine, as `uname -m` says it: of the supervisor that came with it.
function M.arch()
  local bytes = core.sys.read_file("/proc/sys/kernel/arch", 64)
  if bytes then return bytes:match("%S+") end
  -- Before Linux 6.1: the ELF header of our own program names its machine.
  local f = io.open("/proc/self/exe", "rb")
  local head = f and f:read(20) or ""
  if f then f:close() end
  local machine = #head == 20 and head:byte(19) + 256 * head:byte(20)
  return machine == 62 and "x86_64" or machine == 183 and "aarch64" or "unknown"
end

function Engine:log(line)
  self.write_log((line:gsub("%c", " ")))
end

function Engine:publish(of, event)
  if self.on_event then self.on_event(event, of) end
end

-- Work that nobody waits for; a defect in it is told and ends nothing else.
function Engine:background(fn)
  self.running = self.running + 1
  self.loop:spawn(function()
    local ok, message = pcall(fn)
    self.running = self.running - 1
    if not ok then self:log(tostring(message)) end
    self.changed:fire()
  end)
end

-- ---- providers ------------------------------------------------------------------------------

--- The provider a row was made with. Settings of today with another generation do not fit: its
--- boxes would not be found there.
--- @param row table with options.provider, options.generation, options.config
--- @param key string? api key that came with the run
--- @return table? provider
--- @return crewbox.Error? err
function Engine:provider_for(row, key)
  local o = row.options
  local id = ("%s:%s"):format(o.provider or "", o.generation or "")
  local known = self.providers[id]
  if known and (not key or not known.remote or known.sandbox.api_key == key) then return known end
  local candidates = { self.config }
  if o.config then
    local loaded = config.load { path = o.config }
    if loaded then candidates[#candidates + 1] = loaded end
  end
  for _, c in ipairs(candidates) do
    local sandbox = c.providers.sandbox
    if provider.generation(sandbox) == o.generation then
      local settings = sandbox
      if key then settings = setmetatable({ api_key = key }, { __index = sandbox }) end
      local p, e = provider.open(self, settings)
      if not p then return nil, e end
      -- Runs that began with another key go on with it.
      if known then self.old_providers[#self.old_providers + 1] = known end
      self.providers[id] = p
      return p
    end
  end
  return nil, err.new("conflict", "the provider settings have changed since this run was made")
end

--- Somebody found that the server of local boxes does not answer: bring it back, once at a time.
function Engine:server_lost(p)
  if not p.own_server or self.restoring or self.closing then return end
  self.restoring = true
  self:background(function()
    local ok, e = local_server.ensure(self, p)
    self.restoring = false
    if not ok then self:log("the box server: " .. provider.words(e)) end
  end)
end

-- ---- runs -----------------------------------------------------------------------------------

--- Takes a run and works on it in a task of its own.
--- @param o {values?, from?: string, api_key?, anyway?: boolean}  anyway: also without a provider
--- @return table? job
--- @return crewbox.Error? err `already_claimed`
--- @async
function Engine:adopt(id, o)
  if self.closing or self.dead or self.retired then return nil, err.new("closed", "the engine is leaving") end
  if self.jobs[id] then return self.jobs[id] end
  local row, e = self.store:claim_run(id, self.fence, core.sys.wall(), o.from)
  if not row then return nil, e end
  local p
  p, e = self:provider_for(row, o.api_key)
  if not p and not o.anyway then
    self.store:release_run(id, self.fence) -- whoever has the right settings may take it
    return nil, e
  end
  local j = job.new(self, row, o)
  self.jobs[id] = j
  j.task = self.loop:spawn(function()
    local ran, accepted, why = pcall(job.drive, j)
    if not ran then self:log(("run %s: %s"):format(id, tostring(accepted))) end
    if not (ran and accepted) and not self.closing and not self.dead then self:put_off(id, why) end
    self.jobs[id] = nil
    self.changed:fire()
  end)
  self.changed:fire()
  return j
end

-- A run that could not be brought to its end now: anybody may try again, we in a while.
function Engine:put_off(id, why)
  if why and why.code == "fenced" then return end
  if why then self:log(("run %s is put off: %s"):format(id, provider.words(why))) end
  self.later[id] = self.now_ms() + LATER_MS
  self.store:release_run(id, self.fence)
end

function Engine:cancel(id)
  local j = self.jobs[id]
  if not j then return false end
  j:cancel()
  return true
end

--- Whether there is anything to do.
--- @async
--- @return boolean? idle
--- @return crewbox.Error? err
function Engine:is_idle()
  if next(self.jobs) or next(self.killing) or self.running > 0 then return false end
  local runs, e = self.store:count_active()
  if not runs then return nil, e end
  for _ in pairs(self.unfit) do runs = runs - 1 end
  if runs > 0 then return false end
  local boxes
  boxes, e = self.store:boxes_to_kill(self.fence.owner)
  if not boxes then return nil, e end
  return #boxes == 0
end

-- ---- life -----------------------------------------------------------------------------------

-- Declared dead: what was ours belongs to others now. Once nothing of ours goes on any more, we
-- begin again as a new engine; before, a late write would carry the new epoch and get through.
local function rejoin(engine)
  if next(engine.jobs) or next(engine.killing) then return end
  local owner = "e" .. core.sys.random_id(12)
  local epoch, e = engine.store:add_engine(owner, core.sys.wall())
  if not epoch then
    engine:log("cannot begin again: " .. provider.words(e))
    return
  end
  engine.fence, engine.dead = { owner = owner, epoch = epoch }, false
  engine.sweep_now:fire()
end

local function beat(engine)
  while engine.loop:sleep(RENEW_MS) do
    if engine.dead then
      rejoin(engine)
    else
      local ok, e = engine.store:renew_engine(engine.fence.owner, core.sys.wall())
      if not ok and e.code == "fenced" then
        engine:log("another engine took over while this one did not answer")
        engine:abandon()
      end
    end
  end
end

local function sweep(engine)
  repeat
    local ok, e = true, nil
    if not engine.dead then ok, e = recovery.sweep(engine) end
    if not ok and e.code ~= "cancelled" then engine:log("sweep: " .. provider.words(e)) end
    local woken, why = engine.sweep_now:wait(SWEEP_MS)
  until not woken and why.code ~= "timeout"
end

--- Has the next sweep begin now.
function Engine:sweep_soon()
  self.sweep_now:fire()
end

--- Begins to renew its lease and to sweep.
function Engine:start()
  self.tasks = { self.loop:spawn(beat, self), self.loop:spawn(sweep, self) }
end

--- Stops working on everything, at once; rows and boxes stay as they are.
function Engine:abandon()
  self.dead = true
  for _, j in pairs(self.jobs) do j.task:cancel() end
  self.changed:fire()
end

local LEAVE_MS = 5000

--- Takes no more runs; those it has go on.
function Engine:retire()
  if self.retired then return end
  self.retired = true
  if self.tasks[2] then self.tasks[2]:cancel() end -- the sweep
end

-- The tasks of a run end; the run goes on in its box.
local function stop_working(j)
  for _, task in ipairs { j.task or false, j.keeper or false, j.stopper or false } do
    if task then task:cancel() end
  end
end

-- Whether only this process knows what the agent is to be started with.
local function holds_values(j)
  return j.row.state == "preparing" and #j.row.env_names > 0 and j.values ~= nil
end

--- Lets go of every run that another engine can go on with, now; with the others, which would end
--- as `credentials_gone`, as soon as their agents are started, or when the time is over.
--- @async
function Engine:hand_over(timeout_ms)
  self:retire()
  local deadline = core.sys.now_ms() + timeout_ms
  repeat
    local waits = false
    for id, j in pairs(self.jobs) do
      if holds_values(j) then
        waits = true
      elseif not j.let_go then
        j.let_go = true
        self.loop:spawn(function()
          stop_working(j)
          j.task:join(LEAVE_MS)
          self.store:release_run(id, self.fence)
        end)
      end
    end
    if waits then self.changed:wait(50) end
  until not waits or core.sys.now_ms() > deadline
end

--- Stops claiming, lets go of its runs and releases what it holds. Runs go on in their boxes.
--- @async
function Engine:close()
  if self.closing then return end
  self.closing = true
  for _, task in ipairs(self.tasks) do task:cancel() end
  local ended = {}
  for _, j in pairs(self.jobs) do
    if j.task then
      stop_working(j)
      ended[#ended + 1] = j.task
    end
  end
  for _, task in ipairs(ended) do task:join(LEAVE_MS) end
  self.store:drop_engine(self.fence.owner)
  for _, list in ipairs { self.providers, self.old_providers } do
    for _, p in pairs(list) do provider.close(p) end
  end
  self.watch = nil
end

return M
