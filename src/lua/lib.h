/* SPDX-License-Identifier: MIT
 * lib.h: what the binding files share. One file a library of the module; each has an opener
 * that adds its functions to the table on top of the stack. [-0, +0] */
#ifndef CB_LUA_LIB_H
#define CB_LUA_LIB_H
#include <jansson.h>
#include <stdbool.h>
#include "base/err.h"
#include "lua/compat.h"

struct cb_io;

/* The openers, called by luaopen_crewbox_core in this order with the module table on top. */
void cb_lua_open_value(lua_State *L);    /* value.c: null, error_mt */
void cb_lua_open_io(lua_State *L);       /* io.c */
void cb_lua_open_store(lua_State *L);    /* store.c */
void cb_lua_open_provider(lua_State *L); /* provider.c */
void cb_lua_open_watch(lua_State *L);    /* watch.c */
void cb_lua_open_secrets(lua_State *L);  /* secrets.c */
void cb_lua_open_tree(lua_State *L);     /* tree.c */
void cb_lua_open_sys(lua_State *L);      /* sys.c */

/* value.c ------------------------------------------------------------------------------- */

/* Pushes a JSON value as Lua: objects and arrays as tables, integers exactly (strings beyond
 * 2^53 under LuaJIT), null as core.null, strings as bytes. Borrows v; NULL pushes nil. [-0, +1] */
void cb_lua_push_json(lua_State *L, const json_t *v);
/* Makes JSON of the value at index i. A table with a non-nil [1] or no keys at all and a set
 * metatable core.array is an array, other tables are objects (string keys only). Strings may
 * hold any bytes. Depth at most 32. On misuse returns NULL with a message in *err; raises
 * only when Lua itself runs out of memory. [-0, +0] */
json_t *cb_lua_to_json(lua_State *L, int i, struct cb_err *err);
/* Pushes nil and the error table; returns 2. [-0, +2] */
int cb_lua_fail(lua_State *L, const struct cb_err *err);
/* Pushes only the error table. [-0, +1] */
void cb_lua_push_err(lua_State *L, const struct cb_err *err);

/* io.c ---------------------------------------------------------------------------------- */

/* The handle at index i; raises when it is not one, returns NULL when it is closed (callers
 * answer nil, {code="closed"}). */
struct cb_io *cb_lua_check_io(lua_State *L, int i);

/* provider.c ---------------------------------------------------------------------------- */

/* The provider at index i; raises when it is not one, returns NULL when it is closed. */
struct cb_provider;
struct cb_provider *cb_lua_check_provider(lua_State *L, int i);
#endif
