/* SPDX-License-Identifier: MIT
 * http.c: one request is one cb_transfer; this file sets it up, bounds it and names its end. */
#include "net/http.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fd.h"
#include "net/multi.h"

enum {
  CONNECT_MS = 10000,
  TOTAL_MS = 60000,
  BODY_MAX = 16 << 20,
  HEADER_MAX = 64 << 10,
  RETRY_AFTER_MAX_MS = 3600000
};

enum stop { RUNNING, STOP_BY_CALLER, STOP_BODY, STOP_HEAD, STOP_MEMORY, STOP_IDLE, STOP_SOURCE };

struct cb_http {
  struct cb_transfer t; /* first */
  struct cb_io *io;
  struct cb_multi *m;
  struct cb_io_hook hook;
  void (*done)(void *, struct cb_http_res *, const struct cb_err *, bool); /* NULL: told */
  bool (*on_data)(void *arg, const char *p, size_t n);
  void (*on_head)(void *arg, int status, const char *content_type);
  void *arg;

  char origin[160]; /* what error texts may name */
  struct curl_slist *headers;
  curl_mime *mime;
  char *body; /* wiped at the end: bodies carry credentials */
  size_t body_len, body_at;
  size_t max_bytes, max_header_bytes, header_bytes, body_bytes;
  int64_t idle_ms, active_ms;
  struct cb_timer *idle;

  struct cb_http_res res;
  bool head_done;
  enum stop stop; /* why a callback of ours ended the transfer */
};

struct part_source { /* one file of a multipart body while it is sent */
  struct cb_http *h;
  int fd; /* -1: from memory */
  char *data;
  size_t len, at;
};

/* ---- the answer's head ------------------------------------------------------------------- */

const char *cb_http_header(const struct cb_http_res *res, const char *name, size_t *n)
{
  size_t len = strlen(name);
  const char *p = res->headers.p, *end = p ? p + res->headers.len : NULL;
  while (p && p < end) {
    const char *eol = memchr(p, '\n', (size_t)(end - p));
    if ((size_t)(eol - p) >= len + 2 && memcmp(p, name, len) == 0 && p[len] == ':') {
      *n = (size_t)(eol - p) - len - 2;
      return p + len + 2;
    }
    p = eol + 1;
  }
  return NULL;
}

static int64_t retry_after(const char *value, size_t n)
{
  char text[64];
  int64_t ms = 0;
  if (n == 0 || n >= sizeof text)
    return -1;
  memcpy(text, value, n);
  text[n] = '\0';
  if (strspn(text, "0123456789") == n) {
    for (size_t i = 0; i < n && ms < RETRY_AFTER_MAX_MS; i++)
      ms = ms * 10 + (text[i] - '0') * 1000;
  } else {
    time_t at = curl_getdate(text, NULL);
    if (at == (time_t)-1)
      return -1;
    ms = (int64_t)at * 1000 - cb_wall_ms();
  }
  return ms < 0 ? 0 : ms > RETRY_AFTER_MAX_MS ? RETRY_AFTER_MAX_MS : ms;
}

static void read_head(struct cb_http *h)
{
  size_t n;
  const char *v = cb_http_header(&h->res, "content-type", &n);
  if (v) {
    size_t i = 0;
    while (i < n && i < sizeof h->res.content_type - 1 && v[i] != ';' && v[i] != ' ') {
      h->res.content_type[i] = (char)tolower((unsigned char)v[i]);
      i++;
    }
    h->res.content_type[i] = '\0';
  }
  v = cb_http_header(&h->res, "retry-after", &n);
  h->res.retry_after_ms = v ? retry_after(v, n) : -1;
}

/* Keeps "name: value", the name in lower case. Lines without a colon are dropped. */
static int keep_header(struct cb_buf *b, const char *p, size_t n)
{
  const char *colon = memchr(p, ':', n);
  if (!colon || colon == p)
    return CB_OK;
  size_t name = (size_t)(colon - p), from = name + 1;
  while (from < n && (p[from] == ' ' || p[from] == '\t'))
    from++;
  size_t start = b->len;
  int rc = cb_buf_add(b, p, name);
  for (size_t i = start; rc == CB_OK && i < b->len; i++)
    b->p[i] = (char)tolower((unsigned char)b->p[i]);
  if (rc == CB_OK)
    rc = cb_buf_add(b, ": ", 2);
  if (rc == CB_OK)
    rc = cb_buf_add(b, p + from, n - from);
  if (rc == CB_OK)
    rc = cb_buf_addc(b, '\n');
  return rc;
}

