/* SPDX-License-Identifier: MIT
 * value.c: values between Lua and the core: JSON trees, errors, exact integers. */
#include <math.h>
#include <stdio.h>

#include "lua/lib.h"

#define ERROR_MT "crewbox.error"
#define ARRAY_MT "crewbox.array"

enum { DEPTH_MAX = 32 };

/* ---- integers ---------------------------------------------------------------------------- */

void cb_lua_push_int(lua_State *L, int64_t v)
{
#if LUA_VERSION_NUM >= 504
  lua_pushinteger(L, v);
#else
  if (v >= -CB_LUA_EXACT && v <= CB_LUA_EXACT) {
    lua_pushnumber(L, (lua_Number)v);
  } else {
    char text[24];
    int n = snprintf(text, sizeof text, "%lld", (long long)v);
    lua_pushlstring(L, text, (size_t)n);
  }
#endif
}

/* The integer at index i when there is one: an integer, or a float that is exactly one. */
static bool to_int(lua_State *L, int i, int64_t *out)
{
  if (lua_type(L, i) != LUA_TNUMBER)
    return false;
#if LUA_VERSION_NUM >= 504
  if (lua_isinteger(L, i)) {
    *out = lua_tointeger(L, i);
    return true;
  }
#endif
  lua_Number d = lua_tonumber(L, i);
  if (!(d >= -(lua_Number)CB_LUA_EXACT && d <= (lua_Number)CB_LUA_EXACT) || d != floor(d))
    return false;
  *out = (int64_t)d;
  return true;
}

int64_t cb_lua_check_int(lua_State *L, int i)
{
  int64_t v = 0;
  luaL_checktype(L, i, LUA_TNUMBER);
  if (!to_int(L, i, &v))
    luaL_argerror(L, i, "number has no integer representation");
  return v;
}

int64_t cb_lua_opt_int(lua_State *L, int i, int64_t otherwise)
{
  return lua_isnoneornil(L, i) ? otherwise : cb_lua_check_int(L, i);
}

/* ---- JSON to Lua ------------------------------------------------------------------------- */

void cb_lua_push_json(lua_State *L, const json_t *v)
{
  luaL_checkstack(L, 4, "value nested too deeply");
  if (!v) {
    lua_pushnil(L);
    return;
  }
  switch (json_typeof(v)) {
  case JSON_OBJECT: {
    const char *key;
    json_t *item;
    /* The iterator macro wants a non-const object; nothing is changed. */
    json_t *o = (json_t *)(uintptr_t)v;
    lua_createtable(L, 0, (int)json_object_size(v));
    size_t len;
    json_object_keylen_foreach(o, key, len, item) {
      lua_pushlstring(L, key, len);
      cb_lua_push_json(L, item);
      lua_rawset(L, -3);
    }
    break;
  }
  case JSON_ARRAY:
    lua_createtable(L, (int)json_array_size(v), 0);
    luaL_setmetatable(L, ARRAY_MT); /* an empty one is still an array on its way back */
    for (size_t i = 0; i < json_array_size(v); i++) {
      cb_lua_push_json(L, json_array_get(v, i));
      lua_rawseti(L, -2, (int)i + 1);
    }
    break;
  case JSON_STRING:
    lua_pushlstring(L, json_string_value(v), json_string_length(v));
    break;
  case JSON_INTEGER:
    cb_lua_push_int(L, json_integer_value(v));
    break;
  case JSON_REAL:
    lua_pushnumber(L, json_real_value(v));
    break;
  case JSON_TRUE:
  case JSON_FALSE:
    lua_pushboolean(L, json_is_true(v));
    break;
  case JSON_NULL:
    lua_pushlightuserdata(L, NULL);
    break;
  }
}

/* ---- Lua to JSON ------------------------------------------------------------------------- */

static json_t *convert(lua_State *L, int i, int depth, struct cb_err *err);

static json_t *misuse(struct cb_err *err, const char *what)
{
  cb_err_set(err, CB_INVALID, "%s", what);
  return NULL;
}

static bool has_array_mt(lua_State *L, int i)
{
  if (!lua_getmetatable(L, i))
    return false;
  luaL_getmetatable(L, ARRAY_MT);
  bool is = lua_rawequal(L, -1, -2);
  lua_pop(L, 2);
  return is;
}

static json_t *convert_array(lua_State *L, int i, int depth, struct cb_err *err)
{
  size_t n = lua_rawlen(L, i), keys = 0;
  json_t *out = json_array();
  if (!out)
    return misuse(err, "out of memory");
  for (size_t k = 1; k <= n; k++) {
    lua_rawgeti(L, i, (int)k);
    json_t *item = lua_isnil(L, -1) ? misuse(err, "list with a hole")
                                    : convert(L, lua_gettop(L), depth + 1, err);
    lua_pop(L, 1);
    if (!item || json_array_append_new(out, item) < 0) {
      json_decref(out);
      return item ? misuse(err, "out of memory") : NULL;
    }
  }
  lua_pushnil(L);
  while (lua_next(L, i)) {
    lua_pop(L, 1);
    keys++;
  }
  if (keys == n)
    return out;
  json_decref(out);
  return misuse(err, "list with a hole or with named fields");
}

