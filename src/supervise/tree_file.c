/* SPDX-License-Identifier: MIT */
#include "supervise/tree_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/path.h"

enum { READ_BYTES = 64 << 10 };

int cb_sup_file_look(int dir, const char *path, struct cb_sup_file *out, struct cb_err *err)
{
  struct cb_err mine = CB_ERR_INIT;
  int rc = cb_stat_beneath(dir, path, &out->st, &mine);
  if (rc == CB_OK) {
    out->kind = S_ISREG(out->st.st_mode)   ? CB_SUP_FILE
                : S_ISLNK(out->st.st_mode) ? CB_SUP_SYMLINK
                : S_ISDIR(out->st.st_mode) ? CB_SUP_FOLDER
                                           : CB_SUP_SPECIAL;
    return CB_OK;
  }
  if (rc == CB_NOT_FOUND || mine.sys == ENOTDIR) {
    out->kind = CB_SUP_ABSENT;
    return CB_OK;
  }
  if (rc == CB_DENIED && mine.sys == 0) {
    out->kind = CB_SUP_BEHIND_LINK;
    return CB_OK;
  }
  if (err)
    *err = mine;
  return rc;
}

static bool same_file(const struct stat *a, const struct stat *b)
{
  return a->st_ino == b->st_ino && a->st_dev == b->st_dev && a->st_size == b->st_size &&
         a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec &&
         a->st_ctim.tv_sec == b->st_ctim.tv_sec && a->st_ctim.tv_nsec == b->st_ctim.tv_nsec;
}

static int changed(const char *path, struct cb_err *err)
{
  return cb_err_set(err, CB_CONFLICT, "read %.200s: it changed while it was read", path);
}

static int read_link(int dir, const char *path, struct cb_manifest_entry *e, cb_sup_each *each,
                     void *ctx, struct cb_err *err)
{
  struct cb_buf text;
  cb_buf_init(&text, CB_PATH_MAX_BYTES);
  int rc = cb_readlink_beneath(dir, path, &text, err);
  if (rc == CB_OK) {
    e->mode = CB_TREE_LINK;
    e->size = text.len;
    cb_sha256_hex(text.p, text.len, e->sha256);
    if (each)
      rc = each(ctx, text.p, text.len, err);
  }
  cb_buf_clear(&text);
  return rc;
}

static int read_regular(int dir, const char *path, const struct stat *seen,
                        struct cb_manifest_entry *e, cb_sup_each *each, void *ctx,
                        struct cb_err *err)
{
  char bytes[READ_BYTES];
  struct cb_sha256 sum;
  struct stat st;
  int fd = -1;
  /* O_NONBLOCK: a fifo that took the name since must not hang us. */
  int rc = cb_open_beneath(dir, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0, &fd, err);
  if (rc)
    return rc;
  if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || !same_file(&st, seen)) {
    rc = changed(path, err);
    goto out;
  }
  cb_sha256_init(&sum);
  e->size = 0;
  for (;;) {
    ssize_t n = read(fd, bytes, sizeof bytes);
    if (n < 0 && errno == EINTR)
      continue;
    if (n < 0) {
      rc = cb_err_errno(err, errno, "read %s", path);
      goto out;
    }
    if (n == 0)
      break;
    cb_sha256_add(&sum, bytes, (size_t)n);
    e->size += (uint64_t)n;
    if (each) {
      rc = each(ctx, bytes, (size_t)n, err);
      if (rc)
        goto out;
    }
    if (e->size > (uint64_t)st.st_size)
      break; /* it grows: no need to follow it */
  }
  if (fstat(fd, &st) < 0 || !same_file(&st, seen) || e->size != (uint64_t)st.st_size) {
    rc = changed(path, err);
    goto out;
  }
  e->mode = st.st_mode & S_IXUSR ? CB_TREE_PROGRAM : CB_TREE_FILE;
  cb_sha256_end_hex(&sum, e->sha256);
out:
  cb_close(&fd);
  return rc;
}

int cb_sup_file_read(int dir, const char *path, const struct cb_sup_file *seen,
                     struct cb_manifest_entry *e, cb_sup_each *each, void *ctx, struct cb_err *err)
{
  if (seen->kind == CB_SUP_SYMLINK)
    return read_link(dir, path, e, each, ctx, err);
  if (seen->kind == CB_SUP_FILE)
    return read_regular(dir, path, &seen->st, e, each, ctx, err);
  return changed(path, err);
}

bool cb_sup_path_has_git(const char *path)
{
  for (const char *at = path; at;) {
    const char *slash = strchr(at, '/');
    size_t n = slash ? (size_t)(slash - at) : strlen(at);
    if (n == 4 && strncasecmp(at, ".git", 4) == 0)
      return true;
    at = slash ? slash + 1 : NULL;
  }
  return false;
}

int cb_sup_manifest_load(int run_dir, const char *name, struct cb_manifest *m, struct cb_err *err)
{
  struct cb_buf bytes;
  struct cb_err mine = CB_ERR_INIT;
  cb_buf_init(&bytes, CB_MANIFEST_MAX_BYTES);
  int rc = cb_read_file_beneath(run_dir, name, &bytes, &mine);
  if (rc == CB_OK)
    rc = cb_manifest_parse(m, bytes.p ? bytes.p : "", bytes.len, SIZE_MAX, &mine);
  cb_buf_clear(&bytes);
  if (rc == CB_NOT_FOUND)
    return CB_OK;
  if (rc && err) {
    *err = mine;
    cb_err_wrap(err, "%s", name);
  }
  return rc;
}

int cb_sup_read_fd(void *ctx, void *p, size_t max, size_t *n, struct cb_err *err)
{
  int fd = *(int *)ctx;
  ssize_t k;
  do
    k = read(fd, p, max);
  while (k < 0 && errno == EINTR);
  if (k < 0)
    return cb_err_errno(err, errno, "read the pack");
  *n = (size_t)k;
  return CB_OK;
}

void cb_sup_printable(const char *path, char *out, size_t room)
{
  size_t n = 0;
  for (; path[n] && n < room - 1; n++)
    out[n] = path[n] < 0x20 || path[n] > 0x7e ? '?' : path[n];
  out[n] = '\0';
}
