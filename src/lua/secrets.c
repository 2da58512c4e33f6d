/* SPDX-License-Identifier: MIT
 * secrets.c: core.redactor, core.resolve and what belongs to them. Bytes that C makes live in a
 * userdata until Lua has its copy, so that a raise in between loses nothing. */
#include <string.h>

#include "secrets/redact.h"
#include "secrets/resolve.h"

#include "lua/lib.h"

#define REDACTOR_MT "crewbox.redactor"
#define STREAM_MT "crewbox.redact_stream"
#define BUF_MT "crewbox.secret_bytes"

enum { RESOLVED_MAX = 64 * 1024 * 1024 };

struct l_redactor {
  struct cb_redactor *r; /* NULL: closed */
};

struct l_stream {
  struct cb_redact_stream *s; /* NULL: closed. Anchored: the redactor userdata */
};

/* A buffer that the collector wipes and frees. [-0, +1] */
static struct cb_buf *push_buf(lua_State *L, size_t max)
{
  struct cb_buf *b = lua_newuserdatauv(L, sizeof *b, 1);
  cb_buf_init(b, max);
  luaL_setmetatable(L, BUF_MT);
  return b;
}

static int buf_gc(lua_State *L)
{
  cb_buf_clear_wiped(luaL_checkudata(L, 1, BUF_MT));
  return 0;
}

/* Pushes the bytes and frees them at once. [-0, +1] */
static int give_bytes(lua_State *L, struct cb_buf *b)
{
  lua_pushlstring(L, b->p ? b->p : "", b->len);
  cb_buf_clear_wiped(b);
  return 1;
}

static int closed(lua_State *L, const char *what)
{
  struct cb_err err = CB_ERR_INIT;
  cb_err_set(&err, CB_CLOSED, "the %s is closed", what);
  return cb_lua_fail(L, &err);
}

/* ---- redactor ------------------------------------------------------------------------------ */

/* The string field of the table at the top; raises naming the place. It stays alive with the
 * table. */
static const char *string_field(lua_State *L, const char *field, lua_Integer i, size_t *len)
{
  if (cb_lua_getfield(L, -1, field) != LUA_TSTRING)
    luaL_error(L, "redactor: [%d].%s must be a string", (int)i, field);
  const char *p = lua_tolstring(L, -1, len);
  lua_pop(L, 1);
  return p;
}

static int redactor_new(lua_State *L)
{
  struct cb_err err = CB_ERR_INIT;
  luaL_checktype(L, 1, LUA_TTABLE);
  lua_settop(L, 1);
  size_t count = lua_rawlen(L, 1), ignored;
  struct cb_secret *list = lua_newuserdatauv(L, (count + 1) * sizeof *list, 1);
  for (size_t i = 0; i < count; i++) {
    if (cb_lua_rawgeti(L, 1, (int)i + 1) != LUA_TTABLE)
      return luaL_argerror(L, 1, "a list of {name =, value =} expected");
    list[i].name = string_field(L, "name", (lua_Integer)i + 1, &ignored);
    list[i].value = string_field(L, "value", (lua_Integer)i + 1, &list[i].len);
    lua_pop(L, 1);
  }
  struct l_redactor *ud = lua_newuserdatauv(L, sizeof *ud, 1);
  ud->r = NULL;
  luaL_setmetatable(L, REDACTOR_MT);
  if (cb_redactor_new(&ud->r, list, count, &err))
    return cb_lua_fail(L, &err);
  lua_newtable(L);
  const char *name;
  for (size_t i = 0; (name = cb_redactor_skipped(ud->r, i)); i++) {
    lua_pushstring(L, name);
    lua_rawseti(L, -2, (int)i + 1);
  }
  return 2;
}

static int redactor_close(lua_State *L)
{
  struct l_redactor *ud = luaL_checkudata(L, 1, REDACTOR_MT);
  struct cb_redactor *r = ud->r;
  ud->r = NULL;
  cb_redactor_free(r);
  return 0;
}

static int redactor_mask(lua_State *L)
{
  struct l_redactor *ud = luaL_checkudata(L, 1, REDACTOR_MT);
  struct cb_err err = CB_ERR_INIT;
  size_t n;
  const char *p = luaL_checklstring(L, 2, &n);
  if (!ud->r)
    return closed(L, "redactor");
  struct cb_buf *out = push_buf(L, SIZE_MAX / 4);
  if (cb_redact_mask(ud->r, p, n, out, &err))
    return cb_lua_fail(L, &err);
  return give_bytes(L, out);
}

static int redactor_find(lua_State *L)
{
  struct l_redactor *ud = luaL_checkudata(L, 1, REDACTOR_MT);
  size_t n;
  const char *p = luaL_checklstring(L, 2, &n), *name;
  if (!ud->r)
    return closed(L, "redactor");
  cb_redact_find(ud->r, p, n, &name, NULL);
  lua_pushstring(L, name); /* NULL: nil */
  return 1;
}

