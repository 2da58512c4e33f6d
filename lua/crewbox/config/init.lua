-- SPDX-License-Identifier: MIT
-- Loads the configuration: finds the file (find.lua), reads YAML or Lua, checks it against the
-- schema, resolves `${VAR}` once. Sections that are not ours are kept as they are.
local core = require "crewbox.core"
local check = require "crewbox.config.check"
local err = require "crewbox.err"
local find = require "crewbox.config.find"
local schema = require "crewbox.config.schema"
local script = require "crewbox.config.script"

local M = {}

local FILE_MAX = 1024 * 1024

-- lyaml has a value of its own for null; a key without a value counts as not given.
local function without_null(v, null, depth)
  if type(v) ~= "table" or depth > 64 then return v end
  local out = {}
  for k, x in pairs(v) do
    if x ~= null then out[k] = without_null(x, null, depth + 1) end
  end
  return out
end

local function one_line(s) return (tostring(s):gsub("%s+", " ")) end

local function read_yaml(bytes, path)
  local found, lyaml = pcall(require, "lyaml")
  if not found then
    return nil, err.new("invalid", path .. ": reading YAML needs lyaml (Debian: lua-yaml); a .lua file needs nothing")
  end
  local ok, value = pcall(lyaml.load, bytes)
  if not ok then return nil, err.new("invalid", ("%s:%s"):format(path, one_line(value))) end
  if value == nil or value == lyaml.null then return {} end -- an empty file
  return without_null(value, lyaml.null, 0)
end

local function read_lua(bytes, path)
  local value, problem = script.run(bytes, path)
  if problem then return nil, err.new("invalid", one_line(problem)) end
  if value == nil then return nil, err.new("invalid", path .. ": the file returns nothing; it must return a table") end
  return value
end

local function read(path)
  local bytes, e = core.sys.read_file(path, FILE_MAX)
  if not bytes then return nil, err.new("invalid", ("%s: %s"):format(path, e.message)) end
  if path:find("%.lua$") then return read_lua(bytes, path) end
  return read_yaml(bytes, path)
end

-- Keys that one kind of provider reads and the other would silently ignore.
local ONLY_FOR = {
  api_key = "e2b", domain = "e2b", api_url = "e2b", sandbox_url = "e2b", socket = "local",
}

local function across_fields(sandbox)
  for _, key in ipairs { "api_key", "domain", "api_url", "sandbox_url", "socket" } do
    if sandbox[key] ~= "" and sandbox.type ~= ONLY_FOR[key] then
      return nil, ("providers.sandbox.%s is only for type %s, but the type is %s"):format(key, ONLY_FOR[key], sandbox.type)
    end
  end
  return true
end

--- Checks a configuration that is already a table, for instance one an embedding host made.
--- @param value table
--- @param o {env: table<string, string>?, source: string?}?
--- @return crewbox.Config? config  with all defaults: `config.providers.sandbox`; `references` is the
---   set of environment names that `${VAR}` in it asked for
--- @return crewbox.Error? err `invalid`
function M.check(value, o)
  o = o or {}
  local env = o.env or core.sys.environ()
  local prefix = o.source and o.source .. ": " or ""
  local references = {}
  local config, problem = check.check(value, schema, function(text)
    for _, name in ipairs(core.references(text)) do references[name] = true end
    return core.resolve(text, env)
  end)
  if not config then return nil, err.new("invalid", prefix .. problem) end
  local sandbox = config.providers.sandbox
  local ok
  ok, problem = across_fields(sandbox)
  if not ok then return nil, err.new("invalid", prefix .. problem) end
  if sandbox.type == "e2b" and sandbox.api_key == "" then sandbox.api_key = env.E2B_API_KEY or "" end
  config.references = references
  return config
end

--- @param o {path: string?, env: table<string, string>?}?  path: of --config
--- @return crewbox.Config? config  `config.source` is the file, nil when there is none
--- @return crewbox.Error? err `invalid`, one line that names file and key
function M.load(o)
  o = o or {}
  local env = o.env or core.sys.environ()
  local found, e = find.find(o.path, env)
  if e then return nil, e end
  local value = {}
  if found then
    value, e = read(found.path)
    if not value then return nil, e end
  end
  local config
  config, e = M.check(value, { env = env, source = found and found.path })
  if not config then return nil, e end
  config.source = found and found.path or nil
  return config
end

return M
