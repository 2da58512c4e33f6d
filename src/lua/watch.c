/* SPDX-License-Identifier: MIT
 * watch.c: core.watch(io, {max_parallel}): leases and runs as ops with many completions. */
#include "watch/watch.h"

#include "base/alloc.h"
#include "lua/lib.h"

#define WATCH_MT "crewbox.watch"

struct l_watch {
  struct cb_watch *w; /* NULL: closed. Anchored: the io userdata */
  struct cb_io *io;   /* kept: jobs may still be ending when the handle is collected */
};

typedef struct cb_watch_job *job_start(struct cb_watch *w, struct cb_provider *p,
                                       const json_t *args, cb_watch_event *on_event, void *arg,
                                       struct cb_err *err);

/* Made on the Lua thread, lives on the I/O thread until the last event. */
struct job_op {
  struct cb_io *io;
  uint64_t id;
  struct cb_watch *w;
  struct cb_provider *p;
  job_start *start;
  json_t *args;
  struct cb_watch_job *job; /* NULL before the start */
};

static void free_op(struct job_op *op)
{
  json_decref(op->args);
  cb_free(op);
}

static void on_event(void *arg, json_t *event, const struct cb_err *err, bool more)
{
  struct job_op *op = arg;
  cb_io_complete(op->io, op->id, event, err, more);
  if (!more)
    free_op(op);
}

static void job_begin(struct cb_io *io, void *arg)
{
  struct job_op *op = arg;
  struct cb_err err = CB_ERR_INIT;
  (void)io;
  op->job = op->start(op->w, op->p, op->args, on_event, op, &err);
  if (op->job) {
    cb_watch_set_tag(op->job, op->id);
  } else {
    cb_io_complete(op->io, op->id, NULL, &err, false);
    free_op(op);
  }
}

static void job_cancel(void *arg)
{
  struct job_op *op = arg;
  cb_watch_cancel(op->job);
}

static struct l_watch *check(lua_State *L)
{
  return luaL_checkudata(L, 1, WATCH_MT);
}

static int closed(lua_State *L, const char *what)
{
  struct cb_err err = CB_ERR_INIT;
  cb_err_set(&err, CB_CLOSED, "the %s is closed", what);
  return cb_lua_fail(L, &err);
}

/* The arguments without the provider, which is no JSON. [-0, +1] */
static void push_plain(lua_State *L, int i)
{
  lua_newtable(L);
  lua_pushnil(L);
  while (lua_next(L, i)) {
    if (lua_type(L, -2) == LUA_TSTRING && lua_type(L, -1) == LUA_TUSERDATA) {
      lua_pop(L, 1);
      continue;
    }
    lua_pushvalue(L, -2);
    lua_insert(L, -2);
    lua_rawset(L, -4);
  }
}

static int submit(lua_State *L, job_start *start)
{
  struct cb_err err = CB_ERR_INIT;
  struct l_watch *ud = check(L);
  luaL_checktype(L, 2, LUA_TTABLE);
  lua_settop(L, 2);
  lua_getfield(L, 2, "provider");
  struct cb_provider *p = cb_lua_check_provider(L, 3);
  if (!ud->w || !cb_io_alive(ud->io))
    return closed(L, "watch");
  if (!p)
    return closed(L, "provider");
  push_plain(L, 2);
  json_t *args = cb_lua_to_json(L, 4, &err);
  if (!args)
    return luaL_argerror(L, 2, err.text);
  struct job_op *op = cb_calloc(1, sizeof *op);
  if (!op) {
    json_decref(args);
    cb_err_no_memory(&err);
    return cb_lua_fail(L, &err);
  }
  op->io = ud->io;
  op->w = ud->w;
  op->p = p;
  op->start = start;
  op->args = args;
  uint64_t id = op->id = cb_io_op(ud->io, job_cancel, op);
  if (id == 0)
    cb_err_no_memory(&err);
  else if (cb_io_post(ud->io, job_begin, op, &err))
    cb_io_forget(ud->io, id);
  if (err.code) {
    free_op(op);
    return cb_lua_fail(L, &err);
  }
  cb_lua_push_int(L, (int64_t)id);
  return 1;
}

