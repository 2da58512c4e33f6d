/* SPDX-License-Identifier: MIT
 * host_proc.h: processes of this host as facts, and programs started to outlive us. Blocking.
 * Any thread. */
#ifndef CB_NET_HOST_PROC_H
#define CB_NET_HOST_PROC_H
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

/* Field 22 of /proc/PID/stat: with the pid it names a process for good, since pids are used
 * again. CB_NOT_FOUND when there is none. */
int cb_proc_start(pid_t pid, int64_t *start, struct cb_err *err);
/* Is that very process alive? start 0: any of that pid. A zombie is dead. */
bool cb_proc_alive(pid_t pid, int64_t start);
/* Signals that very process (start 0: any of that pid), through a pidfd, so that the pid cannot
 * pass to a stranger in between. CB_NOT_FOUND when it is gone. */
int cb_proc_kill(pid_t pid, int64_t start, int sig, struct cb_err *err);

struct cb_daemon {
  char *const *argv;       /* argv[0]: a path, or a name looked up in PATH of env */
  char *const *env;        /* "NAME=VALUE", the whole environment */
  const char *log;         /* its stderr; made with 0600, written at the end */
  int64_t ready_timeout_ms;
};
enum { CB_DAEMON_LINE_MAX = 4096 };
/* Starts a program in a session of its own that is no child of ours (nothing is left to reap),
 * with /dev/null as stdin, default signals and no descriptor but 0, 1 and 2. Waits for its
 * first line of output: *pid and line (without the newline). A program that ends or is silent for too
 * long is killed; the error holds the last line of its log. */
int cb_daemon_start(const struct cb_daemon *d, pid_t *pid, char line[CB_DAEMON_LINE_MAX],
                    struct cb_err *err);

/* The file that argv[0] names: itself with a slash, else the first executable of the PATH in
 * env. Gives a cb_malloc'ed path; CB_NOT_FOUND. */
int cb_find_program(const char *name, char *const *env, char **out, struct cb_err *err);

/* Moves a descriptor away from 0, 1 and 2, which become a child's own: they are free when a
 * host has closed its. */
int cb_lift_fd(int *fd, struct cb_err *err);
#endif
