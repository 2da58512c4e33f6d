/* SPDX-License-Identifier: MIT
 * e2b_create.c: making a box. A create is never repeated once it may have been carried out: a
 * lost answer is an error with `unknown`, and whoever asked looks for the nonce. A box that came
 * back unusable is killed before the error is given. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "providers/e2b_call.h"

enum { TIMEOUT_S_MAX = 30 * 24 * 3600, ALLOW_MAX = 256, FORWARD_MAX = 64 };

static void go_create(struct cb_e2b_call *c);

/* ---- rules of the network ---------------------------------------------------------------- */

/* "name:port" */
static int check_allow(const json_t *list, struct cb_err *err)
{
  if (json_array_size(list) > ALLOW_MAX)
    return cb_err_set(err, CB_INVALID, "allow has more than %d entries", (int)ALLOW_MAX);
  for (size_t i = 0; i < json_array_size(list); i++) {
    const char *entry = json_string_value(json_array_get(list, i));
    const char *colon = entry ? strrchr(entry, ':') : NULL;
    char *end = NULL;
    long port = colon ? strtol(colon + 1, &end, 10) : 0;
    const char *name = entry && strncmp(entry, "*.", 2) == 0 ? entry + 2 : entry;
    if (!colon || colon == name || end == colon + 1 || *end || port < 1 || port > 65535 ||
        strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_") !=
          (size_t)(colon - name))
      return cb_err_set(err, CB_INVALID, "allow: entry %zu is not name:port", i + 1);
  }
  return CB_OK;
}

static int check_forward(const json_t *list, struct cb_err *err)
{
  int64_t port;
  const char *to;
  if (json_array_size(list) > FORWARD_MAX)
    return cb_err_set(err, CB_INVALID, "forward has more than %d entries", (int)FORWARD_MAX);
  for (size_t i = 0; i < json_array_size(list); i++) {
    const json_t *rule = json_array_get(list, i);
    if (!json_is_object(rule) || cb_arg_int(rule, "port", 1, 65535, -1, &port, NULL) ||
        cb_arg_text(rule, "to", true, &to, NULL))
      return cb_err_set(err, CB_INVALID, "forward: entry %zu is not {port, to}", i + 1);
  }
  return CB_OK;
}

/* {"mode", "allow", "forward"} as crewboxd takes it. */
static json_t *own_network(const json_t *allow, const json_t *forward)
{
  bool none = json_array_size(allow) == 0 && json_array_size(forward) == 0;
  json_t *network = json_pack("{s:s}", "mode", none ? "none" : "allowlist");
  json_object_set_new(network, "allow", json_is_array(allow) ? json_deep_copy(allow) : json_array());
  json_object_set_new(network, "forward",
                      json_is_array(forward) ? json_deep_copy(forward) : json_array());
  return network;
}

/* E2B filters by host alone, and a host is only taken when everything else is denied. */
static json_t *cloud_network(const json_t *allow)
{
  json_t *hosts = json_array(), *seen = json_object();
  for (size_t i = 0; i < json_array_size(allow); i++) {
    const char *entry = json_string_value(json_array_get(allow, i));
    json_t *host = json_stringn(entry, (size_t)(strrchr(entry, ':') - entry));
    const char *name = json_string_value(host);
    if (name && !json_object_get(seen, name)) {
      json_object_set_new(seen, name, json_true());
      json_array_append(hosts, host);
    }
    json_decref(host);
  }
  json_decref(seen);
  return json_pack("{s:o, s:[s]}", "allowOut", hosts, "denyOut", "0.0.0.0/0");
}

