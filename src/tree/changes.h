/* SPDX-License-Identifier: MIT
 * changes.h: what differs between two manifests. Used inside src/tree only. */
#ifndef CB_TREE_CHANGES_H
#define CB_TREE_CHANGES_H
#include <stdbool.h>
#include "base/err.h"
#include "wire/manifest.h"

struct cb_tree_change {
  const struct cb_manifest_entry *base;   /* NULL: added */
  const struct cb_manifest_entry *result; /* NULL: deleted */
  bool have_base, have_result;            /* for the user: contents that were seen */
};

/* In order of paths. Entries point into the manifests. */
struct cb_tree_changes {
  struct cb_tree_change *list;
  size_t count;
};

int cb_tree_changes_find(struct cb_tree_changes *c, const struct cb_manifest *base,
                         const struct cb_manifest *result, struct cb_err *err);
void cb_tree_changes_clear(struct cb_tree_changes *c);

/* The change an entry (of either manifest) belongs to, NULL: it did not change. Asked in order of
 * paths; *at starts at 0 and is kept between calls. */
struct cb_tree_change *cb_tree_change_of(struct cb_tree_changes *c, size_t *at,
                                         const struct cb_manifest_entry *e);

const struct cb_manifest_entry *cb_tree_change_entry(const struct cb_tree_change *c);
/* "added", "modified", "deleted", "mode" or "type". */
const char *cb_tree_change_name(const struct cb_tree_change *c);
#endif
