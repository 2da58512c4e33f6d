/* SPDX-License-Identifier: MIT */
#include "tree/changes.h"

#include <string.h>

#include "base/alloc.h"

int cb_tree_changes_find(struct cb_tree_changes *c, const struct cb_manifest *base,
                         const struct cb_manifest *result, struct cb_err *err)
{
  size_t i = 0, k = 0, most;
  c->count = 0;
  c->list = cb_size_add(base->count, result->count, &most) ? cb_calloc(most, sizeof *c->list)
                                                           : NULL;
  if (!c->list)
    return cb_err_no_memory(err);
  while (i < base->count || k < result->count) {
    const struct cb_manifest_entry *a = i < base->count ? &base->entries[i] : NULL;
    const struct cb_manifest_entry *b = k < result->count ? &result->entries[k] : NULL;
    int order = !a ? 1 : !b ? -1 : cb_path_order(a->path, a->path_len, b->path, b->path_len);
    i += order <= 0;
    k += order >= 0;
    if (order == 0 && cb_manifest_same(a, b))
      continue;
    c->list[c->count++] = (struct cb_tree_change){ .base = order <= 0 ? a : NULL,
                                                   .result = order >= 0 ? b : NULL };
  }
  return CB_OK;
}

void cb_tree_changes_clear(struct cb_tree_changes *c)
{
  cb_free(c->list);
  c->list = NULL;
  c->count = 0;
}

const struct cb_manifest_entry *cb_tree_change_entry(const struct cb_tree_change *c)
{
  return c->base ? c->base : c->result;
}

struct cb_tree_change *cb_tree_change_of(struct cb_tree_changes *c, size_t *at,
                                         const struct cb_manifest_entry *e)
{
  for (; *at < c->count; ++*at) {
    const struct cb_manifest_entry *have = cb_tree_change_entry(&c->list[*at]);
    int order = cb_path_order(have->path, have->path_len, e->path, e->path_len);
    if (order == 0)
      return &c->list[*at];
    if (order > 0)
      break;
  }
  return NULL;
}

const char *cb_tree_change_name(const struct cb_tree_change *c)
{
  if (!c->base)
    return "added";
  if (!c->result)
    return "deleted";
  if ((c->base->mode == CB_TREE_LINK) != (c->result->mode == CB_TREE_LINK))
    return "type";
  return strcmp(c->base->sha256, c->result->sha256) == 0 ? "mode" : "modified";
}
