/* SPDX-License-Identifier: MIT
 * web.c: see web.h. One exchange is one request and its answer; one link is one connection.
 * The library runs from a hook after every batch of events, because running it frees exchanges
 * whose own events may come later in the batch. */
#include "boxd/web.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/clock.h"
#include "base/fd.h"
#include "boxd/head_guard.h"
#include "boxd/json.h"

enum {
  DAEMONS_MAX = 2,
  HEADERS_MAX = 8,                  /* that one answer may add */
  CONNECTIONS_MAX = 4000,
  POOL_BYTES = 64 * 1024,           /* a connection's memory: bounds the head, buffers the body */
  STREAM_BLOCK = 16 * 1024,
  DRAIN_MAX = 64 * 1024 * 1024,     /* body of a refused request that is still read */
};

struct front { /* one listening socket */
  struct cb_web *web;
  struct MHD_Daemon *daemon;
  struct cb_watch watch;
  bool local;
};

struct cb_web {
  struct cb_loop *loop;
  const struct cb_log *log;
  cb_web_dispatch *dispatch;
  void *owner;
  struct front front[DAEMONS_MAX];
  size_t fronts;
  struct cb_hook hook;
  bool again; /* something was resumed since the library ran last */
  size_t pending;
};

/* A connection: what must be watched although the library does not. */
struct link {
  struct cb_web *web;
  struct MHD_Connection *conn;
  int fd;
  bool local;
  int64_t due_ms; /* cb_boot_ms at which it is cut; 0 never */
  struct cb_loop_timer timer;
  struct cb_watch watch; /* in the loop while its exchange is suspended */
  struct cb_web_exchange *exchange;
};

enum phase { PHASE_HEAD, PHASE_BODY, PHASE_WAIT, PHASE_QUEUED };

struct header {
  char *name, *value;
};

struct cb_web_exchange {
  struct cb_request req; /* first member: one object */
  struct cb_web *web;
  struct link *link;
  enum phase phase;
  bool suspended;
  bool discard;   /* the answer is made; what is left of the body is thrown away */
  bool close;     /* after the answer */
  bool counted;   /* in web->pending */
  bool cut;       /* a stream whose client is gone */
  bool bad_uri;
  size_t drained;
  struct MHD_Response *response;
  int status;
  struct header header[HEADERS_MAX];
  size_t headers;
  const struct cb_body_source *ops;
  void *source;
};

/* --- connections --- */

static void on_link_timer(struct cb_loop_timer *t)
{
  struct link *link = t->owner;
  int64_t now = cb_boot_ms();
  if (link->due_ms == 0)
    return;
  if (now < link->due_ms) {
    cb_loop_timer_start_at(link->web->loop, t, link->due_ms, on_link_timer, link);
    return;
  }
  cb_log(link->web->log, CB_LOG_DEBUG, "http", "a slow connection is dropped");
  shutdown(link->fd, SHUT_RDWR); /* the library sees it and cleans up */
}

/* Gives the connection ms from now (0: no limit). The timer itself is only ever moved when it
 * fires, so that a busy upload costs nothing here. */
static void link_due(struct link *link, int64_t ms)
{
  if (!link)
    return;
  link->due_ms = ms ? cb_boot_ms() + ms : 0;
  if (!ms)
    return;
  if (!link->timer.on || link->timer.at_ms > link->due_ms)
    cb_loop_timer_start_at(link->web->loop, &link->timer, link->due_ms, on_link_timer, link);
}

static void on_connection(void *cls, struct MHD_Connection *conn, void **ctx,
                          enum MHD_ConnectionNotificationCode code)
{
  struct front *front = cls;
  struct link *link = *ctx;
  if (code == MHD_CONNECTION_NOTIFY_CLOSED) {
    if (link) {
      cb_loop_timer_stop(link->web->loop, &link->timer);
      cb_loop_del(link->web->loop, &link->watch);
      cb_free(link);
    }
    *ctx = NULL;
    return;
  }
  const union MHD_ConnectionInfo *info =
      MHD_get_connection_info(conn, MHD_CONNECTION_INFO_CONNECTION_FD);
  link = cb_calloc(1, sizeof *link);
  if (!link) {
    shutdown(info->connect_fd, SHUT_RDWR);
    return;
  }
  link->web = front->web;
  link->conn = conn;
  link->fd = info->connect_fd;
  link->watch.fd = -1;
  link->local = front->local && cb_peer_is_us(link->fd);
  *ctx = link;
  link_due(link, CB_WEB_HEAD_MS);
}

