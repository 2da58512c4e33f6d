/* SPDX-License-Identifier: MIT
 * stream.h: the answer of a Connect streaming call: envelopes in a bounded queue, keepalives
 * while nothing else is said, an optional deadline, one trailer. Errors travel in the trailer;
 * the HTTP status is 200 whatever happens. Loop thread only. */
#ifndef CB_BOXD_STREAM_H
#define CB_BOXD_STREAM_H
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include "base/err.h"
#include "boxd/loop.h"
#include "boxd/web.h"

enum {
  CB_STREAM_HIGH = 256 * 1024, /* above: whoever feeds it should stop */
  CB_STREAM_LOW = 64 * 1024,   /* below: go on */
  CB_STREAM_KEEPALIVE_S = 90,  /* when the client names no interval */
};

struct cb_stream;

/* Who feeds a stream. */
struct cb_stream_feeder {
  /* The queue went below CB_STREAM_LOW. May be NULL. */
  void (*drained)(void *owner, struct cb_stream *s);
  /* The stream is over for whatever reason, and freed right after. */
  void (*closed)(void *owner, struct cb_stream *s);
};

/* Answers req with a stream; keepalive is the JSON text of that event, a constant. NULL: no
 * memory, and req is answered. */
struct cb_stream *cb_stream_new(struct cb_request *req, struct cb_loop *loop,
                                const char *keepalive);
/* Replaces the feeder; NULL: nobody. */
void cb_stream_feed(struct cb_stream *s, const struct cb_stream_feeder *feeder, void *owner);

/* After the end or a cut, these do nothing. */
void cb_stream_send(struct cb_stream *s, const char *json, size_t n);
void cb_stream_send_json(struct cb_stream *s, json_t *event); /* takes it */
void cb_stream_end(struct cb_stream *s);                      /* trailer {} */
void cb_stream_fail(struct cb_stream *s, const char *code, const char *text);
void cb_stream_cut(struct cb_stream *s); /* no trailer: the box is gone */
bool cb_stream_ended(const struct cb_stream *s);
size_t cb_stream_queued(const struct cb_stream *s);
/* Ends it with deadline_exceeded in ms. */
void cb_stream_deadline(struct cb_stream *s, int64_t ms);
/* Connect-Timeout-Ms of a request: 0 without; CB_INVALID unless at most 10 digits. */
int cb_stream_timeout(struct cb_request *req, int64_t *ms, struct cb_err *err);
#endif
