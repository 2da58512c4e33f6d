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
/* [any] but not the I/O thread: cancels everything in flight (callbacks run with CB_CLOSED) and
 * joins the threads; work that waits for the worker is still done first. Then drops the maker's
 * reference. After a fork the child only frees memory. NULL is fine. */
void cb_io_free(struct cb_io *io);

/* What outlives the closing, for objects made on an io that their owner may close first (a
 * store, a provider): a reference keeps the memory, not the threads. After cb_io_close, posts
 * and starts give CB_CLOSED; who gets CB_CLOSED from a post on the thread that closed may clean
 * up by itself, the I/O thread is gone. cb_io_free is cb_io_close and cb_io_drop. */
void cb_io_close(struct cb_io *io); /* idempotent */
struct cb_io *cb_io_keep(struct cb_io *io); /* [any] gives io back */
void cb_io_drop(struct cb_io *io);          /* [any] NULL is fine */

/* Runs fn(arg) when the io closes, newest first, unless removed before. Embedded in its owner,
 * who is free to free itself from fn. Removing twice or never added (zeroed) is fine. */
struct cb_io_hook {
  struct cb_io_hook *prev, *next;
  void (*fn)(void *arg);
  void *arg;
};
void cb_io_hook_add(struct cb_io *io, struct cb_io_hook *hook, void (*fn)(void *arg), void *arg);
void cb_io_hook_remove(struct cb_io_hook *hook);
/* [any] Made in this process and not closing: worth calling. */
bool cb_io_alive(struct cb_io *io);
/* True from the moment of closing: no retries any more, timers and polls are refused (NULL). */
bool cb_io_closing(struct cb_io *io);
/* [any] Readable while completions wait. Level-triggered; owned by io. */
int cb_io_fd(struct cb_io *io);

/* [any] Runs fn(arg) on the I/O thread, in order of posting. Starts the thread if needed.
 * On failure (CB_CLOSED, CB_NO_MEMORY) fn will not run. */
int cb_io_post(struct cb_io *io, void (*fn)(struct cb_io *io, void *arg), void *arg,
               struct cb_err *err);

/* [any] Runs work(arg) on the worker thread, in order, then done(io, arg) on the I/O thread. On
 * failure (CB_CLOSED, CB_NO_MEMORY) neither will run. */
int cb_io_work(struct cb_io *io, void (*work)(void *arg),
               void (*done)(struct cb_io *io, void *arg), void *arg, struct cb_err *err);

/* One-shot timer; fires once after ms >= 0, then is gone. Stop is safe with NULL and must not
 * be called after it fired (inside fn it has). NULL when memory runs out or the io closes; a timer
 * that waits when the io closes never fires. */
struct cb_timer *cb_timer_start(struct cb_io *io, int64_t ms, void (*fn)(void *arg), void *arg);
void cb_timer_stop(struct cb_timer *t);

/* Watches a descriptor (EPOLLIN, EPOLLOUT as in epoll). Stop before closing fd. Safe to stop
 * from any callback of this or another poll. NULL when that fails or the io closes. */
struct cb_poll *cb_poll_start(struct cb_io *io, int fd, uint32_t events,
                              void (*fn)(void *arg, uint32_t events), void *arg);
void cb_poll_change(struct cb_poll *p, uint32_t events);
void cb_poll_stop(struct cb_poll *p);

/* ---- completions ------------------------------------------------------------------------- */

/* [any] A new op number, 1 and up; 0 when memory runs out. If cancel is not NULL, cb_io_cancel
 * calls it on the I/O thread, at most once and never after the last completion: an op with a
 * cancel gets its last completion on the I/O thread. Closing the io calls it too. */
uint64_t cb_io_op(struct cb_io *io, void (*cancel)(void *arg), void *arg);
/* [any] Takes back an op whose start failed: no completion will come. */
void cb_io_forget(struct cb_io *io, uint64_t op);
/* [any] Ops that still owe a completion. */
size_t cb_io_ops(struct cb_io *io);
/* [any] Asks for the op to end early; its completion still comes (CB_CANCELLED or better).
 * Unknown and finished ops are ignored. */
void cb_io_cancel(struct cb_io *io, uint64_t op);
/* [any] Queues a completion. Takes value (may be NULL); copies *err (NULL: success). more:
 * further completions of this op follow. Strings in value may hold any bytes
 * (json_stringn_nocheck). An op that is finished or unknown: value is freed, nothing queued. The
 * last completion always arrives; when memory runs out for one before, it becomes the last, with
 * CB_NO_MEMORY. */
void cb_io_complete(struct cb_io *io, uint64_t op, json_t *value, const struct cb_err *err,
                    bool more);

/* [the consumer] Waits up to ms (-1: for ever) for a completion: 1 when some wait, 0 when none
 * came in time, -1 when a signal came (see interrupt.h). */
int cb_io_wait(struct cb_io *io, int64_t ms);

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
/* A cb_done whose arg is a struct cb_op_ref: completes the op and frees the reference (made by
 * cb_malloc; io is borrowed). */
struct cb_op_ref {
  struct cb_io *io;
  uint64_t op;
};
void cb_done_op(void *arg, json_t *value, const struct cb_err *err);
#endif
