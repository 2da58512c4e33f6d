/* SPDX-License-Identifier: MIT
 * e2b.c: the provider for everything that speaks E2B's protocol: its settings, its verb table,
 * and the two verbs that concern no box's life, health and url. */
#include <string.h>

#include "base/alloc.h"
#include "providers/e2b_call.h"

enum {
  CONNECT_TIMEOUT_MS = 10000,
  TIMEOUT_MS = 60000,
  KEEPALIVE_S = 50 /* what E2B's own client asks for; two of these without a byte is silence */
};

/* ---- settings ---------------------------------------------------------------------------- */

static void e2b_free(struct cb_provider *provider)
{
  struct cb_e2b *p = (struct cb_e2b *)provider;
  if (p->api_key)
    cb_free_wiped(p->api_key, strlen(p->api_key));
  cb_free(p->domain);
  cb_free(p->api_url);
  cb_free(p->sandbox_url);
  cb_free(p->socket);
  cb_free(p);
}

static int check_settings_names(const json_t *settings, struct cb_err *err)
{
  static const char *const names[] = {"api_key",     "domain", "api_url",
                                      "sandbox_url", "socket", "connect_timeout_ms",
                                      "timeout_ms",  "keepalive_s"};
  const char *key;
  json_t *unused;
  json_object_foreach((json_t *)(uintptr_t)settings, key, unused)
  {
    bool known = false;
    for (size_t i = 0; !known && i < sizeof names / sizeof *names; i++)
      known = strcmp(key, names[i]) == 0;
    if (!known)
      return cb_err_set(err, CB_INVALID, "provider e2b has no setting named %.40s", key);
  }
  return CB_OK;
}

/* Empty text counts as not given, as in E2B's own clients. */
static int copy_text(const json_t *settings, const char *name, char **out, struct cb_err *err)
{
  const char *text;
  int rc = cb_arg_text(settings, name, false, &text, err);
  if (rc || !text || !*text)
    return rc;
  *out = cb_strdup(text);
  return *out ? CB_OK : cb_err_no_memory(err);
}

static int check_url(const char *name, const char *url, struct cb_err *err)
{
  if (!url)
    return CB_OK;
  const char *host = strncmp(url, "https://", 8) == 0   ? url + 8
                     : strncmp(url, "http://", 7) == 0 ? url + 7
                                                       : NULL;
  if (!host || !*host || strpbrk(url, " \t\r\n\"<>?#@"))
    return cb_err_set(err, CB_INVALID,
                      "%s is not an http:// or https:// address without query and user", name);
  return CB_OK;
}

static void drop_slashes(char *url)
{
  for (size_t n = url ? strlen(url) : 0; n > 0 && url[n - 1] == '/'; n--)
    url[n - 1] = '\0';
}

static int check_key(const char *key, struct cb_err *err)
{
  /* No further shape is asked for: servers that speak the protocol have keys of their own. */
  if (key && !cb_e2b_token_ok(key))
    return cb_err_set(err, CB_INVALID, "api_key has blanks or control characters in it");
  return CB_OK;
}

static int read_settings(struct cb_e2b *p, const json_t *settings, struct cb_err *err)
{
  int64_t keepalive;
  int rc = check_settings_names(settings, err);
  if (!rc)
    rc = copy_text(settings, "api_key", &p->api_key, err);
  if (!rc)
    rc = copy_text(settings, "domain", &p->domain, err);
  if (!rc)
    rc = copy_text(settings, "api_url", &p->api_url, err);
  if (!rc)
    rc = copy_text(settings, "sandbox_url", &p->sandbox_url, err);
  if (!rc)
    rc = copy_text(settings, "socket", &p->socket, err);
  if (!rc)
    rc = cb_arg_int(settings, "connect_timeout_ms", 1, 600000, CONNECT_TIMEOUT_MS,
                        &p->connect_timeout_ms, err);
  if (!rc)
    rc = cb_arg_int(settings, "timeout_ms", 1, 3600000, TIMEOUT_MS, &p->timeout_ms, err);
  if (!rc)
    rc = cb_arg_int(settings, "keepalive_s", 1, 3600, KEEPALIVE_S, &keepalive, err);
  if (!rc)
    p->keepalive_s = (int)keepalive;
  if (!rc)
    rc = check_key(p->api_key, err);
  if (!rc)
    rc = check_url("api_url", p->api_url, err);
  if (!rc)
    rc = check_url("sandbox_url", p->sandbox_url, err);
  drop_slashes(p->api_url);
  drop_slashes(p->sandbox_url);
  if (!rc && p->domain && !cb_e2b_domain_ok(p->domain))
    rc = cb_err_set(err, CB_INVALID, "domain is not a host name");
  if (!rc && p->socket && p->socket[0] != '/')
    rc = cb_err_set(err, CB_INVALID, "socket is not an absolute path");
  return rc;
}

static int e2b_open(struct cb_provider **out, struct cb_io *io, const json_t *settings,
                    struct cb_err *err)
{
  struct cb_e2b *p = cb_calloc(1, sizeof *p);
  *out = NULL;
  if (!p)
    return cb_err_no_memory(err);
  p->base.io = io;
  int rc = read_settings(p, settings, err);
  if (rc) {
    e2b_free(&p->base);
    return rc;
  }
  *out = &p->base;
  return CB_OK;
}

