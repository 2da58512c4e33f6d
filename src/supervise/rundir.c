/* SPDX-License-Identifier: MIT */
#include "supervise/rundir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/path.h"

int cb_sup_dir_open(struct cb_sup_dir *d, const char *path, struct cb_err *err)
{
  d->fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (d->fd < 0)
    return cb_err_errno(err, errno, "open the folder %s", path);
  return CB_OK;
}

void cb_sup_dir_follow_owner(struct cb_sup_dir *d)
{
  struct stat st;
  if (geteuid() == 0 && fstat(d->fd, &st) == 0 && st.st_uid != 0) {
    d->give = true;
    d->uid = st.st_uid;
    d->gid = st.st_gid;
  }
}

void cb_sup_dir_close(struct cb_sup_dir *d)
{
  cb_close(&d->lock);
  cb_close(&d->fd);
}

void cb_sup_dir_give(const struct cb_sup_dir *d, int fd)
{
  if (d->give && fchown(fd, d->uid, d->gid) < 0)
    return; /* see the header */
}

void cb_sup_dir_remove(const struct cb_sup_dir *d, const char *name)
{
  cb_rmtree_beneath(d->fd, name, NULL);
}

bool cb_sup_dir_has(const struct cb_sup_dir *d, const char *name)
{
  struct stat st;
  return fstatat(d->fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

int cb_sup_dir_create(const struct cb_sup_dir *d, const char *name, int *fd, struct cb_err *err)
{
  const int flags = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
  *fd = openat(d->fd, name, flags, 0600);
  if (*fd < 0 && errno == EEXIST) {
    cb_sup_dir_remove(d, name);
    *fd = openat(d->fd, name, flags, 0600);
  }
  if (*fd < 0)
    return cb_err_errno(err, errno, "make %s", name);
  cb_sup_dir_give(d, *fd);
  return CB_OK;
}

int cb_sup_dir_put(const struct cb_sup_dir *d, const char *name, const void *p, size_t n,
                   bool durable, struct cb_err *err)
{
  char temp[64];
  int fd = -1;
  snprintf(temp, sizeof temp, ".new-%s", name);
  int rc = cb_sup_dir_create(d, temp, &fd, err);
  if (rc)
    return rc;
  rc = cb_write_full(fd, p, n, err);
  if (rc)
    cb_err_wrap(err, "write %s", name);
  else if (durable && fsync(fd) < 0)
    rc = cb_err_errno(err, errno, "write %s", name);
  if (rc == CB_OK && renameat(d->fd, temp, d->fd, name) < 0) {
    if (errno == EISDIR || errno == ENOTEMPTY || errno == EEXIST)
      cb_sup_dir_remove(d, name); /* a folder planted under our name */
    if (renameat(d->fd, temp, d->fd, name) < 0)
      rc = cb_err_errno(err, errno, "write %s", name);
  }
  if (rc == CB_OK && durable)
    fsync(d->fd);
  if (rc)
    unlinkat(d->fd, temp, 0);
  cb_close(&fd);
  return rc;
}

int cb_sup_dir_swap(const struct cb_sup_dir *d, const char *name, const char *spare, const void *p,
                    size_t n, bool durable, struct cb_err *err)
{
  struct stat st;
  int fd = openat(d->fd, spare, O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0)
    return cb_err_errno(err, errno, "open %s", spare);
  int rc = CB_OK;
  if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_nlink != 1)
    rc = cb_err_set(err, CB_DENIED, "%s: not a file of ours", spare);
  else if (pwrite(fd, p, n, 0) != (ssize_t)n || ftruncate(fd, (off_t)n) < 0 ||
           (durable && fsync(fd) < 0))
    rc = cb_err_errno(err, errno, "write %s", name);
  /* Where names cannot change places the spare is used up. */
  else if (renameat2(d->fd, spare, d->fd, name, RENAME_EXCHANGE) < 0 &&
           renameat(d->fd, spare, d->fd, name) < 0)
    rc = cb_err_errno(err, errno, "write %s", name);
  cb_close(&fd);
  return rc;
}

int cb_sup_dir_lock(struct cb_sup_dir *d, int64_t launch_seq, bool *first, struct cb_err *err)
{
  char text[32];
  int fd = openat(d->fd, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
  if (fd < 0)
    return cb_err_errno(err, errno, "open the lock of the run");
  int rc = CB_OK;
  if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
    rc = errno == EWOULDBLOCK
             ? cb_err_set(err, CB_BUSY, "launch %" PRId64 ": a supervisor of this run is at work",
                          launch_seq)
             : cb_err_errno(err, errno, "lock the run");
    goto out;
  }
  ssize_t n = pread(fd, text, sizeof text - 1, 0);
  text[n > 0 ? n : 0] = '\0';
  *first = n <= 0;
  if (n > 0 && strtoll(text, NULL, 10) >= launch_seq) {
    rc = cb_err_set(err, CB_EXISTS, "launch %" PRId64 ": this or a later launch was started before",
                    launch_seq);
    goto out;
  }
  int len = snprintf(text, sizeof text, "%" PRId64 "\n", launch_seq);
  if (ftruncate(fd, 0) < 0 || pwrite(fd, text, (size_t)len, 0) != len || fsync(fd) < 0) {
    rc = cb_err_errno(err, errno, "write the lock of the run");
    goto out;
  }
  cb_sup_dir_give(d, fd);
  d->lock = fd;
  fd = -1;
out:
  cb_close(&fd);
  return rc;
}

void cb_sup_dir_sweep(const struct cb_sup_dir *d)
{
  static const char *const names[] = { "state", "stop", "findings.md" };
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    cb_sup_dir_remove(d, names[i]);
  int own = openat(d->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR *list = own < 0 ? NULL : fdopendir(own);
  struct dirent *e;
  if (!list) {
    cb_close(&own);
    return;
  }
  while ((e = readdir(list))) {
    if (strncmp(e->d_name, "out.", 4) == 0 || strncmp(e->d_name, "err.", 4) == 0)
      cb_sup_dir_remove(d, e->d_name);
  }
  closedir(list);
}
