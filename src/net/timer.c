/* SPDX-License-Identifier: MIT
 * timer.c: the one-shot timers of the I/O thread, a binary heap. */
#include <assert.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "net/io_private.h"

enum { FIRST_CAP = 64 };

struct cb_timer {
  struct cb_io *io;
  int64_t due_ms;
  uint64_t seq; /* equal times fire in the order of their start */
  size_t at;    /* place in the heap */
  void (*fn)(void *arg);
  void *arg;
};

static bool before(const struct cb_timer *a, const struct cb_timer *b)
{
  return a->due_ms != b->due_ms ? a->due_ms < b->due_ms : a->seq < b->seq;
}

static void put(struct cb_timers *h, size_t at, struct cb_timer *t)
{
  h->heap[at] = t;
  t->at = at;
}

static void sift_up(struct cb_timers *h, struct cb_timer *t)
{
  size_t at = t->at;
  while (at > 0 && before(t, h->heap[(at - 1) / 2])) {
    put(h, at, h->heap[(at - 1) / 2]);
    at = (at - 1) / 2;
  }
  put(h, at, t);
}

static void sift_down(struct cb_timers *h, struct cb_timer *t)
{
  size_t at = t->at;
  for (;;) {
    size_t child = 2 * at + 1;
    if (child >= h->count)
      break;
    if (child + 1 < h->count && before(h->heap[child + 1], h->heap[child]))
      child++;
    if (!before(h->heap[child], t))
      break;
    put(h, at, h->heap[child]);
    at = child;
  }
  put(h, at, t);
}

static void take_out(struct cb_timers *h, struct cb_timer *t)
{
  struct cb_timer *last = h->heap[--h->count];
  if (last == t)
    return;
  put(h, t->at, last);
  sift_up(h, last);
  sift_down(h, last);
}

struct cb_timer *cb_timer_start(struct cb_io *io, int64_t ms, void (*fn)(void *arg), void *arg)
{
  struct cb_timers *h = &io->timers;
  assert(ms >= 0);
  if (cb_io_closing(io))
    return NULL;
  if (h->count == h->cap) {
    size_t cap = h->cap ? h->cap * 2 : FIRST_CAP;
    struct cb_timer **heap = cb_realloc(h->heap, cap * sizeof(struct cb_timer *));
    if (!heap)
      return NULL;
    h->heap = heap;
    h->cap = cap;
  }
  struct cb_timer *t = cb_calloc(1, sizeof *t);
  if (!t)
    return NULL;
  int64_t now = cb_now_ms();
  t->io = io;
  /* One more: the clock is cut to milliseconds, and a timer must not fire early. */
  t->due_ms = ms == 0 ? now : ms < INT64_MAX - now - 1 ? now + ms + 1 : INT64_MAX;
  t->seq = h->next_seq++;
  t->fn = fn;
  t->arg = arg;
  t->at = h->count++;
  sift_up(h, t);
  return t;
}

void cb_timer_stop(struct cb_timer *t)
{
  if (!t)
    return;
  take_out(&t->io->timers, t);
  cb_free(t);
}

int64_t cb_timers_wait(struct cb_io *io)
{
  if (io->timers.count == 0)
    return -1;
  int64_t ms = io->timers.heap[0]->due_ms - cb_now_ms();
  return ms < 0 ? 0 : ms;
}

void cb_timers_run(struct cb_io *io)
{
  struct cb_timers *h = &io->timers;
  int64_t now = h->count ? cb_now_ms() : 0;
  uint64_t limit = h->next_seq; /* what a callback starts waits for the next turn */
  while (h->count && h->heap[0]->due_ms <= now && h->heap[0]->seq < limit) {
    struct cb_timer *t = h->heap[0];
    void (*fn)(void *) = t->fn;
    void *arg = t->arg;
    take_out(h, t);
    cb_free(t);
    fn(arg);
  }
}

void cb_timers_clear(struct cb_io *io)
{
  struct cb_timers *h = &io->timers;
  while (h->count)
    cb_free(h->heap[--h->count]);
  cb_free(h->heap);
  h->heap = NULL;
  h->cap = 0;
}
