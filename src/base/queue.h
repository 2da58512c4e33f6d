/* SPDX-License-Identifier: MIT
 * queue.h: a lock-free queue of links, many producers and one consumer. Producers push; the
 * consumer takes everything at once, oldest first. Embed a cb_link in what is queued. */
#ifndef CB_BASE_QUEUE_H
#define CB_BASE_QUEUE_H
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

struct cb_link {
  struct cb_link *next;
};

struct cb_queue {
  _Atomic(struct cb_link *) top;
};
#define CB_QUEUE_INIT { NULL }

/* True when the queue was empty before: the moment to wake the consumer. */
static inline bool cb_queue_push(struct cb_queue *q, struct cb_link *l)
{
  struct cb_link *top = atomic_load_explicit(&q->top, memory_order_relaxed);
  do
    l->next = top;
  while (!atomic_compare_exchange_weak_explicit(&q->top, &top, l, memory_order_release,
                                                memory_order_relaxed));
  return top == NULL;
}

/* The whole list, oldest first; NULL when empty. */
static inline struct cb_link *cb_queue_take(struct cb_queue *q)
{
  struct cb_link *l = atomic_exchange_explicit(&q->top, NULL, memory_order_acquire);
  struct cb_link *first = NULL;
  while (l) {
    struct cb_link *next = l->next;
    l->next = first;
    first = l;
    l = next;
  }
  return first;
}

static inline bool cb_queue_empty(struct cb_queue *q)
{
  return atomic_load_explicit(&q->top, memory_order_acquire) == NULL;
}
#endif
