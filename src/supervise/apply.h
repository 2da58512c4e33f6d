/* SPDX-License-Identifier: MIT
 * apply.h: makes a project folder hold what a pack says. Only what an earlier apply put there is
 * ever deleted; nothing is written through a link somebody planted; files that are right already
 * are left alone, so that build caches stay good. What was written is read back. A journal, the
 * coming manifest in the run folder, lets the apply after a crash clean up behind it. */
#ifndef CB_SUPERVISE_APPLY_H
#define CB_SUPERVISE_APPLY_H
#include <stdbool.h>
#include "base/buf.h"
#include "base/err.h"

struct cb_sup_apply {
  const char *project, *pack, *run_dir;
  bool base_commit; /* make it a repository with one commit, where there is git */
};

/* Appends the report, records: crewbox_apply=1, digest (of the manifest, as read back), pack (its
 * sum), count, written, unchanged, deleted, commit (absent without one), note (why not).
 * CB_CONFLICT when files of a job are in the way, before anything is written; CB_BUSY while
 * another apply is at work on the folder. */
int cb_sup_apply(const struct cb_sup_apply *what, struct cb_buf *report, struct cb_err *err);
#endif