/* --- suspending --- */

static void resume(struct cb_web_exchange *ex)
{
  if (!ex->suspended)
    return;
  ex->suspended = false;
  cb_loop_del(ex->web->loop, &ex->link->watch);
  MHD_resume_connection(ex->req.conn);
  ex->web->again = true;
}

static void on_client_gone(struct cb_watch *w, uint32_t events)
{
  struct link *link = w->owner;
  struct cb_web_exchange *ex = link->exchange;
  (void)events;
  cb_loop_del(link->web->loop, w); /* once: it is level-triggered and will not go away */
  if (ex->source) {
    ex->cut = true;
    resume(ex);
  } else if (ex->req.gone) {
    ex->req.gone(&ex->req);
  }
}

static void suspend(struct cb_web_exchange *ex)
{
  MHD_suspend_connection(ex->req.conn);
  ex->suspended = true;
  /* Plain EPOLLHUP would see resets only, not an orderly close. Without memory for the watch
   * the connection only ends later, when something is written to it. */
  cb_loop_add(ex->web->loop, &ex->link->watch, ex->link->fd, EPOLLRDHUP | EPOLLHUP | EPOLLERR,
              on_client_gone, ex->link, NULL);
}

static void count(struct cb_web_exchange *ex, bool on)
{
  if (ex->counted == on)
    return;
  ex->counted = on;
  ex->web->pending += on ? 1 : (size_t)-1;
}

/* --- answers --- */

const char *cb_request_header(struct cb_request *req, const char *name)
{
  return MHD_lookup_connection_value(req->conn, MHD_HEADER_KIND, name);
}

struct query {
  const char *name, *value;
};

static enum MHD_Result find_query(void *cls, enum MHD_ValueKind kind, const char *key,
                                  const char *value)
{
  struct query *q = cls;
  (void)kind;
  if (strcmp(key, q->name) != 0)
    return MHD_YES;
  q->value = value ? value : ""; /* "?name" has no value at all */
  return MHD_NO;
}

const char *cb_request_query(struct cb_request *req, const char *name)
{
  struct query q = { name, NULL };
  MHD_get_connection_values(req->conn, MHD_GET_ARGUMENT_KIND, find_query, &q);
  return q.value;
}

void cb_request_continue(struct cb_request *req)
{
  resume(req->web);
}

/* Takes response; NULL stands for "no memory": the connection is then cut. */
static void answer(struct cb_request *req, int status, struct MHD_Response *response)
{
  struct cb_web_exchange *ex = req->web;
  if (ex->response || ex->close) {
    /* Answered already: a second answer is a mistake of ours, but must not corrupt. */
    if (response)
      MHD_destroy_response(response);
    return;
  }
  if (!response) {
    ex->close = true;
    shutdown(ex->link->fd, SHUT_RDWR);
    ex->discard = true;
    resume(ex);
    return;
  }
  for (size_t i = 0; i < ex->headers; i++)
    MHD_add_response_header(response, ex->header[i].name, ex->header[i].value);
  ex->response = response;
  ex->status = status;
  ex->discard = true;
  resume(ex);
}

void cb_answer_header(struct cb_request *req, const char *name, const char *value)
{
  struct cb_web_exchange *ex = req->web;
  if (ex->headers == HEADERS_MAX)
    return;
  struct header *h = &ex->header[ex->headers];
  h->name = cb_strdup(name);
  h->value = cb_strdup(value);
  if (h->name && h->value) {
    ex->headers++;
    return;
  }
  cb_free(h->name);
  cb_free(h->value);
}

static struct MHD_Response *from_text(const char *type, const char *text, size_t n)
{
  struct MHD_Response *r =
      MHD_create_response_from_buffer(n, (void *)(uintptr_t)text, MHD_RESPMEM_MUST_COPY);
  if (r && type)
    MHD_add_response_header(r, "Content-Type", type);
  return r;
}

