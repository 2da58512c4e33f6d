/* SPDX-License-Identifier: MIT */
#include "net/rpc.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "wire/frames.h"

enum { SAID_MAX = 240, HEADERS_MAX = 24 };
#define LONGEST_DEADLINE_MS INT64_C(9999999999) /* the header has at most ten digits */

struct cb_rpc {
  bool (*on_message)(void *arg, const json_t *message); /* NULL: unary */
  void (*unary_done)(void *arg, json_t *value, const struct cb_err *err, bool sent);
  void (*stream_done)(void *arg, const struct cb_err *err, bool sent);
  void *arg;
  struct cb_http *http;
  struct cb_frame_decoder frames;
  struct cb_buf refusal; /* body of an answer that is not a stream */
  struct cb_err err;     /* why the stream was ended by us */
  bool enveloped;        /* the head said 200 and connect+json */
  bool refused;          /* the head said something else than 200 */
  bool stopped;          /* on_message had enough */
  bool ended;            /* the end envelope came */
};

/* ---- reading what a server says ---------------------------------------------------------- */

/* jansson's own limit is 2048 levels; nothing we talk to needs more than a handful. */
static bool too_deep(const char *p, size_t n)
{
  int depth = 0;
  bool text = false;
  for (size_t i = 0; i < n; i++) {
    if (text) {
      if (p[i] == '\\')
        i++;
      else if (p[i] == '"')
        text = false;
    } else if (p[i] == '"') {
      text = true;
    } else if (p[i] == '{' || p[i] == '[') {
      if (++depth > CB_RPC_DEPTH_MAX)
        return true;
    } else if (p[i] == '}' || p[i] == ']') {
      depth--;
    }
  }
  return false;
}

json_t *cb_rpc_json(const char *p, size_t n, const char *what, struct cb_err *err)
{
  json_error_t at;
  if (too_deep(p, n)) {
    cb_err_set(err, CB_PROTOCOL, "%s: the answer is nested more than %d levels deep", what,
               (int)CB_RPC_DEPTH_MAX);
    return NULL;
  }
  json_t *v = json_loadb(p, n, JSON_ALLOW_NUL, &at);
  if (!v)
    cb_err_set(err, CB_PROTOCOL, "%s: the answer is not JSON (line %d, column %d)", what, at.line,
               at.column);
  return v;
}

static const struct {
  const char *name;
  enum cb_code code;
} connect_codes[] = {
  {"canceled", CB_PROVIDER},          {"unknown", CB_PROVIDER},
  {"invalid_argument", CB_INVALID},   {"deadline_exceeded", CB_TIMEOUT},
  {"not_found", CB_NOT_FOUND},        {"already_exists", CB_EXISTS},
  {"permission_denied", CB_DENIED},   {"resource_exhausted", CB_QUOTA},
  {"failed_precondition", CB_CONFLICT}, {"aborted", CB_CONFLICT},
  {"out_of_range", CB_INVALID},       {"unimplemented", CB_UNSUPPORTED},
  {"internal", CB_PROVIDER},          {"unavailable", CB_UNREACHABLE},
  {"data_loss", CB_PROVIDER},         {"unauthenticated", CB_UNAUTHORIZED},
};

static bool code_of_name(const char *name, enum cb_code *out)
{
  for (size_t i = 0; name && i < sizeof connect_codes / sizeof *connect_codes; i++)
    if (strcmp(connect_codes[i].name, name) == 0) {
      *out = connect_codes[i].code;
      return true;
    }
  return false;
}