static int watch_lease(lua_State *L)
{
  return submit(L, cb_watch_lease);
}

static int watch_run(lua_State *L)
{
  return submit(L, cb_watch_run);
}

struct poke {
  struct cb_watch *w;
  uint64_t op;
};

static void poke_now(struct cb_io *io, void *arg)
{
  struct poke *poke = arg;
  struct cb_watch_job *job = cb_watch_by_tag(poke->w, poke->op);
  (void)io;
  if (job)
    cb_watch_poke(job);
  cb_free(poke);
}

static int watch_poke(lua_State *L)
{
  struct cb_err err = CB_ERR_INIT;
  struct l_watch *ud = check(L);
  int64_t id = cb_lua_check_int(L, 2);
  if (!ud->w)
    return closed(L, "watch");
  struct poke *poke = cb_malloc(sizeof *poke);
  if (!poke) {
    cb_err_no_memory(&err);
    return cb_lua_fail(L, &err);
  }
  poke->w = ud->w;
  poke->op = (uint64_t)id;
  if (cb_io_post(ud->io, poke_now, poke, &err)) {
    cb_free(poke);
    return cb_lua_fail(L, &err);
  }
  lua_pushboolean(L, 1);
  return 1;
}

static int watch_close(lua_State *L)
{
  struct l_watch *ud = check(L);
  struct cb_watch *w = ud->w;
  ud->w = NULL;
  cb_watch_free(w);
  cb_io_drop(ud->io);
  ud->io = NULL;
  lua_pushboolean(L, 1);
  return 1;
}

static int watch_end(lua_State *L) /* __gc, __close */
{
  watch_close(L);
  return 0;
}

static int watch_tostring(lua_State *L)
{
  struct l_watch *ud = check(L);
  if (ud->w)
    lua_pushfstring(L, "crewbox.watch (%p)", (void *)ud);
  else
    lua_pushliteral(L, "crewbox.watch (closed)");
  return 1;
}

enum { MAX_PARALLEL = 64 };

static int watch_new(lua_State *L)
{
  struct cb_err err = CB_ERR_INIT;
  struct cb_io *io = cb_lua_check_io(L, 1);
  int64_t parallel = MAX_PARALLEL;
  lua_settop(L, 2);
  if (!lua_isnil(L, 2)) {
    luaL_checktype(L, 2, LUA_TTABLE);
    lua_getfield(L, 2, "max_parallel");
    parallel = cb_lua_opt_int(L, 3, MAX_PARALLEL);
    luaL_argcheck(L, parallel >= 1 && parallel <= 1024, 2, "max_parallel is 1 to 1024");
  }
  lua_settop(L, 1);
  struct l_watch *ud = lua_newuserdatauv(L, sizeof *ud, 1);
  ud->w = NULL;
  ud->io = NULL;
  luaL_setmetatable(L, WATCH_MT);
  lua_pushvalue(L, 1);
  cb_lua_anchor(L, 2);
  if (!io)
    cb_err_set(&err, CB_CLOSED, "the I/O handle is closed or belongs to another process");
  else if (cb_watch_new(&ud->w, io, (int)parallel, &err) == CB_OK)
    ud->io = cb_io_keep(io);
  return err.code ? cb_lua_fail(L, &err) : 1;
}

static const luaL_Reg methods[] = {
  { "lease", watch_lease },
  { "run", watch_run },
  { "poke", watch_poke },
  { "close", watch_close },
  { NULL, NULL },
};

static const luaL_Reg meta[] = {
  { "__gc", watch_end },
  { "__close", watch_end },
  { "__tostring", watch_tostring },
  { NULL, NULL },
};

void cb_lua_open_watch(lua_State *L)
{
  luaL_newmetatable(L, WATCH_MT);
  luaL_setfuncs(L, meta, 0);
  lua_pushliteral(L, WATCH_MT);
  lua_setfield(L, -2, "__name");
  luaL_newlib(L, methods);
  lua_setfield(L, -2, "__index");
  lua_pop(L, 1);
  lua_pushcfunction(L, watch_new);
  lua_setfield(L, -2, "watch");
}
