/* SPDX-License-Identifier: MIT
 * pool.c: see pool.h. */
#include "boxd/pool.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fd.h"
#include "boxd/loop.h"

enum { THREADS_MAX = 8 };

struct cb_pool {
  struct cb_loop *loop;
  pthread_t threads[THREADS_MAX];
  unsigned thread_count;
  pthread_mutex_t lock;
  pthread_cond_t some;
  struct cb_link *first, **last; /* under lock */
  bool stop, skip;               /* under lock */
  struct cb_queue finished;
  int wake;
  struct cb_watch watch;
};

static void complete(struct cb_pool *pool)
{
  struct cb_link *l = cb_queue_take(&pool->finished);
  while (l) {
    struct cb_link *next = l->next;
    struct cb_job *job = (struct cb_job *)l; /* link is its first member */
    job->done(job);
    l = next;
  }
}

static void on_wake(struct cb_watch *w, uint32_t events)
{
  struct cb_pool *pool = w->owner;
  uint64_t n;
  (void)events;
  if (read(pool->wake, &n, sizeof n) < 0 && errno != EAGAIN)
    return;
  complete(pool);
}

static void *run(void *arg)
{
  struct cb_pool *pool = arg;
  uint64_t one = 1;
  pthread_mutex_lock(&pool->lock);
  for (;;) {
    while (!pool->first && !pool->stop)
      pthread_cond_wait(&pool->some, &pool->lock);
    if (!pool->first)
      break;
    struct cb_job *job = (struct cb_job *)pool->first;
    bool skip = pool->skip;
    pool->first = job->link.next;
    if (!pool->first)
      pool->last = &pool->first;
    pthread_mutex_unlock(&pool->lock);
    job->skipped = skip;
    if (!skip)
      job->work(job);
    if (cb_queue_push(&pool->finished, &job->link) && write(pool->wake, &one, sizeof one) < 0) {
      /* EAGAIN: the counter is full, so the loop is being woken anyway */
    }
    pthread_mutex_lock(&pool->lock);
  }
  pthread_mutex_unlock(&pool->lock);
  return NULL;
}

int cb_pool_new(struct cb_pool **out, struct cb_loop *loop, unsigned threads, struct cb_err *err)
{
  sigset_t all, before;
  int rc = CB_OK;
  struct cb_pool *pool = cb_calloc(1, sizeof *pool);
  if (!pool)
    return cb_err_no_memory(err);
  pool->loop = loop;
  pool->last = &pool->first;
  pool->watch.fd = -1;
  pthread_mutex_init(&pool->lock, NULL);
  pthread_cond_init(&pool->some, NULL);
  pool->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (pool->wake < 0)
    rc = cb_err_errno(err, errno, "make a thread pool");
  else
    rc = cb_loop_add(loop, &pool->watch, pool->wake, EPOLLIN, on_wake, pool, err);
  /* Signals are the loop thread's business. */
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  for (unsigned i = 0; i < threads && i < THREADS_MAX && !rc; i++) {
    int sys = pthread_create(&pool->threads[i], NULL, run, pool);
    if (sys)
      rc = cb_err_errno(err, sys, "start a thread");
    else
      pool->thread_count++;
  }
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (rc) {
    cb_pool_free(pool, false);
    return rc;
  }
  *out = pool;
  return CB_OK;
}

void cb_pool_run(struct cb_pool *pool, struct cb_job *job)
{
  job->link.next = NULL;
  job->skipped = false;
  pthread_mutex_lock(&pool->lock);
  *pool->last = &job->link;
  pool->last = &job->link.next;
  pthread_cond_signal(&pool->some);
  pthread_mutex_unlock(&pool->lock);
}

void cb_pool_free(struct cb_pool *pool, bool finish)
{
  if (!pool)
    return;
  pthread_mutex_lock(&pool->lock);
  pool->stop = true;
  pool->skip = !finish;
  pthread_cond_broadcast(&pool->some);
  pthread_mutex_unlock(&pool->lock);
  for (unsigned i = 0; i < pool->thread_count; i++)
    pthread_join(pool->threads[i], NULL);
  complete(pool);
  cb_loop_del(pool->loop, &pool->watch);
  cb_close(&pool->wake);
  pthread_cond_destroy(&pool->some);
  pthread_mutex_destroy(&pool->lock);
  cb_free(pool);
}
