-- SPDX-License-Identifier: MIT
-- Talks to the engine process of a state folder over its socket, and starts it when it is not
-- there: a program exec'd afresh, never a fork of this one.
local core = require "crewbox.core"
local err = require "crewbox.err"
local json = require "crewbox.json"
local paths = require "crewbox.paths"

local M = {}

local ASK_MS = 10000
local START_MS = 20000
local TRIES = 5

-- What the engine needs of the caller's environment, beside what the configuration refers to.
-- Credentials of runs are not among it: they go over the socket.
local KEEP = { "^PATH$", "^HOME$", "^USER$", "^LOGNAME$", "^LANG$", "^LC_", "^TMPDIR$", "^TZ$", "^XDG_", "^CREWBOX_",
  "^LUA_", "^E2B_", "_[pP][rR][oO][xX][yY]$", "^SSL_CERT_", "^CURL_CA_BUNDLE$", "^LD_LIBRARY_PATH$", "^ASAN_OPTIONS$",
  "^LSAN_OPTIONS$" }

local function is_kept(name, references)
  if references[name] then return true end
  for _, pattern in ipairs(KEEP) do
    if name:find(pattern) then return true end
  end
  return false
end

local function environment(ctx)
  local env = {}
  local references = ctx.config and ctx.config.references or {}
  for name, value in pairs(ctx.environ or core.sys.environ()) do
    if is_kept(name, references) then env[name] = value end
  end
  env.CREWBOX_STATE = ctx.state
  env.CREWBOX_CONFIG = ctx.config_path or env.CREWBOX_CONFIG
  -- However this process finds crewbox, the engine finds the same.
  env.LUA_PATH, env.LUA_CPATH = package.path, package.cpath
  env.LUA_PATH_5_4, env.LUA_CPATH_5_4 = nil, nil
  return env
end

-- The interpreter: this one when it is a Lua, which a server that embeds Lua is not.
local function interpreter()
  local own = core.sys.realpath("/proc/self/exe") or ""
  if own:match("[^/]*$"):find("^lua") then return own end
  local chosen = os.getenv("CREWBOX_LUA")
  return chosen and chosen ~= "" and chosen or (jit and "luajit" or "lua5.4") -- luacheck: ignore jit
end

local PROGRAM = [[os.exit(require("crewbox.engine.process").main(), true)]]

local function start(ctx)
  local ok, e = core.sys.daemon {
    argv = { interpreter(), "-e", PROGRAM },
    env = environment(ctx),
    log = paths.engine_log(ctx.state),
    ready_timeout_ms = START_MS,
  }
  if ok and ok.line:find("^ready") then return true end
  local bytes = core.sys.read_file(paths.engine_log(ctx.state), 4 * 1024 * 1024) or ""
  local last
  for line in bytes:gmatch("[^\n]+") do last = line end
  return nil, err.new("unreachable", "the engine did not start: " ..
    ((ok and ok.line ~= "" and ok.line) or last or (e and e.message) or "no words"))
end

-- One question to a running engine.
local function ask(ctx, question)
  local value, e = ctx.loop:await(ctx.io:ask {
    path = paths.engine_socket(ctx.state), line = json.encode(question), timeout_ms = ASK_MS,
  })
  if not value then return nil, e end
  local answer = json.decode(value.line)
  if type(answer) ~= "table" then return nil, err.new("protocol", "the engine answered what is not JSON") end
  if answer.ok then return answer end
  return nil, err.new(answer.code or "protocol", answer.message or "the engine refused")
end

-- The engine is not there, or left before it answered; nothing was done.
local ABSENT = { unreachable = true, not_found = true, closed = true }

--- Asks the engine; starts it first when there is none.
--- @async
--- @param ctx {loop: table, io: userdata, state: string, config: table?, config_path: string?, environ: table?}
--- @param question table
--- @return table? answer
--- @return crewbox.Error? err
function M.ask(ctx, question)
  local failure
  for _ = 1, TRIES do
    local answer, e = ask(ctx, question)
    if answer then return answer end
    if not ABSENT[e.code] then return nil, e end
    local ok
    ok, failure = start(ctx)
    if not ok then return nil, failure end
  end
  return nil, failure or err.new("unreachable", "the engine does not answer; its log is " .. paths.engine_log(ctx.state))
end

--- Asks a running engine; does not start one.
--- @async
--- @return table? answer
--- @return crewbox.Error? err `unreachable` when there is none
function M.ask_running(ctx, question)
  local answer, e = ask(ctx, question)
  if answer then return answer end
  if ABSENT[e.code] then e = err.new("unreachable", "no engine runs") end
  return nil, e
end

return M
