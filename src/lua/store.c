/* SPDX-License-Identifier: MIT
 * store.c: core.store(io, path), a database handle. */
#include "store/store.h"

#include "lua/lib.h"

#define STORE_MT "crewbox.store"

struct l_store {
  struct cb_store *store; /* NULL: closed. Anchored: the io userdata */
};

static int closed(lua_State *L)
{
  struct cb_err err = CB_ERR_INIT;
  cb_err_set(&err, CB_CLOSED, "the store is closed");
  return cb_lua_fail(L, &err);
}

static struct l_store *check(lua_State *L)
{
  return luaL_checkudata(L, 1, STORE_MT);
}

static int submit(lua_State *L, struct l_store *ud, enum cb_store_verb verb, json_t *args)
{
  struct cb_err err = CB_ERR_INIT;
  uint64_t op = 0;
  if (!ud->store) {
    json_decref(args);
    return closed(L);
  }
  if (cb_store_submit(ud->store, verb, args, &op, &err))
    return cb_lua_fail(L, &err);
  cb_lua_push_int(L, (int64_t)op);
  return 1;
}

/* Adds {sql, params?} from the two stack places to list or gives it alone; raises on misuse,
 * after freeing `owned`. */
static json_t *statement(lua_State *L, int sql, int params, json_t *owned, int arg)
{
  struct cb_err err = CB_ERR_INIT;
  size_t n = 0;
  const char *text = lua_type(L, sql) == LUA_TSTRING ? lua_tolstring(L, sql, &n) : NULL;
  json_t *values = NULL;
  if (!text) {
    json_decref(owned);
    luaL_argerror(L, arg, "SQL text expected");
  }
  if (!lua_isnoneornil(L, params)) {
    values = lua_istable(L, params) ? cb_lua_to_json(L, params, &err) : NULL;
    if (!values) {
      json_decref(owned);
      luaL_error(L, "bad parameters: %s", err.code ? err.text : "a table expected");
    }
  }
  json_t *out = json_object();
  json_object_set_new_nocheck(out, "sql", json_stringn_nocheck(text, n));
  json_object_set_new(out, "params", values ? values : json_array());
  return out;
}

static int store_query(lua_State *L)
{
  struct l_store *ud = check(L);
  luaL_checktype(L, 2, LUA_TSTRING);
  lua_settop(L, 3);
  return submit(L, ud, CB_STORE_QUERY, statement(L, 2, 3, NULL, 2));
}

static int store_batch(lua_State *L)
{
  struct l_store *ud = check(L);
  luaL_checktype(L, 2, LUA_TTABLE);
  int count = (int)lua_rawlen(L, 2);
  json_t *list = json_array();
  for (int i = 1; i <= count; i++) {
    lua_settop(L, 2);
    if (cb_lua_rawgeti(L, 2, i) != LUA_TTABLE) {
      json_decref(list);
      return luaL_argerror(L, 2, "a list of {sql, params?, changes = n?} expected");
    }
    lua_rawgeti(L, 3, 1);
    lua_rawgeti(L, 3, 2);
    json_t *one = statement(L, 4, 5, list, 2);
    if (cb_lua_getfield(L, 3, "changes") == LUA_TNUMBER)
      json_object_set_new(one, "changes", json_integer((json_int_t)lua_tonumber(L, -1)));
    json_array_append_new(list, one);
  }
  return submit(L, ud, CB_STORE_BATCH, list);
}

static int store_data_version(lua_State *L)
{
  return submit(L, check(L), CB_STORE_DATA_VERSION, NULL);
}

static int store_close(lua_State *L)
{
  struct l_store *ud = check(L);
  struct cb_store *s = ud->store;
  ud->store = NULL;
  cb_store_close(s);
  lua_pushboolean(L, 1);
  return 1;
}

static int store_end(lua_State *L) /* __gc, __close */
{
  store_close(L);
  return 0;
}

static int store_tostring(lua_State *L)
{
  struct l_store *ud = check(L);
  if (ud->store)
    lua_pushfstring(L, "crewbox.store (%p)", (void *)ud);
  else
    lua_pushliteral(L, "crewbox.store (closed)");
  return 1;
}

static int store_new(lua_State *L)
{
  struct cb_err err = CB_ERR_INIT;
  struct cb_io *io = cb_lua_check_io(L, 1);
  const char *path = luaL_checkstring(L, 2);
  struct l_store *ud = lua_newuserdatauv(L, sizeof *ud, 1);
  ud->store = NULL;
  luaL_setmetatable(L, STORE_MT);
  lua_pushvalue(L, 1);
  cb_lua_anchor(L, -2);
  if (!io)
    cb_err_set(&err, CB_CLOSED, "the I/O handle is closed or belongs to another process");
  else
    cb_store_open(&ud->store, io, path, &err);
  return err.code ? cb_lua_fail(L, &err) : 1;
}

static const luaL_Reg methods[] = {
  { "query", store_query },
  { "batch", store_batch },
  { "data_version", store_data_version },
  { "close", store_close },
  { NULL, NULL },
};

static const luaL_Reg meta[] = {
  { "__gc", store_end },
  { "__close", store_end },
  { "__tostring", store_tostring },
  { NULL, NULL },
};

void cb_lua_open_store(lua_State *L)
{
  luaL_newmetatable(L, STORE_MT);
  luaL_setfuncs(L, meta, 0);
  lua_pushliteral(L, STORE_MT);
  lua_setfield(L, -2, "__name");
  luaL_newlib(L, methods);
  lua_setfield(L, -2, "__index");
  lua_pop(L, 1);
  lua_pushcfunction(L, store_new);
  lua_setfield(L, -2, "store");
}