static size_t stop(struct cb_http *h, enum stop why)
{
  h->stop = why;
  return 0; /* not the size curl offered: it ends the transfer */
}

static size_t on_header(char *p, size_t size, size_t count, void *arg)
{
  struct cb_http *h = arg;
  size_t n = size * count, offered = n;
  if (!h->done)
    return 0;
  h->active_ms = cb_now_ms();
  h->header_bytes += n; /* of all heads, so that endless 1xx answers end too */
  if (h->header_bytes > h->max_header_bytes)
    return stop(h, STOP_HEAD);
  if (h->head_done)
    return offered; /* a trailer */
  while (n > 0 && (p[n - 1] == '\n' || p[n - 1] == '\r' || p[n - 1] == ' ' || p[n - 1] == '\t'))
    n--;
  if (n >= 5 && memcmp(p, "HTTP/", 5) == 0) {
    cb_buf_reset(&h->res.headers);
    return offered;
  }
  if (n > 0)
    return keep_header(&h->res.headers, p, n) == CB_OK ? offered : stop(h, STOP_MEMORY);
  long status = 0;
  curl_easy_getinfo(h->t.easy, CURLINFO_RESPONSE_CODE, &status);
  if (status < 200)
    return offered;
  h->res.status = (int)status;
  h->head_done = true;
  read_head(h);
  if (h->on_head)
    h->on_head(h->arg, h->res.status, h->res.content_type);
  return h->done ? offered : 0;
}

static size_t on_body(char *p, size_t size, size_t count, void *arg)
{
  struct cb_http *h = arg;
  size_t n = size * count;
  if (!h->done)
    return 0;
  h->active_ms = cb_now_ms();
  if (h->max_bytes && n > h->max_bytes - h->body_bytes)
    return stop(h, STOP_BODY);
  h->body_bytes += n;
  if (h->on_data) {
    bool go_on = h->on_data(h->arg, p, n);
    if (!h->done)
      return 0; /* cancelled in there */
    return go_on ? n : stop(h, STOP_BY_CALLER);
  }
  return cb_buf_add(&h->res.body, p, n) == CB_OK ? n : stop(h, STOP_MEMORY);
}

/* ---- the request's body ------------------------------------------------------------------ */

static size_t send_body(char *into, size_t size, size_t count, void *arg)
{
  struct cb_http *h = arg;
  size_t room = size * count, left = h->body_len - h->body_at;
  size_t n = left < room ? left : room;
  memcpy(into, h->body + h->body_at, n);
  h->body_at += n;
  h->active_ms = cb_now_ms();
  return n;
}

static size_t send_part(char *into, size_t size, size_t count, void *arg)
{
  struct part_source *s = arg;
  size_t room = size * count, left = s->len - s->at;
  size_t n = left < room ? left : room;
  s->h->active_ms = cb_now_ms();
  if (s->fd < 0) {
    memcpy(into, s->data + s->at, n);
  } else if (n > 0) {
    ssize_t k = pread(s->fd, into, n, (off_t)s->at);
    if (k <= 0) { /* shorter than it was: its length is already promised */
      s->h->stop = STOP_SOURCE;
      return CURL_READFUNC_ABORT;
    }
    n = (size_t)k;
  }
  s->at += n;
  return n;
}

static void free_part(void *arg)
{
  struct part_source *s = arg;
  cb_close(&s->fd);
  cb_free_wiped(s->data, s->len);
  cb_free(s);
}

