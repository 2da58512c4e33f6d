/* SPDX-License-Identifier: MIT
 * shepherd.h: starts a program of this host so that its exit status cannot be taken away. Any thread.
 *
 * nginx reaps every child of its workers when SIGCHLD comes, whoever started it. So the program is
 * not our child: between it and us stands the shepherd, a copy of this process that execs nothing,
 * holds none of our descriptors, and was made without an exit signal, which hides it from a wait
 * for just any child. It waits for the program, tells us how it ended and keeps its pid from being
 * used again until we let go. When we die it kills the program's group. */
#ifndef CB_NET_SHEPHERD_H
#define CB_NET_SHEPHERD_H
#include <sys/types.h>

#include "base/err.h"

struct cb_shepherd {
  pid_t pid;  /* of the program, and of its process group */
  pid_t self; /* of the shepherd */
  int sock;   /* readable when the program has ended */
};
#define CB_SHEPHERD_INIT { 0, 0, -1 }

struct cb_program { /* borrowed during the start */
  const char *path;
  char *const *argv, *const *env;
  const char *cwd;     /* NULL: ours */
  int in, out, err;    /* its 0, 1 and 2; each above 2 here */
};

/* Returns when the program runs: in a group of its own, with default signals, an empty signal mask
 * and no other descriptor. The error is that of the exec. */
int cb_shepherd_start(struct cb_shepherd *s, const struct cb_program *p, struct cb_err *err);
/* How it ended, once sock is readable: as waitid says it. CB_SYSTEM when the shepherd was killed. */
int cb_shepherd_ended(struct cb_shepherd *s, int *code, int *status, struct cb_err *err);
/* Lets go of the pid; kills the group when the program has not ended. Safe on CB_SHEPHERD_INIT. */
void cb_shepherd_release(struct cb_shepherd *s);
#endif
