/* SPDX-License-Identifier: MIT
 * e2b_process.c: commands in a box. exec stays on the stream to the end and gives what came;
 * start leaves as soon as the process runs. Neither is repeated once it may have begun. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/encode.h"
#include "providers/e2b_call.h"

enum {
  EXEC_TIMEOUT_MS = 60000,
  EXEC_SLACK_MS = 20000, /* for the way there and back, beyond the command's own time */
  EXEC_BYTES = 1 << 20,
  EXEC_BYTES_MAX = 256 << 20,
  ARGS_MAX = 4096
};

struct proc {
  const char *cmd, *cwd;
  const json_t *list, *env;
  int64_t timeout_ms, max_bytes; /* timeout 0: the process may live on (start) */
  struct cb_buf out, err_out;
  bool truncated;
  bool started, ended;
  int64_t pid;
  int exit; /* -1: none */
  int signal;
  char status[128]; /* what the server said about the end */
  struct cb_err bad; /* a message that makes no sense */
};

static void proc_free(void *own)
{
  struct proc *x = own;
  cb_buf_clear_wiped(&x->out); /* commands print secrets */
  cb_buf_clear_wiped(&x->err_out);
  cb_free(x);
}

/* ---- the request ------------------------------------------------------------------------- */

static int check_args(const json_t *list, struct cb_err *err)
{
  if (json_array_size(list) > ARGS_MAX)
    return cb_err_set(err, CB_INVALID, "args has more than %d entries", (int)ARGS_MAX);
  for (size_t i = 0; i < json_array_size(list); i++) {
    const json_t *v = json_array_get(list, i);
    if (!json_is_string(v) || strlen(json_string_value(v)) != json_string_length(v))
      return cb_err_set(err, CB_INVALID, "args: entry %zu is not text", i + 1);
  }
  return CB_OK;
}

static int take_process(struct cb_e2b_call *c, struct proc *x, struct cb_err *err)
{
  int rc = cb_e2b_arg_box(c, err);
  if (!rc)
    rc = cb_arg_text(c->args, "cmd", true, &x->cmd, err);
  if (!rc)
    rc = cb_arg_text(c->args, "cwd", false, &x->cwd, err);
  if (!rc)
    rc = cb_arg_text(c->args, "user", false, &c->user, err);
  if (!rc && c->user && strlen(c->user) > 128)
    rc = cb_err_set(err, CB_INVALID, "user is too long");
  if (!rc)
    rc = cb_arg_list(c->args, "args", &x->list, err);
  if (!rc)
    rc = check_args(x->list, err);
  if (!rc)
    rc = cb_arg_map(c->args, "env", &x->env, err);
  return rc;
}

static json_t *start_body(const struct proc *x)
{
  json_t *process = json_pack("{s:s}", "cmd", x->cmd);
  if (!process)
    return NULL;
  if (json_array_size(x->list) > 0)
    json_object_set(process, "args", (json_t *)(uintptr_t)x->list);
  if (x->env)
    json_object_set(process, "envs", (json_t *)(uintptr_t)x->env);
  if (x->cwd && *x->cwd)
    json_object_set_new(process, "cwd", json_string(x->cwd));
  /* Absent would mean true: a stdin that nobody ever closes. */
  return json_pack("{s:o, s:b}", "process", process, "stdin", 0);
}

/* ---- events ------------------------------------------------------------------------------ */

/* Decodes one piece of output; what is over the bound is dropped, the rest of the stream read. */
static void take_output(struct proc *x, struct cb_buf *into, const json_t *piece)
{
  const char *text = json_string_value(piece);
  if (!text)
    return;
  struct cb_buf bytes;
  cb_buf_init(&bytes, CB_RPC_MESSAGE_MAX);
  if (cb_base64_decode(&bytes, text, json_string_length(piece))) {
    cb_err_set(&x->bad, CB_PROTOCOL, "output that is not base64");
  } else {
    size_t room = into->max - into->len;
    if (bytes.len > room)
      x->truncated = true;
    if (cb_buf_add(into, bytes.p ? bytes.p : "", bytes.len < room ? bytes.len : room))
      x->truncated = true;
  }
  cb_buf_clear_wiped(&bytes);
}

/* Zero is left out of protobuf's JSON, so only `exited` makes a missing code a success. */
static void take_end(struct proc *x, const json_t *end)
{
  const json_t *code = json_object_get(end, "exitCode");
  const char *status = json_string_value(json_object_get(end, "status"));
  int number;
  x->ended = true;
  snprintf(x->status, sizeof x->status, "%s", status ? status : "");
  x->signal = cb_e2b_signal_of(status);
  if (x->signal)
    return;
  if (json_is_true(json_object_get(end, "exited")))
    x->exit = json_is_integer(code) ? (int)json_integer_value(code) : 0;
  else if (status && sscanf(status, "exit status %9d", &number) == 1)
    x->exit = number;
  if (x->exit < 0 || x->exit > 255)
    x->exit = -1; /* unknown stays unknown */
}

