-- SPDX-License-Identifier: MIT
-- What a person's program does with a state folder: prepares runs and hands them to the engine
-- process, looks at them, cancels them, reads their logs and results. It does no work of a run
-- itself: closing a client, or killing it, leaves every run going.
local config = require "crewbox.config"
local core = require "crewbox.core"
local async = require "crewbox.async"
local err = require "crewbox.err"
local paths = require "crewbox.paths"
local prepare = require "crewbox.engine.prepare"
local provider = require "crewbox.engine.provider"
local starter = require "crewbox.engine.starter"
local store = require "crewbox.store"

local M = {}

local Client = {}
Client.__index = Client

local POLL_MS = 150      -- between looks at the store
local NUDGE_S = 1        -- between two tries to wake an engine
local CHUNK = 256 * 1024 -- of a log, at a time

--- @param o {state?: string, config?: string|table, loop?: table, environ?: table}
---   config: a path, or a configuration as a table; default: where config/find.lua looks
--- @return table? client
--- @return crewbox.Error? err
function M.open(o)
  o = o or {}
  local environ = o.environ or core.sys.environ()
  local state, settings, e = o.state
  if not state then
    state, e = paths.state(environ)
    if not state then return nil, e end
  end
  if type(o.config) == "table" then
    settings, e = config.check(o.config, { env = environ })
  else
    settings, e = config.load { path = o.config, env = environ }
  end
  if not settings then return nil, e end
  local ok
  ok, e = prepare.state_folder(state)
  if not ok then return nil, e end
  ok, e = paths.check_socket(paths.engine_socket(state))
  if not ok then return nil, e end

  local loop = o.loop or async.new(core.io())
  local client = setmetatable({
    loop = loop,
    io = loop.io,
    own_io = o.loop == nil,
    state = state,
    environ = environ,
    config = settings,
    config_path = settings.source and core.sys.realpath(settings.source) or nil,
    provider = nil, -- opened with the first run
    store = nil,
  }, Client)
  client.store, e = loop:call(store.open, loop, paths.database(state))
  if not client.store then
    client:close()
    return nil, e
  end
  return client
end

--- Releases what the client holds. Runs go on.
function Client:close()
  if self.provider then provider.close(self.provider) end
  if self.store then self.store:close() end
  self.provider, self.store = nil, nil
  if self.own_io then self.io:close() end
end

-- A method that waits can be called from a task of the loop and from plain code alike.
local function waiting(fn)
  return function(self, ...) return self.loop:call(fn, self, ...) end
end

local function hand_over(self, prepared)
  local key = self.config.providers.sandbox.api_key
  local _, e = starter.ask(self, {
    op = "run", id = prepared.id, claim = prepared.claim, env = prepared.values,
    api_key = key ~= "" and key or nil, config = self.config_path,
  })
  if not e then return prepared.id end
  -- Taken all the same, by an engine that died before it could say so: the next one goes on.
  local row = self.store:run(prepared.id)
  if row and row.epoch then return prepared.id end
  prepare.undo(self, prepared)
  return nil, e
end

--- Starts a run: checks, freezes the tree, writes the row, hands it to the engine (started when
--- it is not there).
--- @param request table see prepare.run
--- @return string? id
--- @return crewbox.Error? err one line that says what to do; nothing was spent
Client.run = waiting(function(self, request)
  local e
  if not self.provider then
    self.provider, e = provider.open(self, self.config.providers.sandbox)
    if not self.provider then return nil, e end
  end
  local prepared
  prepared, e = prepare.run(self, request)
  if not prepared then return nil, e end
  -- From here on the run is handed over or taken back, whatever becomes of who waits.
  return self.loop:shield(hand_over, self, prepared)
end)

--- The run of an id, of the beginning of one, or "last".
--- @return table? run
--- @return crewbox.Error? err `not_found`, `invalid`
Client.find = waiting(function(self, word) return self.store:find_run(word) end)

--- Newest first.
--- @param o {limit?: number, active?: boolean}?
--- @return table[]? runs
--- @return crewbox.Error? err
Client.list = waiting(function(self, o) return self.store:runs(o) end)

--- Whether a row of a run is over for good.
function M.is_over(run) return run.accepted_at ~= nil end

--- Asks for the end of a run.
--- @return boolean? asked false when it is over already
--- @return crewbox.Error? err
Client.cancel = waiting(function(self, id)
  local asked, e = self.store:ask_cancel(id, core.sys.wall())
  if not asked then return asked, e end
  local _
  _, e = starter.ask(self, { op = "cancel", id = id })
  if e then return nil, e end
  return true
end)

