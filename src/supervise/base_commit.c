/* SPDX-License-Identifier: MIT */
#include "supervise/base_commit.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/path.h"
#include "supervise/git.h"

/* The paths of the tree alone: what git would pick up by itself may hold a job's leavings. */
static int list_paths(const struct cb_manifest *tree, struct cb_buf *paths, struct cb_err *err)
{
  for (size_t i = 0; i < tree->count; i++) {
    if (cb_buf_add(paths, tree->entries[i].path, tree->entries[i].path_len + 1))
      return cb_err_no_memory(err);
  }
  return CB_OK;
}

static int commit_tree(const struct cb_sup_git *plain, const struct cb_sup_git *g,
                       const struct cb_manifest *tree, struct cb_buf *id, struct cb_err *err)
{
  static const char *const init[] = { "init", "-q", "-b", "main", "--template=", ".", NULL };
  static const char *const add[] = { "update-index", "--add", "-z", "--stdin", NULL };
  static const char *const commit[] = { "commit", "-q", "--no-verify", "--allow-empty", "-m",
                                        "The tree as it was sent", NULL };
  static const char *const head[] = { "rev-parse", "HEAD", NULL };
  struct cb_buf paths;
  cb_buf_init(&paths, CB_MANIFEST_MAX_BYTES);
  int rc = list_paths(tree, &paths, err);
  if (!rc)
    rc = cb_sup_git_run(plain, init, NULL, 0, NULL, err);
  if (!rc)
    rc = cb_sup_git_run(g, add, paths.p, paths.len, NULL, err);
  if (!rc)
    rc = cb_sup_git_run(g, commit, NULL, 0, NULL, err);
  if (!rc)
    rc = cb_sup_git_run(g, head, NULL, 0, id, err);
  cb_buf_clear(&paths);
  return rc;
}

int cb_sup_base_commit(const char *path, int project, const struct cb_manifest *tree,
                       char commit[CB_SUP_COMMIT_ID], char note[CB_SUP_NOTE], struct cb_err *err)
{
  char real[PATH_MAX], git_dir[PATH_MAX + 8];
  struct cb_buf id;
  struct stat st;

  if (fstatat(project, ".git", &st, AT_SYMLINK_NOFOLLOW) == 0) {
    snprintf(note, CB_SUP_NOTE, "no base commit: there is a .git already");
    return CB_OK;
  }
  if (!realpath(path, real) || fstat(project, &st) < 0)
    return cb_err_errno(err, errno, "resolve %s", path);
  snprintf(git_dir, sizeof git_dir, "%s/.git", real);
  struct cb_sup_git plain = { real, NULL, st.st_uid, st.st_gid };
  struct cb_sup_git g = { real, git_dir, st.st_uid, st.st_gid };
  cb_buf_init(&id, CB_SUP_COMMIT_ID - 1);
  int rc = commit_tree(&plain, &g, tree, &id, err);
  if (rc == CB_OK && id.len > 0)
    snprintf(commit, CB_SUP_COMMIT_ID, "%.*s", (int)strcspn(id.p, "\n"), id.p);
  if (rc)
    cb_rmtree_beneath(project, ".git", NULL);
  if (rc == CB_UNSUPPORTED) {
    snprintf(note, CB_SUP_NOTE, "no base commit: git is not installed here");
    rc = CB_OK;
  }
  cb_buf_clear(&id);
  return rc;
}