/* Adds what the arguments say about network and limits, in the words of this server. */
static int add_rules(const struct cb_e2b_call *c, json_t *body, struct cb_err *err)
{
  const json_t *allow, *forward;
  json_t *limits = json_object_get(c->args, "limits");
  bool ours = c->p->crewboxd == CB_E2B_YES;
  cb_arg_list(c->args, "allow", &allow, NULL); /* checked before */
  cb_arg_list(c->args, "forward", &forward, NULL);
  if (ours) {
    json_t *extension = json_object();
    if (allow || forward)
      json_object_set_new(extension, "network", own_network(allow, forward));
    if (limits)
      json_object_set(extension, "limits", limits);
    return json_object_set_new(body, "crewbox", extension) ? cb_err_no_memory(err) : CB_OK;
  }
  if (json_array_size(forward) > 0)
    return cb_err_set(err, CB_INVALID,
                      "a forward rule needs a local box: a box of this provider cannot reach a "
                      "port of this machine");
  if (json_is_object(limits) && json_object_size(limits) > 0)
    return cb_err_set(err, CB_UNSUPPORTED,
                      "limits need a local box: sizes of this provider are those of the template");
  int bad = 0;
  if (allow && json_array_size(allow) == 0)
    bad = json_object_set_new(body, "allow_internet_access", json_false());
  else if (allow)
    bad = json_object_set_new(body, "network", cloud_network(allow));
  return bad ? cb_err_no_memory(err) : CB_OK;
}

/* ---- the request ------------------------------------------------------------------------- */

static int add_metadata(const struct cb_e2b_call *c, json_t *body, struct cb_err *err)
{
  const json_t *given;
  const char *nonce;
  int rc = cb_arg_map(c->args, "metadata", &given, err);
  if (!rc)
    rc = cb_arg_text(c->args, "nonce", true, &nonce, err);
  if (rc)
    return rc;
  json_t *metadata = given ? json_deep_copy(given) : json_object();
  if (!metadata || json_object_set_new(metadata, "crewbox_nonce", json_string(nonce)) ||
      json_object_set_new(body, "metadata", metadata))
    return cb_err_set(err, CB_INVALID, "metadata is not UTF-8 text");
  return CB_OK;
}

static json_t *create_body(const struct cb_e2b_call *c, struct cb_err *err)
{
  const char *template;
  const json_t *env;
  int64_t timeout_s;
  json_t *body = NULL;
  if (cb_arg_text(c->args, "template", false, &template, err) ||
      cb_arg_int(c->args, "timeout_s", 1, TIMEOUT_S_MAX, -1, &timeout_s, err) ||
      cb_arg_map(c->args, "env", &env, err))
    return NULL;
  body = json_pack("{s:s, s:I, s:b}", "templateID", template ? template : "base", "timeout",
                   (json_int_t)timeout_s, "autoPause", 0);
  if (!body) {
    cb_err_set(err, CB_INVALID, "template is not UTF-8 text");
    return NULL;
  }
  if (c->p->v1_create)
    json_object_set_new(body, "secure", json_true()); /* else its envd is open to the world */
  else
    json_object_set_new(body, "autoResume", json_pack("{s:b}", "enabled", 0));
  if (env)
    json_object_set_new(body, "envVars", json_deep_copy(env));
  if (add_metadata(c, body, err) || add_rules(c, body, err)) {
    json_decref(body);
    return NULL;
  }
  return body;
}

/* ---- the answer -------------------------------------------------------------------------- */

struct refused_box { /* a box that came back unusable, and why */
  struct cb_err why;
};

static void refused_killed(struct cb_e2b_call *c, struct cb_http_res *res,
                           const struct cb_err *err)
{
  struct cb_err why = ((struct refused_box *)c->own)->why;
  (void)res;
  if (err && err->status != 404)
    why.unknown = true; /* it may still be there: the nonce finds it */
  cb_e2b_fail(c, &why);
}

static void kill_refused(struct cb_e2b_call *c, const char *id, const struct cb_err *why)
{
  char path[CB_BOX_ID_MAX + 16];
  struct refused_box *own = cb_malloc(sizeof *own);
  if (!own) {
    struct cb_err err = *why;
    err.unknown = true;
    cb_e2b_fail(c, &err);
    return;
  }
  own->why = *why;
  if (c->free_own)
    c->free_own(c->own);
  c->own = own;
  c->free_own = cb_free;
  snprintf(path, sizeof path, "/sandboxes/%s", id);
  cb_e2b_control(c, "DELETE", path, NULL, true, refused_killed);
}

