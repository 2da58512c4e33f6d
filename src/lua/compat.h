/* SPDX-License-Identifier: MIT
 * compat.h: one source for two ABIs, PUC Lua 5.4 and the 5.1 ABI that LuaJIT keeps. The only
 * place that asks for the version. Bindings are written to the 5.4 API as far as the names
 * below reach; what 5.1 headers lack is defined here and never taken from LuaJIT's own
 * extensions, so that a module built against PUC 5.1 headers (as luarocks does) loads in both.
 *
 * No lua_yieldk, callk or pcallk: C never yields. */
#ifndef CB_LUA_COMPAT_H
#define CB_LUA_COMPAT_H
#include <lauxlib.h>
#include <lua.h>
#include <stddef.h>
#include <stdint.h>

#define CB_LUA_EXPORT __attribute__((visibility("default")))

/* The largest integer a double holds exactly together with all below it. */
#define CB_LUA_EXACT 9007199254740992

#if LUA_VERSION_NUM >= 504

/* The value at the top becomes what userdata ud keeps alive. [-1, +0] */
static inline void cb_lua_anchor(lua_State *L, int ud)
{
  lua_setiuservalue(L, ud, 1);
}

/* What cb_lua_anchor kept. [-0, +1] */
static inline void cb_lua_push_anchor(lua_State *L, int ud)
{
  lua_getiuservalue(L, ud, 1);
}

#else /* the 5.1 ABI */

#ifndef LUA_OK
#define LUA_OK 0
#endif
#define lua_rawlen(L, i) lua_objlen((L), (i))
#define lua_newuserdatauv(L, size, values) ((void)(values), lua_newuserdata((L), (size)))
#define luaL_checkversion(L) ((void)0)

/* Macros of our own names even where lauxlib.h of LuaJIT declares the function. */
#undef luaL_newlib
#undef luaL_setfuncs
#undef luaL_setmetatable
#undef luaL_testudata
#undef lua_absindex
#undef lua_isinteger
#define luaL_setfuncs cb_compat_setfuncs
#define luaL_newlib(L, list) (lua_newtable(L), luaL_setfuncs((L), (list), 0))
#define luaL_setmetatable cb_compat_setmetatable
#define luaL_testudata cb_compat_testudata
#define lua_absindex cb_compat_absindex
#define lua_isinteger cb_compat_isinteger

static inline int cb_compat_absindex(lua_State *L, int i)
{
  return i < 0 && i > LUA_REGISTRYINDEX ? lua_gettop(L) + i + 1 : i;
}

static inline void cb_compat_setfuncs(lua_State *L, const luaL_Reg *list, int nup)
{
  for (; list->name; list++) {
    for (int i = 0; i < nup; i++)
      lua_pushvalue(L, -nup);
    lua_pushcclosure(L, list->func, nup);
    lua_setfield(L, -(nup + 2), list->name);
  }
  lua_pop(L, nup);
}

static inline void cb_compat_setmetatable(lua_State *L, const char *name)
{
  luaL_getmetatable(L, name);
  lua_setmetatable(L, -2);
}

static inline void *cb_compat_testudata(lua_State *L, int i, const char *name)
{
  void *p = lua_touserdata(L, i);
  if (!p || !lua_getmetatable(L, i))
    return NULL;
  luaL_getmetatable(L, name);
  int same = lua_rawequal(L, -1, -2);
  lua_pop(L, 2);
  return same ? p : NULL;
}

/* A double that is exactly an integer counts as one. */
static inline int cb_compat_isinteger(lua_State *L, int i)
{
  if (lua_type(L, i) != LUA_TNUMBER)
    return 0;
  lua_Number d = lua_tonumber(L, i);
  return d >= -(lua_Number)CB_LUA_EXACT && d <= (lua_Number)CB_LUA_EXACT &&
         d == (lua_Number)(int64_t)d;
}

static inline void cb_lua_anchor(lua_State *L, int ud)
{
  ud = cb_compat_absindex(L, ud);
  lua_createtable(L, 1, 0);
  lua_insert(L, -2);
  lua_rawseti(L, -2, 1);
  lua_setfenv(L, ud);
}

static inline void cb_lua_push_anchor(lua_State *L, int ud)
{
  lua_getfenv(L, ud);
  lua_rawgeti(L, -1, 1);
  lua_remove(L, -2);
}

#endif

/* lua_getfield, lua_rawgeti and lua_rawget that tell the type in both. [-0 or -1, +1] */
static inline int cb_lua_getfield(lua_State *L, int i, const char *key)
{
  lua_getfield(L, i, key);
  return lua_type(L, -1);
}

static inline int cb_lua_rawgeti(lua_State *L, int i, int n)
{
  lua_rawgeti(L, i, n);
  return lua_type(L, -1);
}

/* Pushes an integer: exactly, or as decimal text where the VM's numbers cannot hold it. */
void cb_lua_push_int(lua_State *L, int64_t v);
/* The integer at argument i; raises for anything else, text of digits included (value.c). */
int64_t cb_lua_check_int(lua_State *L, int i);
int64_t cb_lua_opt_int(lua_State *L, int i, int64_t otherwise);
#endif
