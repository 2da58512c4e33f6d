/* SPDX-License-Identifier: MIT
 * rundir.h: the folder of a run. The agent's user may own it and plant anything in it, so every
 * name is used by descriptor, never followed, and what lies in the way is replaced. */
#ifndef CB_SUPERVISE_RUNDIR_H
#define CB_SUPERVISE_RUNDIR_H
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "base/err.h"

struct cb_sup_dir {
  int fd;   /* -1: not open */
  int lock; /* -1: not locked */
  bool give; /* new files go to uid and gid: we are root and the agent is not */
  uid_t uid;
  gid_t gid;
};
#define CB_SUP_DIR_INIT { -1, -1, false, 0, 0 }

/* Opens the folder, which whoever starts us has made. A link is refused. */
int cb_sup_dir_open(struct cb_sup_dir *d, const char *path, struct cb_err *err);
/* When we are root and the folder is somebody's: new files are his, too. */
void cb_sup_dir_follow_owner(struct cb_sup_dir *d);
void cb_sup_dir_close(struct cb_sup_dir *d);

/* Takes the lock of this launch. CB_BUSY while another supervisor holds it, CB_EXISTS when this
 * or a later launch was started already; both leave the folder as it was. *first says that no
 * launch was started here before. */
int cb_sup_dir_lock(struct cb_sup_dir *d, int64_t launch_seq, bool *first, struct cb_err *err);
/* Removes what an earlier launch left: state, stop, findings, segments. */
void cb_sup_dir_sweep(const struct cb_sup_dir *d);

/* A new empty file, 0600, in place of whatever has the name. */
int cb_sup_dir_create(const struct cb_sup_dir *d, const char *name, int *fd, struct cb_err *err);
/* Replaces a file whole, or leaves it as it was. */
int cb_sup_dir_put(const struct cb_sup_dir *d, const char *name, const void *p, size_t n,
                   bool durable, struct cb_err *err);
/* The same without needing a byte of disk: writes over `spare`, a file of ours that has room for
 * n bytes, and lets it change places with `name`. Readers may see a torn file when they are very
 * slow: only for when the disk is full. */
int cb_sup_dir_swap(const struct cb_sup_dir *d, const char *name, const char *spare, const void *p,
                    size_t n, bool durable, struct cb_err *err);
bool cb_sup_dir_has(const struct cb_sup_dir *d, const char *name);
void cb_sup_dir_remove(const struct cb_sup_dir *d, const char *name);
/* Gives an open file to the agent's user, where there is one to give it to. A local box knows
 * that user only inside its namespace, where the file is his anyway: failing is no failure. */
void cb_sup_dir_give(const struct cb_sup_dir *d, int fd);
#endif
