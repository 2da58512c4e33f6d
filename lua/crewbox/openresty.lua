-- SPDX-License-Identifier: MIT
-- crewbox in nginx: one engine in each worker, all on one state folder, each run with one of them.
--
--   init_worker_by_lua_block { gateway = assert(require "crewbox.openresty".open { state = "/var/lib/mine" }) }
--   content_by_lua_block {
--     local run, err = gateway:run { agent = "command", brief = "make check", no_repo = true }
--     ngx.say(run and run.id or tostring(err))
--   }
--
-- A worker that leaves (reload, quit) hands its runs to the workers that stay or come, at once. One
-- that is killed loses none: the others find its runs within seconds.
local async = require "crewbox.async"
local config = require "crewbox.config"
local core = require "crewbox.core"
local crewbox = require "crewbox"
local err = require "crewbox.err"
local hosts = require "crewbox.hosts.openresty"
local paths = require "crewbox.paths"
local prepare = require "crewbox.engine.prepare"

local M = {}

local Gateway = {}
Gateway.__index = Gateway

local READY_S = 10        -- a request waits so long for the store to be open
local LOCK_MS = 20        -- between two tries for the lock
local RETRY_MS = 2000     -- after an opening that failed
local LOOK_MS = 1000      -- between two looks whether others have declared the engine dead
local PREPARING_MS = 5000 -- runs that are being prepared when the worker leaves
local STARTING_MS = 30000 -- runs whose values only this worker has

local function log(line) ngx.log(ngx.NOTICE, "crewbox: ", line) end

-- Opens the engine. One worker after the other: the first one makes the tables.
local function try_open(gateway)
  local held, e = core.sys.lock(gateway.options.state .. "/open.lock")
  if not held then return nil, e end
  local ran, engine, why = pcall(crewbox.open, gateway.options)
  held:release()
  if not ran then return nil, err.new("system", "a defect of crewbox: " .. tostring(engine)) end
  return engine, why
end

local function opened(gateway)
  while not gateway.leaving do
    local engine, e = try_open(gateway)
    if engine then
      gateway.engine, gateway.problem = engine, nil
      gateway.changed:fire()
      return engine
    end
    if e.code ~= "busy" then
      gateway.problem = e
      ngx.log(ngx.ERR, "crewbox: the engine cannot be opened: ", tostring(e))
    end
    if not gateway.loop:sleep(e.code == "busy" and LOCK_MS or RETRY_MS) then return nil end
  end
end

-- Opens it, and again after a worker that stood still for a minute has lost its runs to others.
local function keep_open(gateway)
  local engine = opened(gateway)
  while engine and not gateway.leaving do
    if engine.inner.dead then
      gateway.engine = nil
      engine:close()
      engine = opened(gateway)
    elseif not gateway.loop:sleep(LOOK_MS) then
      return
    end
  end
end

--- Makes the engine of this worker. Returns at once; what waits (the store, its tables) follows
--- while nginx serves, and the first requests wait for it. For init_worker_by_lua.
--- @param o {state?: string, config?: string|table, environ?: table<string, string>,
---   on_event?: fun(event: table), log?: fun(line: string)}?  as crewbox.open
--- @return table? gateway
--- @return crewbox.Error? err what is wrong with the configuration or the state folder
function M.open(o)
  if ngx.get_phase() == "init" then
    error("crewbox.openresty.open belongs into init_worker_by_lua: what init_by_lua starts is dead in the workers", 2)
  end
  o = o or {}
  local environ = o.environ or core.sys.environ()
  local state, e = o.state
  if not state then
    state, e = paths.state(environ)
    if not state then return nil, e end
  end
  local ok
  if type(o.config) == "table" then
    ok, e = config.check(o.config, { env = environ })
  else
    ok, e = config.load { path = o.config, env = environ }
  end
  if not ok then return nil, e end
  ok, e = prepare.state_folder(state)
  if not ok then return nil, e end

  local io
  io, e = core.io()
  if not io then return nil, e end
  local host = hosts.new(io, state)
  local loop = async.new(io, host)
  loop.on_error = function(traceback) ngx.log(ngx.ERR, "crewbox: ", traceback) end
  local gateway = setmetatable({
    loop = loop,
    host = host,
    options = { state = state, config = o.config, environ = environ, on_event = o.on_event, log = o.log or log, loop = loop },
    engine = nil,      -- of init.lua, once it is open
    problem = nil,     -- why the last opening failed
    changed = loop:signal(),
    working = 0,       -- calls that must not be cut off
    leaving = false,
  }, Gateway)
  host.leaving = function() loop:spawn(gateway.leave, gateway) end
  local started, why = host:start()
  if not started then
    io:close()
    return nil, err.new("system", "nginx has no timer for the engine: " .. tostring(why))
  end
  loop:spawn(keep_open, gateway)
  return gateway
end

local function left() return err.new("closed", "this worker is leaving: ask again") end

--- The engine, as soon as it is open.
--- @param timeout_s number? default 10
--- @return table? engine of crewbox.open: run, get, runs
--- @return crewbox.Error? err `closed`: the worker is leaving; else why it cannot be opened
--- @async
function Gateway:ready(timeout_s)
  if self.leaving then return nil, left() end
  if self.engine then return self.engine end
  local deadline = core.sys.now_ms() + (timeout_s or READY_S) * 1000
  return self.loop:call(function()
    while not self.engine do
      local ms = deadline - core.sys.now_ms()
      if self.leaving then break end
      if ms <= 0 then return nil, self.problem or err.new("timeout", "the engine is not open yet") end
      local ok, e = self.changed:wait(ms)
      if not ok and e.code == "cancelled" then return nil, e end
    end
    if self.leaving then return nil, left() end
    return self.engine
  end)
end

-- A call on the engine as a task: it goes on to its end when the client of the request hangs up.
local function call(self, fn)
  if self.leaving then return nil, left() end
  return self.loop:call(function()
    local engine, e = self:ready()
    if not engine then return nil, e end
    self.working = self.working + 1
    local ok, value, why = pcall(fn, engine)
    self.working = self.working - 1
    if not ok then error(value, 0) end
    return value, why
  end)
end

--- Starts a run; see Engine:run. Its id stands once this has returned: no reload loses it.
--- @return table? run with id, row, wait, result, cancel, events
--- @return crewbox.Error? err
--- @async
function Gateway:run(request)
  return call(self, function(engine) return engine:run(request) end)
end

--- A run of the state folder by id, whichever worker has it.
--- @return table? run
--- @return crewbox.Error? err `not_found`
--- @async
function Gateway:get(id)
  return call(self, function(engine) return engine:get(id) end)
end

--- Rows of runs, newest first; see Engine:runs.
--- @async
function Gateway:runs(o)
  return call(self, function(engine) return engine:runs(o) end)
end

--- Claims nothing more, hands over what it has and ends every task. nginx's end of a worker calls it.
--- @async
function Gateway:leave()
  if self.leaving then return end
  self.leaving = true
  self.changed:fire()
  local deadline = core.sys.now_ms() + PREPARING_MS
  while self.working > 0 and core.sys.now_ms() < deadline do self.loop:sleep(10) end
  if self.engine then
    self.engine.inner:hand_over(STARTING_MS)
    self.engine:close()
  end
  for _, task in pairs(self.loop.tasks) do task:cancel() end
end

return M
