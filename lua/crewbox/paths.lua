-- SPDX-License-Identifier: MIT
-- Where things lie: the state folder, the cache of agents, the programs, and the files of a run
-- below the state folder. The only place that knows these rules.
local core = require "crewbox.core"
local err = require "crewbox.err"

local M = {}

-- sun_path holds 107 bytes and the NUL.
M.SOCKET_MAX = 107

local function set(v) return v ~= nil and v ~= "" end

local function absolute(path)
  if path:sub(1, 1) == "/" then return path end
  return (os.getenv("PWD") or ".") .. "/" .. path
end

--- The state folder: CREWBOX_STATE; /var/lib/crewbox for root; else below XDG_STATE_HOME.
--- @param env table<string, string>? default: the process's
--- @return string? path
--- @return crewbox.Error? err `invalid`
function M.state(env)
  env = env or core.sys.environ()
  if set(env.CREWBOX_STATE) then return absolute(env.CREWBOX_STATE) end
  if core.sys.uid() == 0 then return "/var/lib/crewbox" end
  if set(env.XDG_STATE_HOME) then return env.XDG_STATE_HOME .. "/crewbox" end
  if set(env.HOME) then return env.HOME .. "/.local/state/crewbox" end
  return nil, err.new("invalid", "there is no place for crewbox's state: set CREWBOX_STATE to a folder")
end

--- The cache: CREWBOX_CACHE; /var/cache/crewbox for root; else below XDG_CACHE_HOME.
--- @return string? path
--- @return crewbox.Error? err `invalid`
function M.cache(env)
  env = env or core.sys.environ()
  if set(env.CREWBOX_CACHE) then return absolute(env.CREWBOX_CACHE) end
  if core.sys.uid() == 0 then return "/var/cache/crewbox" end
  if set(env.XDG_CACHE_HOME) then return env.XDG_CACHE_HOME .. "/crewbox" end
  if set(env.HOME) then return env.HOME .. "/.cache/crewbox" end
  return nil, err.new("invalid", "there is no place for crewbox's cache: set CREWBOX_CACHE to a folder")
end

--- Where an agent's npm package is installed: CACHE/agents/NAME/VERSION, with its programs in
--- node_modules/.bin.
function M.agent(cache, name, version)
  return ("%s/agents/%s/%s"):format(cache, name, version)
end

--- A program of ours ("crewboxd", "crewbox-init", "crewbox-supervise"): in CREWBOX_LIBEXEC, which
--- the command line sets, else where the installation says it put them (crewbox/installed.lua,
--- which `make install` and the rock write).
--- @return string? path
--- @return crewbox.Error? err `not_found`
function M.program(name, env)
  env = env or core.sys.environ()
  local there, installed = pcall(require, "crewbox.installed")
  local folders = set(env.CREWBOX_LIBEXEC) and { env.CREWBOX_LIBEXEC } or
    there and { installed.libexec } or { "/usr/local/libexec/crewbox" }
  for _, folder in ipairs(folders) do
    local path = absolute(folder) .. "/" .. name
    if core.sys.stat(path) then return path end
  end
  return nil, err.new("not_found", ("%s is not in %s: run `make`, or set CREWBOX_LIBEXEC to the folder that holds it")
    :format(name, table.concat(folders, " or ")))
end

-- ---- below the state folder ----------------------------------------------------------------

function M.database(state) return state .. "/crewbox.db" end
function M.engine_socket(state) return state .. "/engine.sock" end
function M.engine_lock(state) return state .. "/engine.lock" end
function M.engine_log(state) return state .. "/engine.log" end
function M.boxd(state) return state .. "/boxd" end
function M.boxd_socket(state) return state .. "/boxd.sock" end
function M.boxd_log(state) return state .. "/boxd.log" end
function M.boxd_lock(state) return state .. "/boxd.lock" end
function M.runs(state) return state .. "/runs" end
function M.run(state, id) return state .. "/runs/" .. id end

--- A file of a run: brief, tree.pack, out.log, err.log, findings.md, result.pack, result.json,
--- patch, events.jsonl.
function M.run_file(state, id, name) return state .. "/runs/" .. id .. "/" .. name end

--- @return true? fits
--- @return crewbox.Error? err `invalid`, saying what to do
function M.check_socket(path)
  if #path <= M.SOCKET_MAX then return true end
  return nil, err.new("invalid", ("the socket path %s has %d bytes, the most is %d: set CREWBOX_STATE to a shorter folder")
    :format(path, #path, M.SOCKET_MAX))
end

return M
