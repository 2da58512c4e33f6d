/* SPDX-License-Identifier: MIT
 * apply_write.c: how tree-apply changes a project folder: by descriptor, never through a link,
 * each file whole or not at all. */
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
#include "base/rand.h"
#include "supervise/tree_file.h"
#include "wire/pack.h"

enum { COPY_BYTES = 64 << 10 };

/* ---- deletions ------------------------------------------------------------------------------ */

/* Removes the folders above path that are empty now, never the project itself. */
static void prune(int project, const char *path)
{
  char folder[CB_PATH_MAX_BYTES + 1];
  strcpy(folder, path); /* a plain path fits */
  for (char *slash; (slash = strrchr(folder, '/'));) {
    const char *base;
    int parent = -1;
    *slash = '\0';
    if (cb_open_parent_beneath(project, folder, &parent, &base, NULL))
      return;
    int gone = unlinkat(parent, base, AT_REMOVEDIR);
    cb_close(&parent);
    if (gone < 0)
      return;
  }
}

int cb_sup_apply_delete(struct cb_sup_apply_work *a, const struct cb_manifest *old,
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
    if (f.kind != CB_SUP_FILE && f.kind != CB_SUP_SYMLINK && f.kind != CB_SUP_SPECIAL)
      continue; /* gone, or a job has put something else there */
    rc = cb_unlink_beneath(a->project, e->path, err);
    if (rc)
      return rc;
    a->deleted++;
    prune(a->project, e->path);
  }
  return CB_OK;
}

/* ---- writing -------------------------------------------------------------------------------- */

static void give(const struct cb_sup_apply_work *a, int dir, const char *name)
{
  if (a->own && fchownat(dir, name, a->uid, a->gid, AT_SYMLINK_NOFOLLOW) < 0)
    return; /* a user this namespace does not know: the file is his anyway */
}

/* Opens a folder for writing in it, opened up when a job has taken its permissions away. */
static int open_folder(int at, const char *name)
{
  const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
  int fd = openat(at, name, flags);
  if (fd < 0 && errno == EACCES && fchmodat(at, name, 0755, 0) == 0)
    fd = openat(at, name, flags);
  return fd;
}

/* The folder of path with every missing one made; what is no folder, a planted link before all,
 * gives way to one. *base points into path. */
static int make_parents(struct cb_sup_apply_work *a, const char *path, int *out, const char **base,
                        struct cb_err *err)
{
  char part[256];
  int at = fcntl(a->project, F_DUPFD_CLOEXEC, 3);
  const char *slash;
  if (at < 0)
    return cb_err_errno(err, errno, "dup");
  for (; (slash = strchr(path, '/')); path = slash + 1) {
    memcpy(part, path, (size_t)(slash - path));
    part[slash - path] = '\0';
    int next = open_folder(at, part);
    if (next < 0 && (errno == ENOTDIR || errno == ELOOP) && unlinkat(at, part, 0) == 0)
      errno = ENOENT;
    if (next < 0 && errno == ENOENT) {
      if (mkdirat(at, part, 0755) == 0)
        give(a, at, part);
      next = open_folder(at, part);
    }
    int sys = errno;
    cb_close(&at);
    if (next < 0)
      return cb_err_errno(err, sys, "make the folder %.200s", part);
    at = next;
  }
  *out = at;
  *base = path;
  return CB_OK;
}

/* Removes folders that hold nothing but folders. */
static int remove_hollow(int at, const char *name, int depth)
{
  if (unlinkat(at, name, AT_REMOVEDIR) == 0)
    return 0;
  int fd = depth > CB_SUP_TREE_DEPTH ? -1 : open_folder(at, name);
  int own = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 3);
  DIR *d = own < 0 ? NULL : fdopendir(own);
  struct dirent *e;
  int rc = d ? 0 : -1;
  if (!d)
    cb_close(&own);
  while (rc == 0 && (e = readdir(d))) {
    if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
      rc = remove_hollow(fd, e->d_name, depth + 1);
  }
  if (d)
    closedir(d);
  cb_close(&fd);
  return rc < 0 ? rc : unlinkat(at, name, AT_REMOVEDIR);
}

static int write_link(struct cb_pack_reader *r, int dir, const char *temp, struct cb_err *err)
{
  char text[CB_PATH_MAX_BYTES + 1];
  size_t len = 0, n;
  do {
    int rc = cb_pack_read(r, text + len, sizeof text - len, &n, err);
    if (rc)
      return rc;
    len += n;
  } while (n > 0 && len < sizeof text);
  if (len == 0 || len >= sizeof text || memchr(text, '\0', len))
    return cb_err_set(err, CB_INVALID, "pack: the text of a link that cannot be one");
  text[len] = '\0';
  return symlinkat(text, dir, temp) < 0 ? cb_err_errno(err, errno, "make a link") : CB_OK;
}

