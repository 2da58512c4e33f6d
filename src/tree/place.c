/* SPDX-License-Identifier: MIT */
#include "tree/place.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fd.h"
#include "base/path.h"
#include "base/rand.h"
#include "tree/walk.h"

enum { STAGED_NAME = 32 };

static const char *path_of(const struct cb_tree_target *t)
{
  return cb_tree_change_entry(t->change)->path;
}

/* One name a target in the private folder: its new content, and after the exchange its old. */
static const char *staged_name(size_t i, char out[STAGED_NAME])
{
  snprintf(out, STAGED_NAME, "%zu", i);
  return out;
}

static int fail(struct cb_err *err, int sys, const char *what, const char *path)
{
  char shown[CB_TREE_SHOWN + 1];
  return cb_err_errno(err, sys, "%s %s", what, cb_tree_show(path, shown));
}

static int moved_meanwhile(struct cb_err *err, const char *path)
{
  char shown[CB_TREE_SHOWN + 1];
  return cb_err_set(err, CB_CONFLICT, "%s changed while the changes were applied: try again",
                    cb_tree_show(path, shown));
}

/* ---- staging ------------------------------------------------------------------------------- */

int cb_tree_place_begin(struct cb_tree_place *p, struct cb_err *err)
{
  char id[13];
  struct stat st;
  p->staging = -1;
  cb_random_id(id, sizeof id - 1);
  snprintf(p->name, sizeof p->name, ".crewbox-apply-%s", id);
  if (mkdirat(p->root, p->name, 0700) < 0)
    return fail(err, errno, "write into the checkout: make", p->name);
  int rc = cb_open_beneath(p->root, p->name, O_RDONLY | O_DIRECTORY, 0, &p->staging, err);
  if (rc)
    return rc;
  /* The umask can only be read by setting it, which other threads would notice. */
  int probe = openat(p->staging, "mask", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0777);
  if (probe < 0 || fstat(probe, &st) < 0)
    rc = fail(err, errno, "write", p->name);
  else
    p->mask = ~st.st_mode & 0777;
  cb_close(&probe);
  unlinkat(p->staging, "mask", 0);
  return rc;
}

static int copy_sink(void *ctx, const void *bytes, size_t n, struct cb_err *err)
{
  return cb_write_full(*(const int *)ctx, bytes, n, err);
}

