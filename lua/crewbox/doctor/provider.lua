-- SPDX-License-Identifier: MIT
-- doctor, provider: the configuration, and whether what it says boxes come from answers. Of keys
-- only the names are told.
local core = require "crewbox.core"
local find = require "crewbox.config.find"
local json = require "crewbox.json"
local paths = require "crewbox.paths"
local provider = require "crewbox.engine.provider"

local M = { name = "provider" }

local ASK_MS = 10000

local function configuration(ctx, say)
  if ctx.config_error then
    return say("fail", "configuration", ctx.config_error.message, "correct that file; docs/reference/configuration.md lists the keys")
  end
  local passed_over = not ctx.config.source and find.unnamed()
  if passed_over then
    return say("warn", "configuration", passed_over .. " in the current folder is not used: nobody has named it",
      ("export CREWBOX_CONFIG=%s, when you trust what it says"):format(passed_over))
  end
  say("ok", "configuration", ctx.config.source and ("%s; boxes are of type %s"):format(ctx.config.source, ctx.sandbox.type)
    or "no file, which is fine: boxes are of type local")
end

-- Variables of E2B's own programs, which crewbox does not read: with one left over from another
-- installation, the two would speak to different servers.
local STALE = { E2B_DOMAIN = "domain", E2B_API_URL = "api_url", E2B_SANDBOX_URL = "sandbox_url" }

local function stale(ctx, say)
  local names = {}
  for name in pairs(STALE) do names[#names + 1] = name end
  table.sort(names)
  for _, name in ipairs(names) do
    local value, key = ctx.environ[name], STALE[name]
    if value and value ~= "" and not (ctx.remote and ctx.sandbox[key] == value) then
      say("warn", name, ("set in the environment, but crewbox does not read it: boxes come from %s"):format(
        not ctx.remote and "this machine" or ctx.sandbox[key] ~= "" and ctx.sandbox[key] or "E2B's cloud or what the configuration names"),
        ("unset %s, or write providers.sandbox.%s: ${%s} beside type: e2b"):format(name, key, name))
    end
  end
end

-- One look at crewboxd's socket; a server that is not there is not started.
local function look(ctx, socket)
  if not core.sys.stat(socket) then return nil, { code = "unreachable" } end
  local answer, e = ctx.loop:await(ctx.io:http { url = "http://localhost/health", unix_socket = socket,
    timeout_ms = ASK_MS, connect_timeout_ms = ASK_MS })
  if not answer then return nil, e end
  local value = answer.status == 200 and json.decode(answer.body)
  if type(value) == "table" and value.server == "crewboxd" then return value end
  return nil, { code = "protocol", message = "what answers there is not crewboxd" }
end

local function here(ctx, say)
  local named = ctx.sandbox.socket ~= ""
  if not named and not ctx.state then return say("warn", "box server", "not checked: there is no state folder") end
  local socket = named and ctx.sandbox.socket or paths.boxd_socket(ctx.state)
  if #socket > paths.SOCKET_MAX then return end -- state.lua has said so
  local health, e = look(ctx, socket)
  if not health and e.code ~= "unreachable" then
    return say("fail", "box server", ("%s: %s"):format(socket, e.message or e.code),
      named and "name the socket of a crewboxd in providers.sandbox.socket" or "end what serves that socket")
  end
  if not health then
    if not named then return say("ok", "box server", "not running; a run starts it") end
    return say("fail", "box server", ("no crewboxd answers at %s"):format(socket),
      "start it, or take `socket` out of the configuration")
  end
  if health.version ~= core.version then
    return say("warn", "box server", ("the crewboxd at %s is version %s, this crewbox is %s"):format(socket, tostring(health.version),
      core.version), "end it (its boxes go on); the next run starts the new one")
  end
  say("ok", "box server", ("crewboxd %s runs at %s"):format(health.version, socket))
end

local function reach(ctx, say, p)
  local where = ctx.sandbox.api_url ~= "" and ctx.sandbox.api_url
    or "https://api." .. (ctx.sandbox.domain ~= "" and ctx.sandbox.domain or "e2b.app")
  local health, e = ctx.loop:await(p.verbs:health { wait_ms = ASK_MS })
  if not health and e.code ~= "not_found" then
    return say("fail", "reachable", ("%s does not answer: %s"):format(where, e.message),
      "look at the network and proxy of this machine, and at providers.sandbox.domain and api_url")
  end
  say("ok", "reachable", where .. " answers")
  local list
  list, e = ctx.loop:await(p.verbs:list { metadata = { crewbox_doctor = "none" }, wait_ms = ASK_MS })
  if list then return say("ok", "key accepted", "boxes can be listed with it") end
  say("fail", "key accepted", e.message, e.code == "unauthorized" and "make a new key and export it as E2B_API_KEY" or
    "try again; if it stays, ask whoever runs " .. where)
end

local function elsewhere(ctx, say)
  local from = ctx.environ.E2B_API_KEY and ctx.environ.E2B_API_KEY ~= "" and "E2B_API_KEY is set" or "E2B_API_KEY is not set"
  if ctx.sandbox.api_key == "" then
    return say("fail", "key", from .. ", and providers.sandbox.api_key is empty", "export E2B_API_KEY=...")
  end
  say("ok", "key", ctx.sandbox.api_key == ctx.environ.E2B_API_KEY and from or "providers.sandbox.api_key is set")
  local p, e = provider.open({ io = ctx.io, state = ctx.state }, ctx.sandbox)
  if not p then return say("fail", "reachable", e.message, "correct providers.sandbox in the configuration") end
  reach(ctx, say, p)
  provider.close(p)
end

function M.run(ctx, say)
  configuration(ctx, say)
  stale(ctx, say)
  if ctx.remote then elsewhere(ctx, say) else here(ctx, say) end
end

return M
