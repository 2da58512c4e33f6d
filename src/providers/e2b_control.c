/* SPDX-License-Identifier: MIT
 * e2b_control.c: the life of a box that exists: connect, info, timeout, pause, kill. What the
 * plane only half says is read back with a GET. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "providers/e2b_call.h"

enum {
  TIMEOUT_S_MAX = 30 * 24 * 3600,
  LOOK_MS = 500,   /* between looks at a box that is on its way to another state */
  LOOKS = 20,
  TRANSITIONS = 6  /* how often a 409 of a passing state is waited out */
};

struct life { /* own state of the verbs below */
  int64_t timeout_s;
  int looks;
  struct cb_err why; /* what to say if looking does not help */
};

static struct life *new_life(struct cb_e2b_call *c)
{
  struct life *l = cb_calloc(1, sizeof *l);
  if (l) {
    c->own = l;
    c->free_own = cb_free;
    return l;
  }
  struct cb_err err = CB_ERR_INIT;
  cb_err_no_memory(&err);
  cb_e2b_fail(c, &err);
  return NULL;
}

static void control(struct cb_e2b_call *c, const char *method, const char *tail, json_t *body,
                    bool repeatable, cb_e2b_then *then)
{
  char path[CB_BOX_ID_MAX + 64];
  snprintf(path, sizeof path, "/sandboxes/%s%s", c->id, tail);
  cb_e2b_control(c, method, path, body, repeatable, then);
}

/* Begins a verb that takes an id; NULL when it is over already. */
static struct cb_e2b_call *begin_id(struct cb_provider *p, const char *verb, const json_t *args,
                                    const char *const *names, cb_done *done, void *arg)
{
  struct cb_err err = CB_ERR_INIT;
  struct cb_e2b_call *c = cb_e2b_begin(p, verb, args, names, 0, done, arg);
  if (c && cb_e2b_arg_id(c, &err)) {
    cb_e2b_fail(c, &err);
    return NULL;
  }
  return c;
}

/* ---- info -------------------------------------------------------------------------------- */

/* The detail in an answer, which must be of the box asked for. NULL with *err. */
static json_t *detail_of(const struct cb_e2b_call *c, const struct cb_http_res *res,
                         struct cb_err *err)
{
  json_t *box = NULL, *answer = cb_e2b_json(res, err);
  if (answer && cb_e2b_detail(answer, &box, err) == CB_OK &&
      strcmp(json_string_value(json_object_get(box, "id")), c->id) != 0) {
    cb_err_set(err, CB_PROTOCOL, "the answer is about another box");
    json_decref(box);
    box = NULL;
  }
  json_decref(answer);
  return box;
}

static void info_end(struct cb_e2b_call *c, struct cb_http_res *res, const struct cb_err *err)
{
  struct cb_err own = CB_ERR_INIT;
  json_t *box = err ? NULL : detail_of(c, res, &own);
  if (!err && box && !json_object_get(box, "end_at")) {
    cb_err_set(&own, CB_PROTOCOL, "the answer has no usable endAt");
    json_decref(box);
    box = NULL;
  }
  if (box)
    cb_e2b_finish(c, box);
  else
    cb_e2b_fail(c, err ? err : &own);
}

void cb_e2b_v_info(struct cb_provider *p, const json_t *args, cb_done *done, void *arg)
{
  static const char *const names[] = {"id", NULL};
  struct cb_e2b_call *c = begin_id(p, "info", args, names, done, arg);
  if (c)
    control(c, "GET", "", NULL, true, info_end);
}

/* ---- connect ----------------------------------------------------------------------------- */

static void go_connect(struct cb_e2b_call *c);

static void connected(struct cb_e2b_call *c, struct cb_http_res *res)
{
  struct cb_err err = CB_ERR_INIT;
  char id[CB_BOX_ID_MAX + 1] = "";
  bool resumed = res->status == 201;
  json_t *box = NULL, *answer = cb_e2b_json(res, &err);
  if (answer && cb_e2b_box(answer, &box, id, &err) == CB_OK && strcmp(id, c->id) != 0) {
    /* Seen in the wild: files and agent of the box asked for are not in this one. */
    cb_err_set(&err, CB_PROTOCOL, "the provider answered with another box, %s", id);
    json_decref(box);
    box = NULL;
  }
  json_decref(answer);
  if (!box) {
    cb_e2b_fail(c, &err);
    return;
  }
  cb_e2b_settling(c->p, c->id, resumed);
  json_object_set_new(box, "resumed", json_boolean(resumed));
  cb_e2b_finish(c, box);
}

