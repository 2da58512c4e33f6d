/* SPDX-License-Identifier: MIT
 * spawn.h: starts the agent: a session of its own, the environment of the orders and nothing
 * else, three descriptors and no other, no core files, default signals, its own user. */
#ifndef CB_SUPERVISE_SPAWN_H
#define CB_SUPERVISE_SPAWN_H
#include <stdbool.h>
#include <sys/types.h>
#include "base/drop_user.h"
#include "base/err.h"

struct cb_sup_spawn {
  char *const *argv; /* argv[0] without a slash is looked up in PATH of env */
  char *const *env;
  const char *cwd;               /* NULL: stay */
  int stdio[3];                  /* borrowed */
  const struct cb_drop_user *to; /* NULL: stay who we are */
  bool own_session;              /* else a process group of its own */
};

/* Returns once the program runs. On failure *err names the step and *sys gets its errno; nothing
 * is left behind. The child dies with the thread that started it. */
int cb_sup_spawn(const struct cb_sup_spawn *s, pid_t *pid, int *sys, struct cb_err *err);
#endif
