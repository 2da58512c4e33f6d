/* SPDX-License-Identifier: MIT */
#include "net/host_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/path.h"
#include "base/rand.h"

/* Opens the folder of path; *base is its last component. */
static int open_folder(const char *path, int *dir, const char **base, struct cb_err *err)
{
  char folder[CB_PATH_MAX_BYTES + 1];
  const char *slash = strrchr(path, '/');
  size_t n = slash ? (size_t)(slash - path) : 0;
  *base = slash ? slash + 1 : path;
  if (n > CB_PATH_MAX_BYTES || !cb_path_is_plain(*base, strlen(*base)))
    return cb_err_set(err, CB_INVALID, "path %.200s: does not name a file", path);
  if (!slash) {
    strcpy(folder, ".");
  } else if (n == 0) {
    strcpy(folder, "/");
  } else {
    memcpy(folder, path, n);
    folder[n] = '\0';
  }
  *dir = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  return *dir < 0 ? cb_err_errno(err, errno, "open the folder %s", folder) : CB_OK;
}

/* O_NONBLOCK: a fifo under the name must not hang us; it is refused after the fstat. */
static int open_regular(const char *path, int *fd, struct stat *st, struct cb_err *err)
{
  *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (*fd < 0 || fstat(*fd, st) < 0)
    return cb_err_errno(err, errno, "read %s", path);
  if (!S_ISREG(st->st_mode))
    return cb_err_set(err, CB_INVALID, "read %s: not a regular file", path);
  return CB_OK;
}

int cb_host_read(const char *path, struct cb_buf *into, struct cb_err *err)
{
  int fd = -1;
  struct stat st;
  int rc = open_regular(path, &fd, &st, err);
  if (rc == CB_OK) {
    rc = cb_buf_read_all(into, fd, err);
    if (rc)
      cb_err_wrap(err, "%s", path);
  }
  cb_close(&fd);
  return rc;
}

int cb_host_write(const char *path, const void *p, size_t n, mode_t mode, bool durable,
                  struct cb_err *err)
{
  int dir = -1;
  const char *base;
  int rc = open_folder(path, &dir, &base, err);
  if (rc)
    return rc;
  rc = cb_write_file_beneath(dir, base, p, n, mode, durable, err);
  cb_close(&dir);
  return rc;
}

int cb_host_append(const char *path, const void *p, size_t n, struct cb_err *err)
{
  int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY, 0600);
  if (fd < 0)
    return cb_err_errno(err, errno, "append to %s", path);
  int rc = cb_write_full(fd, p, n, err);
  if (rc)
    cb_err_wrap(err, "append to %s", path);
  cb_close(&fd);
  return rc;
}

static int copy_bytes(int from, int to, const char *path, struct cb_err *err)
{
  ssize_t n;
  do
    n = sendfile(to, from, NULL, 1 << 30);
  while (n > 0 || (n < 0 && errno == EINTR));
  return n < 0 ? cb_err_errno(err, errno, "copy to %s", path) : CB_OK;
}

int cb_host_copy(const char *from, const char *to, mode_t mode, struct cb_err *err)
{
  int in = -1, out = -1, dir = -1;
  const char *base;
  char temp[32] = ".tmp-";
  struct stat st;
  int rc = open_regular(from, &in, &st, err);
  if (rc == CB_OK)
    rc = open_folder(to, &dir, &base, err);
  if (rc)
    goto out;
  if (mode == 0)
    mode = st.st_mode & 0777;
  cb_random_id(temp + 5, 16);
  out = openat(dir, temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
  if (out < 0) {
    rc = cb_err_errno(err, errno, "copy to %s", to);
    goto out;
  }
  rc = copy_bytes(in, out, to, err);
  if (rc == CB_OK && (fchmod(out, mode) < 0 || renameat(dir, temp, dir, base) < 0))
    rc = cb_err_errno(err, errno, "copy to %s", to);
  if (rc)
    unlinkat(dir, temp, 0);
out:
  cb_close(&out);
  cb_close(&dir);
  cb_close(&in);
  return rc;
}

int cb_host_unlink(const char *path, struct cb_err *err)
{
  if (unlink(path) < 0 && errno != ENOENT)
    return cb_err_errno(err, errno, "remove %s", path);
  return CB_OK;
}

int cb_host_rmtree(const char *path, struct cb_err *err)
{
  int dir = -1;
  const char *base;
  struct cb_err mine = CB_ERR_INIT;
  int rc = open_folder(path, &dir, &base, &mine);
  if (rc == CB_OK)
    rc = cb_rmtree_beneath(dir, base, &mine);
  else if (rc == CB_NOT_FOUND)
    return CB_OK;
  cb_close(&dir);
  if (rc && err)
    *err = mine;
  return rc;
}

int cb_host_free_bytes(const char *path, int64_t *out, struct cb_err *err)
{
  struct statvfs v;
  if (statvfs(path, &v) < 0)
    return cb_err_errno(err, errno, "free space of %s", path);
  *out = (int64_t)v.f_bavail * (int64_t)v.f_frsize;
  return CB_OK;
}

int cb_host_lock(const char *path, int *fd, struct cb_err *err)
{
  int f = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOCTTY, 0600);
  if (f < 0)
    return cb_err_errno(err, errno, "lock %s", path);
  if (flock(f, LOCK_EX | LOCK_NB) < 0) {
    int rc = errno == EWOULDBLOCK
                 ? cb_err_set(err, CB_BUSY, "lock %s: another process holds it", path)
                 : cb_err_errno(err, errno, "lock %s", path);
    cb_close(&f);
    return rc;
  }
  *fd = f;
  return CB_OK;
}
