/* SPDX-License-Identifier: MIT
 * rpc.h: the Connect protocol with JSON over http.h: unary calls and server streams, HTTP/1.1.
 * I/O thread only. Everything is bounded: depth and size of JSON, length of an envelope, bytes
 * of the whole answer, silence on a stream. What a server says about a failure goes into the
 * error as one bounded line; headers never do. err->status is set for what a server said (200 for
 * the end envelope of a stream) and 0 for trouble on the way. */
#ifndef CB_NET_RPC_H
#define CB_NET_RPC_H
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "net/http.h"

enum {
  CB_RPC_DEPTH_MAX = 64,           /* nesting of JSON that is believed */
  CB_RPC_MESSAGE_MAX = 4 << 20,    /* one message of a stream */
  CB_RPC_UNARY_MAX = 16 << 20      /* a whole unary answer */
};

struct cb_rpc_req {              /* everything is copied */
  const char *url;               /* BASE/package.Service/Method */
  const char *unix_socket;       /* or NULL */
  const char *const *headers;    /* beyond those of the protocol; NULL-terminated, or NULL */
  const json_t *body;            /* an object */
  int64_t connect_timeout_ms;    /* as http.h */
  int64_t timeout_ms;            /* as http.h; -1 none */
  int64_t idle_timeout_ms;       /* as http.h */
  int64_t deadline_ms;           /* sent as Connect-Timeout-Ms; 0: the header is not sent */
  size_t max_bytes;              /* of the whole answer; 0: CB_RPC_UNARY_MAX, a stream: no limit
                                  * (each of its messages has one) */
  bool fresh;
};

struct cb_rpc;

/* done once, never before this returns. value is the answer's object (the callee takes it), or
 * NULL with err. sent: the request may have reached the server. NULL with *err and no callback
 * for misuse or no memory (also for a body that is not UTF-8: CB_INVALID). */
struct cb_rpc *cb_rpc_unary(struct cb_io *io, const struct cb_rpc_req *req,
                            void (*done)(void *arg, json_t *value, const struct cb_err *err,
                                         bool sent),
                            void *arg, struct cb_err *err);

/* on_message for each message, borrowed; false ends the stream, which is then reported as a
 * success. done once: err is NULL when the end envelope came without an error or on_message
 * ended it; a body that stops without it is CB_UNREACHABLE. */
struct cb_rpc *cb_rpc_stream(struct cb_io *io, const struct cb_rpc_req *req,
                             bool (*on_message)(void *arg, const json_t *message),
                             void (*done)(void *arg, const struct cb_err *err, bool sent),
                             void *arg, struct cb_err *err);

/* Ends it early; done comes with CB_CANCELLED before this returns. */
void cb_rpc_cancel(struct cb_rpc *r);

/* ---- for others who read the same servers ------------------------------------------------ */

/* Parses JSON from a server: an object or array, at most CB_RPC_DEPTH_MAX deep. NULL with
 * CB_PROTOCOL in *err ("<what>: ..."). */
json_t *cb_rpc_json(const char *p, size_t n, const char *what, struct cb_err *err);

/* Fills *err from an answer that is no success: Connect code, {code, message} of a proxy or an
 * API, or nothing usable (HTML, empty). what opens the text. Returns err->code. */
int cb_rpc_refusal(struct cb_err *err, const char *what, int status, const char *body, size_t n,
                   int64_t retry_after_ms);
#endif
