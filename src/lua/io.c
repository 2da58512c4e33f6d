/* SPDX-License-Identifier: MIT
 * io.c: core.io(), the I/O handle. Each waiting method turns its options into JSON on the Lua
 * side (where mistakes raise) and starts on the I/O side, where Lua is out of reach. */
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "lua/lib.h"
#include "net/host_file.h"
#include "net/host_proc.h"
#include "net/http.h"
#include "net/io.h"
#include "net/local_server.h"
#include "net/process.h"
#include "net/wake_socket.h"

#define IO_MT "crewbox.io"

struct l_io {
  struct cb_io *io;              /* NULL until made */
  struct cb_completion *pending; /* drained, not yet in Lua: survives an error half way */
};

/* ---- options ----------------------------------------------------------------------------- */

enum kind { TEXT, PATH, NUMBER, FLAG, LIST, ENVIRONMENT };

struct option {
  const char *name;
  enum kind kind;
  bool required;
};

static bool list_of_text(const json_t *v)
{
  if (!json_is_array(v))
    return json_is_object(v) && json_object_size(v) == 0; /* {} */
  for (size_t i = 0; i < json_array_size(v); i++) {
    const json_t *item = json_array_get(v, i);
    if (!json_is_string(item) || strlen(json_string_value(item)) != json_string_length(item))
      return false;
  }
  return true;
}

/* {"K=V", ...} or {K = "V", ...} */
static bool environment(const json_t *v)
{
  const char *key;
  json_t *item;
  if (!json_is_object(v))
    return list_of_text(v);
  json_object_foreach((json_t *)(uintptr_t)v, key, item) {
    if (strchr(key, '=') || !*key || !json_is_string(item) ||
        strlen(json_string_value(item)) != json_string_length(item))
      return false;
  }
  return true;
}

static bool fits(const json_t *v, const struct option *o)
{
  switch (o->kind) {
  case TEXT:
    return json_is_string(v);
  case PATH:
    return json_string_length(v) > 0 && strlen(json_string_value(v)) == json_string_length(v);
  case NUMBER:
    return json_is_number(v);
  case FLAG:
    return json_is_boolean(v);
  case LIST:
    return list_of_text(v);
  case ENVIRONMENT:
    return environment(v);
  }
  return false;
}

/* The options table at argument 2 as JSON, checked; raises on any mistake. */
static json_t *check_options(lua_State *L, const struct option *list, size_t count)
{
  static const char *const words[] = { "a string", "a path", "a number", "a boolean",
                                       "a list of strings without zeros",
                                       "{NAME = value} or a list of \"NAME=value\"" };
  struct cb_err err = CB_ERR_INIT;
  const char *key;
  json_t *item;
  luaL_checktype(L, 2, LUA_TTABLE);
  json_t *o = cb_lua_to_json(L, 2, &err);
  if (o && !json_is_object(o)) {
    cb_err_set(&err, CB_INVALID, "a table of named options expected");
  } else if (o) {
    json_object_foreach(o, key, item) {
      size_t i = 0;
      while (i < count && strcmp(key, list[i].name) != 0)
        i++;
      if (i == count)
        cb_err_set(&err, CB_INVALID, "unknown option '%.40s'", key);
      else if (!fits(item, &list[i]))
        cb_err_set(&err, CB_INVALID, "option '%s' must be %s", key, words[list[i].kind]);
    }
    for (size_t i = 0; i < count; i++) {
      if (list[i].required && !json_object_get(o, list[i].name))
        cb_err_set(&err, CB_INVALID, "option '%s' is missing", list[i].name);
    }
  }
  if (err.code) {
    json_decref(o);
    luaL_argerror(L, 2, err.text);
  }
  return o;
}

static int64_t number(const json_t *o, const char *name)
{
  double d = json_number_value(json_object_get(o, name));
  return d > 1e15 ? (int64_t)1e15 : d < -1 ? -1 : (int64_t)d;
}

static const char *text(const json_t *o, const char *name)
{
  return json_string_value(json_object_get(o, name));
}

/* ---- ops --------------------------------------------------------------------------------- */

