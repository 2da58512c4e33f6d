/* SPDX-License-Identifier: MIT
 * host_file.h: files of our own on this host, by path: the state folder, logs, results. Paths
 * are trusted (base/path.h is for folders that somebody else may write in). Blocking. Any
 * thread. */
#ifndef CB_NET_HOST_FILE_H
#define CB_NET_HOST_FILE_H
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/err.h"

/* Reads a regular file (a file of /proc too) into an empty buffer; CB_TOO_LARGE over its max. */
int cb_host_read(const char *path, struct cb_buf *into, struct cb_err *err);
/* Writes it whole: readers see the old or the new bytes, never part. durable: on the disk. */
int cb_host_write(const char *path, const void *p, size_t n, mode_t mode, bool durable,
                  struct cb_err *err);
/* Adds at the end in one write where the kernel allows; made with 0600. */
int cb_host_append(const char *path, const void *p, size_t n, struct cb_err *err);
/* Copies the bytes of a regular file; the new file appears whole. mode 0: as the source. */
int cb_host_copy(const char *from, const char *to, mode_t mode, struct cb_err *err);
int cb_host_unlink(const char *path, struct cb_err *err); /* absent is CB_OK */
int cb_host_rmtree(const char *path, struct cb_err *err); /* absent is CB_OK */
/* Space an ordinary user may still fill on the file system of path. */
int cb_host_free_bytes(const char *path, int64_t *out, struct cb_err *err);

/* An advisory lock (flock) on a file that is made when missing; CB_BUSY when somebody has it.
 * *fd holds the lock until it is closed; programs started from here do not inherit it. */
int cb_host_lock(const char *path, int *fd, struct cb_err *err);
#endif
