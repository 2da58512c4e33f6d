/* SPDX-License-Identifier: MIT
 * work.c: see work.h. One queue under one mutex; threads block all signals, because the
 * daemon takes its signals through a descriptor of the loop. */
#include "boxd/work.h"
#include <pthread.h>
#include <signal.h>
#include "base/alloc.h"

struct cb_work_pool {
  struct cb_loop *loop;
  pthread_mutex_t lock;
  pthread_cond_t more;
  struct cb_work *first, *last; /* under lock, as are the three below */
  int idle;
  int waiting; /* jobs queued */
  bool stop;
  int threads; /* loop thread only */
  pthread_t thread[CB_WORK_THREADS];
};

static void finish(struct cb_call *c)
{
  struct cb_work *w = (struct cb_work *)c; /* call is its first member */
  w->done(w);
}

static void *serve(void *arg)
{
  struct cb_work_pool *pool = arg;
  pthread_mutex_lock(&pool->lock);
  for (;;) {
    pool->idle++;
    while (!pool->first && !pool->stop)
      pthread_cond_wait(&pool->more, &pool->lock);
    pool->idle--;
    if (pool->stop)
      break;
    struct cb_work *w = pool->first;
    pool->first = w->next;
    if (!pool->first)
      pool->last = NULL;
    pool->waiting--;
    pthread_mutex_unlock(&pool->lock);
    w->run(w);
    w->call.run = finish;
    cb_loop_post(pool->loop, &w->call);
    pthread_mutex_lock(&pool->lock);
  }
  pthread_mutex_unlock(&pool->lock);
  return NULL;
}

static int start_thread(struct cb_work_pool *pool)
{
  sigset_t all, old;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  int rc = pthread_create(&pool->thread[pool->threads], NULL, serve, pool);
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  if (!rc)
    pool->threads++;
  return rc;
}

int cb_work_pool_new(struct cb_work_pool **out, struct cb_loop *loop, struct cb_err *err)
{
  *out = cb_calloc(1, sizeof **out);
  if (!*out)
    return cb_err_no_memory(err);
  (*out)->loop = loop;
  pthread_mutex_init(&(*out)->lock, NULL);
  pthread_cond_init(&(*out)->more, NULL);
  return CB_OK;
}

void cb_work_pool_free(struct cb_work_pool *pool)
{
  if (!pool)
    return;
  pthread_mutex_lock(&pool->lock);
  pool->stop = true;
  pthread_cond_broadcast(&pool->more);
  pthread_mutex_unlock(&pool->lock);
  for (int i = 0; i < pool->threads; i++)
    pthread_join(pool->thread[i], NULL);
  pthread_cond_destroy(&pool->more);
  pthread_mutex_destroy(&pool->lock);
  cb_free(pool);
}

int cb_work_submit(struct cb_work_pool *pool, struct cb_work *w, void (*run)(struct cb_work *w),
                   void (*done)(struct cb_work *w), void *owner, struct cb_err *err)
{
  pthread_mutex_lock(&pool->lock);
  bool want_thread = pool->idle <= pool->waiting;
  pthread_mutex_unlock(&pool->lock);
  if (want_thread && pool->threads < CB_WORK_THREADS) {
    int rc = start_thread(pool);
    if (rc && pool->threads == 0)
      return cb_err_errno(err, rc, "start a worker thread");
  }
  w->pool = pool;
  w->run = run;
  w->done = done;
  w->owner = owner;
  w->next = NULL;
  pthread_mutex_lock(&pool->lock);
  if (pool->last)
    pool->last->next = w;
  else
    pool->first = w;
  pool->last = w;
  pool->waiting++;
  pthread_cond_signal(&pool->more);
  pthread_mutex_unlock(&pool->lock);
  return CB_OK;
}