struct op {
  struct cb_io *io;
  uint64_t id;
  json_t *args;
  void *handle; /* what runs, for cancel */
  json_t *value; /* of work on the worker thread, until it is told */
  struct cb_err err;
};

static void free_op(struct op *op)
{
  json_decref(op->args);
  cb_free(op);
}

/* The last completion: after it the op is gone. */
static void end_op(struct op *op, json_t *value, const struct cb_err *err)
{
  cb_io_complete(op->io, op->id, value, err, false);
  free_op(op);
}

/* Makes an op of args (taken) and starts it on the I/O thread: op, or nil and an error. */
static int submit(lua_State *L, struct cb_io *io, json_t *args,
                  void (*start)(struct cb_io *io, void *op), void (*cancel)(void *op))
{
  struct cb_err err = CB_ERR_INIT;
  struct op *op = cb_calloc(1, sizeof *op);
  if (!op) {
    json_decref(args);
    cb_err_no_memory(&err);
    return cb_lua_fail(L, &err);
  }
  op->io = io;
  op->args = args;
  uint64_t id = op->id = cb_io_op(io, cancel, op);
  if (id == 0)
    cb_err_no_memory(&err);
  else if (cb_io_post(io, start, op, &err))
    cb_io_forget(io, id);
  if (err.code) {
    free_op(op);
    return cb_lua_fail(L, &err);
  }
  cb_lua_push_int(L, (int64_t)id);
  return 1;
}

static void work_done(struct cb_io *io, void *arg)
{
  struct op *op = arg;
  (void)io;
  if (op->err.code)
    end_op(op, NULL, &op->err);
  else
    end_op(op, op->value ? op->value : json_true(), NULL);
}

/* For what blocks: work(op) on the worker thread, which sets value (unset: true) or err. */
static void start_work(struct op *op, void (*work)(void *op))
{
  struct cb_err err = CB_ERR_INIT;
  if (cb_io_work(op->io, work, work_done, op, &err))
    end_op(op, NULL, &err);
}

static int closed(lua_State *L)
{
  struct cb_err err = CB_ERR_INIT;
  cb_err_set(&err, CB_CLOSED, "the I/O handle is closed or belongs to another process");
  return cb_lua_fail(L, &err);
}

static struct l_io *check(lua_State *L)
{
  return luaL_checkudata(L, 1, IO_MT);
}

struct cb_io *cb_lua_check_io(lua_State *L, int i)
{
  struct l_io *ud = luaL_checkudata(L, i, IO_MT);
  return ud->io && cb_io_alive(ud->io) ? ud->io : NULL;
}

/* ---- sleep ------------------------------------------------------------------------------- */

static void sleep_over(void *arg)
{
  end_op(arg, json_true(), NULL);
}

static void sleep_start(struct cb_io *io, void *arg)
{
  struct op *op = arg;
  struct cb_err err = CB_ERR_INIT;
  op->handle = cb_timer_start(io, number(op->args, "ms"), sleep_over, op);
  if (op->handle)
    return;
  if (cb_io_closing(io))
    cb_err_set(&err, CB_CLOSED, "the I/O handle is closed");
  else
    cb_err_no_memory(&err);
  end_op(op, NULL, &err);
}

static void sleep_cancel(void *arg)
{
  struct op *op = arg;
  struct cb_err err = CB_ERR_INIT;
  cb_timer_stop(op->handle);
  cb_err_set(&err, CB_CANCELLED, "sleep: cancelled");
  end_op(op, NULL, &err);
}

static int io_sleep(lua_State *L)
{
  struct cb_io *io = cb_lua_check_io(L, 1);
  lua_Number ms = luaL_checknumber(L, 2);
  luaL_argcheck(L, ms >= 0 && ms <= 1e12, 2, "milliseconds, 0 or more");
  if (!io)
    return closed(L);
  return submit(L, io, json_pack("{s:I}", "ms", (json_int_t)ms), sleep_start, sleep_cancel);
}

/* ---- http -------------------------------------------------------------------------------- */

