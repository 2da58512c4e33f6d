/* SPDX-License-Identifier: MIT */
#include "supervise/proc.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/alloc.h"

enum { FIRST_CAP = 512, START_FIELD = 22 };

bool cb_sup_proc_read(pid_t pid, struct cb_sup_proc *out)
{
  char path[40], text[1024];
  snprintf(path, sizeof path, "/proc/%ld/stat", (long)pid);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    return false;
  ssize_t n = read(fd, text, sizeof text - 1);
  close(fd);
  if (n <= 0)
    return false;
  text[n] = '\0';
  /* The name in parentheses may hold blanks and parentheses of its own; what follows the last
   * one is plain: field 3 is the state, field 4 the parent. */
  char *at = strrchr(text, ')');
  if (!at || at[1] != ' ' || at[2] == '\0' || at[3] != ' ')
    return false;
  out->pid = pid;
  out->state = at[2];
  at += 4;
  out->ppid = (pid_t)strtol(at, NULL, 10);
  for (int field = 4; field < START_FIELD; field++) {
    at = strchr(at, ' ');
    if (!at)
      return false;
    at++;
  }
  out->start = strtoull(at, NULL, 10);
  out->below = false;
  return true;
}

static bool room_for_one(struct cb_sup_tree *t)
{
  size_t cap = t->cap ? t->cap : FIRST_CAP / 2, bytes;
  if (t->count < t->cap)
    return true;
  if (!cb_size_mul(cap, 2, &cap) || !cb_size_mul(cap, sizeof *t->all, &bytes))
    return false;
  struct cb_sup_proc *all = cb_realloc(t->all, bytes);
  if (!all)
    return false;
  t->all = all;
  t->cap = cap;
  return true;
}

/* Every process there is. A process that comes while we look may be missed: callers look again
 * until nothing is left. */
static int list_all(struct cb_sup_tree *t)
{
  DIR *d = opendir("/proc");
  struct dirent *e;
  if (!d)
    return -1;
  t->count = 0;
  while ((e = readdir(d))) {
    char *end;
    long pid = strtol(e->d_name, &end, 10);
    if (*end || pid <= 0)
      continue;
    if (!room_for_one(t)) {
      closedir(d);
      errno = ENOMEM;
      return -1;
    }
    t->count += cb_sup_proc_read((pid_t)pid, &t->all[t->count]);
  }
  closedir(d);
  return 0;
}

static int by_pid(const void *a, const void *b)
{
  const struct cb_sup_proc *x = a, *y = b;
  return (x->pid > y->pid) - (x->pid < y->pid);
}

static const struct cb_sup_proc *find(const struct cb_sup_tree *t, pid_t pid)
{
  struct cb_sup_proc key = { .pid = pid };
  return t->count ? bsearch(&key, t->all, t->count, sizeof key, by_pid) : NULL;
}

/* Marks who is below us. Parents may have greater numbers than their children, so it goes round
 * until nothing changes; a round marks at least one generation. */
static void mark_below(struct cb_sup_tree *t)
{
  pid_t me = getpid();
  bool changed = true;
  qsort(t->all, t->count, sizeof *t->all, by_pid);
  while (changed) {
    changed = false;
    for (size_t i = 0; i < t->count; i++) {
      struct cb_sup_proc *p = &t->all[i];
      if (p->below || p->pid == me)
        continue;
      const struct cb_sup_proc *parent = p->ppid == me ? NULL : find(t, p->ppid);
      if (p->ppid == me || (parent && parent->below))
        p->below = changed = true;
    }
  }
}

/* Only if it is still the process that was seen: the descriptor pins whoever has the number now,
 * and the start time, read behind it, says who that is. */
static void send_signal(const struct cb_sup_proc *p, int sig)
{
  struct cb_sup_proc now;
  int fd = (int)syscall(SYS_pidfd_open, p->pid, 0);
  if (fd < 0 && errno != ENOSYS && errno != EPERM)
    return;
  if (cb_sup_proc_read(p->pid, &now) && now.start == p->start) {
    if (fd >= 0)
      syscall(SYS_pidfd_send_signal, fd, sig, NULL, 0);
    else
      kill(p->pid, sig);
  }
  if (fd >= 0)
    close(fd);
}

int cb_sup_tree_signal(struct cb_sup_tree *t, int sig)
{
  int living = 0;
  if (list_all(t) < 0)
    return -1;
  if (t->count)
    mark_below(t);
  for (size_t i = 0; i < t->count; i++) {
    const struct cb_sup_proc *p = &t->all[i];
    if (!p->below || p->state == 'Z' || p->state == 'X')
      continue;
    living++;
    if (sig)
      send_signal(p, sig);
  }
  return living;
}

void cb_sup_tree_clear(struct cb_sup_tree *t)
{
  cb_free(t->all);
  t->all = NULL;
  t->count = t->cap = 0;
}
