/* SPDX-License-Identifier: MIT
 * io_private.h: the inside of struct cb_io, for the files of src/net that make it up: io.c
 * (life, loop, polls), timer.c, worker.c, op.c (ops, completions) and multi.c (curl). */
#ifndef CB_NET_IO_PRIVATE_H
#define CB_NET_IO_PRIVATE_H
#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "net/io.h"

struct cb_multi;
struct cb_lines;

/* A message to the I/O thread. What embeds it as its first member is freed after fn ran. */
struct cb_post {
  struct cb_link link;
  void (*fn)(struct cb_io *io, void *arg);
  void *arg;
};

struct cb_timers { /* binary heap by due time, then by age */
  struct cb_timer **heap;
  size_t count, cap;
  uint64_t next_seq;
};

struct cb_worker {
  pthread_mutex_t lock; /* guards first, last, stop */
  pthread_cond_t more;
  pthread_t thread;
  bool running; /* guarded by io->lock */
  bool stop;
  struct cb_work *first, *last;
};

struct cb_ops { /* guarded by its own lock */
  pthread_mutex_t lock;
  struct cb_op **buckets;
  size_t bucket_count, count;
  uint64_t last;
};

struct cb_io {
  pid_t pid;         /* who made it; never changes */
  atomic_uint refs;
  int wake_fd, done_fd; /* eventfds; never change */
  struct cb_queue posts, completions;
  struct cb_ops ops;
  atomic_bool closing;
  atomic_int loop_tid; /* 0 until the loop runs */

  pthread_mutex_t lock; /* guards started, finished and, with closing, the order of posts */
  bool started, finished;
  pthread_t thread;
  struct cb_worker worker;
  _Atomic(struct cb_lines *) lines; /* local_server.c */

  /* the I/O thread's own */
  int ep;
  struct cb_timers timers;
  struct cb_poll *polls, *graveyard;
  struct cb_io_hook hooks; /* ring */
  struct cb_multi *multi;
};

/* io.c */
void cb_io_push(struct cb_io *io, struct cb_post *post); /* [any] whatever the state */
bool cb_io_ours(const struct cb_io *io);                 /* this process made it */
/* Starts a thread of ours: every signal blocked, so that none of a host's lands here. */
int cb_io_thread(pthread_t *out, void *(*fn)(void *), void *arg, struct cb_err *err);

/* timer.c */
int64_t cb_timers_wait(struct cb_io *io); /* milliseconds to the next; -1: no timer */
void cb_timers_run(struct cb_io *io);
void cb_timers_clear(struct cb_io *io);

/* worker.c */
void cb_worker_init(struct cb_worker *w);
/* [I/O thread] Finishes what is queued and joins; true when it was running. */
bool cb_worker_stop(struct cb_io *io);
void cb_worker_clear(struct cb_worker *w);

/* op.c */
void cb_ops_init(struct cb_ops *ops);
bool cb_ops_cancel_any(struct cb_io *io); /* false: none left that can be cancelled */
void cb_ops_clear(struct cb_io *io);      /* and the completions */

/* multi.c: what curl asks of the loop (m may be NULL); local_server.c */
int64_t cb_multi_wait(struct cb_multi *m); /* milliseconds; -1: no time */
void cb_multi_run(struct cb_multi *m);
void cb_multi_free(struct cb_multi *m);
void cb_lines_free(struct cb_lines *l);
#endif
