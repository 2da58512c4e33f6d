/* SPDX-License-Identifier: MIT
 * web.h: HTTP for crewboxd: libmicrohttpd inside the event loop, one object a request, answers
 * that may come later. It knows nothing of boxes: it asks its owner which endpoint a request is
 * for, collects the body, and hands the request over. Loop thread only.
 *
 * What it guards by itself: requests that are ambiguous about their length or target, bodies
 * over the endpoint's bound, requests that come in too slowly, and clients that go away while
 * the answer is being made (the library does not watch a suspended connection). */
#ifndef CB_BOXD_WEB_H
#define CB_BOXD_WEB_H
#include <jansson.h>
#include <microhttpd.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include "base/buf.h"
#include "base/err.h"
#include "base/log.h"
#include "boxd/loop.h"

struct cb_web;     /* the server; opaque */
struct cb_request; /* one request */

enum {
  CB_WEB_BODY_MAX = 16 * 1024 * 1024, /* of ordinary requests; E2B's own bound */
  CB_WEB_HEAD_MS = 10000,             /* from connecting to the end of the first head */
  CB_WEB_IDLE_MS = 120000,            /* between two requests of a connection */
  CB_WEB_BODY_MS = 30000,             /* without a byte of the body */
};

/* How one kind of request is served. Each function may answer at once, or keep the request and
 * answer later; until then the request stays valid whatever the client does. */
struct cb_endpoint {
  /* The whole body is in req->body. Needed unless data is there. */
  void (*serve)(struct cb_request *req);
  /* For bodies that are not collected: takes bytes as they come, all or fewer. Fewer only when
   * it will call cb_request_continue once it can take more; the rest comes again then. */
  size_t (*data)(struct cb_request *req, const char *p, size_t n);
  /* With data: the body has ended (called once; serve is not). */
  void (*end)(struct cb_request *req);
};

struct cb_request {
  void *owner;             /* of the server: given to cb_web_new */
  struct MHD_Connection *conn;
  const char *method;      /* "GET"; valid as long as the request */
  const char *path;        /* decoded, without the query */
  bool local;              /* came over the unix socket, from our own user */
  struct cb_buf body;
  const struct cb_endpoint *endpoint;

  /* For the endpoint: */
  const void *route;          /* what dispatch found, for its handlers */
  void *box;                  /* the box it is about ... */
  void (*release)(void *box); /* ... given back by this when the request ends, if set */
  char name[128];             /* path parameter, else "" */
  void *op;                   /* work in progress ... */
  void (*drop)(struct cb_request *req); /* ... freed by this when the request ends, if set */
  void (*gone)(struct cb_request *req); /* the client went away while an answer is awaited */

  struct cb_web_exchange *web; /* web.c's own */
};

/* Chooses the endpoint when the head of a request is in, before its body; or answers it itself
 * (then the return value is ignored). NULL without an answer is a 404 in the server's words. */
typedef const struct cb_endpoint *cb_web_dispatch(struct cb_request *req);

/* Borrows loop and log, which outlive the server. */
int cb_web_new(struct cb_web **out, struct cb_loop *loop, const struct cb_log *log,
               cb_web_dispatch *dispatch, void *owner, struct cb_err *err);
/* Serves a listening socket (takes it): unix when local, else TCP. */
int cb_web_serve(struct cb_web *web, int listen_fd, bool local, struct cb_err *err);
/* Stops accepting; what is in progress goes on. */
void cb_web_quiesce(struct cb_web *web);
/* Requests that are waiting for their answer, streams not counted. */
size_t cb_web_pending(const struct cb_web *web);

/* --- reading a request --- */

const char *cb_request_header(struct cb_request *req, const char *name);
/* Decoded value of a query parameter, NULL when absent, "" for "?name" and "?name=". */
const char *cb_request_query(struct cb_request *req, const char *name);
/* The upload endpoint that took fewer bytes than it got can take more. */
void cb_request_continue(struct cb_request *req);

/* --- answering: exactly once a request --- */

/* A header of the answer to come. value is copied. */
void cb_answer_header(struct cb_request *req, const char *name, const char *value);
/* Takes the reference to body. */
void cb_answer_json(struct cb_request *req, int status, json_t *body);
void cb_answer_text(struct cb_request *req, int status, const char *type, const char *text);
void cb_answer_empty(struct cb_request *req, int status); /* 204 and the like */
/* The control plane's error body: {"code":status,"message":...} and error_code unless NULL. */
void cb_answer_error(struct cb_request *req, int status, const char *error_code,
                     const char *fmt, ...) __attribute__((format(printf, 4, 5)));
/* size bytes of a regular file from offset; takes fd. */
void cb_answer_file(struct cb_request *req, int status, int fd, uint64_t offset, uint64_t size);

/* --- answers that are produced over time --- */

struct cb_body_source {
  /* Copies up to max bytes. 0: nothing now, wait for cb_body_more; -1: the end; -2: cut the
   * connection without a proper end. */
  ssize_t (*read)(void *source, char *p, size_t max);
  void (*free)(void *source); /* the answer is over, sent or not */
};

/* Answers 200. req stays valid until source->free was called. */
void cb_answer_stream(struct cb_request *req, const char *type,
                      const struct cb_body_source *ops, void *source);
void cb_body_more(struct cb_request *req); /* read has something again */
#endif