static int open_part(struct part_source *s, const struct cb_http_part *part, struct cb_err *err)
{
  struct stat st;
  if (part->data || !part->source) {
    s->len = part->len;
    s->data = cb_memdup(part->data, part->len);
    return s->data ? CB_OK : cb_err_no_memory(err);
  }
  s->fd = open(part->source, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (s->fd < 0 || fstat(s->fd, &st) < 0)
    return cb_err_errno(err, errno, "upload %s", part->source);
  if (!S_ISREG(st.st_mode))
    return cb_err_set(err, CB_INVALID, "upload %s: not a regular file", part->source);
  s->len = (size_t)st.st_size;
  return CB_OK;
}

static int set_parts(struct cb_http *h, const struct cb_http_req *req, struct cb_err *err)
{
  h->mime = curl_mime_init(h->t.easy);
  if (!h->mime)
    return cb_err_no_memory(err);
  for (size_t i = 0; i < req->part_count; i++) {
    curl_mimepart *p = curl_mime_addpart(h->mime);
    struct part_source *s = cb_calloc(1, sizeof *s);
    if (!p || !s) {
      cb_free(s);
      return cb_err_no_memory(err);
    }
    s->h = h;
    s->fd = -1;
    int rc = open_part(s, &req->parts[i], err);
    /* No seek function: without it libcurl cannot send the request a second time unasked. */
    if (rc == CB_OK && curl_mime_data_cb(p, (curl_off_t)s->len, send_part, NULL, free_part, s))
      rc = cb_err_no_memory(err);
    if (rc) {
      free_part(s);
      return rc;
    }
    if (curl_mime_name(p, "file") || curl_mime_filename(p, req->parts[i].filename))
      return cb_err_no_memory(err);
  }
  /* A quote in a file name is escaped as RFC 2045 says, which Go's servers undo, and not turned
   * into %22 as browsers do, which they take as it stands. */
  curl_easy_setopt(h->t.easy, CURLOPT_MIME_OPTIONS, (long)CURLMIMEOPT_FORMESCAPE);
  curl_easy_setopt(h->t.easy, CURLOPT_MIMEPOST, h->mime);
  return CB_OK;
}

static int set_body(struct cb_http *h, const struct cb_http_req *req, struct cb_err *err)
{
  CURL *e = h->t.easy;
  const char *method = req->method;
  if (!method)
    method = req->parts || req->body ? "POST" : "GET";
  bool once = strcmp(method, "POST") == 0 || strcmp(method, "PATCH") == 0;

  if (req->parts) {
    int rc = set_parts(h, req, err);
    if (rc)
      return rc;
  } else if (req->body || once) {
    h->body_len = req->body ? req->body_len : 0;
    h->body = cb_memdup(req->body, h->body_len);
    if (!h->body)
      return cb_err_no_memory(err);
    curl_easy_setopt(e, CURLOPT_POST, 1L);
    curl_easy_setopt(e, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)h->body_len);
    if (once && h->body_len > 0) {
      /* Through a read function without a seek function: a body that was given to curl whole
       * would be sent again on a new connection when a kept one breaks before the answer. */
      curl_easy_setopt(e, CURLOPT_READFUNCTION, send_body);
      curl_easy_setopt(e, CURLOPT_READDATA, h);
    } else {
      curl_easy_setopt(e, CURLOPT_POSTFIELDS, h->body);
      /* Nothing to rewind, so only a new connection keeps an empty POST from being repeated. */
      if (once)
        curl_easy_setopt(e, CURLOPT_FRESH_CONNECT, 1L);
    }
  }
  if (strcmp(method, "HEAD") == 0)
    curl_easy_setopt(e, CURLOPT_NOBODY, 1L);
  else if (strcmp(method, "GET") != 0 || h->body)
    curl_easy_setopt(e, CURLOPT_CUSTOMREQUEST, method);
  return CB_OK;
}

/* ---- setting up -------------------------------------------------------------------------- */

static bool header_is(const char *line, const char *name)
{
  size_t n = strlen(name);
  return strncasecmp(line, name, n) == 0 && line[n] == ':';
}

static int add_header(struct cb_http *h, const char *line, struct cb_err *err)
{
  struct curl_slist *more = curl_slist_append(h->headers, line);
  if (!more)
    return cb_err_no_memory(err);
  h->headers = more;
  return CB_OK;
}

static int set_headers(struct cb_http *h, const struct cb_http_req *req, struct cb_err *err)
{
  bool typed = req->parts != NULL;
  int rc = add_header(h, "Expect:", err); /* no waiting for 100 Continue */
  for (const char *const *line = req->headers; rc == CB_OK && line && *line; line++) {
    size_t name = strcspn(*line, ":");
    if (name == 0 || (*line)[name] != ':' || strpbrk(*line, "\r\n"))
      return cb_err_set(err, CB_INVALID, "header %.*s: must be one line \"Name: value\"",
                        (int)strspn(*line, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                           "0123456789-_"),
                        *line);
    typed = typed || header_is(*line, "Content-Type");
    rc = add_header(h, *line, err);
  }
  if (rc == CB_OK && !typed)
    rc = add_header(h, "Content-Type:", err); /* no guess of curl's */
  if (rc == CB_OK)
    curl_easy_setopt(h->t.easy, CURLOPT_HTTPHEADER, h->headers);
  return rc;
}

