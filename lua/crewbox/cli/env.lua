-- SPDX-License-Identifier: MIT
-- crewbox env: the exports with which any Lua finds this crewbox, for `eval "$(crewbox env)"`.
-- Derived from where this file and the C module were found, so it is right for a source tree
-- and for an installed one.
local err = require "crewbox.err"
local status = require "crewbox.cli.shell.status"

local M = {
  summary = "Print the LUA_PATH and LUA_CPATH exports for using this crewbox from Lua.",
  description = [[Prints shell exports: eval "$(crewbox env)" and then, in Lua, require "crewbox".]],
}

function M.define(command)
  command:option("--lua", "For which Lua.", "5.4"):choices { "5.4", "luajit" }:argname "<lua>"
end

local function quoted(s)
  return "'" .. s:gsub("'", "'\\''") .. "'"
end

local searchpath = package.searchpath

function M.run(args)
  local here = searchpath("crewbox.cli.env", package.path)
  local core = searchpath("crewbox.core", package.cpath)
  if not here or not core then
    return nil, err.new("system", "cannot tell where crewbox lies; run build/crewbox or the installed crewbox")
  end
  local lua_dir = here:gsub("/crewbox/cli/env%.lua$", "")
  local c_dir = core:gsub("/crewbox/core%.so$", "")
  local abi = args.lua == "luajit" and "5.1" or "5.4"
  -- Both builds of the module lie side by side and differ in the last part of the folder.
  lua_dir = lua_dir:gsub("/5%.[14]$", "/" .. abi)
  c_dir = c_dir:gsub("/5%.[14]$", "/" .. abi)
  print("export LUA_PATH=" .. quoted(("%s/?.lua;%s/?/init.lua;;"):format(lua_dir, lua_dir)))
  print("export LUA_CPATH=" .. quoted(c_dir .. "/?.so;;"))
  local libexec = os.getenv("CREWBOX_LIBEXEC")
  if libexec and libexec ~= "" then print("export CREWBOX_LIBEXEC=" .. quoted(libexec)) end
  return status.DONE
end

return M