static void e2b_close(struct cb_provider *provider)
{
  struct cb_e2b *p = (struct cb_e2b *)provider;
  p->closed = true;
  while (p->calls)
    cb_e2b_stop(p->calls, CB_CLOSED);
}

static void e2b_cancel(struct cb_provider *provider, cb_done *done, void *arg)
{
  struct cb_e2b *p = (struct cb_e2b *)provider;
  for (struct cb_e2b_call *c = p->calls; c; c = c->next)
    if (c->done == done && c->arg == arg) {
      cb_e2b_stop(c, CB_CANCELLED);
      return;
    }
}

/* ---- health ------------------------------------------------------------------------------ */

static void take_health(struct cb_e2b *p, const struct cb_http_res *res, json_t *value)
{
  struct cb_err unused;
  json_t *body = res->body.len > 0 ? cb_e2b_json(res, &unused) : NULL;
  const char *server = json_string_value(json_object_get(body, "server"));
  bool ours = server && strcmp(server, "crewboxd") == 0;
  p->crewboxd = ours ? CB_E2B_YES : CB_E2B_NO;
  if (ours && value) {
    const char *version = json_string_value(json_object_get(body, "version"));
    json_object_set_new(value, "server", json_string("crewboxd"));
    if (version)
      json_object_set_new(value, "version", json_string(version));
    if (json_is_object(json_object_get(body, "isolation")))
      json_object_set(value, "isolation", json_object_get(body, "isolation"));
  }
  json_decref(body);
}

static void health_end(struct cb_e2b_call *c, struct cb_http_res *res, const struct cb_err *err)
{
  if (err) {
    cb_e2b_fail(c, err);
    return;
  }
  json_t *value = json_object();
  take_health(c->p, res, value);
  cb_e2b_finish(c, value);
}

void cb_e2b_v_health(struct cb_provider *p, const json_t *args, cb_done *done, void *arg)
{
  static const char *const names[] = {NULL};
  struct cb_e2b_call *c = cb_e2b_begin(p, "health", args, names, 0, done, arg);
  if (c)
    cb_e2b_control(c, "GET", "/health", NULL, true, health_end);
}

static void learn_end(struct cb_e2b_call *c, struct cb_http_res *res, const struct cb_err *err)
{
  void (*next)(struct cb_e2b_call *) = *(void (**)(struct cb_e2b_call *))c->own;
  if (!res) {
    cb_e2b_fail(c, err); /* not even asked: nothing is known and nothing was done */
    return;
  }
  if (err)
    c->p->crewboxd = CB_E2B_NO; /* a plane without the route is not ours */
  else
    take_health(c->p, res, NULL);
  next(c);
}

void cb_e2b_learn(struct cb_e2b_call *c, void (*next)(struct cb_e2b_call *c))
{
  if (c->p->crewboxd != CB_E2B_ASK) {
    next(c);
    return;
  }
  struct cb_err err = CB_ERR_INIT;
  void (**slot)(struct cb_e2b_call *) = cb_malloc(sizeof *slot);
  if (!slot) {
    cb_err_no_memory(&err);
    cb_e2b_fail(c, &err);
    return;
  }
  *slot = next;
  c->own = slot;
  c->free_own = cb_free;
  cb_e2b_control(c, "GET", "/health", NULL, true, learn_end);
}

/* ---- url --------------------------------------------------------------------------------- */

static json_t *url_value(struct cb_e2b_call *c, int port)
{
  struct cb_buf url;
  cb_buf_init(&url, 4096);
  json_t *value = NULL, *headers = json_array();
  bool by_headers = c->p->socket || c->p->sandbox_url;
  if (by_headers) {
    json_array_append_new(headers, json_sprintf("E2b-Sandbox-Id: %s", c->id));
    json_array_append_new(headers, json_sprintf("E2b-Sandbox-Port: %d", port));
  }
  if (cb_e2b_port_url(c->p, c->id, c->box_domain, port, &url) == CB_OK)
    value = json_pack("{s:s, s:o}", "url", url.p, "headers", headers);
  else
    json_decref(headers);
  if (value && c->p->socket)
    json_object_set_new(value, "socket", json_string(c->p->socket));
  cb_buf_clear(&url);
  return value;
}

void cb_e2b_v_url(struct cb_provider *p, const json_t *args, cb_done *done, void *arg)
{
  static const char *const names[] = {"box", "port", NULL};
  struct cb_err err = CB_ERR_INIT;
  int64_t port;
  struct cb_e2b_call *c = cb_e2b_begin(p, "url", args, names, 0, done, arg);
  if (!c)
    return;
  if (cb_e2b_arg_box(c, &err) || cb_arg_int(c->args, "port", 1, 65535, -1, &port, &err))
    cb_e2b_fail(c, &err);
  else
    cb_e2b_finish(c, url_value(c, (int)port));
}

/* ---- the table --------------------------------------------------------------------------- */

const struct cb_provider_ops cb_e2b_ops = {
  .kind = "e2b",
  .open = e2b_open,
  .close = e2b_close,
  .free = e2b_free,
  .cancel = e2b_cancel,
#define CB_X(verb) .verb = cb_e2b_v_##verb,
  CB_VERBS(CB_X)
#undef CB_X
};