static void take_start(struct proc *x, const json_t *start)
{
  const json_t *pid = json_object_get(start, "pid");
  int64_t n = json_integer_value(pid);
  if (json_is_integer(pid) && n > 0 && n <= INT32_MAX) {
    x->started = true;
    x->pid = n;
  } else {
    cb_err_set(&x->bad, CB_PROTOCOL, "a start without a pid");
  }
}

static bool on_event(void *arg, const json_t *message)
{
  struct cb_e2b_call *c = arg;
  struct proc *x = c->own;
  const json_t *event = json_object_get(message, "event");
  const json_t *part;
  if ((part = json_object_get(event, "start")) != NULL)
    take_start(x, part);
  if ((part = json_object_get(event, "data")) != NULL) {
    take_output(x, &x->out, json_object_get(part, "stdout"));
    take_output(x, &x->err_out, json_object_get(part, "stderr"));
  }
  if ((part = json_object_get(event, "end")) != NULL)
    take_end(x, part);
  if (x->bad.code)
    return false;
  return x->timeout_ms > 0 || !(x->started || x->ended); /* start has seen enough */
}

/* ---- ends -------------------------------------------------------------------------------- */

static json_t *bytes_of(const struct cb_buf *b)
{
  return json_stringn_nocheck(b->p ? b->p : "", b->len);
}

static json_t *exec_value(const struct proc *x)
{
  json_t *v = json_pack("{s:o, s:o, s:b}", "stdout", bytes_of(&x->out), "stderr",
                        bytes_of(&x->err_out), "truncated", (int)x->truncated);
  if (v && x->exit >= 0)
    json_object_set_new(v, "exit", json_integer(x->exit));
  else if (v && x->signal)
    json_object_set_new(v, "signal", json_integer(x->signal));
  else if (v)
    json_object_set_new(v, "reason", json_string(x->status[0] ? x->status : "no exit status"));
  return v;
}

static void proc_end(void *arg, const struct cb_err *err, bool sent)
{
  struct cb_e2b_call *c = arg;
  struct proc *x = c->own;
  bool exec = x->timeout_ms > 0;
  c->rpc = NULL;
  c->sent = sent;
  struct cb_err why = c->ending.code ? c->ending : x->bad; /* may be CB_OK */
  if (!why.code && ((exec && x->ended) || (!exec && x->started))) {
    /* What came before a break is whole: a result that was seen is kept. */
    cb_e2b_finish(c, exec ? exec_value(x) : json_pack("{s:I}", "pid", (json_int_t)x->pid));
    return;
  }
  if (!why.code && err) {
    if (!x->started && cb_e2b_again(c, err))
      return;
    why = *err;
    /* Silence of two keepalive intervals is no slow command: the box is not there any more. */
    if (why.code == CB_TIMEOUT && why.status == 0 && cb_e2b_left(c) > 0)
      why.code = CB_UNREACHABLE;
  } else if (!why.code) {
    cb_err_set(&why, CB_PROTOCOL, "the stream ended without saying how the process did");
  }
  /* A refusal (a status, or an error before the start event) is no doubt; a lost stream is. */
  bool refused = !c->ending.code && err && !x->started &&
                 (err->status != 0 || (err->code != CB_UNREACHABLE && err->code != CB_TIMEOUT &&
                                       err->code != CB_PROTOCOL && err->code != CB_CLOSED));
  why.unknown = sent && !refused && !(exec && err && err->code == CB_TIMEOUT && err->status == 200);
  cb_e2b_fail(c, &why);
}

static void go_process(struct cb_e2b_call *c)
{
  struct proc *x = c->own;
  struct cb_err err = CB_ERR_INIT;
  struct cb_buf url;
  bool resumed = false;
  char **headers = cb_e2b_envd_headers(c, true);
  cb_buf_init(&url, 4096);
  c->tries++;
  if (!headers || cb_e2b_envd_url(c->p, c->id, c->box_domain, &url) ||
      cb_buf_addz(&url, "/process.Process/Start")) {
    cb_err_no_memory(&err);
    goto out;
  }
  cb_e2b_is_settling(c->p, c->id, &resumed);
  struct cb_rpc_req req = {
    .url = url.p,
    .unix_socket = c->p->socket,
    .headers = (const char *const *)headers,
    .body = c->body,
    .connect_timeout_ms = c->p->connect_timeout_ms,
    .timeout_ms = cb_e2b_left(c) > 0 ? cb_e2b_left(c) : 1,
    .idle_timeout_ms = (int64_t)c->p->keepalive_s * 2000,
    /* The header ends the process, not the stream alone: a stuck command dies in the box, and
     * what is meant to live on must be started without it. */
    .deadline_ms = x->timeout_ms,
    .fresh = resumed || c->tries > 1 || c->p->socket != NULL, /* see start_http */
  };
  c->rpc = cb_rpc_stream(c->p->base.io, &req, on_event, proc_end, c, &err);
out:
  cb_buf_clear(&url);
  cb_free(headers);
  if (err.code)
    cb_e2b_fail(c, &err);
}

