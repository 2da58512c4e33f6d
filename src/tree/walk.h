/* SPDX-License-Identifier: MIT
 * walk.h: what lies below a folder of a checkout. Used inside src/tree only. */
#ifndef CB_TREE_WALK_H
#define CB_TREE_WALK_H
#include <stdbool.h>
#include "base/err.h"

/* Calls fn with the path (from root) of everything below `path` that is no folder, until it says
 * false. *all: whether it never did. */
typedef bool cb_tree_each(void *ctx, const char *path);
int cb_tree_walk(int root, const char *path, cb_tree_each *fn, void *ctx, bool *all,
                 struct cb_err *err);

/* Removes the folder and the folders in it. CB_CONFLICT when there is anything else in it;
 * empty folders may be gone by then. */
int cb_tree_drop_empty(int root, const char *path, struct cb_err *err);
#endif