/* {name = value}; a header that came twice is joined by ", " as RFC 9110 5.3 allows. */
static json_t *headers_of(const struct cb_http_res *res)
{
  json_t *o = json_object();
  const char *p = res->headers.p, *end = p ? p + res->headers.len : NULL;
  while (o && p && p < end) {
    const char *eol = memchr(p, '\n', (size_t)(end - p));
    const char *colon = memchr(p, ':', (size_t)(eol - p));
    const char *value = colon + 2;
    size_t name_len = (size_t)(colon - p), n = (size_t)(eol - value);
    const json_t *before = json_object_getn(o, p, name_len);
    json_t *now = before ? json_sprintf("%s, %.*s", json_string_value(before), (int)n, value)
                         : json_stringn_nocheck(value, n);
    if (now) /* NULL: a joined value that is not UTF-8 stays what it was */
      json_object_setn_new_nocheck(o, p, name_len, now);
    p = eol + 1;
  }
  return o;
}

static void http_done(void *arg, struct cb_http_res *res, const struct cb_err *err, bool sent)
{
  struct op *op = arg;
  (void)sent;
  if (!res) {
    end_op(op, NULL, err);
    return;
  }
  json_t *v = json_object();
  json_object_set_new(v, "status", json_integer(res->status));
  json_object_set_new_nocheck(v, "body",
                              json_stringn_nocheck(res->body.p ? res->body.p : "", res->body.len));
  json_object_set_new(v, "headers", headers_of(res));
  end_op(op, v, NULL);
}

static void http_start(struct cb_io *io, void *arg)
{
  struct op *op = arg;
  const json_t *a = op->args, *body = json_object_get(a, "body"),
               *list = json_object_get(a, "headers");
  struct cb_err err = CB_ERR_INIT;
  size_t count = json_array_size(list);
  const char **headers = cb_calloc(count + 1, sizeof(const char *));
  if (!headers) {
    cb_err_no_memory(&err);
    end_op(op, NULL, &err);
    return;
  }
  for (size_t i = 0; i < count; i++)
    headers[i] = json_string_value(json_array_get(list, i));
  struct cb_http_req req = {
    .method = text(a, "method"),
    .url = text(a, "url"),
    .unix_socket = text(a, "unix_socket"),
    .headers = headers,
    .body = json_string_value(body),
    .body_len = json_string_length(body),
    .timeout_ms = number(a, "timeout_ms"),
    .connect_timeout_ms = number(a, "connect_timeout_ms"),
    .idle_timeout_ms = number(a, "idle_timeout_ms"),
    .max_bytes = (size_t)number(a, "max_bytes"),
    .fresh = json_is_true(json_object_get(a, "fresh")),
  };
  op->handle = cb_http_start(io, &req, http_done, op, &err);
  cb_free(headers);
  if (!op->handle)
    end_op(op, NULL, &err);
}

static void http_cancel(void *arg)
{
  struct op *op = arg;
  cb_http_cancel(op->handle);
}

static int io_http(lua_State *L)
{
  static const struct option options[] = {
    { "method", TEXT, false },      { "url", TEXT, true },
    { "headers", LIST, false },     { "body", TEXT, false },
    { "unix_socket", TEXT, false }, { "timeout_ms", NUMBER, false },
    { "max_bytes", NUMBER, false }, { "connect_timeout_ms", NUMBER, false },
    { "fresh", FLAG, false },       { "idle_timeout_ms", NUMBER, false },
  };
  struct cb_io *io = cb_lua_check_io(L, 1);
  json_t *args = check_options(L, options, sizeof options / sizeof *options);
  if (!io) {
    json_decref(args);
    return closed(L);
  }
  return submit(L, io, args, http_start, http_cancel);
}

/* ---- spawn ------------------------------------------------------------------------------- */

/* The list (or object of an environment) as a NULL-terminated vector; the strings of an object
 * are made in *owned, a JSON array. NULL when memory runs out. */
