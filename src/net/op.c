/* SPDX-License-Identifier: MIT
 * op.c: op numbers, their cancel functions and the queue of completions. */
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "net/interrupt.h"
#include "net/io_private.h"

enum { FIRST_BUCKETS = 64 }; /* a power of two */

struct cb_op {
  uint64_t op;
  struct cb_op *next;
  void (*cancel)(void *arg);
  void *arg;
  struct cb_completion *last; /* made beforehand: the end is heard even without memory */
};

void cb_ops_init(struct cb_ops *ops)
{
  pthread_mutex_init(&ops->lock, NULL);
}

static struct cb_op **place(struct cb_ops *ops, uint64_t op)
{
  struct cb_op **at = &ops->buckets[op & (ops->bucket_count - 1)];
  while (*at && (*at)->op != op)
    at = &(*at)->next;
  return at;
}

/* Keeps about one op a bucket. Numbers are consecutive, so the low bits are the hash. */
static bool grow(struct cb_ops *ops)
{
  size_t count = ops->bucket_count ? ops->bucket_count * 2 : FIRST_BUCKETS;
  struct cb_op **buckets = cb_calloc(count, sizeof(struct cb_op *));
  if (!buckets)
    return ops->bucket_count > 0; /* a full table is only slower */
  for (size_t i = 0; i < ops->bucket_count; i++) {
    while (ops->buckets[i]) {
      struct cb_op *e = ops->buckets[i];
      ops->buckets[i] = e->next;
      e->next = buckets[e->op & (count - 1)];
      buckets[e->op & (count - 1)] = e;
    }
  }
  cb_free(ops->buckets);
  ops->buckets = buckets;
  ops->bucket_count = count;
  return true;
}

uint64_t cb_io_op(struct cb_io *io, void (*cancel)(void *arg), void *arg)
{
  struct cb_ops *ops = &io->ops;
  if (!cb_io_ours(io))
    return 0;
  struct cb_op *e = cb_calloc(1, sizeof *e);
  struct cb_completion *last = cb_calloc(1, sizeof *last);
  uint64_t op = 0;
  if (!e || !last)
    goto out;
  pthread_mutex_lock(&ops->lock);
  if (ops->count < ops->bucket_count || grow(ops)) {
    op = e->op = ++ops->last;
    e->cancel = cancel;
    e->arg = arg;
    e->last = last;
    struct cb_op **at = &ops->buckets[op & (ops->bucket_count - 1)];
    e->next = *at;
    *at = e;
    ops->count++;
    e = NULL;
    last = NULL;
  }
  pthread_mutex_unlock(&ops->lock);
out:
  cb_free(e);
  cb_free(last);
  return op;
}

/* Takes the entry out of the table. Under the lock. */
static struct cb_op *take(struct cb_ops *ops, uint64_t op)
{
  struct cb_op **at = ops->bucket_count ? place(ops, op) : NULL;
  struct cb_op *e = at ? *at : NULL;
  if (e) {
    *at = e->next;
    ops->count--;
  }
  return e;
}

void cb_io_forget(struct cb_io *io, uint64_t op)
{
  if (!cb_io_ours(io))
    return;
  pthread_mutex_lock(&io->ops.lock);
  struct cb_op *e = take(&io->ops, op);
  pthread_mutex_unlock(&io->ops.lock);
  if (e)
    cb_free(e->last);
  cb_free(e);
}

size_t cb_io_ops(struct cb_io *io)
{
  if (!cb_io_ours(io))
    return 0;
  pthread_mutex_lock(&io->ops.lock);
  size_t n = io->ops.count;
  pthread_mutex_unlock(&io->ops.lock);
  return n;
}

/* ---- cancel ------------------------------------------------------------------------------ */

struct cancel_msg {
  uint64_t op;
};

/* The cancel function of an entry, handed out once. Under the lock. */
static void (*take_cancel(struct cb_op *e, void **arg))(void *)
{
  void (*fn)(void *) = e ? e->cancel : NULL;
  if (fn) {
    *arg = e->arg;
    e->cancel = NULL;
  }
  return fn;
}

static void cancel_now(struct cb_io *io, void *arg)
{
  struct cancel_msg *msg = arg;
  void *what = NULL;
  pthread_mutex_lock(&io->ops.lock);
  struct cb_op **at = io->ops.bucket_count ? place(&io->ops, msg->op) : NULL;
  void (*fn)(void *) = take_cancel(at ? *at : NULL, &what);
  pthread_mutex_unlock(&io->ops.lock);
  cb_free(msg);
  if (fn)
    fn(what);
}

void cb_io_cancel(struct cb_io *io, uint64_t op)
{
  struct cancel_msg *msg = cb_malloc(sizeof *msg);
  if (!msg)
    return;
  msg->op = op;
  if (cb_io_post(io, cancel_now, msg, NULL))
    cb_free(msg);
}

