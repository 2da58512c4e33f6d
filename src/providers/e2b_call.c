/* SPDX-License-Identifier: MIT */
#include "providers/e2b_call.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/rand.h"

enum {
  FIRST_PAUSE_MS = 200,      /* before the second try; doubled before the third */
  SETTLE_PAUSE_MS = 250,     /* between tries while a box is settling */
  LEAST_TRY_MS = 5000,       /* a try that may be repeated is given at least this */
  SHORT_SECRET = 8           /* shorter values cannot be told from ordinary text */
};

/* ---- life -------------------------------------------------------------------------------- */

static int check_names(const json_t *args, const char *const *names, struct cb_err *err)
{
  const char *key;
  json_t *unused;
  json_object_foreach((json_t *)(uintptr_t)args, key, unused)
  {
    bool known = strcmp(key, "wait_ms") == 0;
    for (size_t i = 0; !known && names[i]; i++)
      known = strcmp(key, names[i]) == 0;
    if (!known)
      return cb_err_set(err, CB_INVALID, "there is no argument named %.40s", key);
  }
  return CB_OK;
}

static void fail_early(const char *verb, struct cb_err *err, cb_done *done, void *arg)
{
  cb_err_wrap(err, "%s", verb);
  done(arg, NULL, err);
}

struct cb_e2b_call *cb_e2b_begin(struct cb_provider *provider, const char *verb,
                                 const json_t *args, const char *const *names, int64_t budget_ms,
                                 cb_done *done, void *arg)
{
  struct cb_e2b *p = (struct cb_e2b *)provider;
  struct cb_err err = CB_ERR_INIT;
  int64_t wait = 0;
  struct cb_e2b_call *c = NULL;
  if (p->closed) {
    cb_err_set(&err, CB_CLOSED, "the provider is closed");
    goto fail;
  }
  if (check_names(args, names, &err) ||
      cb_arg_int(args, "wait_ms", 1, INT32_MAX, 0, &wait, &err))
    goto fail;
  c = cb_calloc(1, sizeof *c);
  if (!c) {
    cb_err_no_memory(&err);
    goto fail;
  }
  c->p = p;
  c->verb = verb;
  c->args = args ? json_incref((json_t *)(uintptr_t)args) : json_object();
  c->done = done;
  c->arg = arg;
  if (budget_ms <= 0)
    budget_ms = p->timeout_ms;
  c->deadline = cb_now_ms() + (wait > 0 && wait < budget_ms ? wait : budget_ms);
  c->next = p->calls;
  if (c->next)
    c->next->prev = c;
  p->calls = c;
  return c;
fail:
  fail_early(verb, &err, done, arg);
  return NULL;
}

static void unlink_and_free(struct cb_e2b_call *c)
{
  if (c->prev)
    c->prev->next = c->next;
  else
    c->p->calls = c->next;
  if (c->next)
    c->next->prev = c->prev;
  if (c->timer)
    cb_timer_stop(c->timer);
  if (c->free_own)
    c->free_own(c->own);
  cb_free(c->path);
  json_decref(c->body);
  json_decref(c->args);
  cb_free(c);
}

void cb_e2b_finish(struct cb_e2b_call *c, json_t *value)
{
  cb_done *done = c->done;
  void *arg = c->arg;
  unlink_and_free(c);
  struct cb_err err = CB_ERR_INIT;
  if (!value)
    cb_err_no_memory(&err);
  done(arg, value, value ? NULL : &err);
}

/* Servers quote what they were sent. Whatever of it is secret leaves the text again. */
static void take_out(struct cb_err *err, const char *secret)
{
  static const char marker[] = "[REDACTED]";
  size_t n = secret ? strlen(secret) : 0;
  char *at;
  if (n < SHORT_SECRET)
    return;
  while ((at = strstr(err->text, secret)) != NULL) {
    char rest[sizeof err->text];
    snprintf(rest, sizeof rest, "%s", at + n);
    snprintf(at, sizeof err->text - (size_t)(at - err->text), "%s%s", marker, rest);
  }
}

