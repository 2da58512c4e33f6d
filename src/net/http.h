/* SPDX-License-Identifier: MIT
 * http.h: HTTP/1.1 requests on the I/O thread, over libcurl. Everything is bounded: connect
 * time, total time, bytes of the answer. Redirects are not followed. No cookies, no netrc, no
 * content decoding unless asked. Error texts never hold a header, a query string or user-info. */
#ifndef CB_NET_HTTP_H
#define CB_NET_HTTP_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/buf.h"
#include "net/io.h"

struct cb_http_part { /* one file of a multipart/form-data upload, field name "file" */
  const char *filename;
  const void *data; /* or NULL: read from the host file `source` while sending */
  size_t len;
  const char *source;
};

struct cb_http_req {          /* everything is copied by cb_http_start */
  const char *method;         /* NULL: GET, or POST with a body */
  const char *url;            /* http:// or https:// only */
  const char *unix_socket;    /* connect here instead of the url's host; NULL: TCP */
  const char *const *headers; /* "Name: value", NULL-terminated; NULL: none */
  const void *body;
  size_t body_len;
  const struct cb_http_part *parts; /* multipart instead of body */
  size_t part_count;
  int64_t connect_timeout_ms; /* 0: 10 s */
  int64_t timeout_ms;         /* total; 0: 60 s; -1: none (streams) */
  int64_t idle_timeout_ms;    /* no byte for this long: CB_TIMEOUT; 0: none */
  size_t max_bytes;           /* of the answer's body; 0: 16 MiB, with on_data no bound; over it
                               * CB_TOO_LARGE */
  size_t max_header_bytes;    /* 0: 64 KiB */
  bool fresh;                 /* on a new connection (after a pause, after a reset) */
  /* Streaming: called with each piece instead of collecting the body. status and content type
   * are known by then. Return false to end the transfer (the end is then reported as success). */
  bool (*on_data)(void *arg, const char *p, size_t n);
  /* Called once when the head of the answer is complete and before any on_data. May be NULL. */
  void (*on_head)(void *arg, int status, const char *content_type);
};

struct cb_http_res {
  int status;
  struct cb_buf body;         /* empty with on_data */
  struct cb_buf headers;      /* "name: value\n" lines, names lower case */
  char content_type[96];      /* lower case, without parameters; "" when absent */
  int64_t retry_after_ms;     /* from Retry-After in seconds or as a date, 0..3600000; -1 absent */
};
/* Value of a header or NULL. name in lower case. Points into res; *n its length. */
const char *cb_http_header(const struct cb_http_res *res, const char *name, size_t *n);

struct cb_http;
/* done is called exactly once on the I/O thread. res is valid during the call only and present
 * when an answer came (whatever its status); err is NULL then. A transfer that fails half way
 * gives err (CB_UNREACHABLE, CB_TIMEOUT, CB_TOO_LARGE, CB_PROTOCOL, CB_CANCELLED, CB_CLOSED) and
 * res NULL. err->status is the status if a head had come. sent tells whether the request may have reached the
 * server. [I/O thread] Returns NULL with *err filled (and no callback) for misuse or no memory. */
/* A POST or PATCH is sent once: when a kept connection breaks before any answer, it fails with
 * sent = true instead of being repeated behind the caller's back. Other methods may be repeated
 * on a new connection by libcurl. http:// to this host's loopback and unix sockets never use a
 * proxy of the environment. */
struct cb_http *cb_http_start(struct cb_io *io, const struct cb_http_req *req,
                              void (*done)(void *arg, struct cb_http_res *res,
                                           const struct cb_err *err, bool sent),
                              void *arg, struct cb_err *err);
/* Ends it early; done comes with CB_CANCELLED before this returns. Safe from any callback, also
 * from those of this transfer; not after done. */
void cb_http_cancel(struct cb_http *h);
#endif
