#!/usr/bin/env lua
-- SPDX-License-Identifier: MIT
-- The program `crewbox`, once the Lua and C files can be found: bin/crewbox sees to that in a
-- source tree and after `make install`, the wrapper of luarocks in a rock.
if not jit and _VERSION < "Lua 5.4" then -- luarocks' wrapper takes the plain Lua 5.1 for 5.1
  io.stderr:write("crewbox: needs Lua 5.4 or LuaJIT, this is ", _VERSION, "; set lua_interpreter in the configuration of luarocks\n")
  os.exit(5)
end
local loaded, problem = pcall(require, "crewbox.core")
if not loaded then
  io.stderr:write("crewbox: the C module crewbox.core does not load (", tostring(problem):match("^[^\n]*"),
    "); run make in the source tree, or install crewbox again\n")
  os.exit(5)
end
os.exit(require("crewbox.cli.main").main(arg), true)