/* Checks the URL and remembers what of it may be told: never user, path or query. */
static int set_origin(struct cb_http *h, const struct cb_http_req *req, bool *loopback,
                      struct cb_err *err)
{
  char *scheme = NULL, *host = NULL, *port = NULL;
  CURLU *u = curl_url();
  int rc = CB_OK;
  if (!u)
    return cb_err_no_memory(err);
  if (!req->url || curl_url_set(u, CURLUPART_URL, req->url, 0) ||
      curl_url_get(u, CURLUPART_SCHEME, &scheme, 0) || curl_url_get(u, CURLUPART_HOST, &host, 0) ||
      curl_url_get(u, CURLUPART_PORT, &port, CURLU_DEFAULT_PORT) ||
      (strcmp(scheme, "http") != 0 && strcmp(scheme, "https") != 0)) {
    rc = cb_err_set(err, CB_INVALID, "not an http:// or https:// URL");
    goto out;
  }
  if (req->unix_socket)
    snprintf(h->origin, sizeof h->origin, "socket %s", req->unix_socket);
  else
    snprintf(h->origin, sizeof h->origin, "%s://%s:%s", scheme, host, port);
  *loopback = req->unix_socket ||
              (strcmp(scheme, "http") == 0 &&
               (strcasecmp(host, "localhost") == 0 || strncmp(host, "127.", 4) == 0 ||
                strcmp(host, "[::1]") == 0));
out:
  curl_free(scheme);
  curl_free(host);
  curl_free(port);
  curl_url_cleanup(u);
  return rc;
}

static long clamp_ms(int64_t ms)
{
  return ms > 0x7fffffff ? 0x7fffffffL : (long)ms;
}

