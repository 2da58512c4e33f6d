/* SPDX-License-Identifier: MIT
 * envd_process.c: process.Process of envd: starting, following and steering processes. */
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "base/encode.h"
#include "boxd/boxd.h"
#include "boxd/envd.h"
#include "boxd/env_name.h"
#include "boxd/json.h"
#include "boxd/envd_rpc.h"

enum { ARGS_MAX = 4096 };

/* --- Start --- */

struct start_op {
  struct cb_row *row;       /* holds a reference */
  struct cb_stream *stream; /* NULL once the client has left */
  json_t *config;
  const char *tag;          /* of message */
  json_t *message;          /* keeps the strings of the command */
};

static void free_start(struct start_op *op)
{
  json_decref(op->config);
  json_decref(op->message);
  cb_row_unref(op->row);
  cb_free(op);
}

static void on_start_closed(void *owner, struct cb_stream *s)
{
  (void)s;
  ((struct start_op *)owner)->stream = NULL;
}

static void on_started(void *arg, struct cb_box_answer *answer)
{
  struct start_op *op = arg;
  struct cb_stream *s = op->stream;
  if (s)
    cb_stream_feed(s, NULL, NULL);
  if (answer->err) {
    if (s && answer->err->code == CB_CLOSED)
      cb_stream_cut(s);
    else if (s)
      cb_stream_fail(s, cb_envd_rpc_code(answer->err->code), answer->err->text);
  } else {
    struct cb_process *p =
        cb_envd_procs_add(&op->row->procs, answer, json_incref(op->config), op->tag, s);
    if (!p && s)
      cb_stream_fail(s, "resource_exhausted", "out of memory");
  }
  free_start(op);
}

/* Strings of a JSON list, and of an object as "NAME=VALUE"; all checked already. */
static const char **list_strings(json_t *list)
{
  size_t i;
  json_t *v;
  const char **out = cb_calloc(json_array_size(list) + 1, sizeof *out);
  if (out)
    json_array_foreach(list, i, v)
    {
      out[i] = json_string_value(v);
    }
  return out;
}

static char **env_strings(json_t *envs, size_t *count)
{
  const char *key;
  json_t *v;
  char **out = cb_calloc(json_object_size(envs) + 1, sizeof *out);
  *count = 0;
  if (out)
    json_object_foreach(envs, key, v)
    {
      struct cb_buf b;
      cb_buf_init(&b, CB_WEB_BODY_MAX);
      if (cb_buf_addf(&b, "%s=%s", key, json_string_value(v)))
        break;
      out[(*count)++] = cb_buf_take(&b, NULL);
    }
  return out;
}

/* config: what List will show, and nothing else of what the client sent. */
static int check_command(json_t *process, json_t **config, struct cb_err *err)
{
  size_t i;
  const char *key;
  json_t *v, *args = json_object_get(process, "args"), *cwd = json_object_get(process, "cwd"),
             *cmd = json_object_get(process, "cmd"), *envs = NULL;
  const char *name = json_string_value(cmd);
  if (!name || !*name)
    return cb_err_set(err, CB_INVALID, "process.cmd must be a command");
  if (args && !json_is_null(args) && !json_is_array(args))
    return cb_err_set(err, CB_INVALID, "process.args must be a list");
  if (json_array_size(args) > ARGS_MAX)
    return cb_err_set(err, CB_INVALID, "process.args: more than %d", ARGS_MAX);
  json_array_foreach(args, i, v)
  {
    if (!json_is_string(v))
      return cb_err_set(err, CB_INVALID, "process.args must be a list of strings");
  }
  if (cwd && !json_is_null(cwd) && !json_is_string(cwd))
    return cb_err_set(err, CB_INVALID, "process.cwd must be a string");
  int rc = cb_json_string_map(json_object_get(process, "envs"), "process.envs", &envs, err);
  if (rc)
    return rc;
  json_object_foreach(envs, key, v)
  {
    if (!cb_env_name_ok(key))
      rc = cb_err_set(err, CB_INVALID, "process.envs: \"%.100s\" is not a variable's name", key);
  }
  *config = rc ? NULL : json_pack("{s:O}", "cmd", cmd);
  if (*config && json_array_size(args))
    json_object_set(*config, "args", args);
  if (*config && json_object_size(envs))
    json_object_set(*config, "envs", envs);
  if (*config && json_string_length(cwd))
    json_object_set(*config, "cwd", cwd);
  json_decref(envs);
  return rc ? rc : *config ? CB_OK : cb_err_no_memory(err);
}

