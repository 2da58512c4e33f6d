/* SPDX-License-Identifier: MIT
 * apply_private.h: what the files of tree-apply share: apply.c (the order of things),
 * apply_check.c (looking before and after) and apply_write.c (changing the project). */
#ifndef CB_SUPERVISE_APPLY_PRIVATE_H
#define CB_SUPERVISE_APPLY_PRIVATE_H
#include <stdbool.h>
#include <sys/types.h>
#include "base/err.h"
#include "supervise/rundir.h"
#include "wire/manifest.h"

enum { CB_SUP_TREE_DEPTH = 256 };

struct cb_sup_apply_work {
  int project;
  int pack;
  struct cb_sup_dir run;
  bool own; /* we are root and the project is somebody's */
  uid_t uid;
  gid_t gid;
  struct cb_manifest next;    /* what is to be there */
  struct cb_manifest base;    /* what the last apply put there */
  struct cb_manifest journal; /* what an apply that did not end may have put there */
  char pack_digest[CB_SHA256_HEX + 1];
  size_t written, unchanged, deleted;
};

/* apply_check.c */

/* Reads the pack once: its sum is right, every content is there and is what the manifest says.
 * Fills next and pack_digest. */
int cb_sup_apply_check_pack(struct cb_sup_apply_work *a, struct cb_err *err);
/* A folder where a file is to be must hold nothing but what we are going to delete: CB_CONFLICT. */
int cb_sup_apply_check(const struct cb_sup_apply_work *a, struct cb_err *err);
/* Every entry as it is on disk now; digest is of what was found, not of what was wanted. */
int cb_sup_apply_verify(const struct cb_sup_apply_work *a, char digest[CB_SHA256_HEX + 1],
                        struct cb_err *err);

/* apply_write.c */

/* Removes what `old` names and next does not, and the folders that are empty then. */
int cb_sup_apply_delete(struct cb_sup_apply_work *a, const struct cb_manifest *old,
                        struct cb_err *err);
/* Reads the pack a second time and writes whatever is not right already. */
int cb_sup_apply_write(struct cb_sup_apply_work *a, struct cb_err *err);
#endif