static int copy_current(struct cb_tree_place *p, size_t i, const char *name, struct cb_err *err)
{
  struct cb_tree_target *t = &p->targets[i];
  struct cb_manifest_entry e;
  int fd = openat(p->staging, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (fd < 0)
    return fail(err, errno, "write", path_of(t));
  int rc = cb_tree_read(p->root, path_of(t), &t->look, &e, copy_sink, &fd, err);
  if (rc == CB_OK && strcmp(e.sha256, t->change->result->sha256) != 0)
    rc = moved_meanwhile(err, path_of(t));
  cb_close(&fd);
  return rc;
}

/* The folder that holds path, or the nearest one above it that is there. */
static int nearest_folder(int root, const char *path, struct stat *st, struct cb_err *err)
{
  char folder[CB_PATH_MAX_BYTES + 1];
  snprintf(folder, sizeof folder, "%s", path);
  for (char *slash = strrchr(folder, '/'); slash; slash = strrchr(folder, '/')) {
    struct cb_tree_look look;
    *slash = '\0';
    int rc = cb_tree_look(root, folder, &look, err);
    if (rc)
      return rc;
    if (look.kind == CB_TREE_KIND_FOLDER) {
      *st = look.st;
      return CB_OK;
    }
  }
  return fstat(root, st) < 0 ? cb_err_errno(err, errno, "stat the checkout") : CB_OK;
}

/* Owner as the folder's (root may apply to somebody's checkout), mode as before or as new files
 * get it, executable as the result says. */
static int dress(struct cb_tree_place *p, size_t i, const char *name, struct cb_err *err)
{
  struct cb_tree_target *t = &p->targets[i];
  struct stat folder;
  int rc = nearest_folder(p->root, path_of(t), &folder, err);
  if (rc)
    return rc;
  if (geteuid() == 0 &&
      fchownat(p->staging, name, folder.st_uid, folder.st_gid, AT_SYMLINK_NOFOLLOW) < 0)
    return fail(err, errno, "change the owner of", path_of(t));
  if (t->change->result->mode == CB_TREE_LINK)
    return CB_OK;
  bool program = t->change->result->mode == CB_TREE_PROGRAM;
  mode_t mode = (program ? 0777 : 0666) & ~p->mask;
  if (t->action == CB_TREE_REPLACE && t->look.kind == CB_TREE_KIND_FILE) {
    mode_t was = t->look.st.st_mode & 0777;
    if (program && !(was & S_IXUSR))
      mode = was | ((was & 0444) >> 2);
    else
      mode = program ? was : was & ~(mode_t)0111;
  }
  return fchmodat(p->staging, name, mode, 0) < 0 ? fail(err, errno, "change the mode of", path_of(t))
                                                 : CB_OK;
}

int cb_tree_place_stage(struct cb_tree_place *p, size_t i, struct cb_pack_reader *r,
                        struct cb_err *err)
{
  char name[STAGED_NAME];
  staged_name(i, name);
  int rc = cb_tree_stopped(p->stop, err);
  if (rc == CB_OK && r)
    rc = cb_tree_put(p->staging, name, p->targets[i].change->result, r, err);
  else if (rc == CB_OK)
    rc = copy_current(p, i, name, err);
  if (rc == CB_OK)
    rc = dress(p, i, name, err);
  p->targets[i].staged = rc == CB_OK;
  return rc;
}

/* ---- folders ------------------------------------------------------------------------------- */

static int note_folder(struct cb_tree_place *p, const char *path, struct cb_err *err)
{
  char *copy = cb_strdup(path);
  char **more = copy ? cb_realloc(p->folders, (p->folder_count + 1) * sizeof *more) : NULL;
  if (!more) {
    cb_free(copy);
    return cb_err_no_memory(err);
  }
  p->folders = more;
  p->folders[p->folder_count++] = copy;
  return CB_OK;
}

/* Makes one folder below an open one, owned like that one. */
static int make_folder(int parent, const char *base, struct cb_err *err)
{
  struct stat st;
  if (mkdirat(parent, base, 0777) < 0)
    return cb_err_errno(err, errno, "make the folder %s", base);
  if (geteuid() == 0 && (fstat(parent, &st) < 0 ||
                         fchownat(parent, base, st.st_uid, st.st_gid, AT_SYMLINK_NOFOLLOW) < 0))
    return cb_err_errno(err, errno, "change the owner of the folder %s", base);
  return CB_OK;
}

static int make_folders(struct cb_tree_place *p, const char *path, struct cb_err *err)
{
  char folder[CB_PATH_MAX_BYTES + 1];
  int rc = CB_OK;
  snprintf(folder, sizeof folder, "%s", path);
  for (char *slash = strchr(folder, '/'); rc == CB_OK && slash; slash = strchr(slash + 1, '/')) {
    struct cb_tree_look look;
    *slash = '\0';
    rc = cb_tree_look(p->root, folder, &look, err);
    if (rc == CB_OK && look.kind == CB_TREE_KIND_ABSENT) {
      int parent = -1;
      const char *base;
      rc = note_folder(p, folder, err);
      if (rc == CB_OK)
        rc = cb_open_parent_beneath(p->root, folder, &parent, &base, err);
      if (rc == CB_OK)
        rc = make_folder(parent, base, err);
      cb_close(&parent);
    } else if (rc == CB_OK && look.kind != CB_TREE_KIND_FOLDER) {
      rc = moved_meanwhile(err, folder);
    }
    *slash = '/';
  }
  return rc;
}

/* Removes path and the folders above it as far as they are empty. */
static void drop_empty_above(int root, const char *path)
{
  char folder[CB_PATH_MAX_BYTES + 1];
  snprintf(folder, sizeof folder, "%s", path);
  for (char *slash = strrchr(folder, '/'); slash; slash = strrchr(folder, '/')) {
    int parent = -1;
    const char *base;
    *slash = '\0';
    int rc = cb_open_parent_beneath(root, folder, &parent, &base, NULL);
    if (rc == CB_OK && unlinkat(parent, base, AT_REMOVEDIR) < 0)
      rc = CB_SYSTEM;
    cb_close(&parent);
    if (rc)
      return;
  }
}

/* ---- moving -------------------------------------------------------------------------------- */

/* Puts two names in each other's place; where the kernel or the file system cannot, in two
 * steps. */
static int exchange(int dir_a, const char *a, int dir_b, const char *b)
{
  char aside[STAGED_NAME + 8];
  if (renameat2(dir_a, a, dir_b, b, RENAME_EXCHANGE) == 0)
    return 0;
  if (errno != EINVAL && errno != ENOSYS)
    return -1;
  snprintf(aside, sizeof aside, "%.*s.old", STAGED_NAME, a);
  if (renameat(dir_b, b, dir_a, aside) < 0)
    return -1;
  if (renameat(dir_a, a, dir_b, b) < 0 || renameat(dir_a, aside, dir_a, a) < 0) {
    int sys = errno;
    (void)renameat(dir_a, aside, dir_b, b);
    errno = sys;
    return -1;
  }
  return 0;
}

/* Moves to a name that must be free. */
static int move_to_free(int from_dir, const char *from, int to_dir, const char *to)
{
  struct stat st;
  if (renameat2(from_dir, from, to_dir, to, RENAME_NOREPLACE) == 0)
    return 0;
  if (errno != EINVAL && errno != ENOSYS)
    return -1;
  if (fstatat(to_dir, to, &st, AT_SYMLINK_NOFOLLOW) == 0) {
    errno = EEXIST;
    return -1;
  }
  return renameat(from_dir, from, to_dir, to);
}

static int move_one(struct cb_tree_place *p, size_t i, struct cb_err *err)
{
  struct cb_tree_target *t = &p->targets[i];
  const char *path = path_of(t), *base;
  char name[STAGED_NAME];
  struct stat st;
  int parent = -1, moved = -1;

  staged_name(i, name);
  int rc = cb_open_parent_beneath(p->root, path, &parent, &base, err);
  if (rc)
    return rc;
  if (t->action != CB_TREE_CREATE &&
      (fstatat(parent, base, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
       !cb_tree_unchanged(&st, &t->look.st))) {
    rc = moved_meanwhile(err, path);
    goto out;
  }
  if (t->action == CB_TREE_DELETE)
    moved = renameat(parent, base, p->staging, name);
  else if (t->action == CB_TREE_REPLACE)
    moved = exchange(p->staging, name, parent, base);
  else
    moved = move_to_free(p->staging, name, parent, base);
  if (moved < 0) {
    rc = errno == EEXIST ? moved_meanwhile(err, path) : fail(err, errno, "write", path);
    goto out;
  }
  t->done = true;
  /* What was taken away must be what was looked at a moment ago. */
  if (t->action != CB_TREE_CREATE &&
      (fstatat(p->staging, name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
       st.st_ino != t->look.st.st_ino || st.st_size != t->look.st.st_size ||
       st.st_mtim.tv_sec != t->look.st.st_mtim.tv_sec ||
       st.st_mtim.tv_nsec != t->look.st.st_mtim.tv_nsec))
    rc = moved_meanwhile(err, path);
out:
  cb_close(&parent);
  return rc;
}

static bool move_back(struct cb_tree_place *p, size_t i)
{
  struct cb_tree_target *t = &p->targets[i];
  const char *path = path_of(t), *base;
  char name[STAGED_NAME];
  int parent = -1, moved = -1;

  staged_name(i, name);
  if (t->action == CB_TREE_DELETE && make_folders(p, path, NULL))
    return false;
  if (cb_open_parent_beneath(p->root, path, &parent, &base, NULL))
    return false;
  if (t->action == CB_TREE_DELETE)
    moved = move_to_free(p->staging, name, parent, base);
  else if (t->action == CB_TREE_REPLACE)
    moved = exchange(p->staging, name, parent, base);
  else
    moved = renameat(parent, base, p->staging, name);
  cb_close(&parent);
  t->done = moved < 0;
  return moved == 0;
}

static void go_back(struct cb_tree_place *p)
{
  for (size_t i = p->count; i-- > 0;) {
    if (p->targets[i].done && p->targets[i].action != CB_TREE_DELETE)
      move_back(p, i);
  }
  for (size_t i = p->folder_count; i-- > 0;) {
    int parent = -1;
    const char *base;
    if (cb_open_parent_beneath(p->root, p->folders[i], &parent, &base, NULL) == CB_OK)
      (void)unlinkat(parent, base, AT_REMOVEDIR);
    cb_close(&parent);
  }
  for (size_t i = p->count; i-- > 0;) {
    if (p->targets[i].done && !move_back(p, i))
      p->stuck = true;
  }
}

/* A folder whose files are all deleted: what is left of it are empty folders. */
static int drop_folder(struct cb_tree_place *p, const char *path, struct cb_err *err)
{
  struct cb_tree_look look;
  int rc = cb_tree_look(p->root, path, &look, err);
  if (rc == CB_OK && look.kind == CB_TREE_KIND_FOLDER)
    rc = cb_tree_drop_empty(p->root, path, err);
  return rc;
}

int cb_tree_place_commit(struct cb_tree_place *p, struct cb_err *err)
{
  int rc = CB_OK;
  if (syncfs(p->staging) < 0)
    return cb_err_errno(err, errno, "write the changes to disk");
  for (size_t i = 0; rc == CB_OK && i < p->count; i++) {
    if (p->targets[i].action == CB_TREE_DELETE)
      rc = move_one(p, i, err);
  }
  for (size_t i = 0; rc == CB_OK && i < p->count; i++) {
    struct cb_tree_target *t = &p->targets[i];
    if (t->action != CB_TREE_CREATE && t->action != CB_TREE_REPLACE)
      continue;
    if (t->over_folder)
      rc = drop_folder(p, path_of(t), err);
    if (rc == CB_OK)
      rc = make_folders(p, path_of(t), err);
    if (rc == CB_OK)
      rc = move_one(p, i, err);
  }
  if (rc) {
    go_back(p);
    return rc;
  }
  for (size_t i = p->count; i-- > 0;) {
    if (p->targets[i].action == CB_TREE_DELETE)
      drop_empty_above(p->root, path_of(&p->targets[i]));
  }
  (void)syncfs(p->staging); /* all is in place: a failure here changes nothing about that */
  return CB_OK;
}

void cb_tree_place_end(struct cb_tree_place *p)
{
  cb_close(&p->staging);
  if (p->name[0] && !p->stuck)
    (void)cb_rmtree_beneath(p->root, p->name, NULL);
  for (size_t i = 0; i < p->folder_count; i++)
    cb_free(p->folders[i]);
  cb_free(p->folders);
  p->folders = NULL;
  p->folder_count = 0;
}