static char **vector(const json_t *list, json_t **owned)
{
  const char *key;
  json_t *item;
  size_t count = json_is_object(list) ? json_object_size(list) : json_array_size(list);
  char **out = cb_calloc(count + 1, sizeof(char *));
  if (json_is_object(list)) {
    *owned = json_array();
    json_object_foreach((json_t *)(uintptr_t)list, key, item) {
      size_t n = strlen(key), len = json_string_length(item);
      char *line = cb_malloc(n + len + 2);
      if (!line)
        continue;
      memcpy(line, key, n);
      line[n] = '=';
      memcpy(line + n + 1, json_string_value(item), len + 1);
      json_array_append_new(*owned, json_stringn_nocheck(line, n + len + 1));
      cb_free_wiped(line, n + len + 1);
    }
    if (json_array_size(*owned) != count) {
      cb_free(out);
      return NULL;
    }
    list = *owned;
  }
  for (size_t i = 0; out && i < count; i++)
    out[i] = (char *)(uintptr_t)json_string_value(json_array_get(list, i));
  return out;
}

static void op_done(void *arg, json_t *value, const struct cb_err *err)
{
  end_op(arg, value, err);
}

static void spawn_start(struct cb_io *io, void *arg)
{
  struct op *op = arg;
  struct cb_err err = CB_ERR_INIT;
  const json_t *a = op->args, *input = json_object_get(a, "stdin");
  json_t *owned = NULL;
  char **argv = vector(json_object_get(a, "argv"), &owned);
  char **env = vector(json_object_get(a, "env"), &owned);
  if (argv && env) {
    struct cb_process_req req = {
      .argv = argv,
      .env = env,
      .cwd = text(a, "cwd"),
      .input = json_string_value(input),
      .input_len = json_string_length(input),
      .max_bytes = (size_t)number(a, "max_bytes"),
      .timeout_ms = number(a, "timeout_ms"),
    };
    op->handle = cb_process_start(io, &req, op_done, op, &err);
  } else {
    cb_err_no_memory(&err);
  }
  cb_free(argv);
  cb_free(env);
  json_decref(owned);
  if (!op->handle)
    end_op(op, NULL, &err);
}

static void spawn_cancel(void *arg)
{
  struct op *op = arg;
  cb_process_cancel(op->handle);
}

/* Read on the Lua side: on another thread the host might be changing it at the same moment. */
static void default_environment(json_t *args)
{
  if (json_object_get(args, "env"))
    return;
  json_t *env = json_array();
  for (char **line = environ; line && *line; line++)
    json_array_append_new(env, json_stringn_nocheck(*line, strlen(*line)));
  json_object_set_new(args, "env", env);
}

static int io_spawn(lua_State *L)
{
  static const struct option options[] = {
    { "argv", LIST, true },         { "env", ENVIRONMENT, false }, { "cwd", TEXT, false },
    { "stdin", TEXT, false },       { "max_bytes", NUMBER, false },
    { "timeout_ms", NUMBER, false },
  };
  struct cb_io *io = cb_lua_check_io(L, 1);
  json_t *args = check_options(L, options, sizeof options / sizeof *options);
  if (json_array_size(json_object_get(args, "argv")) == 0) {
    json_decref(args);
    return luaL_argerror(L, 2, "option 'argv' is empty");
  }
  if (!io) {
    json_decref(args);
    return closed(L);
  }
  default_environment(args);
  return submit(L, io, args, spawn_start, spawn_cancel);
}

/* ---- serve, answer, ask ------------------------------------------------------------------ */

static void tell_line(void *arg, uint64_t conn, const char *p, size_t n)
{
  struct op *op = arg;
  json_t *v = json_pack("{s:I, s:o}", "conn", (json_int_t)conn, "line",
                        json_stringn_nocheck(p, n));
  cb_io_complete(op->io, op->id, v, NULL, true);
}

static void tell_closed(void *arg, uint64_t conn)
{
  struct op *op = arg;
  json_t *v = json_pack("{s:I, s:b}", "conn", (json_int_t)conn, "closed", 1);
  cb_io_complete(op->io, op->id, v, NULL, true);
}

static void serve_start(struct cb_io *io, void *arg)
{
  static const struct cb_line_handler handler = { tell_line, tell_closed };
  struct op *op = arg;
  struct cb_err err = CB_ERR_INIT;
  op->handle = cb_line_server_start(io, text(op->args, "path"), &handler, op, &err);
  if (!op->handle) {
    end_op(op, NULL, &err);
    return;
  }
  cb_io_complete(op->io, op->id, json_pack("{s:b}", "ready", 1), NULL, true);
}