static int start_process(struct cb_request *req, struct start_op *op, int64_t deadline_ms,
                         struct cb_err *err)
{
  json_t *message = op->message, *tag = json_object_get(message, "tag");
  char user[CB_AUTH_USER_MAX + 1];
  if (json_is_object(json_object_get(message, "pty")))
    return cb_err_set(err, CB_UNSUPPORTED, "pty: crewboxd has no terminals");
  if (tag && !json_is_null(tag) && !json_is_string(tag))
    return cb_err_set(err, CB_INVALID, "tag must be a string");
  int rc = cb_envd_rpc_user(req, user, err);
  if (!rc)
    rc = check_command(json_object_get(message, "process"), &op->config, err);
  if (rc)
    return rc;
  op->tag = json_string_value(tag);
  size_t env_count;
  const char **args = list_strings(json_object_get(op->config, "args"));
  char **env = env_strings(json_object_get(op->config, "envs"), &env_count);
  if (!args || !env) {
    rc = cb_err_no_memory(err);
  } else {
    struct cb_box_command command = {
      .cmd = json_string_value(json_object_get(op->config, "cmd")),
      .args = args,
      .arg_count = json_array_size(json_object_get(op->config, "args")),
      .env = (const char *const *)env,
      .env_count = env_count,
      .cwd = json_string_value(json_object_get(op->config, "cwd")),
      .user = *user ? user : NULL,
      .tag = op->tag,
      .stdin_open = !json_is_false(json_object_get(message, "stdin")), /* absent is true */
      .deadline_ms = deadline_ms,
    };
    rc = cb_box_start_process(op->row->box, &command, on_started, op, NULL, err);
  }
  for (size_t i = 0; env && i < env_count; i++)
    if (env[i])
      cb_free_wiped(env[i], strlen(env[i]));
  cb_free(env);
  cb_free(args);
  return rc;
}

void cb_envd_start(struct cb_request *req)
{
  static const struct cb_stream_feeder feeder = { NULL, on_start_closed };
  struct cb_boxd *d = cb_boxd_of(req);
  struct cb_err err = CB_ERR_INIT;
  json_t *message;
  int64_t deadline_ms = 0;
  int rc = cb_envd_rpc_streaming(req, &message, &err);
  if (rc == CB_UNSUPPORTED)
    return;
  struct cb_stream *s = cb_process_stream(req, d->loop);
  if (s && !rc)
    rc = cb_stream_timeout(req, &deadline_ms, &err);
  struct start_op *op = s && !rc ? cb_calloc(1, sizeof *op) : NULL;
  if (s && !rc && !op)
    (void)cb_err_no_memory(&err);
  if (!op) {
    if (s)
      cb_stream_fail(s, cb_envd_rpc_code(err.code), err.text);
    json_decref(message);
    return;
  }
  op->row = cb_row_of(req);
  cb_row_ref(op->row);
  op->stream = s;
  op->message = message;
  cb_stream_feed(s, &feeder, op);
  rc = start_process(req, op, deadline_ms, &err);
  if (rc) {
    cb_stream_feed(s, NULL, NULL);
    cb_stream_fail(s, cb_envd_rpc_code(err.code), err.text);
    free_start(op);
  } else if (deadline_ms) {
    cb_stream_deadline(s, deadline_ms); /* the init kills; this tells it even if that is late */
  }
}

/* --- finding --- */

/* The process a message selects. NULL with *err filled. */
static struct cb_process *selected(struct cb_request *req, json_t *message, struct cb_err *err)
{
  struct cb_envd_procs *procs = &cb_row_of(req)->procs;
  json_t *sel = json_object_get(message, "process"), *pid = json_object_get(sel, "pid"),
         *tag = json_object_get(sel, "tag");
  struct cb_process *p = NULL;
  if (json_is_integer(pid) && json_integer_value(pid) > 0) {
    p = cb_envd_procs_find(procs, json_integer_value(pid), NULL);
    if (!p)
      cb_err_set(err, CB_NOT_FOUND, "process with pid %lld not found",
                 (long long)json_integer_value(pid));
  } else if (json_is_string(tag)) {
    p = cb_envd_procs_find(procs, 0, json_string_value(tag));
    if (!p)
      cb_err_set(err, CB_NOT_FOUND, "process with tag %.200s not found", json_string_value(tag));
  } else {
    cb_err_set(err, CB_INVALID, "process must name a pid or a tag");
  }
  return p;
}

/* The same, but only one that can still be acted on; else the request is answered. */
static struct cb_process *live(struct cb_request *req, json_t *message)
{
  struct cb_err err = CB_ERR_INIT;
  struct cb_process *p = selected(req, message, &err);
  if (p && cb_process_exited(p)) {
    cb_err_set(&err, CB_NOT_FOUND, "process with pid %lld not found",
               (long long)cb_process_pid(p));
    p = NULL;
  }
  if (!p)
    cb_envd_rpc_fail_err(req, &err);
  return p;
}

void cb_envd_connect(struct cb_request *req)
{
  struct cb_err err = CB_ERR_INIT;
  json_t *message;
  int64_t deadline_ms = 0;
  int rc = cb_envd_rpc_streaming(req, &message, &err);
  if (rc == CB_UNSUPPORTED)
    return;
  struct cb_stream *s = cb_process_stream(req, cb_boxd_of(req)->loop);
  if (s) {
    if (!rc)
      rc = cb_stream_timeout(req, &deadline_ms, &err);
    struct cb_process *p = rc ? NULL : selected(req, message, &err);
    if (!p) {
      cb_stream_fail(s, cb_envd_rpc_code(err.code), err.text);
    } else {
      cb_process_subscribe(p, s);
      if (deadline_ms)
        cb_stream_deadline(s, deadline_ms); /* of the stream alone */
    }
  }
  json_decref(message);
}