void cb_e2b_fail(struct cb_e2b_call *c, const struct cb_err *why)
{
  struct cb_err err = *why;
  cb_done *done = c->done;
  void *arg = c->arg;
  const char *key;
  json_t *value;
  take_out(&err, c->p->api_key);
  take_out(&err, c->token);
  json_object_foreach(json_object_get(c->args, "env"), key, value)
    take_out(&err, json_string_value(value));
  if (c->id[0])
    cb_err_wrap(&err, "%s of box %s", c->verb, c->id);
  else
    cb_err_wrap(&err, "%s", c->verb);
  unlink_and_free(c);
  done(arg, NULL, &err);
}

void cb_e2b_stop(struct cb_e2b_call *c, enum cb_code code)
{
  if (c->ending.code)
    return;
  cb_err_set(&c->ending, code, code == CB_CLOSED ? "the provider was closed" : "cancelled");
  if (c->http) {
    cb_http_cancel(c->http); /* ends in http_end */
  } else if (c->rpc) {
    cb_rpc_cancel(c->rpc); /* ends in the end function of the rpc */
  } else {
    struct cb_err err = c->ending;
    err.unknown = c->sent && !c->repeatable;
    cb_e2b_fail(c, &err);
  }
}

int64_t cb_e2b_left(const struct cb_e2b_call *c)
{
  int64_t left = c->deadline - cb_now_ms();
  return left > 0 ? left : 0;
}

/* ---- repeating --------------------------------------------------------------------------- */

static void timer_fired(void *arg)
{
  struct cb_e2b_call *c = arg;
  c->timer = NULL;
  c->go(c);
}

bool cb_e2b_wait(struct cb_e2b_call *c, int64_t ms, void (*go)(struct cb_e2b_call *c))
{
  if (ms >= cb_e2b_left(c))
    return false;
  c->timer = cb_timer_start(c->p->base.io, ms, timer_fired, c);
  if (!c->timer)
    return false;
  c->go = go;
  return true;
}

static int64_t jitter(int64_t ms) /* between ms and 1.5 ms */
{
  uint32_t r;
  cb_random(&r, sizeof r);
  return ms + (ms > 1 ? (int64_t)(r % (uint32_t)(ms / 2 + 1)) : 0);
}

static bool worth_another_try(const struct cb_err *err)
{
  if (err->code == CB_UNREACHABLE || err->code == CB_TIMEOUT)
    return true;
  return err->status == 500 || err->status == 502 || err->status == 503 || err->status == 504;
}

bool cb_e2b_again(struct cb_e2b_call *c, const struct cb_err *err)
{
  /* The proxy in front of a box answers 502 for as long as it does not know the box yet. Such a
   * request never reached the box, so that repeating it is harmless whatever it was. */
  if (c->envd && err->status == 502 && cb_e2b_is_settling(c->p, c->id, NULL))
    return cb_e2b_wait(c, jitter(SETTLE_PAUSE_MS), c->go);
  if (c->tries >= CB_E2B_TRIES)
    return false;
  /* A refusal with a time to come back is a promise that nothing was done. */
  if (err->code == CB_RATE_LIMITED && err->retry_after_ms > 0) {
    int64_t ms = err->retry_after_ms;
    return cb_e2b_wait(c, jitter(ms < CB_E2B_RETRY_AFTER_MAX_MS ? ms : CB_E2B_RETRY_AFTER_MAX_MS),
                       c->go);
  }
  bool harmless = c->repeatable || (!c->sent && err->code == CB_UNREACHABLE);
  if (!harmless || !(worth_another_try(err) || (c->repeatable && err->code == CB_RATE_LIMITED)))
    return false;
  return cb_e2b_wait(c, jitter((int64_t)FIRST_PAUSE_MS << (c->tries > 1)), c->go);
}

/* Time for one try: all that is left, unless a repeat should still fit behind it. */
static int64_t try_ms(const struct cb_e2b_call *c)
{
  int64_t left = cb_e2b_left(c);
  if (c->step_ms > 0 && c->step_ms < left)
    left = c->step_ms;
  if (c->repeatable && c->tries < CB_E2B_TRIES && left / 2 > LEAST_TRY_MS)
    return left / 2;
  return left > 0 ? left : 1;
}

/* ---- HTTP steps -------------------------------------------------------------------------- */

