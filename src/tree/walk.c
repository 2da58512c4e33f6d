/* SPDX-License-Identifier: MIT */
#include "tree/walk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/path.h"
#include "tree/file.h"

enum { DEPTH_MAX = 128 };

struct walk {
  cb_tree_each *fn; /* NULL: remove folders */
  void *ctx;
  bool stopped;
  struct cb_err *err;
  char path[CB_PATH_MAX_BYTES + 1];
};

static int walk_folder(struct walk *w, int fd, size_t len, int depth);

static int walk_entry(struct walk *w, int fd, const char *name, size_t len, int depth)
{
  struct stat st;
  size_t n = strlen(name);
  if (len + 1 + n > CB_PATH_MAX_BYTES || depth > DEPTH_MAX)
    return cb_err_set(w->err, CB_TOO_LARGE, "a path below %.200s is too long", w->path);
  w->path[len] = '/';
  memcpy(w->path + len + 1, name, n + 1);
  if (fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
    return errno == ENOENT ? CB_OK : cb_err_errno(w->err, errno, "stat %.200s", w->path);
  if (!S_ISDIR(st.st_mode)) {
    if (!w->fn)
      return cb_err_set(w->err, CB_CONFLICT, "%.200s is in the way", w->path);
    w->stopped = !w->fn(w->ctx, w->path);
    return CB_OK;
  }
  int sub = openat(fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (sub < 0)
    return cb_err_errno(w->err, errno, "open the folder %.200s", w->path);
  int rc = walk_folder(w, sub, len + 1 + n, depth + 1);
  cb_close(&sub);
  if (rc == CB_OK && !w->fn && unlinkat(fd, name, AT_REMOVEDIR) < 0)
    rc = cb_err_errno(w->err, errno, "remove the folder %.200s", w->path);
  return rc;
}

static int walk_folder(struct walk *w, int fd, size_t len, int depth)
{
  int own = fcntl(fd, F_DUPFD_CLOEXEC, 3), rc = CB_OK;
  DIR *d = own < 0 ? NULL : fdopendir(own);
  struct dirent *e;
  if (!d) {
    rc = cb_err_errno(w->err, errno, "open the folder %.200s", w->path);
    cb_close(&own);
    return rc;
  }
  while (rc == CB_OK && !w->stopped && (e = readdir(d))) {
    if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
      rc = walk_entry(w, fd, e->d_name, len, depth);
    w->path[len] = '\0';
  }
  closedir(d);
  return rc;
}

static int start(struct walk *w, int root, const char *path)
{
  int fd = -1;
  snprintf(w->path, sizeof w->path, "%s", path);
  int rc = cb_open_beneath(root, path, O_RDONLY | O_DIRECTORY, 0, &fd, w->err);
  if (rc == CB_OK)
    rc = walk_folder(w, fd, strlen(path), 0);
  cb_close(&fd);
  return rc;
}

int cb_tree_walk(int root, const char *path, cb_tree_each *fn, void *ctx, bool *all,
                 struct cb_err *err)
{
  struct walk w = { .fn = fn, .ctx = ctx, .err = err };
  int rc = start(&w, root, path);
  *all = !w.stopped;
  return rc;
}

int cb_tree_drop_empty(int root, const char *path, struct cb_err *err)
{
  struct walk w = { .err = err };
  int parent = -1;
  const char *base;
  int rc = start(&w, root, path);
  if (rc == CB_OK)
    rc = cb_open_parent_beneath(root, path, &parent, &base, err);
  if (rc == CB_OK && unlinkat(parent, base, AT_REMOVEDIR) < 0)
    rc = cb_err_errno(err, errno, "remove the folder %.200s", path);
  cb_close(&parent);
  return rc;
}
