-- SPDX-License-Identifier: MIT
-- The `crewbox engine` process: one a state folder, started on demand, gone a few seconds after
-- the last run is over. Start and leave happen under STATE/engine.lock, so that a run that is
-- handed over meets either an engine that stays or none.
local async = require "crewbox.async"
local config = require "crewbox.config"
local core = require "crewbox.core"
local endpoint = require "crewbox.engine.endpoint"
local engine = require "crewbox.engine"
local err = require "crewbox.err"
local fault = require "crewbox.engine.fault"
local paths = require "crewbox.paths"
local prepare = require "crewbox.engine.prepare"
local provider = require "crewbox.engine.provider"
local starter = require "crewbox.engine.starter"
local store = require "crewbox.store"

local M = {}

local LOCK_MS = 20000
local IDLE_MS = 3000

local function lock(loop, path)
  local deadline = core.sys.now_ms() + LOCK_MS
  while true do
    local held = core.sys.lock(path)
    if held then return held end
    if core.sys.now_ms() > deadline then
      return nil, err.new("busy", "another engine has been starting or leaving for too long: " .. path)
    end
    local ok, e = loop:sleep(20)
    if not ok then return nil, e end
  end
end

-- Waits until there has been nothing to do for a while, or somebody wants us to leave.
local function stay(eng, ep)
  local idle_since
  while not core.sys.interrupted() and not eng.dead and not ep.failed do
    local idle = eng:is_idle()
    local now = core.sys.now_ms()
    if not idle or ep.busy > 0 then
      idle_since = nil
    else
      idle_since = idle_since or now
      if now - idle_since >= IDLE_MS then return true end
    end
    eng.changed:wait(250)
  end
  return false
end

local function serve(eng, loop, lock_path, held, ready)
  while true do
    local ep, e = endpoint.serve(eng)
    if not ep then
      held:release()
      return nil, e
    end
    if ready then ready() end
    ready = nil
    held:release()
    local idle = stay(eng, ep)
    held, e = lock(loop, lock_path)
    ep.stop()
    core.sys.unlink(paths.engine_socket(eng.state))
    if not idle or not held then
      if held then held:release() end
      return not ep.failed, ep.failed or e
    end
    -- Nobody can reach us any more; what came in the last moment is seen here.
    if eng:is_idle() and ep.busy == 0 then return true, nil, held end
  end
end

local function run(o, loop, ready)
  local state, e = o.state
  if not state then
    state, e = paths.state()
    if not state then return nil, e end
  end
  local ok
  ok, e = prepare.state_folder(state)
  if not ok then return nil, e end
  ok, e = paths.check_socket(paths.engine_socket(state))
  if not ok then return nil, e end
  local held
  held, e = lock(loop, paths.engine_lock(state))
  if not held then return nil, e end
  local function out(...)
    held:release()
    return ...
  end
  local ctx = { loop = loop, io = loop.io, state = state }
  if starter.ask_running(ctx, { op = "status" }) then
    ready("ready: an engine runs already")
    return out(true)
  end
  core.sys.unlink(paths.engine_socket(state)) -- of one that was killed
  local settings
  settings, e = config.load { path = o.config }
  if not settings then return out(nil, e) end
  local db
  db, e = store.open(loop, paths.database(state))
  if not db then return out(nil, e) end
  local eng
  eng, e = engine.open { loop = loop, store = db, state = state, config = settings }
  if not eng then return out(nil, e) end
  eng:start()
  local still
  ok, e, still = serve(eng, loop, paths.engine_lock(state), held, function() ready("ready " .. paths.engine_socket(state)) end)
  eng:close()
  db:close()
  if still then still:release() end
  return ok, e
end

--- Runs the engine until it has nothing to do. Prints `ready SOCKET` once it can be asked.
--- @param o {state?: string, config?: string}?
--- @return number exit status
function M.main(o)
  local wanted, problem = pcall(fault.wanted)
  if not wanted then
    io.stderr:write("crewbox engine: ", tostring(problem), "\n")
    return 2
  end
  core.sys.catch_interrupt()
  local loop = async.new(core.io())
  local ok, e = loop:call(run, o or {}, loop, function(line)
    io.stdout:write(line, "\n")
    io.stdout:flush()
  end)
  loop.io:close()
  if not ok then
    io.stderr:write("crewbox engine: ", provider.words(e), "\n")
    return 1
  end
  return 0
end

return M