void cb_e2b_new_step(struct cb_e2b_call *c)
{
  cb_free(c->path);
  json_decref(c->body);
  c->path = NULL;
  c->body = NULL;
  c->then = NULL;
  c->then_rpc = NULL;
  c->envd = c->repeatable = c->sent = false;
  c->user = c->range = NULL;
  c->step_ms = 0;
  c->on_data = NULL;
  c->on_head = NULL;
  c->parts = NULL;
  c->part_count = 0;
  c->max_bytes = 0;
  c->tries = 0;
}

static void step_over(struct cb_e2b_call *c, struct cb_http_res *res, const struct cb_err *err)
{
  if (c->ending.code) {
    struct cb_err why = c->ending;
    why.unknown = c->sent && !c->repeatable;
    cb_e2b_fail(c, &why);
  } else if (!err || !cb_e2b_again(c, err)) {
    c->then(c, res, err);
  }
}

static void http_end(void *arg, struct cb_http_res *res, const struct cb_err *err, bool sent)
{
  struct cb_e2b_call *c = arg;
  struct cb_err refusal = CB_ERR_INIT;
  c->http = NULL;
  c->sent = sent;
  if (res && (res->status < 200 || res->status > 299)) {
    cb_rpc_refusal(&refusal, c->envd ? "envd" : "api", res->status, res->body.p, res->body.len,
                   res->retry_after_ms);
    err = &refusal;
  }
  step_over(c, res, err);
}

static void start_http(struct cb_e2b_call *c, const char *const *headers, const char *url,
                       const char *body)
{
  struct cb_err err = CB_ERR_INIT;
  bool resumed = false;
  if (c->envd)
    cb_e2b_is_settling(c->p, c->id, &resumed);
  struct cb_http_req req = {
    .method = c->method,
    .url = url,
    .unix_socket = c->p->socket,
    .headers = headers,
    .body = body,
    .body_len = body ? strlen(body) : 0,
    .parts = c->parts,
    .part_count = c->part_count,
    .connect_timeout_ms = c->p->connect_timeout_ms,
    .timeout_ms = try_ms(c),
    .max_bytes = c->max_bytes,
    /* A kept connection can break just when it is used again. On a socket a new one costs
     * nothing, and what must not be repeated is not put at risk. */
    .fresh = resumed || c->tries > 1 || (c->p->socket && !c->repeatable),
    .on_data = c->on_data,
    .on_head = c->on_head,
  };
  c->http = cb_http_start(c->p->base.io, &req, http_end, c, &err);
  if (!c->http)
    cb_e2b_fail(c, &err);
}

static void go_control(struct cb_e2b_call *c)
{
  struct cb_err err = CB_ERR_INIT;
  struct cb_buf url, key;
  const char *headers[5];
  size_t n = 0;
  char *text = NULL;
  cb_buf_init(&url, 16384);
  cb_buf_init(&key, 4096);
  c->tries++;
  if (c->body && !(text = json_dumps(c->body, JSON_COMPACT))) {
    cb_err_set(&err, CB_INVALID, "the arguments are not UTF-8 text");
    goto out;
  }
  if (cb_e2b_control_url(c->p, &url) || cb_buf_addz(&url, c->path) ||
      (c->p->api_key && cb_buf_addf(&key, "X-API-Key: %s", c->p->api_key))) {
    cb_err_set(&err, CB_INVALID, "the request is too large");
    goto out;
  }
  headers[n++] = "User-Agent: crewbox/" CB_VERSION;
  headers[n++] = "Accept: application/json";
  if (c->p->api_key)
    headers[n++] = key.p;
  if (c->body)
    headers[n++] = "Content-Type: application/json";
  headers[n] = NULL;
  start_http(c, headers, url.p, text);
  c = NULL; /* may be gone */
out:
  cb_buf_clear(&url);
  cb_buf_clear_wiped(&key);
  if (text) {
    explicit_bzero(text, strlen(text)); /* env values */
    free(text);
  }
  if (c)
    cb_e2b_fail(c, &err);
}

