/* SPDX-License-Identifier: MIT
 * base_commit.h: a repository of one commit around a tree, so that an agent's own git shows it
 * what it changed. No history is sent; the commit is the same for the same tree. */
#ifndef CB_SUPERVISE_BASE_COMMIT_H
#define CB_SUPERVISE_BASE_COMMIT_H
#include "base/err.h"
#include "wire/manifest.h"

enum { CB_SUP_COMMIT_ID = 72, CB_SUP_NOTE = 96 };

/* project is the open folder of path. Fills commit with the id, or leaves it empty and fills note
 * with why there is none: no git, or a .git that is not ours to touch. A failing git is an error
 * and leaves no .git. */
int cb_sup_base_commit(const char *path, int project, const struct cb_manifest *tree,
                       char commit[CB_SUP_COMMIT_ID], char note[CB_SUP_NOTE], struct cb_err *err);
#endif
