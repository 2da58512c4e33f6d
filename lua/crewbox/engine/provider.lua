-- SPDX-License-Identifier: MIT
-- The provider that a configuration asks for, opened once per set of settings.
local core = require "crewbox.core"
local err = require "crewbox.err"
local json = require "crewbox.json"
local paths = require "crewbox.paths"

local M = {}

local SETTINGS = { "api_key", "domain", "api_url", "sandbox_url" }
local GENERATION = { "type", "domain", "api_url", "sandbox_url", "socket", "template" }

--- Digest of the settings that decide which boxes can be seen: a box row with another one belongs
--- to another account or machine. The key is not part of it: keys are rotated.
function M.generation(sandbox)
  local parts = {}
  for i, key in ipairs(GENERATION) do parts[i] = key .. "=" .. tostring(sandbox[key] or "") end
  return core.sys.sha256(table.concat(parts, "\n")):sub(1, 16)
end

--- @param ctx {io: userdata, state: string}
--- @param sandbox table providers.sandbox of a checked configuration
--- @return table? provider {kind, generation, remote, socket, own_server, verbs = core provider}
--- @return crewbox.Error? err
function M.open(ctx, sandbox)
  local provider = {
    kind = sandbox.type,
    generation = M.generation(sandbox),
    remote = sandbox.type ~= "local",
    sandbox = sandbox,
    socket = nil,      -- of crewboxd
    own_server = false, -- crewbox starts it itself
    verbs = nil,
  }
  local settings = {}
  for _, key in ipairs(SETTINGS) do
    if sandbox[key] and sandbox[key] ~= "" then settings[key] = sandbox[key] end
  end
  if not provider.remote then
    provider.own_server = not sandbox.socket or sandbox.socket == ""
    provider.socket = provider.own_server and paths.boxd_socket(ctx.state) or sandbox.socket
    local ok, e = paths.check_socket(provider.socket)
    if not ok then return nil, e end
    settings.socket = provider.socket
  elseif settings.api_key == nil then
    return nil, err.new("unauthorized",
      "no key for E2B: set E2B_API_KEY in the environment or providers.sandbox.api_key in the configuration")
  end
  local e
  provider.verbs, e = core.provider(ctx.io, sandbox.type, settings)
  if not provider.verbs then return nil, e end
  return provider
end

function M.close(provider)
  provider.verbs:close()
end

-- Failures that a repeat of a harmless request may get past.
local PASSING = { unreachable = true, timeout = true, rate_limited = true }

--- Whether trying again can help: the network, a busy or briefly broken server.
function M.is_passing(e)
  return PASSING[e.code] == true or (e.code == "provider" and (e.status or 0) >= 500)
end

-- Failures of a step that lie in what was asked for, not in the moment: repeating gives the same.
local STAYING = { contains_secret = true, too_large = true, corrupt = true, protocol = true, not_found = true,
  invalid = true, unsupported = true, conflict = true, provider = true, exists = true }

--- Whether repeating a step later would fail the same way. Everything else (the network, a full
--- disk, an engine that closes) says nothing about the run.
function M.is_staying(e)
  return STAYING[e.code] == true and not M.is_passing(e)
end

--- The words of an error for a person, without what only programs need.
function M.words(e)
  return type(e) == "table" and (e.message or json.encode(e)) or tostring(e)
end

return M
