/* SPDX-License-Identifier: MIT
 * proc.h: the process tree below us, as /proc tells it. The caller is a child subreaper, so
 * whatever daemonises below it stays its descendant, in a session or user namespace of its own
 * as well. A zombie counts as gone; a number that was given to another process is told apart by
 * its start time. */
#ifndef CB_SUPERVISE_PROC_H
#define CB_SUPERVISE_PROC_H
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct cb_sup_proc {
  pid_t pid, ppid;
  unsigned long long start; /* field 22 of its stat: ticks since boot */
  char state;               /* R S D T t Z X ... */
  bool below;               /* scratch of the scan: a descendant of ours */
};

/* False when there is no such process (or no /proc). */
bool cb_sup_proc_read(pid_t pid, struct cb_sup_proc *out);

struct cb_sup_tree {
  struct cb_sup_proc *all; /* kept between scans, so that ending a tree does not allocate */
  size_t count, cap;
};
#define CB_SUP_TREE_INIT { NULL, 0, 0 }

/* Looks at every process once, sends sig (0: nothing) to every living descendant of ours and
 * says how many there were; -1 with errno when that cannot be told. */
int cb_sup_tree_signal(struct cb_sup_tree *t, int sig);
void cb_sup_tree_clear(struct cb_sup_tree *t);
#endif
