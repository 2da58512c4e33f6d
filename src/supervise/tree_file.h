/* SPDX-License-Identifier: MIT
 * tree_file.h: one path of the project as a manifest sees it, and the pieces tree-apply and
 * tree-collect share. The project belongs to jobs that may plant anything in it: no path is
 * followed through a link, nothing but regular files is opened, and none of them twice without
 * looking whether it stayed the same. */
#ifndef CB_SUPERVISE_TREE_FILE_H
#define CB_SUPERVISE_TREE_FILE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include "base/buf.h"
#include "base/err.h"
#include "wire/manifest.h"
#include "wire/pack.h"

enum cb_sup_kind {
  CB_SUP_ABSENT, /* not there, or its folder is not one (any more) */
  CB_SUP_FILE,
  CB_SUP_SYMLINK,
  CB_SUP_FOLDER,
  CB_SUP_SPECIAL, /* device, fifo, socket */
  CB_SUP_BEHIND_LINK /* a folder of its path is a link */
};

struct cb_sup_file {
  enum cb_sup_kind kind;
  struct stat st; /* of the thing itself */
};

/* What is at path. Fails only where that cannot be told. */
int cb_sup_file_look(int dir, const char *path, struct cb_sup_file *out, struct cb_err *err);

/* Reads what look found to be a file or a link, to its end: mode, size and digest of *e. `each`
 * (may be NULL) gets the bytes. CB_CONFLICT when it changed meanwhile or before. */
typedef int cb_sup_each(void *ctx, const void *p, size_t n, struct cb_err *err);
int cb_sup_file_read(int dir, const char *path, const struct cb_sup_file *seen,
                     struct cb_manifest_entry *e, cb_sup_each *each, void *ctx,
                     struct cb_err *err);

/* True when a component of the path is ".git" in any case: history is never part of a tree. */
bool cb_sup_path_has_git(const char *path);

/* Reads a manifest file of the run folder; absent is an empty manifest. */
int cb_sup_manifest_load(int run_dir, const char *name, struct cb_manifest *m, struct cb_err *err);

/* Pack source over a descriptor: ctx is an int *. */
cb_pack_source cb_sup_read_fd;

/* Text for people: bytes that are no printable ASCII become '?'. */
void cb_sup_printable(const char *path, char *out, size_t room);
#endif