void cb_answer_text(struct cb_request *req, int status, const char *type, const char *text)
{
  answer(req, status, from_text(type, text, strlen(text)));
}

void cb_answer_json(struct cb_request *req, int status, json_t *body)
{
  char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;
  struct MHD_Response *r = text ? from_text("application/json", text, strlen(text)) : NULL;
  free(text);
  json_decref(body);
  answer(req, status, r);
}

void cb_answer_empty(struct cb_request *req, int status)
{
  answer(req, status, from_text(NULL, "", 0));
}

void cb_answer_error(struct cb_request *req, int status, const char *error_code,
                     const char *fmt, ...)
{
  char text[1024];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  json_t *body = json_pack("{s:i,s:o}", "code", status, "message",
                           cb_json_text(text, strlen(text)));
  if (body && error_code)
    json_object_set_new(body, "error_code", json_string(error_code));
  cb_answer_json(req, status, body);
}

void cb_answer_file(struct cb_request *req, int status, int fd, uint64_t offset, uint64_t size)
{
  struct MHD_Response *r = MHD_create_response_from_fd_at_offset64(size, fd, offset);
  if (!r)
    cb_close(&fd);
  answer(req, status, r);
}

static ssize_t read_source(void *cls, uint64_t pos, char *p, size_t max)
{
  struct cb_web_exchange *ex = cls;
  (void)pos;
  if (ex->cut)
    return MHD_CONTENT_READER_END_WITH_ERROR;
  ssize_t n = ex->ops->read(ex->source, p, max);
  if (n > 0)
    return n;
  if (n == -1)
    return MHD_CONTENT_READER_END_OF_STREAM;
  if (n < 0)
    return MHD_CONTENT_READER_END_WITH_ERROR;
  suspend(ex);
  return 0;
}

void cb_answer_stream(struct cb_request *req, const char *type,
                      const struct cb_body_source *ops, void *source)
{
  struct cb_web_exchange *ex = req->web;
  ex->ops = ops;
  ex->source = source;
  struct MHD_Response *r =
      MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, STREAM_BLOCK, read_source, ex, NULL);
  if (r)
    MHD_add_response_header(r, "Content-Type", type);
  answer(req, 200, r);
}

void cb_body_more(struct cb_request *req)
{
  struct cb_web_exchange *ex = req->web;
  if (ex->phase == PHASE_QUEUED) /* earlier, nothing is suspended for want of data */
    resume(ex);
}

/* --- one request --- */

