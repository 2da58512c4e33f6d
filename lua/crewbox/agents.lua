-- SPDX-License-Identifier: MIT
-- The cache of coding-agent CLIs: what is installed, where, and how it gets there. An agent is its
-- npm package at an exact version in CACHE/agents/NAME/VERSION, with a marker file that is written
-- last, so a folder without one does not count. Boxes see it read-only (engine/local_server.lua).
local core = require "crewbox.core"
local err = require "crewbox.err"
local harness = require "crewbox.harness"
local json = require "crewbox.json"
local paths = require "crewbox.paths"

local M = {}

local MARKER = "installed.json"
local NEW = ".new-"              -- folders in the making
local BIN = "node_modules/.bin"  -- where npm puts the names a package can be called by
local IN_BOX = "/opt/crewbox/agents"
local INSTALL_MS = 15 * 60 * 1000
local CHECK_MS = 60 * 1000
local LOCK_POLL_MS = 200

-- A version is a folder's name and a word of npm's: nothing but digits, letters, dots and dashes.
local function is_version(v)
  return v:find("^%d[%w.+-]*$") ~= nil and #v <= 64
end

local function package_of(name)
  local h, e = harness.get(name)
  if not h then return nil, err.new("invalid", e.message) end
  if not h.package then
    return nil, err.new("invalid", ("the agent %s needs no installation"):format(name))
  end
  return h.package
end

local function folder_of(name, env)
  local cache, e = paths.cache(env)
  if not cache then return nil, e end
  return ("%s/agents/%s"):format(cache, name), nil, cache
end

local function read_marker(dir)
  local bytes = core.sys.read_file(dir .. "/" .. MARKER, 64 * 1024)
  local marker = bytes and json.decode(bytes)
  return type(marker) == "table" and marker.version and marker or nil
end

local function installed(name, version, env)
  local folder, e, cache = folder_of(name, env)
  if not folder then return nil, e end
  local dir = paths.agent(cache, name, version)
  local marker = read_marker(dir)
  local package = package_of(name)
  if not marker or not core.sys.stat(("%s/%s/%s"):format(dir, BIN, package.bin)) then return nil end
  return {
    name = name,
    version = marker.version,
    dir = dir,
    sha256 = marker.sha256,
    installed_at = marker.installed_at,
  }
end

--- The command that installs an agent, for messages.
--- @return string
function M.install_command(name) return "crewbox agents install " .. name end

--- The installed package of an agent: the version asked for; without one the version that was
--- installed last, which is the pinned one unless a person chose another.
--- @param name string public name
--- @param version string?
--- @param env table<string, string>?
--- @return table? found {name, version, dir, sha256, installed_at}
--- @return crewbox.Error? err `not_found` names the install command; `invalid`
function M.find(name, version, env)
  local package, e = package_of(name)
  if not package then return nil, e end
  local folder
  folder, e = folder_of(name, env)
  if not folder then return nil, e end
  if not version then
    local current = core.sys.read_file(folder .. "/current", 256)
    current = current and current:match("^%S+")
    version = current and is_version(current) and current or package.version
  end
  if not is_version(version) then return nil, err.new("invalid", ("%s is no version"):format(version)) end
  local found
  found, e = installed(name, version, env)
  if found then return found end
  if e then return nil, e end
  return nil, err.new("not_found", ("the agent %s is not installed: run `%s`"):format(name, M.install_command(name)))
end

