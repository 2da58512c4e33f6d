/* SPDX-License-Identifier: MIT
 * apply_check.c: what tree-apply looks at before it changes anything, and again when it has. */
#include "supervise/apply_private.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/path.h"
#include "supervise/tree_file.h"
#include "wire/pack.h"

int cb_sup_apply_check_pack(struct cb_sup_apply_work *a, struct cb_err *err)
{
  struct cb_pack_reader r;
  size_t index, want = 0;
  int rc = cb_pack_open(&r, cb_sup_read_fd, &a->pack, &a->next, CB_TREE_MAX_FILES,
                        CB_TREE_MAX_BYTES, err);
  if (rc)
    return rc;
  for (;; want++) {
    rc = cb_pack_next(&r, &index, err);
    if (rc)
      return rc;
    if (index != want)
      break;
  }
  if (index != SIZE_MAX || want != a->next.count)
    return cb_err_set(err, CB_INVALID, "pack: no content for %.200s", a->next.entries[want].path);
  memcpy(a->pack_digest, r.digest, sizeof r.digest);
  for (size_t i = 0; i < a->next.count; i++) {
    if (cb_sup_path_has_git(a->next.entries[i].path))
      return cb_err_set(err, CB_DENIED, "pack: %.200s belongs to git, not to a tree",
                        a->next.entries[i].path);
  }
  return CB_OK;
}

static bool was_ours(const struct cb_sup_apply_work *a, const char *path)
{
  size_t n = strlen(path);
  return cb_manifest_find(&a->base, path, n) || cb_manifest_find(&a->journal, path, n);
}

/* Looks for anything below a folder that no apply put there. */
static int check_folder(const struct cb_sup_apply_work *a, int fd, const char *path, int depth,
                        struct cb_err *err)
{
  char below[CB_PATH_MAX_BYTES + 1];
  int rc = CB_OK, own = fcntl(fd, F_DUPFD_CLOEXEC, 3);
  DIR *d = own < 0 ? NULL : fdopendir(own);
  struct dirent *e;
  if (!d || depth > CB_SUP_TREE_DEPTH) {
    if (d)
      closedir(d);
    else
      cb_close(&own);
    return cb_err_set(err, CB_CONFLICT, "blocked: the folder %.200s cannot be looked into", path);
  }
  rewinddir(d);
  while (rc == CB_OK && (e = readdir(d))) {
    struct stat st;
    if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
      continue;
    int n = snprintf(below, sizeof below, "%s/%s", path, e->d_name);
    if (n < 0 || (size_t)n >= sizeof below ||
        fstatat(fd, e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
      rc = cb_err_set(err, CB_CONFLICT, "blocked: %.200s is in the way", path);
    } else if (S_ISDIR(st.st_mode)) {
      int sub = openat(fd, e->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
      rc = sub < 0 ? cb_err_errno(err, errno, "open %.200s", below)
                   : check_folder(a, sub, below, depth + 1, err);
      cb_close(&sub);
    } else if (!was_ours(a, below)) {
      rc = cb_err_set(err, CB_CONFLICT, "blocked: %.200s is in the way and not of the tree", below);
    }
  }
  closedir(d);
  return rc;
}

int cb_sup_apply_check(const struct cb_sup_apply_work *a, struct cb_err *err)
{
  for (size_t i = 0; i < a->next.count; i++) {
    const char *path = a->next.entries[i].path;
    struct cb_sup_file f;
    int fd = -1;
    int rc = cb_sup_file_look(a->project, path, &f, err);
    if (rc == CB_OK && f.kind == CB_SUP_FOLDER) {
      rc = cb_open_beneath(a->project, path, O_RDONLY | O_DIRECTORY, 0, &fd, err);
      if (rc == CB_OK)
        rc = check_folder(a, fd, path, 0, err);
      cb_close(&fd);
    }
    if (rc)
      return rc;
  }
  return CB_OK;
}

static int check_deleted(const struct cb_sup_apply_work *a, const struct cb_manifest *old,
                         struct cb_err *err)
{
  for (size_t i = 0; i < old->count; i++) {
    const struct cb_manifest_entry *e = &old->entries[i];
    struct cb_sup_file f;
    if (cb_manifest_find(&a->next, e->path, e->path_len))
      continue;
    int rc = cb_sup_file_look(a->project, e->path, &f, err);
    if (rc)
      return rc;
    if (f.kind == CB_SUP_FILE || f.kind == CB_SUP_SYMLINK || f.kind == CB_SUP_SPECIAL)
      return cb_err_set(err, CB_CORRUPT, "verify: %.200s is still there", e->path);
  }
  return CB_OK;
}

int cb_sup_apply_verify(const struct cb_sup_apply_work *a, char digest[CB_SHA256_HEX + 1],
                        struct cb_err *err)
{
  struct cb_manifest found = CB_MANIFEST_INIT;
  int rc = check_deleted(a, &a->base, err);
  if (rc == CB_OK)
    rc = check_deleted(a, &a->journal, err);
  for (size_t i = 0; rc == CB_OK && i < a->next.count; i++) {
    const struct cb_manifest_entry *e = &a->next.entries[i];
    struct cb_manifest_entry now = { .size = 0 };
    struct cb_sup_file f;
    rc = cb_sup_file_look(a->project, e->path, &f, err);
    if (rc == CB_OK)
      rc = cb_sup_file_read(a->project, e->path, &f, &now, NULL, NULL, err);
    if (rc == CB_OK && !cb_manifest_same(e, &now))
      rc = cb_err_set(err, CB_CORRUPT, "verify: %.200s is not what was written", e->path);
    if (rc == CB_OK)
      rc = cb_manifest_add(&found, now.mode, now.size, now.sha256, e->path, e->path_len, err);
  }
  if (rc == CB_OK)
    cb_manifest_digest(&found, digest);
  cb_manifest_clear(&found);
  return rc;
}
