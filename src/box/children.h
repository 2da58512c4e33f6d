/* SPDX-License-Identifier: MIT
 * children.h: the processes the init started. Each is the leader of a session of its own and a
 * child of pid 1. An exited one stays listed for 30 s, and is kept (unlisted) for as long as
 * somebody still holds its output pipes, which are then read to their end here. */
#ifndef CB_BOX_CHILDREN_H
#define CB_BOX_CHILDREN_H
#include "base/buf.h"
#include "box/init.h"

struct cb_command {
  const char *cmd;
  struct cb_strings args, env; /* env: over the box's; all of it when whole_env */
  const char *cwd;             /* "" home, "~/x", relative to home, absolute */
  const char *user;            /* "user" or "root" */
  const char *tag;
  bool stdin_open;
  bool whole_env;              /* env is the whole environment (sudo) */
  int64_t deadline_ms;         /* from now; 0: none */
  const int *stdio;            /* three descriptors to use instead of pipes, or NULL */
};

struct cb_child {
  struct cb_child *next;
  pid_t pid;
  struct cb_buf facts; /* records for `list`, without pid and state */
  int in;              /* our copy of the write end; -1 */
  int out[2];          /* our copies of the read ends of stdout and stderr; -1 */
  struct cb_source drain[2];
  bool exited, listed, deadline_hit;
  int status;
  int64_t deadline_ms, exited_ms; /* CLOCK_BOOTTIME */
  void (*on_exit)(struct cb_init *init, struct cb_child *p, void *arg); /* or NULL */
  void *on_exit_arg;
};

/* CB_OK with *out, or an error for the caller of `start`. */
int cb_child_start(struct cb_init *init, const struct cb_command *command, struct cb_child **out,
                   struct cb_err *err);
struct cb_child *cb_child_find(struct cb_init *init, int64_t pid); /* listed ones only */
/* SIGCHLD: collects every dead child, ours or adopted. */
void cb_child_reap(struct cb_init *init);
/* Timers: deadlines, forgetting. cb_child_next_due: CLOCK_BOOTTIME ms, 0 for none. */
int64_t cb_child_next_due(const struct cb_init *init);
void cb_child_due(struct cb_init *init, int64_t now);
/* A daemon came (it reads the output from now on) or went (the init does). */
void cb_child_attached(struct cb_init *init, bool attached);
/* home of "user" or "root"; NULL for any other name. */
const char *cb_child_home(const char *user);
#endif
