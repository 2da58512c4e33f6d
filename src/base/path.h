/* SPDX-License-Identifier: MIT
 * path.h: file work below a directory that somebody hostile may be writing in. Every name is
 * resolved by openat2 with RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS, and
 * component by component with O_NOFOLLOW where the kernel refuses openat2 (ENOSYS, EPERM
 * under a seccomp filter). A path never leaves `dir` and never goes through a link. */
#ifndef CB_BASE_PATH_H
#define CB_BASE_PATH_H
#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>
#include <sys/types.h>
#include "base/buf.h"
#include "base/err.h"

enum { CB_PATH_MAX_BYTES = 4096 };

/* A relative path of ordinary components: not empty, no leading or doubled or trailing slash,
 * no "." or "..", no NUL within n bytes, at most CB_PATH_MAX_BYTES, no component over 255. */
bool cb_path_is_plain(const char *path, size_t n);

/* Opens with O_CLOEXEC added. A link in any place is CB_DENIED. */
int cb_open_beneath(int dir, const char *path, int flags, mode_t mode, int *out,
                    struct cb_err *err);
int cb_stat_beneath(int dir, const char *path, struct stat *st, struct cb_err *err);
/* Text of a link that is the last component. */
int cb_readlink_beneath(int dir, const char *path, struct cb_buf *into, struct cb_err *err);
/* Makes every missing directory of path itself (0755 & umask). An existing component that is
 * not a directory is CB_CONFLICT. */
int cb_mkdirs_beneath(int dir, const char *path, struct cb_err *err);
/* Opens the directory that holds the last component; *base points into path. Path "a" gives
 * a duplicate of dir. */
int cb_open_parent_beneath(int dir, const char *path, int *out, const char **base,
                           struct cb_err *err);
int cb_unlink_beneath(int dir, const char *path, struct cb_err *err); /* absent is CB_OK */
/* Removes a whole tree: directories without permission bits are opened up first. Absent is
 * CB_OK. Goes on past failures and reports the first. Never follows a link, never leaves the
 * file system it started on. */
int cb_rmtree_beneath(int dir, const char *path, struct cb_err *err);
/* Writes a file whole: temporary name in the same directory, fsync when durable, rename. */
int cb_write_file_beneath(int dir, const char *path, const void *p, size_t n, mode_t mode,
                          bool durable, struct cb_err *err);
int cb_read_file_beneath(int dir, const char *path, struct cb_buf *into, struct cb_err *err);
/* mkdir -p for a path of our own (absolute or relative), last component with mode. */
int cb_mkdirs(const char *path, mode_t mode, struct cb_err *err);
#endif
