/* SPDX-License-Identifier: MIT
 * io.h: the I/O thread. One per process (one per nginx worker), started at the first use and
 * never before a fork: a cb_io whose pid is not ours any more is refused with CB_CLOSED.
 * It owns an epoll set, curl_multi, timers and one worker thread for blocking file work.
 *
 * Two ways in. Functions marked [any] may be called from any thread. All others, and every
 * callback, run on the I/O thread and must not block.
 *
 * Way out to Lua: an op is a number. cb_io_complete queues a completion for it; the queue going
 * from empty to non-empty makes cb_io_fd readable. The Lua side drains. No Lua in here. */
#ifndef CB_NET_IO_H
#define CB_NET_IO_H
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include "base/err.h"
#include "base/queue.h"

struct cb_io;
struct cb_timer;
struct cb_poll;

/* [any] Makes the handle; starts nothing yet. */
int cb_io_new(struct cb_io **out, struct cb_err *err);
/* [any] but not the I/O thread: cancels everything in flight (callbacks run with CB_CLOSED),
 * joins the threads, frees. After a fork the child only frees memory. NULL is fine. */
void cb_io_free(struct cb_io *io);
/* [any] Readable while completions wait. Level-triggered; owned by io. */
int cb_io_fd(struct cb_io *io);

/* [any] Runs fn(arg) on the I/O thread, in order of posting. Starts the thread if needed.
 * On failure (CB_CLOSED, CB_NO_MEMORY) fn will not run. */
int cb_io_post(struct cb_io *io, void (*fn)(struct cb_io *io, void *arg), void *arg,
               struct cb_err *err);

/* Runs work(arg) on the worker thread, then done(io, arg) on the I/O thread. */
int cb_io_work(struct cb_io *io, void (*work)(void *arg),
               void (*done)(struct cb_io *io, void *arg), void *arg, struct cb_err *err);

/* One-shot timer; fires once after ms >= 0, then is gone. Stop is safe with NULL and must not
 * be called after it fired. NULL when memory runs out. */
struct cb_timer *cb_timer_start(struct cb_io *io, int64_t ms, void (*fn)(void *arg), void *arg);
void cb_timer_stop(struct cb_timer *t);

/* Watches a descriptor (EPOLLIN, EPOLLOUT as in epoll). Stop before closing fd. Safe to stop
 * from any callback of this or another poll. */
struct cb_poll *cb_poll_start(struct cb_io *io, int fd, uint32_t events,
                              void (*fn)(void *arg, uint32_t events), void *arg);
void cb_poll_change(struct cb_poll *p, uint32_t events);
void cb_poll_stop(struct cb_poll *p);

/* ---- completions ------------------------------------------------------------------------- */

/* [any] A new op number, 1 and up. If cancel is not NULL, cb_io_cancel calls it on the I/O
 * thread, at most once and never after the last completion. */
uint64_t cb_io_op(struct cb_io *io, void (*cancel)(void *arg), void *arg);
/* [any] Asks for the op to end early; its completion still comes (CB_CANCELLED or better).
 * Unknown and finished ops are ignored. */
void cb_io_cancel(struct cb_io *io, uint64_t op);
/* [any] Queues a completion. Takes value (may be NULL); copies *err (NULL: success). more:
 * further completions of this op follow. Strings in value may hold any bytes
 * (json_stringn_nocheck). */
void cb_io_complete(struct cb_io *io, uint64_t op, json_t *value, const struct cb_err *err,
                    bool more);

struct cb_completion {
  struct cb_link link;
  uint64_t op;
  json_t *value;
  struct cb_err err; /* err.code == CB_OK: success */
  bool more;
};
/* [any, one consumer] All waiting completions, oldest first, as a list through link.next; clears
 * cb_io_fd. Free each with cb_completion_free. */
struct cb_completion *cb_io_drain(struct cb_io *io);
void cb_completion_free(struct cb_completion *c);

/* How C callers hear the end of something asynchronous: on the I/O thread, once. Takes value.
 * err is NULL on success. */
typedef void cb_done(void *arg, json_t *value, const struct cb_err *err);
/* A cb_done whose arg is a struct cb_op_ref: completes the op and frees the reference. */
struct cb_op_ref {
  struct cb_io *io;
  uint64_t op;
};
void cb_done_op(void *arg, json_t *value, const struct cb_err *err);
#endif
