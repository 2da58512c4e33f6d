/* SPDX-License-Identifier: MIT
 * core.c: crewbox.core, the C core as a Lua module (docs/reference/core.md). Each library of
 * it lives in a file of its own; this one only puts them together. Loading starts nothing. */
#include "lua/lib.h"

CB_LUA_EXPORT int luaopen_crewbox_core(lua_State *L);

int luaopen_crewbox_core(lua_State *L)
{
  static void (*const openers[])(lua_State *) = {
    cb_lua_open_value, cb_lua_open_io,      cb_lua_open_store, cb_lua_open_provider,
    cb_lua_open_watch, cb_lua_open_secrets, cb_lua_open_tree,  cb_lua_open_sys,
  };
  luaL_checkversion(L);
  lua_newtable(L);
  lua_pushliteral(L, CB_VERSION);
  lua_setfield(L, -2, "version");
  for (size_t i = 0; i < sizeof openers / sizeof *openers; i++)
    openers[i](L);
  return 1;
}