static int shape_find(lua_State *L)
{
  size_t n;
  const char *p = luaL_checklstring(L, 1, &n);
  lua_pushstring(L, cb_redact_shape(p, n));
  return 1;
}

/* ---- streams ------------------------------------------------------------------------------- */

static int redactor_stream(lua_State *L)
{
  struct l_redactor *ud = luaL_checkudata(L, 1, REDACTOR_MT);
  struct cb_err err = CB_ERR_INIT;
  if (!ud->r)
    return closed(L, "redactor");
  struct l_stream *s = lua_newuserdatauv(L, sizeof *s, 1);
  s->s = NULL;
  luaL_setmetatable(L, STREAM_MT);
  lua_pushvalue(L, 1);
  cb_lua_anchor(L, -2);
  return cb_redact_stream_new(&s->s, ud->r, &err) ? cb_lua_fail(L, &err) : 1;
}

/* The stream, NULL when it or its redactor is closed. */
static struct cb_redact_stream *open_stream(lua_State *L)
{
  struct l_stream *ud = luaL_checkudata(L, 1, STREAM_MT);
  cb_lua_push_anchor(L, 1);
  struct l_redactor *r = luaL_testudata(L, -1, REDACTOR_MT);
  lua_pop(L, 1);
  return r && r->r ? ud->s : NULL;
}

static int stream_close(lua_State *L)
{
  struct l_stream *ud = luaL_checkudata(L, 1, STREAM_MT);
  struct cb_redact_stream *s = ud->s;
  ud->s = NULL;
  cb_redact_stream_free(s);
  return 0;
}

/* A stream that could not take all of its bytes has a hole: it is closed. */
static int stream_fail(lua_State *L, const struct cb_err *err)
{
  stream_close(L);
  return cb_lua_fail(L, err);
}

static int stream_feed(lua_State *L)
{
  struct cb_err err = CB_ERR_INIT;
  size_t n;
  const char *p = luaL_checklstring(L, 2, &n);
  struct cb_redact_stream *s = open_stream(L);
  if (!s)
    return closed(L, "stream");
  struct cb_buf *out = push_buf(L, SIZE_MAX / 4);
  if (cb_redact_feed(s, p, n, out, NULL, &err))
    return stream_fail(L, &err);
  return give_bytes(L, out);
}

static int stream_finish(lua_State *L)
{
  struct cb_err err = CB_ERR_INIT;
  struct cb_redact_stream *s = open_stream(L);
  if (!s)
    return closed(L, "stream");
  struct cb_buf *out = push_buf(L, SIZE_MAX / 4);
  if (cb_redact_finish(s, out, &err))
    return stream_fail(L, &err);
  return give_bytes(L, out);
}

static int stream_found(lua_State *L)
{
  struct cb_redact_stream *s = open_stream(L);
  if (!s)
    return closed(L, "stream");
  lua_pushstring(L, cb_redact_stream_found(s));
  return 1;
}

static int stream_held(lua_State *L)
{
  struct cb_redact_stream *s = open_stream(L);
  if (!s)
    return closed(L, "stream");
  cb_lua_push_int(L, (int64_t)cb_redact_held(s));
  return 1;
}

/* ---- references and environments ------------------------------------------------------------ */

/* Adds a name to the list at `list` once; `seen` is a set. [-0, +0] */
static void note_name(lua_State *L, int list, int seen, const char *name, size_t n)
{
  lua_pushlstring(L, name, n);
  lua_pushvalue(L, -1);
  lua_rawget(L, seen);
  bool is_new = lua_isnil(L, -1);
  lua_pop(L, 1);
  if (is_new) {
    lua_pushvalue(L, -1);
    lua_rawseti(L, list, (int)lua_rawlen(L, list) + 1);
    lua_pushvalue(L, -1);
    lua_pushboolean(L, 1);
    lua_rawset(L, seen);
  }
  lua_pop(L, 1);
}

static int references(lua_State *L)
{
  struct cb_reference r;
  size_t n;
  const char *text = luaL_checklstring(L, 1, &n);
  lua_settop(L, 1);
  lua_newtable(L);
  lua_newtable(L);
  for (size_t at = 0; cb_reference_next(text, n, at, &r); at = r.end)
    note_name(L, 2, 3, r.name, r.name_len);
  lua_settop(L, 2);
  return 1;
}

enum { VALUES = 2, MISSING = 3, SEEN = 4 }; /* stack places of resolve */

static const char *lookup(void *arg, const char *name, size_t n, size_t *len)
{
  lua_State *L = arg;
  lua_pushlstring(L, name, n);
  lua_rawget(L, VALUES);
  const char *p = lua_type(L, -1) == LUA_TSTRING ? lua_tolstring(L, -1, len) : NULL;
  lua_pop(L, 1); /* the table keeps the string */
  return p;
}

static void missing(void *arg, const char *name, size_t n)
{
  note_name(arg, MISSING, SEEN, name, n);
}