static json_t *convert_object(lua_State *L, int i, int depth, struct cb_err *err)
{
  json_t *out = json_object();
  if (!out)
    return misuse(err, "out of memory");
  lua_pushnil(L);
  while (lua_next(L, i)) {
    /* The type is asked before lua_tolstring, which would change a number key in place and
     * so break lua_next. */
    if (lua_type(L, -2) != LUA_TSTRING) {
      misuse(err, "table with a key that is neither a name nor part of a list");
      goto fail;
    }
    size_t len;
    const char *key = lua_tolstring(L, -2, &len);
    json_t *item = convert(L, lua_gettop(L), depth + 1, err);
    if (!item)
      goto fail;
    if (json_object_setn_new_nocheck(out, key, len, item) < 0) {
      misuse(err, "out of memory");
      goto fail;
    }
    lua_pop(L, 1);
  }
  return out;
fail:
  lua_pop(L, 2);
  json_decref(out);
  return NULL;
}

static json_t *convert_table(lua_State *L, int i, int depth, struct cb_err *err)
{
  if (depth >= DEPTH_MAX)
    return misuse(err, "value nested more than 32 deep");
  if (!lua_checkstack(L, 8))
    return misuse(err, "out of memory");
  bool array = has_array_mt(L, i);
  if (!array) {
    lua_rawgeti(L, i, 1);
    array = !lua_isnil(L, -1);
    lua_pop(L, 1);
  }
  return array ? convert_array(L, i, depth, err) : convert_object(L, i, depth, err);
}

static json_t *convert_number(lua_State *L, int i, struct cb_err *err)
{
  int64_t whole;
  if (to_int(L, i, &whole))
    return json_integer(whole);
  lua_Number d = lua_tonumber(L, i);
  if (!isfinite(d))
    return misuse(err, "number that is not finite");
  return json_real(d);
}

static json_t *convert(lua_State *L, int i, int depth, struct cb_err *err)
{
  json_t *out = NULL;
  switch (lua_type(L, i)) {
  case LUA_TSTRING: {
    size_t n;
    const char *s = lua_tolstring(L, i, &n);
    out = json_stringn_nocheck(s, n);
    break;
  }
  case LUA_TNUMBER:
    out = convert_number(L, i, err);
    if (!out && err && err->code != CB_OK)
      return NULL;
    break;
  case LUA_TBOOLEAN:
    out = json_boolean(lua_toboolean(L, i));
    break;
  case LUA_TTABLE:
    return convert_table(L, i, depth, err);
  case LUA_TLIGHTUSERDATA:
    if (lua_touserdata(L, i))
      return misuse(err, "a light userdata other than core.null");
    out = json_null();
    break;
  default:
    cb_err_set(err, CB_INVALID, "a %s cannot be part of a value", luaL_typename(L, i));
    return NULL;
  }
  if (!out)
    misuse(err, "out of memory");
  return out;
}

json_t *cb_lua_to_json(lua_State *L, int i, struct cb_err *err)
{
  struct cb_err mine = CB_ERR_INIT;
  json_t *out = convert(L, lua_absindex(L, i), 0, &mine);
  if (!out && err)
    *err = mine;
  return out;
}

/* ---- errors ------------------------------------------------------------------------------ */

void cb_lua_push_err(lua_State *L, const struct cb_err *err)
{
  lua_createtable(L, 0, 4);
  lua_pushstring(L, cb_code_name(err->code));
  lua_setfield(L, -2, "code");
  lua_pushstring(L, err->text);
  lua_setfield(L, -2, "message");
  if (err->status) {
    lua_pushinteger(L, err->status);
    lua_setfield(L, -2, "status");
  }
  if (err->sys) {
    lua_pushinteger(L, err->sys);
    lua_setfield(L, -2, "errno");
  }
  if (err->code == CB_RATE_LIMITED || err->retry_after_ms) {
    cb_lua_push_int(L, err->retry_after_ms);
    lua_setfield(L, -2, "retry_after_ms");
  }
  if (err->unknown) {
    lua_pushboolean(L, 1);
    lua_setfield(L, -2, "unknown");
  }
  luaL_setmetatable(L, ERROR_MT);
}

int cb_lua_fail(lua_State *L, const struct cb_err *err)
{
  lua_pushnil(L);
  cb_lua_push_err(L, err);
  return 2;
}

/* "code: message", whatever somebody put into the table since. */
static int error_tostring(lua_State *L)
{
  luaL_checktype(L, 1, LUA_TTABLE);
  lua_getfield(L, 1, "code");
  lua_getfield(L, 1, "message");
  const char *code = lua_tostring(L, -2), *message = lua_tostring(L, -1);
  lua_pushfstring(L, "%s: %s", code ? code : "?", message ? message : "?");
  return 1;
}

/* core.as_array(t) marks t as a list and gives it back. */
static int as_array(lua_State *L)
{
  luaL_checktype(L, 1, LUA_TTABLE);
  lua_settop(L, 1);
  luaL_setmetatable(L, ARRAY_MT);
  return 1;
}

void cb_lua_open_value(lua_State *L)
{
  lua_pushlightuserdata(L, NULL);
  lua_setfield(L, -2, "null");

  luaL_newmetatable(L, ARRAY_MT);
  lua_pushliteral(L, ARRAY_MT);
  lua_setfield(L, -2, "__name");
  lua_setfield(L, -2, "array");
  lua_pushcfunction(L, as_array);
  lua_setfield(L, -2, "as_array");

  luaL_newmetatable(L, ERROR_MT);
  lua_pushliteral(L, ERROR_MT);
  lua_setfield(L, -2, "__name");
  lua_pushcfunction(L, error_tostring);
  lua_setfield(L, -2, "__tostring");
  lua_setfield(L, -2, "error_mt");
}