bool cb_ops_cancel_any(struct cb_io *io)
{
  struct cb_ops *ops = &io->ops;
  void (*fn)(void *) = NULL;
  void *arg = NULL;
  pthread_mutex_lock(&ops->lock);
  for (size_t i = 0; i < ops->bucket_count && !fn; i++) {
    for (struct cb_op *e = ops->buckets[i]; e && !fn; e = e->next)
      fn = take_cancel(e, &arg);
  }
  pthread_mutex_unlock(&ops->lock);
  if (fn)
    fn(arg);
  return fn != NULL;
}

/* ---- completions ------------------------------------------------------------------------- */

static void ring(struct cb_io *io)
{
  uint64_t one = 1;
  ssize_t n;
  do
    n = write(io->done_fd, &one, sizeof one);
  while (n < 0 && errno == EINTR);
}

static void silence(struct cb_io *io)
{
  uint64_t count;
  ssize_t n;
  do
    n = read(io->done_fd, &count, sizeof count);
  while (n < 0 && errno == EINTR);
}

static void queue(struct cb_io *io, struct cb_completion *c)
{
  if (cb_queue_push(&io->completions, &c->link))
    ring(io);
}

void cb_io_complete(struct cb_io *io, uint64_t op, json_t *value, const struct cb_err *err,
                    bool more)
{
  struct cb_completion *c = more ? cb_calloc(1, sizeof *c) : NULL;
  bool starved = more && !c;
  struct cb_op *e = NULL;

  pthread_mutex_lock(&io->ops.lock);
  if (more && !starved) {
    struct cb_op **at = io->ops.bucket_count ? place(&io->ops, op) : NULL;
    if (!at || !*at) {
      cb_free(c);
      c = NULL;
    }
  } else {
    e = take(&io->ops, op);
    c = e ? e->last : NULL;
  }
  if (c) {
    c->op = op;
    c->more = more && !starved;
    if (starved)
      cb_err_no_memory(&c->err);
    else if (err)
      c->err = *err;
    if (!starved) {
      c->value = value;
      value = NULL;
    }
    /* Queued under the lock: the last completion of an op can't overtake one before it. */
    queue(io, c);
  }
  pthread_mutex_unlock(&io->ops.lock);
  cb_free(e);
  json_decref(value);
}

struct cb_completion *cb_io_drain(struct cb_io *io)
{
  silence(io); /* before the queue is taken: whoever finds it empty afterwards rings again */
  return (struct cb_completion *)cb_queue_take(&io->completions);
}

int cb_io_wait(struct cb_io *io, int64_t ms)
{
  int64_t until = ms < 0 ? -1 : cb_now_ms() + ms;
  while (cb_queue_empty(&io->completions)) {
    struct pollfd fds[2] = { { .fd = io->done_fd, .events = POLLIN },
                             { .fd = cb_interrupt_fd(), .events = POLLIN } };
    int64_t left = until < 0 ? -1 : until - cb_now_ms();
    if (until >= 0 && left < 0)
      left = 0;
    int n = poll(fds, 2, left > INT_MAX ? INT_MAX : (int)left);
    if (n < 0 || (fds[1].revents & POLLIN)) {
      cb_interrupt_seen();
      return -1;
    }
    if (n > 0 && cb_queue_empty(&io->completions)) {
      /* A ring that came after its completion had been drained: over, unless one came since. */
      silence(io);
      if (!cb_queue_empty(&io->completions))
        ring(io);
    } else if (n == 0 && left <= INT_MAX) {
      return 0;
    }
  }
  return 1;
}

void cb_completion_free(struct cb_completion *c)
{
  if (!c)
    return;
  json_decref(c->value);
  cb_free(c);
}

void cb_ops_clear(struct cb_io *io)
{
  struct cb_ops *ops = &io->ops;
  struct cb_link *l = cb_queue_take(&io->completions);
  while (l) {
    struct cb_completion *c = (struct cb_completion *)l;
    l = l->next;
    cb_completion_free(c);
  }
  for (size_t i = 0; i < ops->bucket_count; i++) {
    while (ops->buckets[i]) {
      struct cb_op *e = ops->buckets[i];
      ops->buckets[i] = e->next;
      cb_free(e->last);
      cb_free(e);
    }
  }
  cb_free(ops->buckets);
  ops->buckets = NULL;
  ops->bucket_count = ops->count = 0;
}

void cb_done_op(void *arg, json_t *value, const struct cb_err *err)
{
  struct cb_op_ref *ref = arg;
  cb_io_complete(ref->io, ref->op, value, err, false);
  cb_free(ref);
}