static void connect_end(struct cb_e2b_call *c, struct cb_http_res *res, const struct cb_err *err)
{
  if (!err) {
    connected(c, res);
  } else if (!c->p->v1_connect && cb_e2b_no_route(err)) {
    c->p->v1_connect = true;
    go_connect(c);
  } else {
    cb_e2b_fail(c, err);
  }
}

static void go_connect(struct cb_e2b_call *c)
{
  char path[CB_BOX_ID_MAX + 64];
  const struct life *l = c->own;
  snprintf(path, sizeof path, "%s/sandboxes/%s/connect", c->p->v1_connect ? "" : "/v2", c->id);
  /* Without a timeout the plane would set its own of five minutes. */
  cb_e2b_control(c, "POST", path, json_pack("{s:I}", "timeout", (json_int_t)l->timeout_s), true,
                 connect_end);
}

static bool take_timeout(struct cb_e2b_call *c)
{
  struct cb_err err = CB_ERR_INIT;
  struct life *l = new_life(c);
  if (!l)
    return false;
  if (cb_arg_int(c->args, "timeout_s", 1, TIMEOUT_S_MAX, -1, &l->timeout_s, &err)) {
    cb_e2b_fail(c, &err);
    return false;
  }
  return true;
}

void cb_e2b_v_connect(struct cb_provider *p, const json_t *args, cb_done *done, void *arg)
{
  static const char *const names[] = {"id", "timeout_s", NULL};
  struct cb_e2b_call *c = begin_id(p, "connect", args, names, done, arg);
  if (c && take_timeout(c))
    go_connect(c);
}

/* ---- timeout ----------------------------------------------------------------------------- */

static void go_timeout(struct cb_e2b_call *c);

/* 404 means gone or paused: the GET tells which. */
static void timeout_read(struct cb_e2b_call *c, struct cb_http_res *res, const struct cb_err *err)
{
  struct cb_err own = CB_ERR_INIT;
  struct life *l = c->own;
  json_t *box = err ? NULL : detail_of(c, res, &own);
  json_t *end = json_object_get(box, "end_at");
  const char *state = json_string_value(json_object_get(box, "state"));
  json_t *value = NULL;
  if (state && strcmp(state, "paused") == 0)
    cb_err_set(&own, CB_CONFLICT, "the box is paused");
  else if (l->why.code) /* it runs, and still the plane would not */
    own = l->why;
  else if (end)
    value = json_pack("{s:O}", "end_at", end);
  else if (!own.code)
    cb_err_set(&own, CB_PROTOCOL, "the answer has no usable endAt");
  json_decref(box);
  if (value)
    cb_e2b_finish(c, value);
  else
    cb_e2b_fail(c, err ? err : &own);
}

static void timeout_end(struct cb_e2b_call *c, struct cb_http_res *res, const struct cb_err *err)
{
  struct life *l = c->own;
  (void)res;
  if (err && err->status == 409) { /* in transition: it settles, or is gone */
    if (++l->looks <= TRANSITIONS && cb_e2b_wait(c, LOOK_MS, go_timeout))
      return;
    l->why = *err;
  } else if (err && err->status == 404) {
    l->why = *err;
  } else if (err && err->status == 400 &&
             (strstr(err->text, "Max instance length") ||
              strstr(err->text, "Timeout cannot be greater"))) {
    ; /* the plan allows no more: the end that stands is the answer */
  } else if (err) {
    cb_e2b_fail(c, err);
    return;
  }
  control(c, "GET", "", NULL, true, timeout_read);
}

static void go_timeout(struct cb_e2b_call *c)
{
  const struct life *l = c->own;
  control(c, "POST", "/timeout", json_pack("{s:I}", "timeout", (json_int_t)l->timeout_s), true,
          timeout_end);
}

void cb_e2b_v_timeout(struct cb_provider *p, const json_t *args, cb_done *done, void *arg)
{
  static const char *const names[] = {"id", "timeout_s", NULL};
  struct cb_e2b_call *c = begin_id(p, "timeout", args, names, done, arg);
  if (c && take_timeout(c))
    go_timeout(c);
}

/* ---- pause ------------------------------------------------------------------------------- */

