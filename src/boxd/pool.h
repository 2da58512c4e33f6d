/* SPDX-License-Identifier: MIT
 * pool.h: a few threads for what would block the loop: getaddrinfo, trees of files. A job is
 * embedded in what needs it; work runs on some thread, then done on the loop's. */
#ifndef CB_BOXD_POOL_H
#define CB_BOXD_POOL_H
#include <stdbool.h>
#include "base/err.h"
#include "base/queue.h"

struct cb_loop;
struct cb_pool;

struct cb_job {
  struct cb_link link;
  void (*work)(struct cb_job *job);
  void (*done)(struct cb_job *job); /* may free the job */
  bool skipped;                     /* the pool ended first: work never ran */
};

int cb_pool_new(struct cb_pool **out, struct cb_loop *loop, unsigned threads, struct cb_err *err);
/* Queues a job. Jobs start in order. Never fails; loop thread only. */
void cb_pool_run(struct cb_pool *pool, struct cb_job *job);
/* finish: also the work that has not begun is done; else such jobs are skipped. Either way done
 * is called for every job before this returns. NULL is fine. */
void cb_pool_free(struct cb_pool *pool, bool finish);
#endif
