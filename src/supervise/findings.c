/* SPDX-License-Identifier: MIT */
#include "supervise/findings.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fd.h"
#include "base/path.h"

static const char *base_of(const char *path)
{
  return strrchr(path, '/') + 1; /* orders only take absolute paths */
}

static int open_folder(const char *path)
{
  char folder[CB_PATH_MAX_BYTES + 1];
  size_t n = (size_t)(base_of(path) - path);
  memcpy(folder, path, n);
  folder[n] = '\0';
  return open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

int cb_sup_findings_prepare(struct cb_sup_findings *f, const char *path, struct cb_err *err)
{
  f->folder = -1;
  f->path = cb_strdup(path);
  if (!f->path)
    return cb_err_no_memory(err);
  if (*path == '\0')
    return CB_OK;
  f->folder = open_folder(path);
  if (f->folder >= 0 && unlinkat(f->folder, base_of(path), 0) < 0 && errno != ENOENT)
    return cb_err_errno(err, errno, "remove the earlier report %s", path);
  return CB_OK;
}

void cb_sup_findings_clear(struct cb_sup_findings *f)
{
  cb_close(&f->folder);
  cb_free(f->path);
  f->path = NULL;
}

/* Up to CB_SUP_FINDINGS_MAX bytes of a regular file; NOT_FOUND when there is none. */
static int read_report(const struct cb_sup_findings *f, struct cb_buf *raw, struct cb_err *err)
{
  struct stat st;
  int fd = -1, rc = CB_OK;
  int folder = f->folder >= 0 ? f->folder : open_folder(f->path);
  if (folder < 0)
    return cb_err_errno(err, errno, "findings: open their folder");
  /* O_NONBLOCK: a fifo under the name must not hang us. */
  fd = openat(folder, base_of(f->path), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) {
    rc = errno == ELOOP ? cb_err_set(err, CB_DENIED, "findings: a link, not copied")
                        : cb_err_errno(err, errno, "findings: open");
    goto out;
  }
  if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
    rc = cb_err_set(err, CB_DENIED, "findings: not a regular file, not copied");
    goto out;
  }
  rc = cb_buf_read_all(raw, fd, err);
  if (rc == CB_TOO_LARGE) /* what fits is there */
    rc = CB_OK;
out:
  cb_close(&fd);
  if (folder != f->folder)
    cb_close(&folder);
  return rc;
}

int cb_sup_findings_collect(const struct cb_sup_findings *f, const struct cb_sup_dir *dir,
                            const struct cb_redactor *redactor, struct cb_state *state,
                            struct cb_err *err)
{
  struct cb_buf raw, clean;
  if (!f->path || *f->path == '\0')
    return CB_OK;
  cb_buf_init(&raw, CB_SUP_FINDINGS_MAX);
  cb_buf_init(&clean, 8 * CB_SUP_FINDINGS_MAX); /* markers may be longer than what they mask */
  int rc = read_report(f, &raw, err);
  if (rc == CB_NOT_FOUND) {
    rc = CB_OK;
    goto out;
  }
  if (rc == CB_OK)
    rc = cb_redact_mask(redactor, raw.p ? raw.p : "", raw.len, &clean, err);
  if (rc == CB_OK)
    rc = cb_sup_dir_put(dir, "findings.md", clean.p ? clean.p : "", clean.len, true, err);
  if (rc == CB_OK) {
    state->findings_size = (int64_t)clean.len;
    cb_sha256_hex(clean.p, clean.len, state->findings_sha256);
  }
out:
  cb_buf_clear_wiped(&raw);
  cb_buf_clear(&clean);
  return rc;
}