static void start_process(struct cb_e2b_call *c, struct proc *x, struct cb_err *err)
{
  const char *user = c->user;
  cb_e2b_new_step(c);
  c->user = user;
  c->envd = true;
  c->go = go_process;
  c->body = start_body(x);
  if (!c->body)
    cb_err_set(err, CB_INVALID, "cmd and cwd are not UTF-8 text");
  if (err->code)
    cb_e2b_fail(c, err);
  else
    go_process(c);
}

static struct proc *new_proc(struct cb_e2b_call *c)
{
  struct proc *x = cb_calloc(1, sizeof *x);
  if (!x) {
    struct cb_err err = CB_ERR_INIT;
    cb_err_no_memory(&err);
    cb_e2b_fail(c, &err);
    return NULL;
  }
  x->exit = -1;
  c->own = x;
  c->free_own = proc_free;
  return x;
}

void cb_e2b_v_exec(struct cb_provider *p, const json_t *args, cb_done *done, void *arg)
{
  static const char *const names[] = {"box",  "cmd",        "args",      "env", "cwd",
                                      "user", "timeout_ms", "max_bytes", NULL};
  struct cb_err err = CB_ERR_INIT;
  int64_t timeout_ms = EXEC_TIMEOUT_MS;
  cb_arg_int(args, "timeout_ms", 1, INT32_MAX, EXEC_TIMEOUT_MS, &timeout_ms, NULL);
  struct cb_e2b_call *c =
    cb_e2b_begin(p, "exec", args, names, timeout_ms + EXEC_SLACK_MS, done, arg);
  struct proc *x = c ? new_proc(c) : NULL;
  if (!x)
    return;
  if (take_process(c, x, &err) ||
      cb_arg_int(c->args, "timeout_ms", 1, INT32_MAX, EXEC_TIMEOUT_MS, &x->timeout_ms, &err) ||
      cb_arg_int(c->args, "max_bytes", 1, EXEC_BYTES_MAX, EXEC_BYTES, &x->max_bytes, &err)) {
    cb_e2b_fail(c, &err);
    return;
  }
  cb_buf_init(&x->out, (size_t)x->max_bytes);
  cb_buf_init(&x->err_out, (size_t)x->max_bytes);
  start_process(c, x, &err);
}

void cb_e2b_v_start(struct cb_provider *p, const json_t *args, cb_done *done, void *arg)
{
  static const char *const names[] = {"box", "cmd", "args", "env", "cwd", "user", NULL};
  struct cb_err err = CB_ERR_INIT;
  struct cb_e2b_call *c = cb_e2b_begin(p, "start", args, names, 0, done, arg);
  struct proc *x = c ? new_proc(c) : NULL;
  if (!x)
    return;
  if (take_process(c, x, &err))
    cb_e2b_fail(c, &err);
  else
    start_process(c, x, &err);
}

/* ---- signal ------------------------------------------------------------------------------ */

static void signal_end(struct cb_e2b_call *c, json_t *value, const struct cb_err *err)
{
  (void)value;
  if (err)
    cb_e2b_fail(c, err);
  else
    cb_e2b_finish(c, json_object());
}

void cb_e2b_v_signal(struct cb_provider *p, const json_t *args, cb_done *done, void *arg)
{
  static const char *const names[] = {"box", "pid", "signal", NULL};
  struct cb_err err = CB_ERR_INIT;
  int64_t pid;
  const char *name;
  struct cb_e2b_call *c = cb_e2b_begin(p, "signal", args, names, 0, done, arg);
  if (!c)
    return;
  if (cb_e2b_arg_box(c, &err) || cb_arg_int(c->args, "pid", 1, INT32_MAX, -1, &pid, &err) ||
      cb_arg_text(c->args, "signal", true, &name, &err)) {
    cb_e2b_fail(c, &err);
    return;
  }
  if (strcmp(name, "TERM") != 0 && strcmp(name, "KILL") != 0) {
    cb_err_set(&err, CB_INVALID, "signal is TERM or KILL");
    cb_e2b_fail(c, &err);
    return;
  }
  char wire[24];
  snprintf(wire, sizeof wire, "SIGNAL_SIG%s", name);
  cb_e2b_unary(c, "process.Process/SendSignal",
               json_pack("{s:{s:I}, s:s}", "process", "pid", (json_int_t)pid, "signal", wire),
               true, signal_end);
}
