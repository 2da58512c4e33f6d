/* SPDX-License-Identifier: MIT
 * files.h: file work inside the view, done by pid 1 because only it stands there. The paths are
 * the daemon's, the tree behind them is hostile: a link may have been planted that means
 * something else to pid 1 than to its author. So: no magic links (/proc/self/root and the
 * like), and nothing on procfs or another pseudo file system, however it was reached.
 *
 * path: absolute, "~/x", or relative to the home of `user`; cleaned by its text alone. */
#ifndef CB_BOX_FILES_H
#define CB_BOX_FILES_H
#include <stdint.h>
#include "base/buf.h"
#include "base/err.h"

enum { CB_FILES_PATH_MAX = 4096 };

/* CB_INVALID for an unknown user's (CB_UNAUTHORIZED) or an impossible path. */
int cb_files_absolute(const char *path, const char *user, char out[CB_FILES_PATH_MAX + 1],
                      struct cb_err *err);

/* *fd is a regular file. For writing: parents are made, it is created (0644) or truncated. */
int cb_files_open(const char *path, bool for_writing, int *fd, int64_t *size, struct cb_err *err);
/* Each adds one nested `entry` record for `path` to `into`. */
int cb_files_stat(const char *path, const char *user, struct cb_buf *into, struct cb_err *err);
int cb_files_mkdir(const char *path, struct cb_err *err);
int cb_files_remove(const char *path, struct cb_err *err);
int cb_files_move(const char *from, const char *to, struct cb_err *err);

/* Calls each with one finished entry record at a time, parents first, names sorted; stops when
 * it returns non-zero and gives that back. */
int cb_files_list(const char *path, const char *user, int depth,
                  int (*each)(void *arg, const struct cb_buf *entry, struct cb_err *err),
                  void *arg, struct cb_err *err);
#endif
