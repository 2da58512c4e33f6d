/* SPDX-License-Identifier: MIT
 * worker.c: the one thread for work that blocks (file trees, digests), in order. */
#include "base/alloc.h"
#include "net/io_private.h"

struct cb_work {
  struct cb_post post; /* first: carries the end back, and frees all of it */
  struct cb_work *next;
  void (*work)(void *arg);
  void (*done)(struct cb_io *io, void *arg);
  void *arg;
};

void cb_worker_init(struct cb_worker *w)
{
  pthread_mutex_init(&w->lock, NULL);
  pthread_cond_init(&w->more, NULL);
}

void cb_worker_clear(struct cb_worker *w)
{
  pthread_cond_destroy(&w->more);
  pthread_mutex_destroy(&w->lock);
}

static void finish(struct cb_io *io, void *arg)
{
  struct cb_work *job = arg;
  job->done(io, job->arg);
}

static void *run(void *arg)
{
  struct cb_io *io = arg;
  struct cb_worker *w = &io->worker;
  pthread_setname_np(pthread_self(), "crewbox-work");
  pthread_mutex_lock(&w->lock);
  for (;;) {
    while (!w->first && !w->stop)
      pthread_cond_wait(&w->more, &w->lock);
    struct cb_work *job = w->first;
    if (!job)
      break;
    w->first = job->next;
    if (!w->first)
      w->last = NULL;
    pthread_mutex_unlock(&w->lock);
    job->work(job->arg);
    job->post.fn = finish;
    job->post.arg = job;
    cb_io_push(io, &job->post);
    pthread_mutex_lock(&w->lock);
  }
  pthread_mutex_unlock(&w->lock);
  return NULL;
}

/* The I/O thread must be there to hear of the end: an empty post starts it and is the check. */
static void nothing(struct cb_io *io, void *arg)
{
  (void)io;
  (void)arg;
}

static int enqueue(struct cb_io *io, struct cb_work *job, struct cb_err *err)
{
  struct cb_worker *w = &io->worker;
  int rc = CB_OK;
  pthread_mutex_lock(&io->lock);
  if (cb_io_closing(io)) {
    rc = cb_err_set(err, CB_CLOSED, "the I/O handle is closed");
  } else if (!w->running) {
    w->stop = false;
    rc = cb_io_thread(&w->thread, run, io, err);
    w->running = rc == CB_OK;
  }
  if (rc == CB_OK) {
    pthread_mutex_lock(&w->lock);
    if (w->last)
      w->last->next = job;
    else
      w->first = job;
    w->last = job;
    pthread_cond_signal(&w->more);
    pthread_mutex_unlock(&w->lock);
  }
  pthread_mutex_unlock(&io->lock);
  return rc;
}

int cb_io_work(struct cb_io *io, void (*work)(void *arg),
               void (*done)(struct cb_io *io, void *arg), void *arg, struct cb_err *err)
{
  int rc = cb_io_post(io, nothing, NULL, err);
  if (rc)
    return rc;
  struct cb_work *job = cb_calloc(1, sizeof *job);
  if (!job)
    return cb_err_no_memory(err);
  job->work = work;
  job->done = done;
  job->arg = arg;
  rc = enqueue(io, job, err);
  if (rc)
    cb_free(job);
  return rc;
}

bool cb_worker_stop(struct cb_io *io)
{
  struct cb_worker *w = &io->worker;
  pthread_mutex_lock(&io->lock);
  bool running = w->running;
  w->running = false;
  pthread_mutex_unlock(&io->lock);
  if (!running)
    return false;
  pthread_mutex_lock(&w->lock);
  w->stop = true;
  pthread_cond_signal(&w->more);
  pthread_mutex_unlock(&w->lock);
  pthread_join(w->thread, NULL);
  return true;
}
