/* SPDX-License-Identifier: MIT */
#include "tree/file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/path.h"

enum { PIECE = 64 * 1024 };

const char *cb_tree_show(const char *path, char out[CB_TREE_SHOWN + 1])
{
  size_t n = 0;
  for (; path[n] && n < CB_TREE_SHOWN; n++)
    out[n] = path[n] < ' ' || path[n] > '~' ? '?' : path[n];
  out[n] = '\0';
  return out;
}

int cb_tree_stopped(const atomic_bool *stop, struct cb_err *err)
{
  if (!stop || !atomic_load_explicit(stop, memory_order_relaxed))
    return CB_OK;
  return cb_err_set(err, CB_CANCELLED, "the work on the tree was cancelled");
}

int cb_tree_look(int dir, const char *path, struct cb_tree_look *out, struct cb_err *err)
{
  struct cb_err mine = CB_ERR_INIT;
  int rc = cb_stat_beneath(dir, path, &out->st, &mine);
  if (rc == CB_OK) {
    mode_t m = out->st.st_mode;
    out->kind = S_ISREG(m)   ? CB_TREE_KIND_FILE
                : S_ISLNK(m) ? CB_TREE_KIND_LINK
                : S_ISDIR(m) ? CB_TREE_KIND_FOLDER
                             : CB_TREE_KIND_SPECIAL;
    return CB_OK;
  }
  memset(&out->st, 0, sizeof out->st);
  if (mine.sys == ENOTDIR)
    out->kind = CB_TREE_KIND_BLOCKED;
  else if (rc == CB_NOT_FOUND)
    out->kind = CB_TREE_KIND_ABSENT;
  else if (rc == CB_DENIED && mine.sys == 0)
    out->kind = CB_TREE_KIND_BEHIND_LINK;
  else {
    if (err)
      *err = mine;
    return rc;
  }
  return CB_OK;
}

bool cb_tree_unchanged(const struct stat *a, const struct stat *b)
{
  return a->st_ino == b->st_ino && a->st_dev == b->st_dev && a->st_mode == b->st_mode &&
         a->st_size == b->st_size && a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
         a->st_mtim.tv_nsec == b->st_mtim.tv_nsec && a->st_ctim.tv_sec == b->st_ctim.tv_sec &&
         a->st_ctim.tv_nsec == b->st_ctim.tv_nsec;
}

static int changed(const char *path, struct cb_err *err)
{
  char shown[CB_TREE_SHOWN + 1];
  return cb_err_set(err, CB_CONFLICT, "read %s: it changed while it was read",
                    cb_tree_show(path, shown));
}

