-- SPDX-License-Identifier: MIT
-- Which configuration file counts: the first of --config, CREWBOX_CONFIG and the person's
-- configuration folder. None at all is fine: everything has a default.
-- A file that merely lies in the current folder never counts: it may have come with a checkout
-- that somebody else wrote, and a configuration says where keys are sent.
local core = require "crewbox.core"
local err = require "crewbox.err"

local M = {}

local NAMES = { "crewbox.yaml", "crewbox.yml", "crewbox.lua", "company.yaml", "company.lua" }

local function is_file(path)
  local st = core.sys.stat(path)
  return st ~= nil and st.type == "file"
end

local function first_in(dir)
  for _, name in ipairs(NAMES) do
    local path = dir .. "/" .. name
    if is_file(path) then return path end
  end
end

local function named(path, by)
  if is_file(path) then return { path = path, by = by } end
  return nil, err.new("invalid", ("%s names %s, which is no file that can be read"):format(by, path))
end

local function filled(s) return s and s ~= "" and s or nil end

--- A configuration in the current folder that nobody named, to say that it is not used.
--- @return string? path
function M.unnamed()
  return first_in(".")
end

--- @param path string?  of --config
--- @param env table<string, string>
--- @return {path: string, by: string}? found  nil without an error: there is no file
--- @return crewbox.Error? err `invalid`: a file that was named is not there
function M.find(path, env)
  if path then return named(path, "--config") end
  if filled(env.CREWBOX_CONFIG) then return named(env.CREWBOX_CONFIG, "CREWBOX_CONFIG") end
  local home = filled(env.XDG_CONFIG_HOME) or (filled(env.HOME) and env.HOME .. "/.config")
  local own = home and first_in(home .. "/crewbox")
  return own and { path = own, by = "the configuration folder" } or nil
end

return M