-- Whether an engine that may have this run, or could take it, lives. On this host that can be
-- seen; elsewhere its lease tells.
local function is_looked_after(self, run, now)
  local host = core.sys.hostname()
  for _, e in ipairs(self.store:engines() or {}) do
    local mine = run.claim_owner == nil or run.claim_owner == e.owner
    if mine and e.expires_at > now and (e.host ~= host or core.sys.alive(e.pid, e.pid_start)) then return true end
  end
  -- A client that is about to hand it over has it for a moment.
  return run.claim_owner ~= nil and run.epoch == nil and (run.claim_until or 0) > now
end

-- Wakes an engine for a run whose engine died. Not at once: a new engine needs a moment to take it.
local function nudge(self, run)
  local now = core.sys.wall()
  if run.accepted_at or (self.nudged or 0) > now - NUDGE_S then return end
  if is_looked_after(self, run, now) then return end
  self.nudged = now
  starter.ask(self, { op = "wake" })
end

-- The run is over but its box is not, and no engine lives to kill it: wake one.
local function tidy(self, run)
  local box = run.box_id and self.store:box(run.box_id)
  if not box or box.state == "gone" then return end
  if is_looked_after(self, { claim_owner = nil }, core.sys.wall()) then return end
  starter.ask(self, { op = "wake" })
end

local next_change = waiting(function(self, watch, timeout_s)
  local deadline = timeout_s and core.sys.now_ms() + timeout_s * 1000
  while true do
    local run, e = self.store:run(watch.id)
    if not run then return nil, e or err.new("not_found", "the run is gone") end
    if run.updated_at ~= watch.seen or run.accepted_at then
      watch.seen = run.updated_at
      if run.accepted_at then tidy(self, run) end
      return run
    end
    if core.sys.interrupted() then return nil, err.new("cancelled", "interrupted") end
    nudge(self, run)
    if deadline and core.sys.now_ms() >= deadline then return nil, err.new("timeout", "the run is not over yet") end
    local ok
    ok, e = self.loop:sleep(POLL_MS)
    if not ok then return nil, e end
  end
end)

--- Follows a run. `watch:next(timeout_s?)` gives its row whenever it has changed, first at once,
--- and nil after the final one; or nil and `timeout`, or `cancelled` after a Ctrl-C that was
--- caught (core.sys.catch_interrupt).
function Client:watch(id)
  local client = self
  local watch = { id = id, seen = nil, over = false }
  function watch.next(_, timeout_s)
    if watch.over then return nil end
    local run, e = next_change(client, watch, timeout_s)
    if run and run.accepted_at then watch.over = true end
    return run, e
  end
  return watch
end

--- Waits for the end of a run.
--- @return table? run its final row
--- @return crewbox.Error? err `timeout`, `cancelled`
function Client:wait(id, timeout_s)
  local deadline = timeout_s and core.sys.now_ms() + timeout_s * 1000
  local watch = self:watch(id)
  while true do
    local run, e = watch:next(deadline and math.max(0, (deadline - core.sys.now_ms()) / 1000))
    if not run then return nil, e end
    if watch.over then return run end
  end
end

--- The stored, redacted log of a run, piece by piece: `for bytes in client:log(id, o)`. With
--- `follow` it goes on until the run is over, or a caught Ctrl-C.
--- @param o {stream?: "out"|"err", follow?: boolean, from?: number}?
function Client:log(id, o)
  o = o or {}
  local path = paths.run_file(self.state, id, (o.stream or "out") .. ".log")
  local at, over = o.from or 0, not o.follow
  local step = waiting(function(client)
    while true do
      local file = io.open(path, "rb")
      local bytes
      if file then
        file:seek("set", at)
        bytes = file:read(CHUNK)
        file:close()
      end
      if bytes then
        at = at + #bytes
        return bytes
      end
      if over then return nil end
      if core.sys.interrupted() then return nil end
      local run = client.store:run(id)
      if not run or run.accepted_at then
        over = true -- once more, for what came before the end
      else
        nudge(client, run)
        if not client.loop:sleep(POLL_MS) then return nil end
      end
    end
  end)
  return function() return step(self) end
end

--- What came of a run that is over.
--- @return {run: table, outcome: table, findings: string?, patch: string?}? result  patch: its path
--- @return crewbox.Error? err `conflict`: it is not over
function Client:result(id)
  local run, e = self:find(id)
  if not run then return nil, e end
  return M.result_of(self.state, run)
end

--- @param state string
--- @param run table a row
function M.result_of(state, run)
  if not run.accepted_at then
    return nil, err.new("conflict", ("the run %s is not over: `crewbox wait %s`"):format(run.id, run.id))
  end
  local patch = paths.run_file(state, run.id, "patch")
  return {
    run = run,
    outcome = run.outcome,
    findings = core.sys.read_file(paths.run_file(state, run.id, "findings.md"), 16 * 1024 * 1024),
    patch = core.sys.stat(patch) and patch or nil,
  }
end

return M
