/* SPDX-License-Identifier: MIT */
#include "supervise/candidates.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

int cb_sup_candidates_add(struct cb_sup_candidates *c, const char *path, size_t n,
                          struct cb_err *err)
{
  if (c->count == CB_SUP_CANDIDATES_MAX)
    return cb_err_set(err, CB_TOO_LARGE, "project: over %d paths: ignore what is built",
                      CB_SUP_CANDIDATES_MAX);
  if (c->count == c->cap) {
    size_t cap = c->cap ? c->cap * 2 : 256;
    char **paths = cb_realloc(c->paths, cap * sizeof *paths);
    if (!paths)
      return cb_err_no_memory(err);
    c->paths = paths;
    c->cap = cap;
  }
  c->paths[c->count] = cb_memdup(path, n);
  if (!c->paths[c->count])
    return cb_err_no_memory(err);
  c->count++;
  return CB_OK;
}

static int by_bytes(const void *a, const void *b)
{
  return strcmp(*(char *const *)a, *(char *const *)b); /* strcmp compares as unsigned bytes */
}

void cb_sup_candidates_sort(struct cb_sup_candidates *c)
{
  size_t kept = 0;
  if (c->count == 0)
    return;
  qsort(c->paths, c->count, sizeof *c->paths, by_bytes);
  for (size_t i = 1; i < c->count; i++) {
    if (strcmp(c->paths[i], c->paths[kept]) == 0)
      cb_free(c->paths[i]);
    else
      c->paths[++kept] = c->paths[i];
  }
  c->count = kept + 1;
}

const char *cb_sup_candidates_at(const struct cb_sup_candidates *c, size_t i)
{
  return c->paths[i];
}

void cb_sup_candidates_clear(struct cb_sup_candidates *c)
{
  for (size_t i = 0; i < c->count; i++)
    cb_free(c->paths[i]);
  cb_free(c->paths);
  c->paths = NULL;
  c->count = c->cap = 0;
}