--- All agents, with what is installed of each.
--- @param env table<string, string>?
--- @return table[] list of {name, pinned: string?, current: string?, versions: string[], dir: string?}
function M.list(env)
  local list = {}
  for _, name in ipairs(harness.names()) do
    local h = harness.get(name)
    local entry = { name = name, pinned = h.package and h.package.version, current = nil, versions = {}, dir = nil }
    if h.package then
      local folder = folder_of(name, env)
      for _, version in ipairs(folder and core.sys.list(folder) or {}) do
        if is_version(version) and installed(name, version, env) then
          entry.versions[#entry.versions + 1] = version
        end
      end
      table.sort(entry.versions)
      local found = M.find(name, nil, env)
      entry.current = found and found.version
      entry.dir = found and found.dir
    end
    list[#list + 1] = entry
  end
  return list
end

--- The template with which a local box sees an installed agent, for DIR/templates/NAME.json of the
--- box server.
--- @param found table of M.find
--- @return string name
--- @return table template {mounts, path}
function M.template(found)
  local target = ("%s/%s"):format(IN_BOX, found.name)
  return ("%s-%s"):format(found.name, found.version), {
    mounts = { { source = core.sys.realpath(found.dir) or found.dir, target = target } },
    path = { ("%s/%s"):format(target, BIN) },
  }
end

-- ---- installing ----------------------------------------------------------------------------

local function last_lines(text, n)
  local lines = {}
  for line in text:gmatch("[^\n]+") do
    if line:find("%S") then lines[#lines + 1] = line end
  end
  return table.concat(lines, " | ", math.max(1, #lines - n + 1))
end

-- What npm says is long; its reasons are the lines with "npm error" or "npm ERR!".
local function npm_reason(out)
  local reasons = {}
  for line in (out.stderr .. "\n" .. out.stdout):gmatch("[^\n]+") do
    local text = line:match("^npm error (.*)") or line:match("^npm ERR! (.*)")
    if text and text:find("%S") and not text:find("complete log of this run") then
      reasons[#reasons + 1] = text
    end
    if #reasons == 3 then break end
  end
  return #reasons > 0 and table.concat(reasons, "; ") or last_lines(out.stderr, 2)
end

local function npm_program(env)
  for folder in (env.PATH or ""):gmatch("[^:]+") do
    local path = folder .. "/npm"
    local st = core.sys.stat(path)
    if st and st.type ~= "dir" then return path end
  end
  return nil, err.new("not_found", "npm is not in PATH; it installs the agent. Install it (Debian: apt-get install npm) and try again")
end

-- npm gets a clean folder as its home, so that a person's .npmrc prefix or an outer package.json
-- does not move what it installs; registry, proxy and certificate settings stay as they are.
local function npm_install(loop, npm, package, version, dir, env)
  local argv = { npm, "install", "--prefix", dir, "--no-audit", "--no-fund", "--no-update-notifier",
    "--no-package-lock", "--omit=dev", "--include=optional", "--global=false", "--ignore-scripts=false",
    -- npm's own waits between tries make "no network" take over a minute to say.
    "--fetch-retries=2", "--fetch-retry-mintimeout=1000", "--fetch-retry-maxtimeout=5000",
    "--loglevel=error", ("%s@%s"):format(package.npm, version) }
  local words = {}
  for k, v in pairs(env) do
    -- Lifecycle scripts of npm see these; an outer npm's would confuse the inner one.
    if not k:find("^npm_") or k:find("^npm_config_") then words[#words + 1] = k .. "=" .. v end
  end
  local out, e = loop:await(loop.io:spawn { argv = argv, cwd = dir, env = words,
    timeout_ms = INSTALL_MS, max_bytes = 1024 * 1024 })
  if not out then return nil, e end
  if out.timed_out then return nil, err.new("timeout", "npm did not finish within 15 minutes") end
  if out.exit ~= 0 then
    return nil, err.new("unreachable", ("npm could not install %s@%s: %s"):format(package.npm, version, npm_reason(out)))
  end
  return true
end

local function check_runs(loop, program)
  local out, e = loop:await(loop.io:spawn { argv = { program, "--version" }, timeout_ms = CHECK_MS, max_bytes = 64 * 1024 })
  if not out then return nil, e end
  if out.exit ~= 0 then
    return nil, err.new("unsupported", ("what was installed does not run here (%s --version: %s)")
      :format(program, out.timed_out and "no end" or last_lines(out.stderr .. out.stdout, 2)))
  end
  return out.stdout:match("^%s*([^\n]*)")
end

local function sum_of(loop, program)
  local out, e = loop:await(loop.io:spawn { argv = { "sha256sum", program }, timeout_ms = CHECK_MS })
  if not out then return nil, e end
  return out.stdout:match("^\\?(%x+)")
end

-- Everything below dir can be read by every user: a box of root's has another user id.
local function open_up(loop, dir)
  local out, e = loop:await(loop.io:spawn { argv = { "chmod", "-R", "a+rX,go-w", dir }, timeout_ms = CHECK_MS })
  if not out then return nil, e end
  if out.exit ~= 0 then return nil, err.new("system", "chmod: " .. last_lines(out.stderr, 1)) end
  return true
end

local function lock(loop, path, tell)
  local told = false
  while true do
    local held, e = core.sys.lock(path)
    if held then return held end
    if e and e ~= "busy" and e.code and e.code ~= "busy" then return nil, e end
    if not told then tell("another installation of it is running; waiting for its end") end
    told = true
    local ok
    ok, e = loop:sleep(LOCK_POLL_MS)
    if not ok then return nil, e end
  end
end

local function build(loop, name, package, version, tmp, env, tell)
  local npm, e = npm_program(env)
  if not npm then return nil, e end
  tell(("fetching %s %s with npm"):format(package.npm, version))
  local ok
  ok, e = npm_install(loop, npm, package, version, tmp, env)
  if not ok then return nil, e end
  local program = ("%s/%s/%s"):format(tmp, BIN, package.bin)
  if not core.sys.stat(program) then
    return nil, err.new("unsupported", ("%s@%s holds no program called %s"):format(package.npm, version, package.bin))
  end
  ok, e = open_up(loop, tmp)
  if not ok then return nil, e end
  tell("checking that it runs")
  local says
  says, e = check_runs(loop, program)
  if not says then return nil, e end
  local sha256
  sha256, e = sum_of(loop, program)
  if not sha256 then return nil, e end
  return core.sys.write_file(tmp .. "/" .. MARKER, json.encode {
    name = name, package = package.npm, version = version, says = says, sha256 = sha256,
    installed_at = core.sys.wall(),
  } .. "\n", tonumber("644", 8), true)
end

-- What installations that were killed have left; the caller holds the lock.
local function remove_left(folder)
  for _, name in ipairs(core.sys.list(folder) or {}) do
    if name:sub(1, #NEW) == NEW then core.sys.rmtree(folder .. "/" .. name) end
  end
end

--- Installs an agent. Doing it twice does nothing the second time; two at once wait for each other;
--- one that is killed leaves nothing that counts as installed.
--- @async
--- @param loop table  crewbox.async
--- @param name string public name
--- @param o {version: string?, env: table<string, string>?, tell: fun(text: string)?}?
--- @return table? found as M.find gives, with `fresh` = true when it was not there before
--- @return crewbox.Error? err `invalid` | `not_found` (npm) | `unreachable` (registry) | `unsupported` | `system` | ...
function M.install(loop, name, o)
  o = o or {}
  local env, tell = o.env or core.sys.environ(), o.tell or function() end
  local package, e = package_of(name)
  if not package then return nil, e end
  local version = o.version or package.version
  if not is_version(version) then
    return nil, err.new("invalid", ("%s is no exact version such as %s"):format(version, package.version))
  end
  local folder
  folder, e = folder_of(name, env)
  if not folder then return nil, e end
  local ok
  ok, e = core.sys.mkdirs(folder, tonumber("755", 8))
  if not ok then return nil, e end

  local held
  held, e = lock(loop, folder .. "/lock", tell)
  if not held then return nil, e end
  local found, fresh = installed(name, version, env), false
  -- A name of its own: an npm whose crewbox was killed may still be writing to the last one.
  local tmp = ("%s/%s%s"):format(folder, NEW, core.sys.random_id(12))
  if not found then
    fresh = true
    remove_left(folder)
    ok, e = core.sys.mkdirs(tmp, tonumber("755", 8))
    if ok then ok, e = build(loop, name, package, version, tmp, env, tell) end
    if ok then
      core.sys.rmtree(folder .. "/" .. version) -- without a marker, or it would have been found
      ok, e = core.sys.rename(tmp, folder .. "/" .. version)
    end
    if not ok then core.sys.rmtree(tmp) end
  end
  if ok then ok, e = core.sys.write_file(folder .. "/current", version .. "\n", tonumber("644", 8), false) end
  held:release()
  if not ok then return nil, e end
  found = found or installed(name, version, env)
  if not found then return nil, err.new("system", "the installation vanished while it was made") end
  found.fresh = fresh
  return found
end

return M
