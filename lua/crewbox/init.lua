-- SPDX-License-Identifier: MIT
-- crewbox for Lua programs: an engine within the process. Runs it starts go on in their boxes when
-- it closes, and the next engine of the same state folder, here or `crewbox engine`, takes them on.
--
--   local crewbox = require "crewbox"
--   local engine = assert(crewbox.open { state = "/var/lib/mine" })
--   local run = assert(engine:run { agent = "command", brief = "make check", repo = "." })
--   local over = assert(run:wait())
--   print(over.state, run:result().findings)
--   engine:close()
--
-- Functions that wait may be called from a task of the engine's loop (engine.loop:spawn) or from
-- plain code, where they drive the loop: other runs go on meanwhile, and only then.
local async = require "crewbox.async"
local client = require "crewbox.engine.client"
local config = require "crewbox.config"
local core = require "crewbox.core"
local engine = require "crewbox.engine"
local err = require "crewbox.err"
local events = require "crewbox.engine.events"
local paths = require "crewbox.paths"
local prepare = require "crewbox.engine.prepare"
local provider = require "crewbox.engine.provider"
local store = require "crewbox.store"

local M = { version = core.version }

local Engine = {}
Engine.__index = Engine
local Run = {}
Run.__index = Run

-- ---- opening ------------------------------------------------------------------------------

local function settings_of(o, environ)
  if type(o.config) == "table" then return config.check(o.config, { env = environ }) end
  return config.load { path = o.config, env = environ }
end

--- Opens an engine on a state folder.
--- @param o {state?: string, config?: string|table, loop?: table, environ?: table<string, string>,
---   on_event?: fun(event: table)}?
---   config: a path or a table; loop: of crewbox.async, for a host with a loop of its own
--- @return table? engine
--- @return crewbox.Error? err
function M.open(o)
  o = o or {}
  local environ = o.environ or core.sys.environ()
  local state, settings, e = o.state
  if not state then
    state, e = paths.state(environ)
    if not state then return nil, e end
  end
  settings, e = settings_of(o, environ)
  if not settings then return nil, e end
  local ok
  ok, e = prepare.state_folder(state)
  if not ok then return nil, e end

  local loop = o.loop or async.new(core.io())
  local self = setmetatable({
    loop = loop,
    io = loop.io,
    own_io = o.loop == nil,
    state = state,
    environ = environ,
    config = settings,
    store = nil,
    inner = nil,   -- engine/init.lua
    closed = false,
  }, Engine)
  local function fail(why)
    if self.store then self.store:close() end
    if self.own_io then self.io:close() end
    return nil, why
  end
  self.store, e = loop:call(store.open, loop, paths.database(state))
  if not self.store then return fail(e) end
  self.inner, e = loop:call(engine.open, {
    loop = loop, store = self.store, state = state, config = settings, environ = environ, on_event = o.on_event,
    log = o.log,
  })
  if not self.inner then return fail(e) end
  self.inner:start()
  return self
end

local function run_of(self, id)
  return setmetatable({ engine = self, id = id }, Run)
end

--- Starts a run. Everything that can be wrong is said before anything is spent.
--- @param request table {brief, repo | no_repo = true, agent?, model?, env? = {"NAME"} or {K = V},
---   title?, timeout_s?, options?}
--- @return table? run
--- @return crewbox.Error? err
--- @async
function Engine:run(request)
  if self.closed then return nil, err.new("closed", "the engine is closed") end
  return self.loop:call(function()
    local sandbox = self.config.providers.sandbox
    local p, prepared, job, e
    p, e = self.inner:provider_for { options = { provider = sandbox.type, generation = provider.generation(sandbox) } }
    if not p then return nil, e end
    self.provider = p
    prepared, e = prepare.run(self, request)
    if not prepared then return nil, e end
    job, e = self.inner:adopt(prepared.id, { values = prepared.values, from = prepared.claim })
    if not job then
      prepare.undo(self, prepared)
      return nil, e
    end
    return run_of(self, prepared.id)
  end)
end

--- A run of this state folder by id.
--- @return table? run
--- @return crewbox.Error? err `not_found`
--- @async
function Engine:get(id)
  local row, e = self.loop:call(self.store.find_run, self.store, id)
  if not row then return nil, e end
  return run_of(self, row.id)
end

--- Rows of runs, newest first.
--- @param o {limit?: number, active?: boolean}?
--- @async
function Engine:runs(o)
  return self.loop:call(self.store.runs, self.store, o)
end

--- Stops claiming, lets go of every run, and releases what the engine holds. Runs go on.
function Engine:close()
  if self.closed then return end
  self.closed = true
  self.loop:call(self.inner.close, self.inner)
  self.store:close()
  if self.own_io then self.io:close() end
end

-- ---- runs ---------------------------------------------------------------------------------

--- Its row as it is now.
--- @return table? row
--- @return crewbox.Error? err
--- @async
function Run:row()
  return self.engine.loop:call(self.engine.store.run, self.engine.store, self.id)
end

local POLL_MS = 1000 -- for runs that another engine has

--- Waits for the end.
--- @param timeout_s number? default: for ever
--- @return table? row the final one
--- @return crewbox.Error? err `timeout`
--- @async
function Run:wait(timeout_s)
  local e = self.engine
  return e.loop:call(function()
    local deadline = timeout_s and core.sys.now_ms() + timeout_s * 1000
    while true do
      local row, why = e.store:run(self.id)
      if not row then return nil, why or err.new("not_found", "the run is gone") end
      if row.accepted_at then return row end
      local left = deadline and deadline - core.sys.now_ms()
      if left and left <= 0 then return nil, err.new("timeout", "the run is not over yet") end
      local ms = left and math.min(POLL_MS, left) or POLL_MS
      local job = e.inner.jobs[self.id]
      local ok
      if job and job.task then
        ok, why = job.task:join(ms)
      else
        ok, why = e.loop:sleep(ms)
      end
      if not ok and why and why.code == "cancelled" then return nil, why end
    end
  end)
end

--- What came of it.
--- @return {run, outcome, findings?: string, patch?: string}? result patch: path of the patch file
--- @return crewbox.Error? err `conflict`: it is not over
--- @async
function Run:result()
  local row, e = self:row()
  if not row then return nil, e end
  return client.result_of(self.engine.state, row)
end

--- Asks for its end; `wait` tells when it has come.
--- @return boolean? asked false when it is over already
--- @return crewbox.Error? err
--- @async
function Run:cancel()
  local e = self.engine
  return e.loop:call(function()
    local asked, why = e.store:ask_cancel(self.id, core.sys.wall())
    if asked then e.inner:cancel(self.id) end
    return asked, why
  end)
end

local PIECE = 256 * 1024

--- What its agent printed so far, masked, piece by piece: `for bytes in run:log() do`.
--- @param stream "out"|"err"|nil  default: out
function Run:log(stream)
  local file = io.open(paths.run_file(self.engine.state, self.id, (stream or "out") .. ".log"), "rb")
  return function()
    local bytes = file and file:read(PIECE)
    if not bytes and file then
      file:close()
      file = nil
    end
    return bytes
  end
end

--- What happened to it so far, oldest first.
--- @return table[] events
function Run:events()
  return events.read(self.engine.state, self.id)
end

return M
