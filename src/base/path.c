/* SPDX-License-Identifier: MIT */
#include "base/path.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/rand.h"

bool cb_path_is_plain(const char *path, size_t n)
{
  if (n == 0 || n > CB_PATH_MAX_BYTES || memchr(path, '\0', n))
    return false;
  size_t start = 0;
  for (size_t i = 0; i <= n; i++) {
    if (i < n && path[i] != '/')
      continue;
    size_t len = i - start;
    const char *c = path + start;
    if (len == 0 || len > 255 || (len == 1 && c[0] == '.') ||
        (len == 2 && c[0] == '.' && c[1] == '.'))
      return false;
    start = i + 1;
  }
  return true;
}

/* The slow way, for kernels and filters without openat2: one component at a time. */
static int open_by_steps(int dir, const char *path, int flags, mode_t mode)
{
  int at = dir;
  char part[256];
  for (;;) {
    const char *slash = strchr(path, '/');
    size_t len = slash ? (size_t)(slash - path) : strlen(path);
    memcpy(part, path, len);
    part[len] = '\0';
    int fd = slash ? openat(at, part, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
                   : openat(at, part, flags | O_NOFOLLOW | O_CLOEXEC, mode);
    int sys = errno;
    struct stat st;
    /* O_DIRECTORY calls a link no directory and O_PATH opens it: told as openat2 tells it. */
    if ((fd < 0 ? sys == ENOTDIR : (flags & O_PATH) && !slash) &&
        fstatat(at, part, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(st.st_mode)) {
      cb_close(&fd);
      sys = ELOOP;
    }
    if (at != dir)
      close(at);
    errno = sys;
    if (fd < 0 || !slash)
      return fd;
    at = fd;
    path = slash + 1;
  }
}

static int open_raw(int dir, const char *path, int flags, mode_t mode)
{
  struct open_how how = { .flags = (unsigned long long)(flags | O_CLOEXEC),
                          .mode = flags & (O_CREAT | __O_TMPFILE) ? mode : 0,
                          .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS |
                                     RESOLVE_NO_MAGICLINKS };
  for (int tries = 0; tries < 8; tries++) {
    long fd = syscall(SYS_openat2, dir, path, &how, sizeof how);
    if (fd >= 0)
      return (int)fd;
    if (errno != EAGAIN) /* EAGAIN: a rename raced with the walk */
      break;
  }
  if (errno == ENOSYS || errno == EPERM)
    return open_by_steps(dir, path, flags, mode);
  return -1;
}

static int refuse(int sys, const char *what, const char *path, struct cb_err *err)
{
  if (sys == ELOOP || sys == EXDEV)
    return cb_err_set(err, CB_DENIED, "%s %s: a link is in the way", what, path);
  return cb_err_errno(err, sys, "%s %s", what, path);
}

static int check_plain(const char *path, struct cb_err *err)
{
  if (cb_path_is_plain(path, strlen(path)))
    return CB_OK;
  return cb_err_set(err, CB_DENIED, "path %.200s: not a plain relative path", path);
}

int cb_open_beneath(int dir, const char *path, int flags, mode_t mode, int *out,
                    struct cb_err *err)
{
  int rc = check_plain(path, err);
  if (rc)
    return rc;
  int fd = open_raw(dir, path, flags, mode);
  if (fd < 0)
    return refuse(errno, "open", path, err);
  *out = fd;
  return CB_OK;
}

int cb_open_parent_beneath(int dir, const char *path, int *out, const char **base,
                           struct cb_err *err)
{
  char parent[CB_PATH_MAX_BYTES + 1];
  int rc = check_plain(path, err);
  if (rc)
    return rc;
  const char *slash = strrchr(path, '/');
  int fd;
  if (!slash) {
    *base = path;
    fd = fcntl(dir, F_DUPFD_CLOEXEC, 3);
  } else {
    *base = slash + 1;
    memcpy(parent, path, (size_t)(slash - path));
    parent[slash - path] = '\0';
    fd = open_raw(dir, parent, O_RDONLY | O_DIRECTORY, 0);
  }
  if (fd < 0)
    return refuse(errno, "open the folder of", path, err);
  *out = fd;
  return CB_OK;
}

int cb_stat_beneath(int dir, const char *path, struct stat *st, struct cb_err *err)
{
  int parent = -1;
  const char *base;
  int rc = cb_open_parent_beneath(dir, path, &parent, &base, err);
  if (rc)
    return rc;
  if (fstatat(parent, base, st, AT_SYMLINK_NOFOLLOW) < 0)
    rc = cb_err_errno(err, errno, "stat %s", path);
  cb_close(&parent);
  return rc;
}

int cb_readlink_beneath(int dir, const char *path, struct cb_buf *into, struct cb_err *err)
{
  int parent = -1;
  const char *base;
  char text[CB_PATH_MAX_BYTES + 1];
  int rc = cb_open_parent_beneath(dir, path, &parent, &base, err);
  if (rc)
    return rc;
  ssize_t n = readlinkat(parent, base, text, sizeof text);
  if (n < 0)
    rc = cb_err_errno(err, errno, "read the link %s", path);
  else if ((size_t)n >= sizeof text)
    rc = cb_err_set(err, CB_TOO_LARGE, "read the link %s: over %d bytes", path,
                    CB_PATH_MAX_BYTES);
  else if (cb_buf_add(into, text, (size_t)n))
    rc = cb_err_no_memory(err);
  cb_close(&parent);
  return rc;
}

int cb_mkdirs_beneath(int dir, const char *path, struct cb_err *err)
{
  int rc = check_plain(path, err);
  if (rc)
    return rc;
  int at = fcntl(dir, F_DUPFD_CLOEXEC, 3);
  if (at < 0)
    return cb_err_errno(err, errno, "dup");
  const char *rest = path;
  while (rc == CB_OK && rest) {
    char part[256];
    const char *slash = strchr(rest, '/');
    size_t len = slash ? (size_t)(slash - rest) : strlen(rest);
    memcpy(part, rest, len);
    part[len] = '\0';
    if (mkdirat(at, part, 0755) < 0 && errno != EEXIST) {
      rc = cb_err_errno(err, errno, "make the folder %s", path);
      break;
    }
    int next = openat(at, part, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (next < 0) {
      rc = errno == ENOTDIR || errno == ELOOP
               ? cb_err_set(err, CB_CONFLICT, "make the folder %s: %s is not a folder", path, part)
               : cb_err_errno(err, errno, "open the folder %s", path);
      break;
    }
    cb_close(&at);
    at = next;
    rest = slash ? slash + 1 : NULL;
  }
  cb_close(&at);
  return rc;
}

int cb_unlink_beneath(int dir, const char *path, struct cb_err *err)
{
  int parent = -1;
  const char *base;
  struct cb_err mine = CB_ERR_INIT;
  int rc = cb_open_parent_beneath(dir, path, &parent, &base, &mine);
  if (rc == CB_NOT_FOUND)
    return CB_OK;
  if (rc) {
    if (err)
      *err = mine;
    return rc;
  }
  if (unlinkat(parent, base, 0) < 0 && errno != ENOENT)
    rc = cb_err_errno(err, errno, "remove %s", path);
  cb_close(&parent);
  return rc;
}

static void note_first(struct cb_err *err, int *rc, int sys, const char *name)
{
  if (*rc == CB_OK)
    *rc = cb_err_errno(err, sys, "remove %s", name);
}

/* Depth is bounded by descriptors in the end; 512 levels are more than a real tree has. */
enum { RMTREE_DEPTH = 512 };

static void empty_dir(int fd, dev_t dev, int depth, int *rc, struct cb_err *err)
{
  if (depth > RMTREE_DEPTH) {
    note_first(err, rc, ELOOP, "a tree that is too deep");
    return;
  }
  int own = fcntl(fd, F_DUPFD_CLOEXEC, 3);
  DIR *d = own < 0 ? NULL : fdopendir(own);
  if (!d) {
    note_first(err, rc, errno, "a folder");
    cb_close(&own);
    return;
  }
  struct dirent *e;
  rewinddir(d);
  while ((e = readdir(d))) {
    struct stat st;
    if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
      continue;
    if (fstatat(fd, e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
      continue;
    if (!S_ISDIR(st.st_mode)) {
      if (unlinkat(fd, e->d_name, 0) < 0 && errno != ENOENT)
        note_first(err, rc, errno, e->d_name);
      continue;
    }
    if (st.st_dev != dev) {
      note_first(err, rc, EXDEV, e->d_name);
      continue;
    }
    if ((st.st_mode & 0700) != 0700) /* ours, without permission bits: open it up */
      (void)fchmodat(fd, e->d_name, 0700, 0);
    int sub = openat(fd, e->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (sub < 0) {
      note_first(err, rc, errno, e->d_name);
      continue;
    }
    empty_dir(sub, dev, depth + 1, rc, err);
    cb_close(&sub);
    if (unlinkat(fd, e->d_name, AT_REMOVEDIR) < 0 && errno != ENOENT)
      note_first(err, rc, errno, e->d_name);
  }
  closedir(d);
}

int cb_rmtree_beneath(int dir, const char *path, struct cb_err *err)
{
  int parent = -1, fd = -1, rc = CB_OK;
  const char *base;
  struct stat st;
  struct cb_err mine = CB_ERR_INIT;

  rc = cb_open_parent_beneath(dir, path, &parent, &base, &mine);
  if (rc == CB_NOT_FOUND)
    return CB_OK;
  if (rc) {
    if (err)
      *err = mine;
    return rc;
  }
  if (fstatat(parent, base, &st, AT_SYMLINK_NOFOLLOW) < 0) {
    if (errno != ENOENT)
      rc = cb_err_errno(err, errno, "stat %s", path);
    goto out;
  }
  if (!S_ISDIR(st.st_mode)) {
    if (unlinkat(parent, base, 0) < 0 && errno != ENOENT)
      rc = cb_err_errno(err, errno, "remove %s", path);
    goto out;
  }
  if ((st.st_mode & 0700) != 0700)
    (void)fchmodat(parent, base, 0700, 0);
  fd = openat(parent, base, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) {
    rc = cb_err_errno(err, errno, "open %s", path);
    goto out;
  }
  empty_dir(fd, st.st_dev, 0, &rc, err);
  if (unlinkat(parent, base, AT_REMOVEDIR) < 0 && errno != ENOENT)
    note_first(err, &rc, errno, path);
out:
  cb_close(&fd);
  cb_close(&parent);
  return rc;
}

int cb_write_file_beneath(int dir, const char *path, const void *p, size_t n, mode_t mode,
                          bool durable, struct cb_err *err)
{
  int parent = -1, fd = -1;
  const char *base;
  char temp[32] = ".tmp-";
  int rc = cb_open_parent_beneath(dir, path, &parent, &base, err);
  if (rc)
    return rc;
  cb_random_id(temp + 5, 16);
  fd = openat(parent, temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
  if (fd < 0) {
    rc = cb_err_errno(err, errno, "write %s", path);
    goto out;
  }
  rc = cb_write_full(fd, p, n, err);
  if (rc) {
    cb_err_wrap(err, "write %s", path);
  } else if (fchmod(fd, mode) < 0 || (durable && fsync(fd) < 0) ||
             renameat(parent, temp, parent, base) < 0 || (durable && fsync(parent) < 0)) {
    rc = cb_err_errno(err, errno, "write %s", path);
  }
  if (rc)
    unlinkat(parent, temp, 0);
out:
  cb_close(&fd);
  cb_close(&parent);
  return rc;
}

int cb_read_file_beneath(int dir, const char *path, struct cb_buf *into, struct cb_err *err)
{
  int fd = -1;
  struct stat st;
  /* O_NONBLOCK: a fifo planted under the name must not hang us; it is refused below. */
  int rc = cb_open_beneath(dir, path, O_RDONLY | O_NONBLOCK, 0, &fd, err);
  if (rc)
    return rc;
  if (fstat(fd, &st) < 0)
    rc = cb_err_errno(err, errno, "stat %s", path);
  else if (!S_ISREG(st.st_mode))
    rc = cb_err_set(err, CB_DENIED, "read %s: not a regular file", path);
  else
    rc = cb_buf_read_all(into, fd, err);
  cb_close(&fd);
  return rc;
}

int cb_mkdirs(const char *path, mode_t mode, struct cb_err *err)
{
  char part[CB_PATH_MAX_BYTES + 1];
  size_t n = strlen(path);
  if (n == 0 || n > CB_PATH_MAX_BYTES)
    return cb_err_set(err, CB_INVALID, "make a folder: path of %zu bytes", n);
  memcpy(part, path, n + 1);
  for (size_t i = 1; i <= n; i++) {
    if (part[i] != '/' && part[i] != '\0')
      continue;
    char keep = part[i];
    part[i] = '\0';
    if (mkdir(part, keep ? 0755 : mode) < 0 && errno != EEXIST)
      return cb_err_errno(err, errno, "make the folder %s", part);
    part[i] = keep;
  }
  return CB_OK;
}
