/* SPDX-License-Identifier: MIT
 * never.h: which paths are never part of a tree, by their names alone. Pure.
 *
 * What git keeps for itself, files that hold credentials by custom, folders of tools that keep
 * them. Compared without regard to case, on every component. Leaving out .npmrc and its kind
 * breaks private installs: the excluded list says so, and such values belong into --env. */
#ifndef CB_TREE_NEVER_H
#define CB_TREE_NEVER_H
#include <stdbool.h>
#include <stddef.h>

/* Why the path may not travel, for people ("never uploaded: .env"); NULL when it may. */
const char *cb_tree_never(const char *path, size_t len);

/* True when a component is .git in any spelling some file system takes for it: any case, 8.3
 * names, trailing dots and blanks, characters that are ignored. */
bool cb_tree_names_git(const char *path, size_t len);

/* True when `text` matches a shell pattern that somebody added, as a whole path or in one of
 * its components, without regard to case. */
bool cb_tree_matches(const char *pattern, const char *path);
#endif