void cb_envd_list(struct cb_request *req)
{
  json_t *message = cb_envd_rpc_unary(req);
  if (!message)
    return;
  json_decref(message);
  json_t *list = cb_envd_procs_list(&cb_row_of(req)->procs);
  json_t *out = json_object();
  if (json_array_size(list))
    json_object_set(out, "processes", list);
  json_decref(list);
  cb_answer_json(req, 200, out);
}

/* --- input --- */

static void on_input(void *arg, const char *why)
{
  struct cb_request *req = arg;
  if (why)
    cb_envd_rpc_fail(req, "internal", "%s", why);
  else
    cb_answer_json(req, 200, json_object());
}

void cb_envd_send_input(struct cb_request *req)
{
  json_t *message = cb_envd_rpc_unary(req);
  struct cb_process *p = message ? live(req, message) : NULL;
  json_t *input = json_object_get(message, "input"), *data = json_object_get(input, "stdin");
  struct cb_buf bytes;
  cb_buf_init(&bytes, CB_WEB_BODY_MAX);
  if (!p)
    ; /* answered */
  else if (json_object_get(input, "pty"))
    cb_envd_rpc_fail(req, "internal", "tty not assigned to process");
  else if (data && !json_is_string(data))
    cb_envd_rpc_fail(req, "invalid_argument", "input.stdin must be base64");
  else if (data && cb_base64_decode(&bytes, json_string_value(data), json_string_length(data)))
    cb_envd_rpc_fail(req, "invalid_argument", "input.stdin is not base64");
  else
    cb_process_write(p, bytes.p ? bytes.p : "", bytes.len, on_input, req);
  cb_buf_clear_wiped(&bytes);
  json_decref(message);
}

void cb_envd_close_stdin(struct cb_request *req)
{
  json_t *message = cb_envd_rpc_unary(req);
  struct cb_process *p = message ? live(req, message) : NULL;
  json_decref(message);
  if (p)
    cb_process_close_stdin(p, on_input, req);
}

/* --- signals --- */

struct signal_op {
  struct cb_request *req; /* its row stays: the request holds a reference */
  int64_t pid;
};

static void on_signalled(void *arg, struct cb_box_answer *answer)
{
  struct signal_op *op = arg;
  struct cb_request *req = op->req;
  if (answer->err && answer->err->code == CB_NOT_FOUND) {
    cb_envd_rpc_fail(req, "not_found", "process with pid %lld not found", (long long)op->pid);
  } else if (answer->err) {
    cb_envd_rpc_fail_err(req, answer->err);
  } else {
    struct cb_process *p = cb_envd_procs_find(&cb_row_of(req)->procs, op->pid, NULL);
    if (p)
      cb_process_signalled(p);
    cb_answer_json(req, 200, json_object());
  }
  cb_free(op);
}

static int signal_of(json_t *v)
{
  static const struct {
    const char *name;
    int number;
  } known[] = { { "SIGNAL_SIGTERM", 15 }, { "SIGNAL_SIGKILL", 9 } };
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if ((json_is_string(v) && strcmp(json_string_value(v), known[i].name) == 0) ||
        (json_is_integer(v) && json_integer_value(v) == known[i].number))
      return known[i].number;
  return 0;
}

void cb_envd_send_signal(struct cb_request *req)
{
  struct cb_err err = CB_ERR_INIT;
  json_t *message = cb_envd_rpc_unary(req);
  struct cb_process *p = message ? live(req, message) : NULL;
  int sig = signal_of(json_object_get(message, "signal"));
  json_decref(message);
  if (!p)
    return;
  if (!sig) {
    cb_envd_rpc_fail(req, "unimplemented", "signal must be SIGNAL_SIGTERM or SIGNAL_SIGKILL");
    return;
  }
  struct signal_op *op = cb_calloc(1, sizeof *op);
  if (!op) {
    cb_envd_rpc_fail(req, "resource_exhausted", "out of memory");
    return;
  }
  op->req = req;
  op->pid = cb_process_pid(p);
  if (cb_box_signal(cb_row_of(req)->box, op->pid, sig, on_signalled, op, NULL, &err)) {
    cb_envd_rpc_fail_err(req, &err);
    cb_free(op);
  }
}

/* --- what is not here --- */

void cb_envd_unimplemented(struct cb_request *req)
{
  char text[300];
  snprintf(text, sizeof text, "%.200s is not offered by crewboxd", req->path + 1);
  if (!cb_envd_rpc_is_streaming(req)) {
    cb_envd_rpc_fail(req, "unimplemented", "%s", text);
    return;
  }
  struct cb_stream *s = cb_process_stream(req, cb_boxd_of(req)->loop);
  if (s)
    cb_stream_fail(s, "unimplemented", text);
}