/* Called when the request line is in; makes the exchange. */
static void *on_uri(void *cls, const char *uri, struct MHD_Connection *conn)
{
  struct front *front = cls;
  struct cb_web_exchange *ex = cb_calloc(1, sizeof *ex);
  if (!ex)
    return NULL;
  ex->web = front->web;
  ex->req.web = ex;
  ex->req.conn = conn;
  ex->req.owner = front->web->owner;
  cb_buf_init(&ex->req.body, CB_WEB_BODY_MAX);
  const union MHD_ConnectionInfo *info =
      MHD_get_connection_info(conn, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
  ex->link = info ? info->socket_context : NULL;
  if (!ex->link) { /* no memory for it when the client connected */
    cb_free(ex);
    return NULL;
  }
  ex->link->exchange = ex;
  ex->req.local = ex->link->local;
  ex->bad_uri = strstr(uri, "%00") != NULL; /* the library would end the text there */
  return ex;
}

static void on_completed(void *cls, struct MHD_Connection *conn, void **ctx,
                         enum MHD_RequestTerminationCode code)
{
  struct cb_web_exchange *ex = *ctx;
  (void)cls;
  (void)conn;
  (void)code;
  *ctx = NULL;
  if (!ex)
    return;
  count(ex, false);
  if (ex->source)
    ex->ops->free(ex->source);
  if (ex->req.drop)
    ex->req.drop(&ex->req);
  if (ex->req.release)
    ex->req.release(ex->req.box);
  if (ex->response && ex->phase != PHASE_QUEUED)
    MHD_destroy_response(ex->response);
  for (size_t i = 0; i < ex->headers; i++) {
    cb_free(ex->header[i].name);
    cb_free(ex->header[i].value);
  }
  cb_loop_del(ex->web->loop, &ex->link->watch);
  ex->link->exchange = NULL;
  link_due(ex->link, CB_WEB_IDLE_MS);
  cb_buf_clear_wiped(&ex->req.body); /* bodies carry environments */
  cb_free(ex);
}

static enum MHD_Result queue(struct cb_web_exchange *ex)
{
  if (!ex->response)
    return MHD_NO;
  if (ex->close)
    MHD_add_response_header(ex->response, "Connection", "close");
  count(ex, false);
  link_due(ex->link, 0);
  ex->phase = PHASE_QUEUED;
  enum MHD_Result rc = MHD_queue_response(ex->req.conn, (unsigned)ex->status, ex->response);
  MHD_destroy_response(ex->response); /* the library holds its own reference */
  return rc;
}

static enum MHD_Result on_head(struct cb_web_exchange *ex, const char *url, const char *method)
{
  struct cb_request *req = &ex->req;
  struct cb_head_facts facts;
  req->method = method;
  req->path = url;
  const char *refused = cb_head_guard(req->conn, &facts);
  if (!refused && ex->bad_uri)
    refused = "the request target contains a NUL";
  if (refused) {
    cb_answer_error(req, 400, NULL, "%s", refused);
    ex->close = true;
    return queue(ex);
  }
  req->endpoint = ex->web->dispatch(req);
  if (!ex->response && !req->endpoint)
    cb_answer_error(req, 404, NULL, "validation error: no matching operation was found");
  if (!ex->response && !req->endpoint->data && facts.length > CB_WEB_BODY_MAX)
    cb_answer_error(req, 413, NULL, "request body of %llu bytes, at most %d",
                    (unsigned long long)facts.length, CB_WEB_BODY_MAX);
  /* A refused request's body is read and thrown away, so that the client gets to read the
   * answer; unless it waits for permission to send, or the body is too big for that. */
  if (ex->response && (facts.expects || facts.length > DRAIN_MAX)) {
    ex->close = true;
    return queue(ex);
  }
  ex->phase = PHASE_BODY;
  link_due(ex->link, CB_WEB_BODY_MS);
  return MHD_YES;
}

static enum MHD_Result on_body(struct cb_web_exchange *ex, const char *p, size_t *n)
{
  struct cb_request *req = &ex->req;
  link_due(ex->link, CB_WEB_BODY_MS);
  if (!ex->discard && req->endpoint->data) {
    size_t took = req->endpoint->data(req, p, *n);
    *n -= took;
    if (*n && !ex->discard) {
      link_due(ex->link, 0); /* it is us who are slow now */
      suspend(ex);
      return MHD_YES;
    }
  } else if (!ex->discard) {
    int rc = cb_buf_add(&req->body, p, *n);
    if (rc == CB_TOO_LARGE)
      cb_answer_error(req, 413, NULL, "request body over %d bytes", CB_WEB_BODY_MAX);
    else if (rc)
      cb_answer_error(req, 503, NULL, "out of memory");
  }
  if (ex->discard) {
    /* An upload that failed half-way (a full disk) can be answered only after its last byte. */
    ex->drained += *n;
    if (ex->drained > DRAIN_MAX && !(req->endpoint && req->endpoint->data))
      return MHD_NO;
  }
  *n = 0;
  return MHD_YES;
}

static enum MHD_Result on_request(void *cls, struct MHD_Connection *conn, const char *url,
                                  const char *method, const char *version, const char *data,
                                  size_t *size, void **ctx)
{
  struct cb_web_exchange *ex = *ctx;
  (void)cls;
  (void)conn;
  (void)version;
  if (!ex)
    return MHD_NO;
  if (ex->phase == PHASE_HEAD)
    return on_head(ex, url, method);
  if (*size)
    return on_body(ex, data, size);
  if (ex->phase == PHASE_BODY) {
    ex->phase = PHASE_WAIT;
    link_due(ex->link, 0);
    count(ex, true);
    if (!ex->discard) {
      if (ex->req.endpoint->data)
        ex->req.endpoint->end(&ex->req);
      else
        ex->req.endpoint->serve(&ex->req);
    }
  }
  if (ex->discard)
    return queue(ex);
  suspend(ex);
  return MHD_YES;
}

/* --- the server --- */

static void library_log(void *cls, const char *fmt, va_list ap)
{
  struct cb_web *web = cls;
  char text[512];
  vsnprintf(text, sizeof text, fmt, ap);
  text[strcspn(text, "\n")] = '\0';
  cb_log(web->log, CB_LOG_DEBUG, "http", "%s", text);
}

static void on_library(struct cb_watch *w, uint32_t events)
{
  (void)w; /* the hook runs the library when the batch is through */
  (void)events;
}

static int64_t run_library(struct cb_hook *h)
{
  struct cb_web *web = h->owner;
  int turns = 0;
  do {
    web->again = false;
    for (size_t i = 0; i < web->fronts; i++)
      MHD_run(web->front[i].daemon);
  } while (web->again && ++turns < 16);
  if (web->again)
    return 0;
  int64_t least = -1;
  for (size_t i = 0; i < web->fronts; i++) {
    MHD_UNSIGNED_LONG_LONG ms;
    if (MHD_get_timeout(web->front[i].daemon, &ms) == MHD_YES &&
        (least < 0 || (int64_t)ms < least))
      least = (int64_t)ms;
  }
  return least;
}

int cb_web_new(struct cb_web **out, struct cb_loop *loop, const struct cb_log *log,
               cb_web_dispatch *dispatch, void *owner, struct cb_err *err)
{
  struct cb_web *web = cb_calloc(1, sizeof *web);
  *out = web;
  if (!web)
    return cb_err_no_memory(err);
  web->loop = loop;
  web->log = log;
  web->dispatch = dispatch;
  web->owner = owner;
  cb_loop_hook(loop, &web->hook, run_library, web);
  return CB_OK;
}

int cb_web_serve(struct cb_web *web, int listen_fd, bool local, struct cb_err *err)
{
  struct front *front = &web->front[web->fronts];
  if (web->fronts == DAEMONS_MAX) {
    cb_close(&listen_fd);
    return cb_err_set(err, CB_INVALID, "serve: at most %d sockets", DAEMONS_MAX);
  }
  front->web = web;
  front->local = local;
  front->watch.fd = -1;
  /* A full backlog refuses unix clients at once; many may come together. */
  listen(listen_fd, 4096);
  cb_nonblock(listen_fd, true, NULL);
  front->daemon = MHD_start_daemon(
      MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG, 0, NULL, NULL, on_request,
      front, MHD_OPTION_EXTERNAL_LOGGER, library_log, web, /* must be the first option */
      MHD_OPTION_LISTEN_SOCKET, listen_fd, MHD_OPTION_URI_LOG_CALLBACK, on_uri, front,
      MHD_OPTION_NOTIFY_COMPLETED, on_completed, NULL, MHD_OPTION_NOTIFY_CONNECTION,
      on_connection, front, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)POOL_BYTES,
      MHD_OPTION_CONNECTION_TIMEOUT, 0u, MHD_OPTION_CONNECTION_LIMIT, (unsigned)CONNECTIONS_MAX,
      MHD_OPTION_SIGPIPE_HANDLED_BY_APP, 1, MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_END);
  if (!front->daemon) {
    cb_close(&listen_fd);
    return cb_err_set(err, CB_SYSTEM, "start the HTTP server");
  }
  int epoll = MHD_get_daemon_info(front->daemon, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd;
  int rc = cb_loop_add(web->loop, &front->watch, epoll, EPOLLIN, on_library, front, err);
  if (rc) {
    MHD_stop_daemon(front->daemon);
    return rc;
  }
  web->fronts++;
  return CB_OK;
}

void cb_web_quiesce(struct cb_web *web)
{
  for (size_t i = 0; i < web->fronts; i++) {
    int fd = MHD_quiesce_daemon(web->front[i].daemon);
    cb_close(&fd);
  }
}

size_t cb_web_pending(const struct cb_web *web)
{
  return web->pending;
}