static void serve_cancel(void *arg)
{
  struct op *op = arg;
  struct cb_err err = CB_ERR_INIT;
  bool closing = cb_io_closing(op->io);
  if (!closing) /* else the server has ended by itself */
    cb_line_server_stop(op->handle);
  cb_err_set(&err, closing ? CB_CLOSED : CB_CANCELLED, "serve: ended");
  end_op(op, NULL, &err);
}

static int io_serve(lua_State *L)
{
  static const struct option options[] = { { "path", TEXT, true } };
  struct cb_io *io = cb_lua_check_io(L, 1);
  json_t *args = check_options(L, options, 1);
  if (!io) {
    json_decref(args);
    return closed(L);
  }
  return submit(L, io, args, serve_start, serve_cancel);
}

static int io_answer(lua_State *L)
{
  struct cb_io *io = cb_lua_check_io(L, 1);
  int64_t conn = cb_lua_check_int(L, 2);
  size_t n = 0;
  const char *line = lua_isnoneornil(L, 3) ? NULL : luaL_checklstring(L, 3, &n);
  luaL_argcheck(L, !line || !memchr(line, '\n', n), 3, "one line, without its end");
  luaL_argcheck(L, n <= CB_LINE_MAX, 3, "line too long");
  if (!io)
    return closed(L);
  lua_pushboolean(L, cb_line_answer(io, (uint64_t)conn, line, n, lua_toboolean(L, 4)));
  return 1;
}

static void ask_start(struct cb_io *io, void *arg)
{
  struct op *op = arg;
  struct cb_err err = CB_ERR_INIT;
  const json_t *line = json_object_get(op->args, "line");
  op->handle = cb_line_ask_start(io, text(op->args, "path"), json_string_value(line),
                                 json_string_length(line), number(op->args, "timeout_ms"),
                                 op_done, op, &err);
  if (!op->handle)
    end_op(op, NULL, &err);
}

static void ask_cancel(void *arg)
{
  struct op *op = arg;
  cb_line_ask_cancel(op->handle);
}

static int io_ask(lua_State *L)
{
  static const struct option options[] = {
    { "path", TEXT, true }, { "line", TEXT, true }, { "timeout_ms", NUMBER, false },
  };
  struct cb_io *io = cb_lua_check_io(L, 1);
  json_t *args = check_options(L, options, sizeof options / sizeof *options);
  if (!io) {
    json_decref(args);
    return closed(L);
  }
  return submit(L, io, args, ask_start, ask_cancel);
}

/* ---- daemon, write_file, remove_tree: on the worker thread --------------------------------- */

enum { DAEMON_READY_MS = 10000, FILE_MODE = 0600 };

static void daemon_work(void *arg)
{
  struct op *op = arg;
  const json_t *a = op->args;
  char line[CB_DAEMON_LINE_MAX];
  pid_t pid = 0;
  json_t *owned = NULL;
  char **argv = vector(json_object_get(a, "argv"), &owned);
  char **env = vector(json_object_get(a, "env"), &owned);
  struct cb_daemon d = { .argv = argv, .env = env, .log = text(a, "log"),
                         .ready_timeout_ms = number(a, "ready_timeout_ms") };
  if (d.ready_timeout_ms <= 0)
    d.ready_timeout_ms = DAEMON_READY_MS;
  if (!argv || !env)
    cb_err_no_memory(&op->err);
  else if (cb_daemon_start(&d, &pid, line, &op->err) == CB_OK)
    op->value = json_pack("{s:I, s:o}", "pid", (json_int_t)pid, "line",
                          json_stringn_nocheck(line, strlen(line)));
  cb_free(argv);
  cb_free(env);
  json_decref(owned);
}

static void daemon_start(struct cb_io *io, void *op)
{
  (void)io;
  start_work(op, daemon_work);
}

