/* SPDX-License-Identifier: MIT
 * git.h: git as a tool that only lists and commits. Its configuration is pinned and its
 * environment made here; no hook, filter, monitor or setting of a checkout is ever run or read. */
#ifndef CB_SUPERVISE_GIT_H
#define CB_SUPERVISE_GIT_H
#include <stddef.h>
#include <sys/types.h>
#include "base/buf.h"
#include "base/err.h"

enum { CB_SUP_GIT_ARGS = 16 };

struct cb_sup_git {
  const char *work_tree; /* absolute */
  const char *git_dir;   /* absolute; NULL: none yet (init) */
  uid_t uid;             /* run as this user, when we are root and it is another */
  gid_t gid;
};

/* Runs git with these arguments (NULL-terminated, at most CB_SUP_GIT_ARGS) and this input;
 * appends what it prints to *out (may be NULL). CB_UNSUPPORTED when there is no git here,
 * CB_PROVIDER with the first words of its stderr when it failed, CB_TIMEOUT after two minutes. */
int cb_sup_git_run(const struct cb_sup_git *g, const char *const *args, const void *input,
                   size_t len, struct cb_buf *out, struct cb_err *err);
#endif