static int read_link(int dir, const char *path, const struct stat *seen,
                     struct cb_manifest_entry *e, cb_pack_sink *each, void *ctx,
                     struct cb_err *err)
{
  struct cb_buf text;
  struct stat st;
  cb_buf_init(&text, CB_PATH_MAX_BYTES);
  int rc = cb_readlink_beneath(dir, path, &text, err);
  if (rc == CB_OK)
    rc = cb_stat_beneath(dir, path, &st, err);
  if (rc == CB_OK && !cb_tree_unchanged(&st, seen))
    rc = changed(path, err);
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

static int read_file(int dir, const char *path, const struct stat *seen,
                     struct cb_manifest_entry *e, cb_pack_sink *each, void *ctx,
                     struct cb_err *err)
{
  char piece[PIECE];
  struct cb_sha256 sum;
  struct stat st;
  int fd = -1;
  /* O_NONBLOCK: a fifo that took the name since must not hang us. */
  int rc = cb_open_beneath(dir, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0, &fd, err);
  if (rc)
    return rc;
  if (fstat(fd, &st) < 0 || !cb_tree_unchanged(&st, seen)) {
    rc = changed(path, err);
    goto out;
  }
  cb_sha256_init(&sum);
  for (e->size = 0; e->size <= (uint64_t)st.st_size;) {
    ssize_t n = read(fd, piece, sizeof piece);
    if (n < 0 && errno == EINTR)
      continue;
    if (n < 0) {
      rc = cb_err_errno(err, errno, "read %s", path);
      goto out;
    }
    if (n == 0)
      break;
    cb_sha256_add(&sum, piece, (size_t)n);
    e->size += (uint64_t)n;
    rc = each ? each(ctx, piece, (size_t)n, err) : CB_OK;
    if (rc)
      goto out;
  }
  if (fstat(fd, &st) < 0 || !cb_tree_unchanged(&st, seen) || e->size != (uint64_t)st.st_size) {
    rc = changed(path, err);
    goto out;
  }
  e->mode = st.st_mode & S_IXUSR ? CB_TREE_PROGRAM : CB_TREE_FILE;
  cb_sha256_end_hex(&sum, e->sha256);
out:
  cb_close(&fd);
  return rc;
}

int cb_tree_read(int dir, const char *path, const struct cb_tree_look *seen,
                 struct cb_manifest_entry *e, cb_pack_sink *each, void *ctx, struct cb_err *err)
{
  struct cb_err mine = CB_ERR_INIT;
  int rc = seen->kind == CB_TREE_KIND_LINK ? read_link(dir, path, &seen->st, e, each, ctx, &mine)
                                           : read_file(dir, path, &seen->st, e, each, ctx, &mine);
  /* What was there a moment ago and is gone, or is a link now, changed. */
  if (rc == CB_NOT_FOUND || (rc == CB_DENIED && mine.sys == 0) || mine.sys == ENOTDIR ||
      mine.sys == EINVAL)
    return changed(path, err);
  if (rc && err)
    *err = mine;
  return rc;
}

/* ---- packs --------------------------------------------------------------------------------- */

static int read_fd(void *ctx, void *p, size_t max, size_t *n, struct cb_err *err)
{
  ssize_t k;
  do
    k = read(*(const int *)ctx, p, max);
  while (k < 0 && errno == EINTR);
  if (k < 0)
    return cb_err_errno(err, errno, "read the pack");
  *n = (size_t)k;
  return CB_OK;
}

int cb_tree_pack_open(struct cb_tree_pack *p, const char *file, size_t max_files,
                      uint64_t max_bytes, struct cb_err *err)
{
  p->manifest = (struct cb_manifest)CB_MANIFEST_INIT;
  p->fd = open(file, O_RDONLY | O_CLOEXEC);
  if (p->fd < 0)
    return cb_err_errno(err, errno, "open the pack %s", file);
  return cb_pack_open(&p->reader, read_fd, &p->fd, &p->manifest, max_files, max_bytes, err);
}

void cb_tree_pack_clear(struct cb_tree_pack *p)
{
  cb_close(&p->fd);
  cb_manifest_clear(&p->manifest);
}

int cb_tree_folders(int dir, const char *path, struct cb_err *err)
{
  char folder[CB_PATH_MAX_BYTES + 1];
  const char *slash = strrchr(path, '/');
  if (!slash)
    return CB_OK;
  memcpy(folder, path, (size_t)(slash - path));
  folder[slash - path] = '\0';
  return cb_mkdirs_beneath(dir, folder, err);
}

static int put_link(int parent, const char *base, struct cb_pack_reader *r, struct cb_err *err)
{
  struct cb_buf text;
  char piece[512];
  size_t n;
  int rc;
  cb_buf_init(&text, CB_PATH_MAX_BYTES);
  do {
    rc = cb_pack_read(r, piece, sizeof piece, &n, err);
    if (rc == CB_OK)
      rc = cb_buf_add(&text, piece, n);
    if (rc == CB_NO_MEMORY)
      cb_err_no_memory(err);
    else if (rc == CB_TOO_LARGE)
      rc = cb_err_set(err, CB_PROTOCOL, "a link of more than %d bytes", CB_PATH_MAX_BYTES);
  } while (rc == CB_OK && n > 0);
  if (rc == CB_OK && (!text.p || strlen(text.p) != text.len || text.len == 0))
    rc = cb_err_set(err, CB_PROTOCOL, "a link without a text");
  if (rc == CB_OK && symlinkat(text.p, parent, base) < 0)
    rc = cb_err_errno(err, errno, "make the link %s", base);
  cb_buf_clear(&text);
  return rc;
}

static int put_file(int parent, const char *base, mode_t mode, struct cb_pack_reader *r,
                    struct cb_err *err)
{
  char piece[PIECE];
  size_t n;
  int rc = CB_OK;
  int fd = openat(parent, base, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
  if (fd < 0)
    return cb_err_errno(err, errno, "write %s", base);
  do {
    rc = cb_pack_read(r, piece, sizeof piece, &n, err);
    if (rc == CB_OK)
      rc = cb_write_full(fd, piece, n, err);
  } while (rc == CB_OK && n > 0);
  if (rc == CB_OK && fchmod(fd, mode) < 0)
    rc = cb_err_errno(err, errno, "write %s", base);
  cb_close(&fd);
  return rc;
}

int cb_tree_put(int dir, const char *path, const struct cb_manifest_entry *e,
                struct cb_pack_reader *r, struct cb_err *err)
{
  int parent = -1;
  const char *base;
  int rc = cb_tree_folders(dir, path, err);
  if (rc == CB_OK)
    rc = cb_open_parent_beneath(dir, path, &parent, &base, err);
  if (rc == CB_OK && e->mode == CB_TREE_LINK)
    rc = put_link(parent, base, r, err);
  else if (rc == CB_OK)
    rc = put_file(parent, base, e->mode == CB_TREE_PROGRAM ? 0755 : 0644, r, err);
  cb_close(&parent);
  return rc;
}