static int io_daemon(lua_State *L)
{
  static const struct option options[] = {
    { "argv", LIST, true }, { "env", ENVIRONMENT, false }, { "log", PATH, true },
    { "ready_timeout_ms", NUMBER, false },
  };
  struct cb_io *io = cb_lua_check_io(L, 1);
  json_t *args = check_options(L, options, sizeof options / sizeof *options);
  if (json_array_size(json_object_get(args, "argv")) == 0) {
    json_decref(args);
    return luaL_argerror(L, 2, "option 'argv' is empty");
  }
  if (!io) {
    json_decref(args);
    return closed(L);
  }
  default_environment(args);
  return submit(L, io, args, daemon_start, NULL);
}

static void write_file_work(void *arg)
{
  struct op *op = arg;
  const json_t *data = json_object_get(op->args, "data");
  int64_t mode = number(op->args, "mode");
  cb_host_write(text(op->args, "path"), json_string_value(data), json_string_length(data),
                mode > 0 ? (mode_t)mode : FILE_MODE, true, &op->err);
}

static void write_file_start(struct cb_io *io, void *op)
{
  (void)io;
  start_work(op, write_file_work);
}

static int io_write_file(lua_State *L)
{
  static const struct option options[] = { { "path", PATH, true }, { "data", TEXT, true },
                                           { "mode", NUMBER, false } };
  struct cb_io *io = cb_lua_check_io(L, 1);
  json_t *args = check_options(L, options, sizeof options / sizeof *options);
  if (!io) {
    json_decref(args);
    return closed(L);
  }
  return submit(L, io, args, write_file_start, NULL);
}

static void remove_tree_work(void *arg)
{
  struct op *op = arg;
  cb_host_rmtree(text(op->args, "path"), &op->err);
}

static void remove_tree_start(struct cb_io *io, void *op)
{
  (void)io;
  start_work(op, remove_tree_work);
}

static int io_remove_tree(lua_State *L)
{
  static const struct option options[] = { { "path", PATH, true } };
  struct cb_io *io = cb_lua_check_io(L, 1);
  json_t *args = check_options(L, options, 1);
  if (!io) {
    json_decref(args);
    return closed(L);
  }
  return submit(L, io, args, remove_tree_start, NULL);
}

/* ---- the handle -------------------------------------------------------------------------- */

static int io_fd(lua_State *L)
{
  struct cb_io *io = cb_lua_check_io(L, 1);
  if (!io)
    return closed(L);
  lua_pushinteger(L, cb_io_fd(io));
  return 1;
}

static int io_wake_socket(lua_State *L)
{
  struct cb_err err = CB_ERR_INIT;
  struct cb_io *io = cb_lua_check_io(L, 1);
  const char *path = luaL_checkstring(L, 2);
  if (!io)
    return closed(L);
  if (cb_wake_socket(io, path, &err))
    return cb_lua_fail(L, &err);
  lua_pushboolean(L, 1);
  return 1;
}

static int io_step(lua_State *L)
{
  struct l_io *ud = check(L);
  lua_Number ms = luaL_optnumber(L, 2, -1);
  struct cb_io *io = cb_lua_check_io(L, 1);
  if (!io)
    return closed(L);
  /* Negative, endless or no number at all: for ever. */
  int64_t wait = ms >= 0 && ms < 1e12 ? (int64_t)ms : -1;
  lua_pushboolean(L, ud->pending || cb_io_wait(io, wait) > 0);
  return 1;
}

/* What a failed op has to say beyond its error becomes fields of the error. [-0, +0] */
static void add_fields(lua_State *L, const json_t *more)
{
  const char *key;
  json_t *value;
  json_object_foreach((json_t *)(uintptr_t)more, key, value) {
    cb_lua_push_json(L, value);
    lua_setfield(L, -2, key);
  }
}

static void push_completion(lua_State *L, const struct cb_completion *c)
{
  lua_createtable(L, 0, 3);
  cb_lua_push_int(L, (int64_t)c->op);
  lua_setfield(L, -2, "op");
  if (c->err.code) {
    cb_lua_push_err(L, &c->err);
    add_fields(L, c->value);
    lua_setfield(L, -2, "err");
  } else if (c->value) {
    cb_lua_push_json(L, c->value);
    lua_setfield(L, -2, "value");
  }
  if (c->more) {
    lua_pushboolean(L, 1);
    lua_setfield(L, -2, "more");
  }
}