static int write_file(struct cb_pack_reader *r, int dir, const char *temp, mode_t mode,
                      struct cb_err *err)
{
  char bytes[COPY_BYTES];
  size_t n = 0;
  int fd = openat(dir, temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  int rc = fd < 0 ? cb_err_errno(err, errno, "make a file") : CB_OK;
  while (rc == CB_OK) {
    rc = cb_pack_read(r, bytes, sizeof bytes, &n, err);
    if (rc || n == 0)
      break;
    rc = cb_write_full(fd, bytes, n, err);
  }
  if (rc == CB_OK && fchmod(fd, mode) < 0)
    rc = cb_err_errno(err, errno, "chmod");
  cb_close(&fd);
  return rc;
}

/* Replaces what is at the entry's path by the content the reader stands at. */
static int write_entry(struct cb_sup_apply_work *a, struct cb_pack_reader *r,
                       const struct cb_manifest_entry *e, const struct cb_sup_file *was,
                       struct cb_err *err)
{
  char temp[32] = ".crewbox-";
  const char *base = NULL;
  int dir = -1;
  int rc = make_parents(a, e->path, &dir, &base, err);
  if (rc)
    return rc;
  cb_random_id(temp + 9, 16);
  rc = e->mode == CB_TREE_LINK ? write_link(r, dir, temp, err)
                               : write_file(r, dir, temp, e->mode & 0777, err);
  if (rc == CB_OK) {
    give(a, dir, temp);
    if (was->kind == CB_SUP_FOLDER && remove_hollow(dir, base, 0) < 0)
      rc = cb_err_errno(err, errno, "blocked: a folder is in the way");
    else if (renameat(dir, temp, dir, base) < 0)
      rc = cb_err_errno(err, errno, "put it in place");
  }
  if (rc) {
    unlinkat(dir, temp, 0);
    cb_err_wrap(err, "write %.200s", e->path);
  } else {
    a->written++;
  }
  cb_close(&dir);
  return rc;
}

/* True when the disk already has what the entry says. Only the mode is put right in place, and
 * only for a file that has no other name: the other one need not be in the project. */
static bool is_right(struct cb_sup_apply_work *a, const struct cb_manifest_entry *e,
                     const struct cb_sup_file *was)
{
  struct cb_manifest_entry now = { .mode = e->mode };
  int fd = -1;
  bool link = e->mode == CB_TREE_LINK;
  if (was->kind != (link ? CB_SUP_SYMLINK : CB_SUP_FILE) ||
      (uint64_t)was->st.st_size != e->size ||
      cb_sup_file_read(a->project, e->path, was, &now, NULL, NULL, NULL) ||
      strcmp(now.sha256, e->sha256) != 0)
    return false;
  if (link || (was->st.st_mode & 07777) == (e->mode & 0777))
    return true;
  if (was->st.st_nlink != 1 ||
      cb_open_beneath(a->project, e->path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0, &fd, NULL))
    return false;
  bool done = fchmod(fd, e->mode & 0777) == 0;
  cb_close(&fd);
  return done;
}

int cb_sup_apply_write(struct cb_sup_apply_work *a, struct cb_err *err)
{
  struct cb_pack_reader r;
  struct cb_manifest again = CB_MANIFEST_INIT;
  size_t index;
  int rc = CB_OK;
  if (lseek(a->pack, 0, SEEK_SET) < 0)
    return cb_err_errno(err, errno, "rewind the pack");
  rc = cb_pack_open(&r, cb_sup_read_fd, &a->pack, &again, CB_TREE_MAX_FILES, CB_TREE_MAX_BYTES,
                    err);
  while (rc == CB_OK) {
    struct cb_sup_file was;
    rc = cb_pack_next(&r, &index, err);
    if (rc || index == SIZE_MAX)
      break;
    if (index >= a->next.count || strcmp(again.entries[index].path, a->next.entries[index].path) != 0) {
      rc = cb_err_set(err, CB_CONFLICT, "pack: it changed while it was applied");
      break;
    }
    const struct cb_manifest_entry *e = &a->next.entries[index];
    rc = cb_sup_file_look(a->project, e->path, &was, err);
    if (rc == CB_OK && is_right(a, e, &was))
      a->unchanged++;
    else if (rc == CB_OK)
      rc = write_entry(a, &r, e, &was, err);
  }
  if (rc == CB_OK && strcmp(r.digest, a->pack_digest) != 0)
    rc = cb_err_set(err, CB_CONFLICT, "pack: it changed while it was applied");
  cb_manifest_clear(&again);
  return rc;
}
