-- SPDX-License-Identifier: MIT
-- crewboxd for local boxes: is it there, else start it; and the templates that put an installed
-- agent into a box. A server whose socket the configuration names is somebody else's to start.
local agents = require "crewbox.agents"
local core = require "crewbox.core"
local err = require "crewbox.err"
local json = require "crewbox.json"
local paths = require "crewbox.paths"

local M = {}

local START_MS = 20000   -- the first start makes the base layer of boxes
local POLL_MS = 50
local HEALTH_MS = 5000

-- One look. The verb of the provider tries several times, which only delays the start of a server
-- that is not there.
local function health(ctx, provider)
  if provider.remote then return ctx.loop:await(provider.verbs:health {}, HEALTH_MS) end
  local answer, e = ctx.loop:await(ctx.loop.io:http {
    url = "http://localhost/health", unix_socket = provider.socket, timeout_ms = HEALTH_MS, connect_timeout_ms = HEALTH_MS,
  })
  if not answer then return nil, e end
  local value = json.decode(answer.body)
  if answer.status ~= 200 or type(value) ~= "table" or not value.server then
    return nil, err.new("protocol", ("what answers at %s is not crewboxd"):format(provider.socket))
  end
  return value
end

-- The last words of the server's log, for the error of a start that failed.
local function last_words(path)
  local bytes = core.sys.read_file(path, 1024 * 1024)
  local last
  for line in (bytes or ""):gmatch("[^\n]+") do last = line end
  return last and ": " .. last:gsub("%c", " "):sub(1, 300) or ""
end

--- What the server gets of an environment: it relays for boxes and needs nobody's keys.
function M.environment(environ)
  environ = environ or core.sys.environ()
  local env = {}
  for _, name in ipairs { "PATH", "HOME", "USER", "LOGNAME", "LANG", "TMPDIR", "TZ", "XDG_RUNTIME_DIR", "XDG_CACHE_HOME",
    "XDG_STATE_HOME", "XDG_DATA_HOME", "DBUS_SESSION_BUS_ADDRESS", "ASAN_OPTIONS", "LSAN_OPTIONS", "UBSAN_OPTIONS" } do
    env[name] = environ[name]
  end
  for name, value in pairs(environ) do
    if name:find("^CREWBOX_") then env[name] = value end
  end
  return env
end

local function start(ctx, provider)
  local program, e = paths.program("crewboxd", ctx.environ)
  if not program then return nil, e end
  local log = paths.boxd_log(ctx.state)
  local ok
  ok, e = ctx.loop:await(ctx.loop.io:daemon {
    argv = { program, "--state", paths.boxd(ctx.state), "--socket", provider.socket },
    env = M.environment(ctx.environ),
    log = log,
    ready_timeout_ms = START_MS,
  })
  if ok then return true end
  return nil, err.new(e.code or "unreachable", "the box server did not start" .. last_words(log) ..
    " (" .. tostring(e.message) .. ")")
end

--- Makes sure that the server of local boxes answers.
--- @async
--- @param ctx {loop: table, state: string, environ: table?}
--- @param provider table of engine/provider.lua; remote ones only answer for themselves
--- @param fresh_ms number? an answer of so many milliseconds ago will do
--- @return table? health its answer
--- @return crewbox.Error? err
function M.ensure(ctx, provider, fresh_ms)
  if fresh_ms and provider.health and core.sys.now_ms() - provider.health_at < fresh_ms then return provider.health end
  local answer, e = health(ctx, provider)
  provider.health, provider.health_at = answer, core.sys.now_ms()
  if answer then return answer end
  if not provider.own_server or e.code == "cancelled" then
    if not provider.remote and e.code == "unreachable" then
      e = err.new("unreachable", ("no crewboxd answers at %s; start it, or take `socket` out of the configuration")
        :format(provider.socket))
    end
    return nil, e
  end

  -- One starter at a time, among all processes of this state folder.
  core.sys.mkdirs(paths.boxd(ctx.state), 448) -- 0700
  local deadline = core.sys.now_ms() + START_MS
  local failure = e
  repeat
    local lock = core.sys.lock(paths.boxd_lock(ctx.state))
    if lock then
      answer = health(ctx, provider)
      if not answer then
        local ok
        ok, failure = start(ctx, provider)
        if ok then answer, failure = health(ctx, provider) end
      end
      lock:release()
      if answer then return answer end
      -- A server that another process started outside the lock holds the folder: look again.
      if failure.code ~= "busy" and failure.code ~= "unreachable" then return nil, failure end
    else
      answer = health(ctx, provider)
      if answer then return answer end
    end
    local ok
    ok, e = ctx.loop:sleep(POLL_MS)
    if not ok then return nil, e end
  until core.sys.now_ms() > deadline
  return nil, failure
end

--- Writes the template of an agent, when it is not there or says something else.
--- @param ctx {state: string}
--- @param harness table
--- @return string? template its name; `base` for a harness that needs no program
--- @return crewbox.Error? err `not_found`, naming the command that installs the agent
function M.template(ctx, harness)
  if not harness.package then return "base" end
  local found, e = agents.find(harness.name, nil, ctx.environ)
  if not found then return nil, e end
  local name, template = agents.template(found)
  local bytes = json.encode {
    mounts = json.array(template.mounts),
    path = json.array(template.path),
    env = json.object(template.env or {}),
  }
  local dir = paths.boxd(ctx.state) .. "/templates"
  local file = ("%s/%s.json"):format(dir, name)
  if core.sys.read_file(file, 1024 * 1024) == bytes then return name end
  local ok
  ok, e = core.sys.mkdirs(dir, 448) -- 0700
  if ok then ok, e = core.sys.write_file(file, bytes, 384, true) end -- 0600
  if not ok then return nil, e end
  return name
end

return M