static int io_drain(lua_State *L)
{
  struct l_io *ud = check(L);
  struct cb_io *io = cb_lua_check_io(L, 1);
  if (!io)
    return closed(L);
  struct cb_link **end = (struct cb_link **)&ud->pending;
  while (*end)
    end = &(*end)->next;
  *end = (struct cb_link *)cb_io_drain(io);
  lua_newtable(L);
  for (int i = 1; ud->pending; i++) {
    struct cb_completion *c = ud->pending;
    push_completion(L, c);
    lua_rawseti(L, -2, i);
    ud->pending = (struct cb_completion *)c->link.next;
    cb_completion_free(c);
  }
  return 1;
}

static int io_cancel(lua_State *L)
{
  struct cb_io *io = cb_lua_check_io(L, 1);
  int64_t op = cb_lua_check_int(L, 2);
  if (!io)
    return closed(L);
  cb_io_cancel(io, (uint64_t)op);
  lua_pushboolean(L, 1);
  return 1;
}

static int io_work_count(lua_State *L)
{
  struct cb_io *io = cb_lua_check_io(L, 1);
  if (!io)
    return closed(L);
  cb_lua_push_int(L, (int64_t)cb_io_ops(io));
  return 1;
}

static void drop_pending(struct l_io *ud)
{
  while (ud->pending) {
    struct cb_completion *c = ud->pending;
    ud->pending = (struct cb_completion *)c->link.next;
    cb_completion_free(c);
  }
}

/* Ends the threads. The memory stays until __gc: stores, providers and watches made on this
 * handle may still be told to close. */
static int io_close(lua_State *L)
{
  struct l_io *ud = check(L);
  if (ud->io)
    cb_io_close(ud->io);
  drop_pending(ud);
  lua_pushboolean(L, 1);
  return 1;
}

static int io_gc(lua_State *L)
{
  struct l_io *ud = check(L);
  drop_pending(ud);
  cb_io_free(ud->io);
  ud->io = NULL;
  return 0;
}

static int io_scope_end(lua_State *L) /* __close; gives nothing back */
{
  io_close(L);
  return 0;
}

static int io_tostring(lua_State *L)
{
  struct l_io *ud = check(L);
  if (cb_lua_check_io(L, 1))
    lua_pushfstring(L, "crewbox.io (%p)", (void *)ud);
  else
    lua_pushliteral(L, "crewbox.io (closed)");
  return 1;
}

static int io_new(lua_State *L)
{
  struct cb_err err = CB_ERR_INIT;
  struct l_io *ud = lua_newuserdatauv(L, sizeof *ud, 1);
  ud->io = NULL;
  ud->pending = NULL;
  luaL_setmetatable(L, IO_MT);
  if (cb_io_new(&ud->io, &err))
    return cb_lua_fail(L, &err);
  return 1;
}

static const luaL_Reg methods[] = {
  { "fd", io_fd },         { "step", io_step },   { "drain", io_drain },
  { "cancel", io_cancel }, { "close", io_close }, { "sleep", io_sleep },
  { "http", io_http },     { "spawn", io_spawn }, { "serve", io_serve },
  { "answer", io_answer }, { "ask", io_ask },     { "work_count", io_work_count },
  { "wake_socket", io_wake_socket }, { "daemon", io_daemon },
  { "write_file", io_write_file }, { "remove_tree", io_remove_tree },
  { NULL, NULL },
};

static const luaL_Reg meta[] = {
  { "__gc", io_gc },
  { "__close", io_scope_end },
  { "__tostring", io_tostring },
  { NULL, NULL },
};

void cb_lua_open_io(lua_State *L)
{
  luaL_newmetatable(L, IO_MT);
  luaL_setfuncs(L, meta, 0);
  lua_pushliteral(L, IO_MT);
  lua_setfield(L, -2, "__name");
  luaL_newlib(L, methods);
  lua_setfield(L, -2, "__index");
  lua_pop(L, 1);
  lua_pushcfunction(L, io_new);
  lua_setfield(L, -2, "io");
}
