/* SPDX-License-Identifier: MIT
 * collect.h: packs what a project folder holds after a run, against the manifest it was given.
 * What counts is every path of that manifest and every other path git would not ignore, asked
 * through a git folder of our own: the checkout's own .git is neither read nor run. */
#ifndef CB_SUPERVISE_COLLECT_H
#define CB_SUPERVISE_COLLECT_H
#include <stdint.h>
#include "base/buf.h"
#include "base/err.h"

struct cb_sup_collect {
  const char *project, *run_dir, *out;
  uint64_t max_bytes; /* of all contents together */
};

/* Writes a result pack to `out` (whole or not at all) and appends the report, records:
 * crewbox_collect=1, count, changed (added or different), deleted, bytes (of all contents), digest
 * (of the manifest), base_digest, pack (sum of the pack), skipped* (REASON SP PATH), skipped_more
 * (how many were not listed), note (without git: only the paths of the manifest were looked at).
 * Reasons: nested_repo, special, leaves_project, unreadable, changed, path, git. A path of the
 * manifest that is skipped keeps its entry, so that nobody deletes a file for it.
 * CB_TOO_LARGE names the ten largest paths. */
int cb_sup_collect(const struct cb_sup_collect *what, struct cb_buf *report, struct cb_err *err);
#endif