static enum cb_code code_of_status(int status)
{
  switch (status) {
  case 400:
  case 406:
  case 413:
  case 415:
  case 422:
    return CB_INVALID;
  case 401:
    return CB_UNAUTHORIZED;
  case 402:
    return CB_QUOTA;
  case 403:
    return CB_DENIED;
  case 404:
  case 410:
    return CB_NOT_FOUND;
  case 405:
  case 501:
    return CB_UNSUPPORTED;
  case 408:
    return CB_TIMEOUT;
  case 409:
    return CB_CONFLICT;
  case 429:
    return CB_RATE_LIMITED;
  case 502: /* of an edge or a proxy: whatever is behind it did not answer */
    return CB_UNREACHABLE;
  case 507:
    return CB_DISK_FULL;
  default:
    return CB_PROVIDER;
  }
}

/* One line of printable text out of what a server said. */
static void say(char *out, size_t max, const char *said)
{
  size_t n = 0;
  for (; *said && n + 1 < max; said++) {
    unsigned char c = (unsigned char)*said;
    out[n++] = c < 0x20 || c == 0x7f ? ' ' : (char)c;
  }
  while (n > 0 && ((unsigned char)out[n - 1] & 0xc0) == 0x80 && *said) /* no half a character */
    n--;
  if (n > 0 && *said && (unsigned char)out[n - 1] >= 0xc0)
    n--;
  while (n > 0 && (out[n - 1] == ' ' || out[n - 1] == '.'))
    n--;
  out[n] = '\0';
}

/* Takes code and message of a Connect error object. False when it is none. */
static bool connect_error(struct cb_err *err, const char *what, int status, const json_t *body)
{
  enum cb_code code;
  char said[SAID_MAX];
  const char *name = json_string_value(json_object_get(body, "code"));
  if (!code_of_name(name, &code))
    return false;
  const char *message = json_string_value(json_object_get(body, "message"));
  say(said, sizeof said, message ? message : name);
  cb_err_set(err, code, "%s: %s", what, said);
  if (err)
    err->status = status;
  return true;
}

int cb_rpc_refusal(struct cb_err *err, const char *what, int status, const char *body, size_t n,
                   int64_t retry_after_ms)
{
  char said[SAID_MAX] = "";
  struct cb_err unused;
  json_t *v = n > 0 ? cb_rpc_json(body, n, what, &unused) : NULL;
  if (v && connect_error(err, what, status, v)) {
    json_decref(v);
    return err ? (int)err->code : CB_PROVIDER;
  }
  const char *message = json_string_value(json_object_get(v, "message"));
  if (message)
    say(said, sizeof said, message);
  json_decref(v);
  enum cb_code code = code_of_status(status);
  if (said[0])
    cb_err_set(err, code, "%s: %s", what, said);
  else
    cb_err_set(err, code, "%s: the server answered %d", what, status);
  if (err) {
    err->status = status;
    err->retry_after_ms = code == CB_RATE_LIMITED && retry_after_ms > 0 ? retry_after_ms : 0;
  }
  return code;
}

/* ---- requests ---------------------------------------------------------------------------- */

static void rpc_free(struct cb_rpc *r)
{
  cb_frame_decoder_clear(&r->frames);
  cb_buf_clear(&r->refusal);
  cb_free(r);
}

static const char *method_of(const char *url)
{
  const char *slash = strrchr(url, '/');
  return slash ? slash + 1 : url;
}

