/* SPDX-License-Identifier: MIT
 * stream.c: see stream.h. */
#include "boxd/stream.h"
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/clock.h"
#include "boxd/json.h"
#include "wire/frames.h"

/* Above CB_STREAM_HIGH by what one pass of a feeder may add; more means the feeder is broken. */
enum { QUEUE_MAX = 4 * 1024 * 1024 };

struct cb_stream {
  struct cb_request *req;
  struct cb_loop *loop;
  const char *keepalive_event;
  const struct cb_stream_feeder *feeder;
  void *owner;
  struct cb_buf queue;
  size_t at; /* bytes of queue that were sent */
  bool ended, cut;
  int64_t keepalive_ms, last_ms;
  struct cb_loop_timer keepalive, deadline;
};

static size_t queued(const struct cb_stream *s)
{
  return s->queue.len - s->at;
}

static void frame(struct cb_stream *s, int flags, const char *p, size_t n)
{
  if (s->ended || s->cut)
    return;
  if (s->at > CB_STREAM_LOW) {
    cb_buf_drop_front(&s->queue, s->at);
    s->at = 0;
  }
  if (cb_frame_add(&s->queue, flags, p, n)) {
    cb_stream_cut(s); /* rather no answer than one with a hole */
    return;
  }
  s->last_ms = cb_boot_ms();
  if (flags & CB_FRAME_END)
    s->ended = true;
  cb_body_more(s->req);
}

static ssize_t read_stream(void *source, char *p, size_t max)
{
  struct cb_stream *s = source;
  if (s->cut)
    return -2;
  size_t n = queued(s);
  if (n == 0)
    return s->ended ? -1 : 0;
  if (n > max)
    n = max;
  bool high = queued(s) >= CB_STREAM_LOW;
  memcpy(p, s->queue.p + s->at, n);
  s->at += n;
  if (s->at == s->queue.len) {
    cb_buf_reset(&s->queue);
    s->at = 0;
  }
  if (high && queued(s) < CB_STREAM_LOW && s->feeder && s->feeder->drained)
    s->feeder->drained(s->owner, s);
  return (ssize_t)n;
}

static void free_stream(void *source)
{
  struct cb_stream *s = source;
  cb_loop_timer_stop(s->loop, &s->keepalive);
  cb_loop_timer_stop(s->loop, &s->deadline);
  if (s->feeder)
    s->feeder->closed(s->owner, s);
  cb_buf_clear(&s->queue);
  cb_free(s);
}

static void on_keepalive(struct cb_loop_timer *t)
{
  struct cb_stream *s = t->owner;
  if (s->ended || s->cut)
    return;
  if (cb_boot_ms() - s->last_ms >= s->keepalive_ms)
    frame(s, 0, s->keepalive_event, strlen(s->keepalive_event));
  cb_loop_timer_start_at(s->loop, t, s->last_ms + s->keepalive_ms, on_keepalive, s);
}

static int64_t keepalive_interval(struct cb_request *req)
{
  const char *text = cb_request_header(req, "Keepalive-Ping-Interval");
  char *end;
  if (!text || !*text)
    return CB_STREAM_KEEPALIVE_S * 1000;
  long s = strtol(text, &end, 10);
  if (*end || s <= 0 || s > 86400)
    return CB_STREAM_KEEPALIVE_S * 1000;
  return (int64_t)s * 1000;
}

struct cb_stream *cb_stream_new(struct cb_request *req, struct cb_loop *loop,
                                const char *keepalive)
{
  static const struct cb_body_source ops = { read_stream, free_stream };
  struct cb_stream *s = cb_calloc(1, sizeof *s);
  if (!s) {
    cb_answer_error(req, 503, NULL, "out of memory");
    return NULL;
  }
  s->req = req;
  s->loop = loop;
  s->keepalive_event = keepalive;
  cb_buf_init(&s->queue, QUEUE_MAX);
  s->last_ms = cb_boot_ms();
  s->keepalive_ms = keepalive_interval(req);
  cb_loop_timer_start(loop, &s->keepalive, s->keepalive_ms, on_keepalive, s);
  cb_answer_stream(req, "application/connect+json", &ops, s);
  return s;
}

void cb_stream_feed(struct cb_stream *s, const struct cb_stream_feeder *feeder, void *owner)
{
  s->feeder = feeder;
  s->owner = owner;
}

void cb_stream_send(struct cb_stream *s, const char *json, size_t n)
{
  frame(s, 0, json, n);
}

static void send_json(struct cb_stream *s, int flags, json_t *j)
{
  char *text = j ? json_dumps(j, JSON_COMPACT) : NULL;
  if (text)
    frame(s, flags, text, strlen(text));
  else
    cb_stream_cut(s);
  free(text);
  json_decref(j);
}

void cb_stream_send_json(struct cb_stream *s, json_t *event)
{
  send_json(s, 0, event);
}

void cb_stream_end(struct cb_stream *s)
{
  frame(s, CB_FRAME_END, "{}", 2);
}

void cb_stream_fail(struct cb_stream *s, const char *code, const char *text)
{
  send_json(s, CB_FRAME_END,
            json_pack("{s:{s:s,s:o}}", "error", "code", code, "message",
                      cb_json_text(text, strlen(text))));
}

void cb_stream_cut(struct cb_stream *s)
{
  s->cut = true;
  cb_body_more(s->req);
}

bool cb_stream_ended(const struct cb_stream *s)
{
  return s->ended || s->cut;
}

size_t cb_stream_queued(const struct cb_stream *s)
{
  return queued(s);
}

static void on_deadline(struct cb_loop_timer *t)
{
  cb_stream_fail(t->owner, "deadline_exceeded", "context deadline exceeded");
}

void cb_stream_deadline(struct cb_stream *s, int64_t ms)
{
  cb_loop_timer_start(s->loop, &s->deadline, ms, on_deadline, s);
}

int cb_stream_timeout(struct cb_request *req, int64_t *ms, struct cb_err *err)
{
  const char *text = cb_request_header(req, "Connect-Timeout-Ms");
  *ms = 0;
  if (!text)
    return CB_OK;
  size_t n = strlen(text);
  if (n == 0 || n > 10 || strspn(text, "0123456789") != n)
    return cb_err_set(err, CB_INVALID, "protocol error: invalid timeout \"%.40s\"", text);
  for (; *text; text++)
    *ms = *ms * 10 + (*text - '0');
  return CB_OK;
}
