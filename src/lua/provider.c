/* SPDX-License-Identifier: MIT
 * provider.c: core.provider(io, kind, settings): one method a verb, each an op. */
#include "providers/provider.h"

#include "base/alloc.h"
#include "lua/lib.h"

#define PROVIDER_MT "crewbox.provider"

struct l_provider {
  struct cb_provider *p; /* NULL: closed. Anchored: the io userdata */
};

struct verb_op {
  struct cb_io *io;
  uint64_t id;
  struct cb_provider *p;
  cb_verb *verb;
  json_t *args;
};

static void free_op(struct verb_op *op)
{
  json_decref(op->args);
  cb_free(op);
}

static void verb_done(void *arg, json_t *value, const struct cb_err *err)
{
  struct verb_op *op = arg;
  cb_io_complete(op->io, op->id, value, err, false);
  free_op(op);
}

static void verb_start(struct cb_io *io, void *arg)
{
  struct verb_op *op = arg;
  (void)io;
  cb_provider_call(op->p, op->verb, op->args, verb_done, op);
}

static void verb_cancel(void *arg)
{
  struct verb_op *op = arg;
  cb_provider_cancel(op->p, verb_done, op);
}

struct cb_provider *cb_lua_check_provider(lua_State *L, int i)
{
  struct l_provider *ud = luaL_checkudata(L, i, PROVIDER_MT);
  return ud->p && cb_io_alive(ud->p->io) ? ud->p : NULL;
}

/* The table at index i as JSON; none and nil are {}. Raises on misuse. */
static json_t *check_table(lua_State *L, int i)
{
  struct cb_err err = CB_ERR_INIT;
  if (lua_isnoneornil(L, i))
    return json_object();
  luaL_checktype(L, i, LUA_TTABLE);
  json_t *v = cb_lua_to_json(L, i, &err);
  if (json_is_array(v) && json_array_size(v) == 0) {
    json_decref(v);
    v = json_object();
  }
  if (!json_is_object(v)) {
    json_decref(v);
    luaL_argerror(L, i, err.code ? err.text : "a table of named arguments expected");
  }
  return v;
}

/* Every verb: the vtable's member is the upvalue. */
static int call_verb(lua_State *L)
{
  struct cb_err err = CB_ERR_INIT;
  struct cb_provider *p = cb_lua_check_provider(L, 1);
  const char *name = lua_tostring(L, lua_upvalueindex(1));
  json_t *args = check_table(L, 2);
  struct verb_op *op = p ? cb_calloc(1, sizeof *op) : NULL;
  if (!op) {
    json_decref(args);
    if (p)
      cb_err_no_memory(&err);
    else
      cb_err_set(&err, CB_CLOSED, "the provider is closed");
    return cb_lua_fail(L, &err);
  }
  op->io = p->io;
  op->p = p;
  op->verb = cb_provider_verb(p, name);
  op->args = args;
  uint64_t id = op->id = cb_io_op(p->io, verb_cancel, op);
  if (id == 0)
    cb_err_no_memory(&err);
  else if (cb_io_post(p->io, verb_start, op, &err))
    cb_io_forget(p->io, id);
  if (err.code) {
    free_op(op);
    return cb_lua_fail(L, &err);
  }
  cb_lua_push_int(L, (int64_t)id);
  return 1;
}

static int provider_close(lua_State *L)
{
  struct l_provider *ud = luaL_checkudata(L, 1, PROVIDER_MT);
  struct cb_provider *p = ud->p;
  ud->p = NULL;
  cb_provider_close(p);
  lua_pushboolean(L, 1);
  return 1;
}

static int provider_end(lua_State *L) /* __gc, __close */
{
  provider_close(L);
  return 0;
}

static int provider_tostring(lua_State *L)
{
  struct l_provider *ud = luaL_checkudata(L, 1, PROVIDER_MT);
  if (ud->p)
    lua_pushfstring(L, "crewbox.provider %s (%p)", ud->p->ops->kind, (void *)ud);
  else
    lua_pushliteral(L, "crewbox.provider (closed)");
  return 1;
}

static int provider_new(lua_State *L)
{
  struct cb_err err = CB_ERR_INIT;
  struct cb_io *io = cb_lua_check_io(L, 1);
  const char *kind = luaL_checkstring(L, 2);
  lua_settop(L, 3);
  struct l_provider *ud = lua_newuserdatauv(L, sizeof *ud, 1);
  ud->p = NULL;
  luaL_setmetatable(L, PROVIDER_MT);
  lua_pushvalue(L, 1);
  cb_lua_anchor(L, 4);
  json_t *settings = check_table(L, 3);
  if (!io)
    cb_err_set(&err, CB_CLOSED, "the I/O handle is closed or belongs to another process");
  else
    cb_provider_open(&ud->p, io, kind, settings, &err);
  json_decref(settings);
  return err.code ? cb_lua_fail(L, &err) : 1;
}

static const luaL_Reg meta[] = {
  { "__gc", provider_end },
  { "__close", provider_end },
  { "__tostring", provider_tostring },
  { NULL, NULL },
};

void cb_lua_open_provider(lua_State *L)
{
  luaL_newmetatable(L, PROVIDER_MT);
  luaL_setfuncs(L, meta, 0);
  lua_pushliteral(L, PROVIDER_MT);
  lua_setfield(L, -2, "__name");
  lua_newtable(L);
#define CB_X(verb)                     \
  lua_pushliteral(L, #verb);           \
  lua_pushcclosure(L, call_verb, 1);   \
  lua_setfield(L, -2, #verb);
  CB_VERBS(CB_X)
#undef CB_X
  lua_pushcfunction(L, provider_close);
  lua_setfield(L, -2, "close");
  lua_setfield(L, -2, "__index");
  lua_pop(L, 1);
  lua_pushcfunction(L, provider_new);
  lua_setfield(L, -2, "provider");
}