void cb_e2b_control(struct cb_e2b_call *c, const char *method, const char *path, json_t *body,
                    bool repeatable, cb_e2b_then *then)
{
  char *copy = cb_strdup(path);
  cb_e2b_new_step(c);
  c->method = method;
  c->path = copy;
  c->body = body;
  c->repeatable = repeatable;
  c->then = then;
  c->go = go_control;
  if (!copy) {
    struct cb_err err = CB_ERR_INIT;
    cb_err_no_memory(&err);
    cb_e2b_fail(c, &err);
    return;
  }
  go_control(c);
}

static void go_envd(struct cb_e2b_call *c)
{
  struct cb_err err = CB_ERR_INIT;
  struct cb_buf url;
  char **headers = cb_e2b_envd_headers(c, false);
  cb_buf_init(&url, 65536);
  c->tries++;
  if (!headers || cb_e2b_envd_url(c->p, c->id, c->box_domain, &url) ||
      cb_buf_addz(&url, c->path)) {
    cb_err_set(&err, CB_NO_MEMORY, "no room for the request");
    goto out;
  }
  start_http(c, (const char *const *)headers, url.p, NULL);
  c = NULL;
out:
  cb_buf_clear(&url);
  cb_free(headers);
  if (c)
    cb_e2b_fail(c, &err);
}

void cb_e2b_envd(struct cb_e2b_call *c, const char *method, const char *path, bool repeatable,
                 cb_e2b_then *then)
{
  cb_free(c->path);
  c->path = cb_strdup(path);
  c->method = method;
  c->repeatable = repeatable;
  c->envd = true;
  c->then = then;
  c->go = go_envd;
  if (!c->path) {
    struct cb_err err = CB_ERR_INIT;
    cb_err_no_memory(&err);
    cb_e2b_fail(c, &err);
    return;
  }
  go_envd(c);
}

/* ---- unary rpc --------------------------------------------------------------------------- */

static void rpc_end(void *arg, json_t *value, const struct cb_err *err, bool sent)
{
  struct cb_e2b_call *c = arg;
  c->rpc = NULL;
  c->sent = sent;
  if (c->ending.code) {
    struct cb_err why = c->ending;
    why.unknown = sent && !c->repeatable;
    cb_e2b_fail(c, &why);
  } else if (!err || !cb_e2b_again(c, err)) {
    c->then_rpc(c, value, err);
  }
  json_decref(value);
}

static void go_unary(struct cb_e2b_call *c)
{
  struct cb_err err = CB_ERR_INIT;
  struct cb_buf url;
  bool resumed = false;
  char **headers = cb_e2b_envd_headers(c, false);
  cb_buf_init(&url, 4096);
  c->tries++;
  if (!headers || cb_e2b_envd_url(c->p, c->id, c->box_domain, &url) ||
      cb_buf_addf(&url, "/%s", c->path)) {
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
    .timeout_ms = try_ms(c),
    .fresh = resumed || c->tries > 1,
  };
  c->rpc = cb_rpc_unary(c->p->base.io, &req, rpc_end, c, &err);
out:
  cb_buf_clear(&url);
  cb_free(headers);
  if (err.code)
    cb_e2b_fail(c, &err);
}

void cb_e2b_unary(struct cb_e2b_call *c, const char *method, json_t *body, bool repeatable,
                  cb_e2b_then_rpc *then)
{
  const char *user = c->user;
  cb_e2b_new_step(c);
  c->user = user;
  c->path = cb_strdup(method);
  c->body = body;
  c->repeatable = repeatable;
  c->envd = true;
  c->then_rpc = then;
  c->go = go_unary;
  if (!c->path || !body) {
    struct cb_err err = CB_ERR_INIT;
    cb_err_no_memory(&err);
    cb_e2b_fail(c, &err);
    return;
  }
  go_unary(c);
}

/* ---- answers ----------------------------------------------------------------------------- */

json_t *cb_e2b_json(const struct cb_http_res *res, struct cb_err *err)
{
  return cb_rpc_json(res->body.p ? res->body.p : "", res->body.len, "api", err);
}

bool cb_e2b_no_route(const struct cb_err *err)
{
  if (err->status != 400 && err->status != 404 && err->status != 405)
    return false;
  return strstr(err->text, "no matching operation") || strstr(err->text, "method not allowed");
}