/* Starts the HTTP request; the text of errors names the method alone. */
static int send_request(struct cb_rpc *r, struct cb_io *io, const struct cb_rpc_req *req,
                        const struct cb_buf *body, const char *type, struct cb_http_req *http,
                        void (*done)(void *, struct cb_http_res *, const struct cb_err *, bool),
                        struct cb_err *err)
{
  const char *headers[HEADERS_MAX];
  char content[64], deadline[48];
  size_t n = 0;
  snprintf(content, sizeof content, "Content-Type: %s", type);
  headers[n++] = content;
  headers[n++] = "Connect-Protocol-Version: 1";
  if (req->deadline_ms > 0) {
    int64_t ms = req->deadline_ms < LONGEST_DEADLINE_MS ? req->deadline_ms : LONGEST_DEADLINE_MS;
    snprintf(deadline, sizeof deadline, "Connect-Timeout-Ms: %" PRId64, ms);
    headers[n++] = deadline;
  }
  for (size_t i = 0; req->headers && req->headers[i]; i++) {
    if (n + 1 == HEADERS_MAX)
      return cb_err_set(err, CB_INVALID, "%s: too many headers", method_of(req->url));
    headers[n++] = req->headers[i];
  }
  headers[n] = NULL;
  http->method = "POST";
  http->url = req->url;
  http->unix_socket = req->unix_socket;
  http->headers = headers;
  http->body = body->p;
  http->body_len = body->len;
  http->connect_timeout_ms = req->connect_timeout_ms;
  http->timeout_ms = req->timeout_ms;
  http->idle_timeout_ms = req->idle_timeout_ms;
  http->max_bytes = req->max_bytes || r->on_message ? req->max_bytes : CB_RPC_UNARY_MAX;
  http->fresh = req->fresh;
  r->http = cb_http_start(io, http, done, r, err);
  return r->http ? CB_OK : (err ? (int)err->code : CB_INVALID);
}

static char *body_text(const struct cb_rpc_req *req, struct cb_err *err)
{
  char *text = json_dumps(req->body, JSON_COMPACT);
  if (!text)
    cb_err_set(err, CB_INVALID, "%s: the request is not UTF-8 text", method_of(req->url));
  return text;
}

static void unary_end(void *arg, struct cb_http_res *res, const struct cb_err *err, bool sent)
{
  struct cb_rpc *r = arg;
  struct cb_err own = CB_ERR_INIT;
  json_t *value = NULL;
  if (err) {
    own = *err;
    own.status = 0; /* the head may have come; what is told here is the way, not the answer */
  } else if (res->status != 200) {
    cb_rpc_refusal(&own, "rpc", res->status, res->body.p, res->body.len, res->retry_after_ms);
  } else {
    value = cb_rpc_json(res->body.p ? res->body.p : "", res->body.len, "rpc", &own);
    if (value && !json_is_object(value)) {
      json_decref(value);
      value = NULL;
      cb_err_set(&own, CB_PROTOCOL, "rpc: the answer is not an object");
    }
  }
  r->unary_done(r->arg, value, value ? NULL : &own, sent);
  rpc_free(r);
}

struct cb_rpc *cb_rpc_unary(struct cb_io *io, const struct cb_rpc_req *req,
                            void (*done)(void *arg, json_t *value, const struct cb_err *err,
                                         bool sent),
                            void *arg, struct cb_err *err)
{
  struct cb_http_req http = {0};
  struct cb_buf body;
  struct cb_rpc *r = NULL;
  cb_buf_init(&body, SIZE_MAX / 2);
  char *text = body_text(req, err);
  if (!text)
    return NULL;
  body.p = text; /* lent: jansson's memory is not the buffer's to free */
  body.len = strlen(text);
  r = cb_calloc(1, sizeof *r);
  if (!r) {
    cb_err_no_memory(err);
    goto out;
  }
  r->unary_done = done;
  r->arg = arg;
  cb_frame_decoder_init(&r->frames, CB_RPC_MESSAGE_MAX);
  cb_buf_init(&r->refusal, CB_RPC_UNARY_MAX);
  if (send_request(r, io, req, &body, "application/json", &http, unary_end, err)) {
    rpc_free(r);
    r = NULL;
  }
out:
  free(text);
  return r;
}

/* ---- streams ----------------------------------------------------------------------------- */

static void stream_head(void *arg, int status, const char *content_type)
{
  struct cb_rpc *r = arg;
  r->refused = status != 200;
  r->enveloped = status == 200 && content_type &&
                 strcmp(content_type, "application/connect+json") == 0;
}

