-- luacheck's settings. std "min" holds what Lua 5.1 to 5.4 and LuaJIT share, so that a call which
-- only one of them has is an error here and not at a user's.
std = "min"
-- About 100 is the aim; a message to a person is not broken up for it.
max_line_length = 140
-- A method's self and the arguments of a face that others implement may go unused.
unused_args = false
-- The specs run on both interpreters and look at which one they are on: jit, setfenv.
-- Their lines hold what came over a wire, in one piece.
files["spec"] = { std = "min+busted", read_globals = { "jit", "setfenv" }, max_line_length = 180 }
files["lua/crewbox/cli/start.lua"] = { read_globals = { "jit" } }
-- Lua 5.1 lacks package.searchpath; LuaJIT and 5.4, which we run on, have it.
files["lua/crewbox/cli/env.lua"] = { read_globals = { package = { fields = { "searchpath", "path", "cpath" } } } }
-- Tells the two interpreters apart by what each has: setfenv, loadstring, jit.
files["lua/crewbox/config/script.lua"] = { read_globals = { "setfenv", "loadstring", "jit" } }
-- What runs within nginx's Lua module only.
for _, file in ipairs { "lua/crewbox/openresty.lua", "lua/crewbox/hosts/openresty.lua", "examples/openresty/gateway.lua",
  "spec/support/openresty_app.lua" } do
  files[file] = { std = "min+ngx_lua" }
end
