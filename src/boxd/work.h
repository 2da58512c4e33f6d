/* SPDX-License-Identifier: MIT
 * work.h: blocking jobs (building a base layer, waiting for a box to die, removing a tree,
 * looking up a name) on a few threads, so that the loop never waits. Loop thread only. */
#ifndef CB_BOXD_WORK_H
#define CB_BOXD_WORK_H
#include "base/err.h"
#include "boxd/loop.h"

struct cb_work_pool; /* opaque */

enum { CB_WORK_THREADS = 8 }; /* started as they are needed */

/* Borrows loop, which outlives the pool. */
int cb_work_pool_new(struct cb_work_pool **out, struct cb_loop *loop, struct cb_err *err);
/* Waits for running jobs; queued ones are dropped without done. NULL is fine. */
void cb_work_pool_free(struct cb_work_pool *pool);

/* A job, embedded in what it is about, which must live until done was called. */
struct cb_work {
  struct cb_call call; /* first member: how done gets back to the loop */
  struct cb_work *next;
  struct cb_work_pool *pool;
  void (*run)(struct cb_work *w);  /* on a thread of the pool: touches nothing of the loop */
  void (*done)(struct cb_work *w); /* on the loop's thread, later; may free w */
  void *owner;
};

/* Hands w to the pool. Fails only when not one thread could be started. */
int cb_work_submit(struct cb_work_pool *pool, struct cb_work *w, void (*run)(struct cb_work *w),
                   void (*done)(struct cb_work *w), void *owner, struct cb_err *err);
#endif