/* The end envelope: {} or {"error": {...}}. */
static void take_trailer(struct cb_rpc *r, const struct cb_frame *f)
{
  r->ended = true;
  json_t *v = cb_rpc_json(f->n > 0 ? f->p : "{}", f->n > 0 ? f->n : 2, "rpc", &r->err);
  const json_t *error = json_object_get(v, "error");
  if (error && !connect_error(&r->err, "rpc", 200, error))
    cb_err_set(&r->err, CB_PROVIDER, "rpc: the stream ended with an error that has no code");
  json_decref(v);
}

static bool stream_data(void *arg, const char *p, size_t n)
{
  struct cb_rpc *r = arg;
  if (!r->enveloped) { /* a refusal: its beginning is enough for the text, the rest is not read */
    size_t room = CB_RPC_MESSAGE_MAX - r->refusal.len;
    return r->refused && cb_buf_add(&r->refusal, p, n < room ? n : room) == CB_OK && n < room;
  }
  struct cb_frame f;
  int rc;
  while ((rc = cb_frame_next(&r->frames, &p, &n, &f, &r->err)) == 1) {
    if (f.flags & CB_FRAME_END) {
      take_trailer(r, &f);
      continue;
    }
    json_t *v = cb_rpc_json(f.n > 0 ? f.p : "{}", f.n > 0 ? f.n : 2, "rpc", &r->err);
    if (!v)
      return false;
    bool more = r->on_message(r->arg, v);
    json_decref(v);
    if (!more) {
      r->stopped = true;
      return false;
    }
  }
  return rc == 0;
}

static void stream_end(void *arg, struct cb_http_res *res, const struct cb_err *err, bool sent)
{
  struct cb_rpc *r = arg;
  struct cb_err own = CB_ERR_INIT;
  if (r->stopped || (r->ended && !r->err.code))
    own.code = CB_OK;
  else if (r->err.code) /* a trailer's error, broken envelopes or bad JSON */
    own = r->err;
  else if (err) {
    own = *err;
    own.status = 0;
  } else if (!r->enveloped && res->status != 200)
    cb_rpc_refusal(&own, "rpc", res->status, r->refusal.p, r->refusal.len, res->retry_after_ms);
  else if (!r->enveloped)
    cb_err_set(&own, CB_PROTOCOL, "rpc: the answer is not a stream of envelopes");
  else
    cb_err_set(&own, CB_UNREACHABLE, "rpc: the stream broke off before its end");
  r->stream_done(r->arg, own.code ? &own : NULL, sent);
  rpc_free(r);
}

struct cb_rpc *cb_rpc_stream(struct cb_io *io, const struct cb_rpc_req *req,
                             bool (*on_message)(void *arg, const json_t *message),
                             void (*done)(void *arg, const struct cb_err *err, bool sent),
                             void *arg, struct cb_err *err)
{
  struct cb_http_req http = {0};
  struct cb_buf body;
  struct cb_rpc *r = NULL;
  cb_buf_init(&body, CB_FRAME_MAX);
  char *text = body_text(req, err);
  if (!text)
    return NULL;
  int rc = cb_frame_add(&body, 0, text, strlen(text));
  if (rc) {
    cb_err_set(err, (enum cb_code)rc, "%s: the request is too large", method_of(req->url));
    goto out;
  }
  r = cb_calloc(1, sizeof *r);
  if (!r) {
    cb_err_no_memory(err);
    goto out;
  }
  r->on_message = on_message;
  r->stream_done = done;
  r->arg = arg;
  cb_frame_decoder_init(&r->frames, CB_RPC_MESSAGE_MAX);
  cb_buf_init(&r->refusal, CB_RPC_MESSAGE_MAX);
  http.on_data = stream_data;
  http.on_head = stream_head;
  if (send_request(r, io, req, &body, "application/connect+json", &http, stream_end, err)) {
    rpc_free(r);
    r = NULL;
  }
out:
  cb_buf_clear_wiped(&body); /* the request may hold env values */
  explicit_bzero(text, strlen(text));
  free(text);
  return r;
}

void cb_rpc_cancel(struct cb_rpc *r)
{
  cb_http_cancel(r->http);
}
