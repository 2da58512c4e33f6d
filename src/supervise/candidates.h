/* SPDX-License-Identifier: MIT
 * candidates.h: a set of paths, as bytes, in the order of a manifest. */
#ifndef CB_SUPERVISE_CANDIDATES_H
#define CB_SUPERVISE_CANDIDATES_H
#include <stddef.h>
#include "base/err.h"

enum { CB_SUP_CANDIDATES_MAX = 400000 };

struct cb_sup_candidates {
  char **paths; /* each owned */
  size_t count, cap;
};

/* Copies n bytes without a NUL among them. CB_TOO_LARGE beyond the maximum. */
int cb_sup_candidates_add(struct cb_sup_candidates *c, const char *path, size_t n,
                          struct cb_err *err);
/* Sorts and drops what comes twice. */
void cb_sup_candidates_sort(struct cb_sup_candidates *c);
const char *cb_sup_candidates_at(const struct cb_sup_candidates *c, size_t i);
void cb_sup_candidates_clear(struct cb_sup_candidates *c);
#endif