static void go_pause_look(struct cb_e2b_call *c);

static void pause_look_end(struct cb_e2b_call *c, struct cb_http_res *res,
                           const struct cb_err *err)
{
  struct life *l = c->own;
  struct cb_err own = CB_ERR_INIT;
  json_t *box = err ? NULL : detail_of(c, res, &own);
  const char *state = json_string_value(json_object_get(box, "state"));
  bool paused = state && strcmp(state, "paused") == 0;
  bool running = state && !paused;
  json_decref(box);
  if (paused) {
    cb_e2b_finish(c, json_pack("{s:b}", "paused", 1));
  } else if (running && ++l->looks <= LOOKS && cb_e2b_wait(c, LOOK_MS, go_pause_look)) {
    return;
  } else if (running) {
    l->why.unknown = true; /* a pause of a large box may still be on its way */
    cb_e2b_fail(c, &l->why);
  } else {
    cb_e2b_fail(c, err ? err : &own);
  }
}

static void go_pause_look(struct cb_e2b_call *c)
{
  control(c, "GET", "", NULL, true, pause_look_end);
}

static void pause_end(struct cb_e2b_call *c, struct cb_http_res *res, const struct cb_err *err)
{
  struct life *l = c->own;
  if (!err || (err->status == 409 && strstr(err->text, "already paused"))) {
    cb_e2b_finish(c, json_pack("{s:b}", "paused", 1));
  } else if ((!res && c->sent) || err->status >= 500) {
    l->why = *err; /* nobody knows: look at it until it settles */
    if (err->status == 503)
      l->looks = LOOKS; /* a refusal that leaves the box running: one look is enough */
    go_pause_look(c);
  } else {
    cb_e2b_fail(c, err);
  }
}

void cb_e2b_v_pause(struct cb_provider *p, const json_t *args, cb_done *done, void *arg)
{
  static const char *const names[] = {"id", NULL};
  struct cb_e2b_call *c = begin_id(p, "pause", args, names, done, arg);
  if (!c || !new_life(c))
    return;
  c->deadline += 30000; /* the plane itself takes up to 70 s for a large box */
  control(c, "POST", "/pause", json_object(), false, pause_end);
}

/* ---- kill -------------------------------------------------------------------------------- */

static void go_kill_look(struct cb_e2b_call *c);

static void gone(struct cb_e2b_call *c, bool existed)
{
  cb_e2b_finish(c, json_pack("{s:b, s:b}", "gone", 1, "existed", (int)existed));
}

/* "Gone" is said only when the provider says so itself. */
static void kill_look_end(struct cb_e2b_call *c, struct cb_http_res *res, const struct cb_err *err)
{
  struct life *l = c->own;
  (void)res;
  if (err && (err->status == 404 || err->status == 410)) {
    gone(c, true);
  } else if (err) {
    struct cb_err why = *err;
    why.unknown = true;
    cb_e2b_fail(c, &why);
  } else if (++l->looks <= LOOKS && cb_e2b_wait(c, LOOK_MS, go_kill_look)) {
    return;
  } else {
    struct cb_err why = CB_ERR_INIT;
    cb_err_set(&why, CB_CONFLICT, "the provider took the kill but still shows the box");
    why.unknown = true;
    cb_e2b_fail(c, &why);
  }
}

static void go_kill_look(struct cb_e2b_call *c)
{
  control(c, "GET", "", NULL, true, kill_look_end);
}

static void go_kill(struct cb_e2b_call *c);

static void kill_end(struct cb_e2b_call *c, struct cb_http_res *res, const struct cb_err *err)
{
  struct life *l = c->own;
  (void)res;
  if (!err)
    go_kill_look(c);
  else if (err->status == 404 || err->status == 410)
    gone(c, false);
  else if (err->status == 409 && ++l->looks <= TRANSITIONS && cb_e2b_wait(c, LOOK_MS, go_kill))
    return;
  else
    cb_e2b_fail(c, err);
}

static void go_kill(struct cb_e2b_call *c)
{
  control(c, "DELETE", "", NULL, true, kill_end);
}

void cb_e2b_v_kill(struct cb_provider *p, const json_t *args, cb_done *done, void *arg)
{
  static const char *const names[] = {"id", NULL};
  struct cb_e2b_call *c = begin_id(p, "kill", args, names, done, arg);
  if (c && new_life(c))
    go_kill(c);
}
