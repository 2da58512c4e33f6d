/* SPDX-License-Identifier: MIT */
#include "supervise/intake.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fd.h"
#include "base/path.h"
#include "wire/orders.h"

static int check_file(int dir, int fd, const char *path, size_t *size, struct cb_err *err)
{
  struct stat folder, st;
  if (fstat(dir, &folder) < 0 || fstat(fd, &st) < 0)
    return cb_err_errno(err, errno, "stat %s", path);
  if (!S_ISREG(st.st_mode) || st.st_nlink != 1 || st.st_uid != geteuid())
    return cb_err_set(err, CB_DENIED, "orders %s: not a plain file of ours", path);
  bool folder_closed = folder.st_uid == geteuid() && (folder.st_mode & 077) == 0;
  if ((st.st_mode & 022) || (!folder_closed && (st.st_mode & 077)))
    return cb_err_set(err, CB_DENIED, "orders %s: open to others, make it 0600", path);
  if (st.st_size > CB_ORDERS_MAX_BYTES)
    return cb_err_set(err, CB_TOO_LARGE, "orders %s: over %d bytes", path, CB_ORDERS_MAX_BYTES);
  *size = (size_t)st.st_size;
  return CB_OK;
}

/* The folder of path as a descriptor, and the last component. */
static int open_folder(const char *path, int *dir, const char **base, struct cb_err *err)
{
  char folder[CB_PATH_MAX_BYTES + 1];
  const char *slash = strrchr(path, '/');
  size_t n = slash ? (size_t)(slash - path) : 0;
  *base = slash ? slash + 1 : path;
  if (n > CB_PATH_MAX_BYTES || **base == '\0')
    return cb_err_set(err, CB_INVALID, "orders: not the path of a file");
  memcpy(folder, path, n);
  folder[n] = '\0';
  if (n == 0)
    strcpy(folder, slash ? "/" : ".");
  *dir = open(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  return *dir < 0 ? cb_err_errno(err, errno, "open %s", folder) : CB_OK;
}

/* The folder was made for the orders alone: it goes with them when it is empty. */
static void remove_folder(const char *path, const char *base)
{
  char folder[CB_PATH_MAX_BYTES + 1];
  size_t n = (size_t)(base - path);
  if (n < 2 || n > sizeof folder)
    return;
  memcpy(folder, path, n - 1);
  folder[n - 1] = '\0';
  rmdir(folder);
}

int cb_sup_intake(const char *path, char **out, size_t *len, struct cb_err *err)
{
  int dir = -1, fd = -1;
  const char *base;
  char *p = NULL;
  size_t size = 0;
  int rc = open_folder(path, &dir, &base, err);
  if (rc)
    goto out;
  fd = openat(dir, base, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) {
    rc = errno == ELOOP ? cb_err_set(err, CB_DENIED, "orders %s: a link", path)
                        : cb_err_errno(err, errno, "orders %s", path);
    goto out;
  }
  rc = check_file(dir, fd, path, &size, err);
  if (rc)
    goto out;
  p = cb_malloc(size + 1); /* one allocation: growing would leave copies behind */
  rc = p ? cb_read_full(fd, p, size, err) : cb_err_no_memory(err);
  if (unlinkat(dir, base, 0) < 0 && rc == CB_OK)
    rc = cb_err_errno(err, errno, "remove the orders %s", path);
  remove_folder(path, base);
  if (rc)
    goto out;
  p[size] = '\0';
  *out = p;
  *len = size;
  p = NULL;
out:
  cb_free_wiped(p, p ? size : 0);
  cb_close(&fd);
  cb_close(&dir);
  return rc;
}