static int resolve(lua_State *L)
{
  struct cb_err err = CB_ERR_INIT;
  size_t n;
  const char *text = luaL_checklstring(L, 1, &n);
  luaL_checktype(L, VALUES, LUA_TTABLE);
  lua_settop(L, VALUES);
  lua_newtable(L);
  lua_newtable(L);
  struct cb_buf *out = push_buf(L, RESOLVED_MAX);
  if (cb_resolve(text, n, lookup, missing, L, out, &err))
    return cb_lua_fail(L, &err);
  give_bytes(L, out);
  lua_pushvalue(L, MISSING);
  return 2;
}

static int merge_env(lua_State *L)
{
  luaL_checktype(L, 1, LUA_TTABLE);
  lua_settop(L, 1);
  size_t count = 0, n = 0, layers = lua_rawlen(L, 1);
  for (size_t i = 1; i <= layers; i++) { /* count and check first: nothing is owned yet */
    if (cb_lua_rawgeti(L, 1, (int)i) != LUA_TTABLE)
      return luaL_argerror(L, 1, "a list of tables expected");
    for (lua_pushnil(L); lua_next(L, 2); lua_pop(L, 1)) {
      size_t len;
      if (lua_type(L, -2) != LUA_TSTRING || lua_type(L, -1) != LUA_TSTRING)
        return luaL_error(L, "merge_env: names and values must be strings");
      const char *name = lua_tolstring(L, -2, &len);
      if (!cb_env_name_ok(name, len))
        return luaL_error(L, "merge_env: \"%s\" is not the name of a variable", name);
      count++;
    }
    lua_settop(L, 1);
  }
  struct cb_env_var *vars = lua_newuserdatauv(L, (count + 1) * sizeof *vars, 1);
  for (size_t i = 1; i <= layers; i++) {
    lua_rawgeti(L, 1, (int)i);
    for (lua_pushnil(L); lua_next(L, 3); lua_pop(L, 1)) {
      vars[n].name = lua_tolstring(L, -2, &vars[n].name_len);
      vars[n].value = lua_tolstring(L, -1, &vars[n].value_len);
      n++;
    }
    lua_settop(L, 2);
  }
  n = cb_env_merge(vars, n);
  lua_createtable(L, 0, (int)n);
  for (size_t i = 0; i < n; i++) {
    lua_pushlstring(L, vars[i].name, vars[i].name_len);
    lua_pushlstring(L, vars[i].value, vars[i].value_len);
    lua_rawset(L, -3);
  }
  return 1;
}

static int is_secret(lua_State *L)
{
  size_t n;
  const char *p = luaL_checklstring(L, 1, &n);
  lua_pushboolean(L, cb_secret_is(p, n));
  return 1;
}

static int header_value(lua_State *L)
{
  struct cb_err err = CB_ERR_INIT;
  size_t n;
  const char *what = luaL_checkstring(L, 1), *value = luaL_checklstring(L, 2, &n);
  if (cb_header_value(what, &value, &n, &err))
    return cb_lua_fail(L, &err);
  lua_pushlstring(L, value, n);
  return 1;
}

static const luaL_Reg redactor_methods[] = {
  { "stream", redactor_stream }, { "mask", redactor_mask },   { "find", redactor_find },
  { "close", redactor_close },   { NULL, NULL },
};

static const luaL_Reg stream_methods[] = {
  { "feed", stream_feed },   { "finish", stream_finish }, { "found", stream_found },
  { "held", stream_held },   { "close", stream_close },   { NULL, NULL },
};

static const luaL_Reg redactor_meta[] = {
  { "__gc", redactor_close }, { "__close", redactor_close }, { NULL, NULL },
};

static const luaL_Reg stream_meta[] = {
  { "__gc", stream_close }, { "__close", stream_close }, { NULL, NULL },
};

static const luaL_Reg functions[] = {
  { "redactor", redactor_new },     { "redact_shape", shape_find }, { "references", references },
  { "resolve", resolve },           { "merge_env", merge_env },     { "is_secret", is_secret },
  { "header_value", header_value }, { NULL, NULL },
};

static void new_type(lua_State *L, const char *name, const luaL_Reg *meta, const luaL_Reg *methods)
{
  luaL_newmetatable(L, name);
  luaL_setfuncs(L, meta, 0);
  lua_pushstring(L, name);
  lua_setfield(L, -2, "__name");
  lua_newtable(L);
  luaL_setfuncs(L, methods, 0);
  lua_setfield(L, -2, "__index");
  lua_pop(L, 1);
}

void cb_lua_open_secrets(lua_State *L)
{
  luaL_newmetatable(L, BUF_MT);
  lua_pushcfunction(L, buf_gc);
  lua_setfield(L, -2, "__gc");
  lua_pop(L, 1);
  new_type(L, REDACTOR_MT, redactor_meta, redactor_methods);
  new_type(L, STREAM_MT, stream_meta, stream_methods);
  luaL_setfuncs(L, functions, 0);
}