static void created(struct cb_e2b_call *c, struct cb_http_res *res)
{
  struct cb_err err = CB_ERR_INIT;
  char id[CB_BOX_ID_MAX + 1] = "";
  json_t *box = NULL;
  json_t *answer = cb_e2b_json(res, &err);
  if (answer && cb_e2b_box(answer, &box, id, &err) == CB_OK)
    cb_e2b_settling(c->p, id, false);
  json_decref(answer);
  if (box) {
    cb_e2b_finish(c, box);
  } else if (id[0]) {
    kill_refused(c, id, &err);
  } else {
    err.unknown = true; /* the status said that there is a box */
    cb_e2b_fail(c, &err);
  }
}

/* Codes with which a 503 says that no box came into being. */
static const char *const surely_none[] = {"isolation_unavailable", "sandbox_capacity_unavailable",
                                          "sandbox_no_compatible_node", "sandbox_create_failed"};

/* Fills *err in further from the body of a refusal; true when it is sure that no box exists. */
static bool read_refusal(const struct cb_http_res *res, struct cb_err *err)
{
  struct cb_err unused;
  bool sure = false;
  json_t *body = res && res->body.len > 0 ? cb_e2b_json(res, &unused) : NULL;
  const char *code = json_string_value(json_object_get(body, "error_code"));
  for (size_t i = 0; code && i < sizeof surely_none / sizeof *surely_none; i++)
    sure = sure || strcmp(code, surely_none[i]) == 0;
  if (code && strcmp(code, "isolation_unavailable") == 0)
    err->code = CB_ISOLATION;
  else if (err->status == 503 && sure)
    err->code = CB_QUOTA;
  json_decref(body);
  return sure;
}

static void create_end(struct cb_e2b_call *c, struct cb_http_res *res, const struct cb_err *err)
{
  if (!err) {
    created(c, res);
    return;
  }
  if (!c->p->v1_create && cb_e2b_no_route(err)) {
    c->p->v1_create = true;
    go_create(c);
    return;
  }
  struct cb_err why = *err;
  bool sure = read_refusal(res, &why);
  if (!res)
    why.unknown = c->sent;
  else if (err->status >= 500)
    why.unknown = !sure;
  if (err->status == 429 && err->retry_after_ms == 0 && strstr(err->text, "concurrent"))
    why.code = CB_QUOTA; /* a cap, not a rate: waiting alone does not help */
  cb_e2b_fail(c, &why);
}

static void go_create(struct cb_e2b_call *c)
{
  struct cb_err err = CB_ERR_INIT;
  json_t *body = create_body(c, &err);
  if (!body) {
    cb_e2b_fail(c, &err);
    return;
  }
  cb_e2b_control(c, "POST", c->p->v1_create ? "/sandboxes" : "/v2/sandboxes", body, false,
                 create_end);
}

void cb_e2b_v_create(struct cb_provider *p, const json_t *args, cb_done *done, void *arg)
{
  static const char *const names[] = {"nonce", "template", "timeout_s", "metadata", "env",
                                      "allow", "forward",  "limits",    NULL};
  struct cb_err err = CB_ERR_INIT;
  const json_t *allow, *forward;
  struct cb_e2b_call *c = cb_e2b_begin(p, "create", args, names, 0, done, arg);
  if (!c)
    return;
  if (cb_arg_list(c->args, "allow", &allow, &err) ||
      cb_arg_list(c->args, "forward", &forward, &err) || check_allow(allow, &err) ||
      check_forward(forward, &err)) {
    cb_e2b_fail(c, &err);
    return;
  }
  if (allow || forward || json_object_get(c->args, "limits"))
    cb_e2b_learn(c, go_create); /* which words the server understands */
  else
    go_create(c);
}
