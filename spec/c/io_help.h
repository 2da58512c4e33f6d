/* SPDX-License-Identifier: MIT
 * io_help.h: what tests of the I/O thread share: waiting with a bound, counting what leaks. */
#ifndef CB_SPEC_IO_HELP_H
#define CB_SPEC_IO_HELP_H
#include <dirent.h>
#include <errno.h>
#include <semaphore.h>
#include <time.h>

#include "base/alloc.h"
#include "net/io.h"

enum { HELP_BOUND_S = 20 };

/* True when the semaphore was posted within the bound. */
static inline bool help_wait(sem_t *s)
{
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += HELP_BOUND_S;
  while (sem_timedwait(s, &until) < 0) {
    if (errno != EINTR)
      return false;
  }
  return true;
}

static inline int help_count(const char *folder)
{
  DIR *d = opendir(folder);
  int n = -2; /* "." and ".." */
  while (d && readdir(d))
    n++;
  if (d)
    closedir(d);
  return n;
}

static inline int help_fds(void)
{
  return help_count("/proc/self/fd");
}

static inline int help_threads(void)
{
  return help_count("/proc/self/task");
}

/* ThreadSanitizer starts a thread of its own with the first of ours. */
#ifdef __SANITIZE_THREAD__
enum { HELP_FOREIGN_THREADS = 1 };
#else
enum { HELP_FOREIGN_THREADS = 0 };
#endif

/* Threads end a moment after they were joined: what is left is asked for until it fits. */
static inline bool help_threads_are(int n)
{
  const struct timespec step = { 0, 5000000 };
  for (int i = 0; i < 1000; i++) {
    int now = help_threads();
    if (now == n || now == n + HELP_FOREIGN_THREADS)
      return true;
    nanosleep(&step, NULL);
  }
  return false;
}

/* The next completion, or NULL after the bound. Of several, the rest waits in *more. */
static inline struct cb_completion *help_next(struct cb_io *io, struct cb_completion **more)
{
  if (!*more) {
    if (cb_io_wait(io, HELP_BOUND_S * 1000) != 1)
      return NULL;
    *more = cb_io_drain(io);
  }
  struct cb_completion *c = *more;
  if (c)
    *more = (struct cb_completion *)c->link.next;
  return c;
}
#endif