static int set_up(struct cb_http *h, const struct cb_http_req *req, struct cb_err *err)
{
  CURL *e = h->t.easy;
  bool loopback = false;
  int rc = set_origin(h, req, &loopback, err);
  if (rc)
    return rc;
  if (req->method && (!*req->method ||
                      req->method[strspn(req->method, "ABCDEFGHIJKLMNOPQRSTUVWXYZ")] != '\0'))
    return cb_err_set(err, CB_INVALID, "an HTTP method is a word in upper case");
  if (curl_easy_setopt(e, CURLOPT_URL, req->url))
    return cb_err_no_memory(err);
  if (req->unix_socket && curl_easy_setopt(e, CURLOPT_UNIX_SOCKET_PATH, req->unix_socket))
    return cb_err_no_memory(err);
  if (loopback)
    curl_easy_setopt(e, CURLOPT_PROXY, "");
  curl_easy_setopt(e, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
  curl_easy_setopt(e, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(e, CURLOPT_FOLLOWLOCATION, 0L);
  curl_easy_setopt(e, CURLOPT_NETRC, (long)CURL_NETRC_IGNORED);
  curl_easy_setopt(e, CURLOPT_CONNECTTIMEOUT_MS,
                   clamp_ms(req->connect_timeout_ms > 0 ? req->connect_timeout_ms : CONNECT_MS));
  if (req->timeout_ms >= 0)
    curl_easy_setopt(e, CURLOPT_TIMEOUT_MS,
                     clamp_ms(req->timeout_ms > 0 ? req->timeout_ms : TOTAL_MS));
  if (req->fresh)
    curl_easy_setopt(e, CURLOPT_FRESH_CONNECT, 1L);
  curl_easy_setopt(e, CURLOPT_HEADERFUNCTION, on_header);
  curl_easy_setopt(e, CURLOPT_HEADERDATA, h);
  curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, on_body);
  curl_easy_setopt(e, CURLOPT_WRITEDATA, h);
  rc = set_body(h, req, err);
  if (rc == CB_OK)
    rc = set_headers(h, req, err);
  return rc;
}

/* ---- the end ----------------------------------------------------------------------------- */

static void free_request(struct cb_http *h)
{
  cb_io_hook_remove(&h->hook);
  cb_timer_stop(h->idle);
  if (h->mime) {
    curl_easy_setopt(h->t.easy, CURLOPT_MIMEPOST, NULL);
    curl_mime_free(h->mime);
  }
  cb_multi_easy_back(h->m, h->t.easy);
  curl_slist_free_all(h->headers);
  cb_free_wiped(h->body, h->body_len);
  cb_buf_clear_wiped(&h->res.body);
  cb_buf_clear_wiped(&h->res.headers);
  cb_free(h);
}

static bool was_sent(struct cb_http *h)
{
  long bytes = 0;
  curl_easy_getinfo(h->t.easy, CURLINFO_REQUEST_SIZE, &bytes);
  return bytes > 0 || h->head_done;
}

/* Tells the caller, once. */
static void tell(struct cb_http *h, struct cb_err *err)
{
  void (*done)(void *, struct cb_http_res *, const struct cb_err *, bool) = h->done;
  bool sent = was_sent(h);
  h->done = NULL;
  cb_timer_stop(h->idle);
  h->idle = NULL;
  cb_io_hook_remove(&h->hook);
  if (err && h->head_done)
    err->status = h->res.status;
  done(h->arg, err ? NULL : &h->res, err, sent);
}

static void name_stop(struct cb_http *h, struct cb_err *err)
{
  switch (h->stop) {
  case STOP_BODY:
    cb_err_set(err, CB_TOO_LARGE, "%s: answer of more than %zu bytes", h->origin, h->max_bytes);
    break;
  case STOP_HEAD:
    cb_err_set(err, CB_TOO_LARGE, "%s: more than %zu bytes of headers", h->origin,
               h->max_header_bytes);
    break;
  case STOP_IDLE:
    cb_err_set(err, CB_TIMEOUT, "%s: silent for %lld ms", h->origin, (long long)h->idle_ms);
    break;
  case STOP_SOURCE:
    cb_err_set(err, CB_CONFLICT, "%s: a file became shorter while it was uploaded", h->origin);
    break;
  case STOP_MEMORY:
  case RUNNING:
  case STOP_BY_CALLER:
    cb_err_no_memory(err);
    break;
  }
}

/* libcurl's codes in ours. Its own words for a code hold nothing of the request; its error
 * buffer might, and is not used. */
static void name_failure(struct cb_http *h, CURLcode code, struct cb_err *err)
{
  long sys = 0;
  curl_easy_getinfo(h->t.easy, CURLINFO_OS_ERRNO, &sys);
  switch ((int)code) {
  case CURLE_OPERATION_TIMEDOUT:
    cb_err_set(err, CB_TIMEOUT, "%s: no complete answer in time", h->origin);
    return;
  case CURLE_COULDNT_CONNECT:
    if (sys)
      cb_err_errno(err, (int)sys, "%s: could not connect", h->origin);
    else
      cb_err_set(err, CB_UNREACHABLE, "%s: could not connect", h->origin);
    err->code = CB_UNREACHABLE;
    return;
  case CURLE_COULDNT_RESOLVE_HOST:
  case CURLE_COULDNT_RESOLVE_PROXY:
    cb_err_set(err, CB_UNREACHABLE, "%s: name not found", h->origin);
    return;
  case CURLE_OUT_OF_MEMORY:
    /* Also libcurl's word for a header line over its own bound, and then far likelier. */
    if (was_sent(h) && !h->head_done)
      cb_err_set(err, CB_TOO_LARGE, "%s: a header line without end", h->origin);
    else
      cb_err_no_memory(err);
    return;
  case CURLE_PEER_FAILED_VERIFICATION:
    cb_err_set(err, CB_UNREACHABLE, "%s: its certificate is not trusted by this host", h->origin);
    return;
  case CURLE_SEND_ERROR:
  case CURLE_RECV_ERROR:
  case CURLE_GOT_NOTHING:
  case CURLE_PARTIAL_FILE:
  case CURLE_SEND_FAIL_REWIND:
  case CURLE_SSL_CONNECT_ERROR:
  case CURLE_SSL_CACERT_BADFILE:
  case CURLE_PROXY:
    cb_err_set(err, CB_UNREACHABLE, "%s: %s", h->origin,
               code == CURLE_SEND_FAIL_REWIND ? "connection lost before an answer"
                                              : curl_easy_strerror(code));
    return;
  case CURLE_URL_MALFORMAT:
    cb_err_set(err, CB_INVALID, "%s: %s", h->origin, curl_easy_strerror(code));
    return;
  case CURLE_UNSUPPORTED_PROTOCOL:
  case CURLE_WEIRD_SERVER_REPLY:
  case CURLE_BAD_CONTENT_ENCODING:
    cb_err_set(err, CB_PROTOCOL, "%s: the answer is not HTTP", h->origin);
    return;
  default:
    cb_err_set(err, CB_PROTOCOL, "%s: %s", h->origin, curl_easy_strerror(code));
  }
}

static void on_ended(struct cb_transfer *t, CURLcode code)
{
  struct cb_http *h = (struct cb_http *)t;
  struct cb_err err = CB_ERR_INIT;
  bool ok = code == CURLE_OK || h->stop == STOP_BY_CALLER;
  if (h->done) {
    if (code == CURLE_OK && !h->head_done) /* HTTP/0.9 and the like */
      cb_err_set(&err, CB_PROTOCOL, "%s: the answer is not HTTP", h->origin);
    else if (!ok && h->stop != RUNNING)
      name_stop(h, &err);
    else if (!ok)
      name_failure(h, code, &err);
    tell(h, err.code ? &err : NULL);
  }
  free_request(h);
}

static void on_removed(struct cb_transfer *t)
{
  free_request((struct cb_http *)t);
}

static void end_early(struct cb_http *h, struct cb_err *err)
{
  tell(h, err);
  cb_multi_remove(h->m, &h->t);
}

void cb_http_cancel(struct cb_http *h)
{
  struct cb_err err = CB_ERR_INIT;
  assert(h->done);
  cb_err_set(&err, CB_CANCELLED, "%s: cancelled", h->origin);
  end_early(h, &err);
}

static void on_close(void *arg)
{
  struct cb_http *h = arg;
  struct cb_err err = CB_ERR_INIT;
  cb_err_set(&err, CB_CLOSED, "%s: the I/O handle was closed", h->origin);
  end_early(h, &err);
}

static void on_idle(void *arg)
{
  struct cb_http *h = arg;
  struct cb_err err = CB_ERR_INIT;
  int64_t left = h->active_ms + h->idle_ms - cb_now_ms();
  h->idle = NULL;
  if (left > 0) {
    h->idle = cb_timer_start(h->io, left, on_idle, h);
    if (h->idle)
      return;
  }
  h->stop = STOP_IDLE;
  name_stop(h, &err);
  end_early(h, &err);
}

struct cb_http *cb_http_start(struct cb_io *io, const struct cb_http_req *req,
                              void (*done)(void *arg, struct cb_http_res *res,
                                           const struct cb_err *err, bool sent),
                              void *arg, struct cb_err *err)
{
  struct cb_multi *m = cb_multi_of(io);
  if (!m) {
    if (cb_io_closing(io))
      cb_err_set(err, CB_CLOSED, "the I/O handle is closed");
    else
      cb_err_no_memory(err);
    return NULL;
  }
  struct cb_http *h = cb_calloc(1, sizeof *h);
  if (!h) {
    cb_err_no_memory(err);
    return NULL;
  }
  h->io = io;
  h->m = m;
  h->done = done;
  h->on_data = req->on_data;
  h->on_head = req->on_head;
  h->arg = arg;
  h->max_bytes = req->max_bytes ? req->max_bytes : req->on_data ? 0 : BODY_MAX;
  h->max_header_bytes = req->max_header_bytes ? req->max_header_bytes : HEADER_MAX;
  h->idle_ms = req->idle_timeout_ms;
  h->active_ms = cb_now_ms();
  h->res.retry_after_ms = -1;
  cb_buf_init(&h->res.body, h->max_bytes);
  /* Each header line grows by at most "\n" against what came. */
  cb_buf_init(&h->res.headers, h->max_header_bytes * 2);
  h->t.ended = on_ended;
  h->t.removed = on_removed;
  h->t.easy = cb_multi_easy(m);
  int rc = h->t.easy ? set_up(h, req, err) : cb_err_no_memory(err);
  if (rc == CB_OK && h->idle_ms > 0) {
    h->idle = cb_timer_start(io, h->idle_ms, on_idle, h);
    if (!h->idle)
      rc = cb_err_no_memory(err);
  }
  if (rc == CB_OK && !cb_multi_add(m, &h->t))
    rc = cb_err_no_memory(err);
  if (rc) {
    free_request(h);
    return NULL;
  }
  cb_io_hook_add(io, &h->hook, on_close, h);
  return h;
}
