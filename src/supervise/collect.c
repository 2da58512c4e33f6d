/* SPDX-License-Identifier: MIT */
#include "supervise/collect.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fd.h"
#include "base/path.h"
#include "base/rand.h"
#include "supervise/candidates.h"
#include "supervise/git.h"
#include "supervise/rundir.h"
#include "supervise/tree_file.h"
#include "wire/manifest.h"
#include "wire/pack.h"
#include "wire/record.h"

enum { LARGEST = 10, TRIES = 3, SKIPPED_LISTED = 500, LIST_BYTES = 64 << 20 };

struct collect {
  int project;
  struct cb_sup_dir run;
  uint64_t max_bytes;
  struct cb_manifest base;
  struct cb_manifest found;
  struct cb_sup_candidates paths;
  struct cb_buf *report;
  size_t skipped;
  const char *note;
};

/* ---- what there is to look at --------------------------------------------------------------- */

/* A git folder made afresh under a name nobody knows: a planted one could hold a configuration
 * that runs programs. Three things make a repository; init would look at templates. */
static int make_git_dir(const struct collect *c, const char *name, struct cb_err *err)
{
  static const char config[] = "[core]\n\trepositoryformatversion = 0\n\tbare = false\n";
  static const char head[] = "ref: refs/heads/none\n";
  int dir = -1;
  if (mkdirat(c->run.fd, name, 0700) < 0)
    return cb_err_errno(err, errno, "make a git folder");
  int rc = cb_open_beneath(c->run.fd, name, O_RDONLY | O_DIRECTORY, 0, &dir, err);
  if (!rc)
    rc = cb_mkdirs_beneath(dir, "objects", err);
  if (!rc)
    rc = cb_mkdirs_beneath(dir, "refs", err);
  if (!rc)
    rc = cb_write_file_beneath(dir, "config", config, sizeof config - 1, 0600, false, err);
  if (!rc)
    rc = cb_write_file_beneath(dir, "HEAD", head, sizeof head - 1, 0600, false, err);
  cb_close(&dir);
  return rc;
}

/* NUL-terminated names of what is not ignored. CB_UNSUPPORTED without git. */
static int ask_git(const struct collect *c, const struct cb_sup_collect *what, struct cb_buf *names,
                   struct cb_err *err)
{
  static const char *const list[] = { "ls-files", "-z", "--others", "--exclude-standard", NULL };
  char name[32] = "git-", project[PATH_MAX], run[PATH_MAX], git_dir[PATH_MAX + 40];
  if (!realpath(what->project, project) || !realpath(what->run_dir, run))
    return cb_err_errno(err, errno, "resolve the project");
  cb_random_id(name + 4, 16);
  snprintf(git_dir, sizeof git_dir, "%s/%s", run, name);
  struct cb_sup_git g = { project, git_dir, geteuid(), getegid() };
  int rc = make_git_dir(c, name, err);
  if (!rc)
    rc = cb_sup_git_run(&g, list, NULL, 0, names, err);
  cb_rmtree_beneath(c->run.fd, name, NULL);
  return rc;
}

static int list_candidates(struct collect *c, const struct cb_sup_collect *what,
                           struct cb_err *err)
{
  struct cb_buf names;
  int rc = CB_OK;
  cb_buf_init(&names, LIST_BYTES);
  for (size_t i = 0; rc == CB_OK && i < c->base.count; i++)
    rc = cb_sup_candidates_add(&c->paths, c->base.entries[i].path, c->base.entries[i].path_len,
                               err);
  if (rc == CB_OK)
    rc = ask_git(c, what, &names, err);
  if (rc == CB_UNSUPPORTED) {
    c->note = "git is not installed here: only paths that were sent were looked at, new files "
              "were not";
    rc = CB_OK;
  }
  for (size_t at = 0; rc == CB_OK && at < names.len;) {
    size_t n = strlen(names.p + at);
    rc = cb_sup_candidates_add(&c->paths, names.p + at, n, err);
    at += n + 1;
  }
  cb_buf_clear(&names);
  cb_sup_candidates_sort(&c->paths);
  return rc;
}

/* ---- looking at it -------------------------------------------------------------------------- */

static int skip(struct collect *c, const char *reason, const char *path, struct cb_err *err)
{
  char text[CB_PATH_MAX_BYTES + 64];
  const struct cb_manifest_entry *was = cb_manifest_find(&c->base, path, strlen(path));
  if (c->skipped++ < SKIPPED_LISTED) {
    int n = snprintf(text, sizeof text, "%s %s", reason, path);
    size_t len = (size_t)n < sizeof text ? (size_t)n : sizeof text - 1;
    if (cb_record_add(c->report, "skipped", text, len))
      return cb_err_no_memory(err);
  }
  /* Whatever it is now, it is nothing that could be brought out: whoever applies the result must
   * not take that for a deletion. */
  if (was)
    return cb_manifest_add(&c->found, was->mode, was->size, was->sha256, path, was->path_len, err);
  return CB_OK;
}

static int find_link(struct collect *c, const char *path, struct cb_manifest_entry *e,
                     bool *inside, struct cb_err *err)
{
  struct cb_buf text;
  cb_buf_init(&text, CB_PATH_MAX_BYTES);
  int rc = cb_readlink_beneath(c->project, path, &text, err);
  if (rc == CB_OK) {
    e->mode = CB_TREE_LINK;
    e->size = text.len;
    cb_sha256_hex(text.p, text.len, e->sha256);
    *inside = cb_link_stays_inside(path, strlen(path), text.p, text.len);
  }
  cb_buf_clear(&text);
  return rc;
}

static int take_file(struct collect *c, const char *path, struct cb_sup_file *f,
                     struct cb_err *err)
{
  struct cb_manifest_entry e = { .size = 0 };
  struct cb_err mine = CB_ERR_INIT;
  bool inside = true;
  int rc = CB_OK;
  for (int i = 0; i < TRIES; i++) {
    mine.code = CB_OK;
    rc = f->kind == CB_SUP_SYMLINK
             ? find_link(c, path, &e, &inside, &mine)
             : cb_sup_file_read(c->project, path, f, &e, NULL, NULL, &mine);
    if (rc != CB_CONFLICT)
      break;
    rc = cb_sup_file_look(c->project, path, f, &mine);
    if (rc || (f->kind != CB_SUP_FILE && f->kind != CB_SUP_SYMLINK))
      break;
    rc = CB_CONFLICT;
  }
  if (rc == CB_OK && !inside)
    return skip(c, "leaves_project", path, err);
  if (rc == CB_OK && e.sha256[0])
    return cb_manifest_add(&c->found, e.mode, e.size, e.sha256, path, strlen(path), err);
  if (rc == CB_OK || rc == CB_CONFLICT)
    return skip(c, "changed", path, err);
  if (rc == CB_DENIED || rc == CB_NOT_FOUND)
    return skip(c, "unreadable", path, err);
  if (err)
    *err = mine;
  return rc;
}

static int take(struct collect *c, const char *path, size_t len, struct cb_err *err)
{
  struct cb_sup_file f;
  if (len > 0 && path[len - 1] == '/')
    return skip(c, "nested_repo", path, err);
  if (!cb_path_is_plain(path, len))
    return skip(c, "path", path, err);
  if (cb_sup_path_has_git(path))
    return skip(c, "git", path, err);
  int rc = cb_sup_file_look(c->project, path, &f, NULL);
  if (rc)
    return skip(c, "unreadable", path, err);
  switch (f.kind) {
  case CB_SUP_ABSENT:
  case CB_SUP_BEHIND_LINK: /* its folder is a link now: the link is listed, the path is gone */
  case CB_SUP_FOLDER:      /* what is in it is listed by itself */
    return CB_OK;
  case CB_SUP_SPECIAL:
    return skip(c, "special", path, err);
  case CB_SUP_FILE:
  case CB_SUP_SYMLINK:
    return take_file(c, path, &f, err);
  }
  return CB_OK;
}

/* ---- too large ------------------------------------------------------------------------------ */

struct large {
  uint64_t size;
  const char *path;
};

static void remember_largest(struct large top[LARGEST], uint64_t size, const char *path)
{
  for (size_t i = 0; i < LARGEST; i++) {
    if (top[i].path && top[i].size >= size)
      continue;
    memmove(top + i + 1, top + i, (LARGEST - 1 - i) * sizeof *top);
    top[i] = (struct large){ size, path };
    return;
  }
}

static int too_large(const struct collect *c, uint64_t total, const struct large top[LARGEST],
                     struct cb_err *err)
{
  char names[400], one[48];
  size_t n = 0;
  names[0] = '\0';
  for (size_t i = 0; i < LARGEST && top[i].path && n < sizeof names - 1; i++) {
    size_t len = strlen(top[i].path);
    bool cut = len > 28; /* the end of a path says more than its beginning */
    cb_sup_printable(cut ? top[i].path + len - 26 : top[i].path, one, sizeof one);
    n += (size_t)snprintf(names + n, sizeof names - n, "%s%s%s (%" PRIu64 ")", i ? ", " : "",
                          cut ? ".." : "", one, top[i].size);
  }
  return cb_err_set(err, CB_TOO_LARGE, "project: %" PRIu64 " bytes, at most %" PRIu64 ": %s",
                    total, c->max_bytes, names);
}

/* By the sizes alone and before anything is read: nobody waits for the hashing of a disk image. */
static int check_size(const struct collect *c, struct cb_err *err)
{
  struct large top[LARGEST] = { { 0, NULL } };
  uint64_t total = 0;
  size_t files = 0;
  for (size_t i = 0; i < c->paths.count; i++) {
    struct cb_sup_file f;
    const char *path = cb_sup_candidates_at(&c->paths, i);
    if (!cb_path_is_plain(path, strlen(path)) || cb_sup_file_look(c->project, path, &f, NULL) ||
        (f.kind != CB_SUP_FILE && f.kind != CB_SUP_SYMLINK))
      continue;
    uint64_t size = (uint64_t)f.st.st_size;
    files++;
    total = size > UINT64_MAX - total ? UINT64_MAX : total + size;
    remember_largest(top, size, path);
  }
  if (total > c->max_bytes)
    return too_large(c, total, top, err);
  if (files > CB_TREE_MAX_FILES)
    return cb_err_set(err, CB_TOO_LARGE, "project: %zu files, at most %d: ignore what is built",
                      files, CB_TREE_MAX_FILES);
  return CB_OK;
}

/* ---- the pack ------------------------------------------------------------------------------- */

static int write_fd(void *ctx, const void *p, size_t n, struct cb_err *err)
{
  return cb_write_full(*(int *)ctx, p, n, err);
}

static int write_content(void *ctx, const void *p, size_t n, struct cb_err *err)
{
  return cb_pack_data(ctx, p, n, err);
}

static bool differs(const struct collect *c, const struct cb_manifest_entry *e)
{
  const struct cb_manifest_entry *was = cb_manifest_find(&c->base, e->path, e->path_len);
  return !was || !cb_manifest_same(was, e);
}

static int write_pack(const struct collect *c, int fd, size_t *changed,
                      char digest[CB_SHA256_HEX + 1], struct cb_err *err)
{
  struct cb_pack_writer w;
  int rc = cb_pack_begin(&w, write_fd, &fd, &c->found, err);
  *changed = 0;
  for (size_t i = 0; rc == CB_OK && i < c->found.count; i++) {
    const struct cb_manifest_entry *e = &c->found.entries[i];
    struct cb_manifest_entry now = { .size = 0 };
    struct cb_sup_file f;
    if (!differs(c, e))
      continue;
    ++*changed;
    rc = cb_sup_file_look(c->project, e->path, &f, err);
    if (!rc)
      rc = cb_pack_file(&w, i, err);
    if (!rc)
      rc = cb_sup_file_read(c->project, e->path, &f, &now, write_content, &w, err);
  }
  return rc ? rc : cb_pack_end(&w, digest, err);
}

/* Replaces a file by one written whole; its folder is the caller's word and is used as given. */
static int write_out(const struct collect *c, const char *path, size_t *changed,
                     char digest[CB_SHA256_HEX + 1], struct cb_err *err)
{
  char temp[CB_PATH_MAX_BYTES + 32];
  int n = snprintf(temp, sizeof temp, "%s.", path);
  if (n < 0 || n > CB_PATH_MAX_BYTES)
    return cb_err_set(err, CB_INVALID, "out: a path that is too long");
  cb_random_id(temp + n, 16);
  int fd = open(temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (fd < 0)
    return cb_err_errno(err, errno, "write %s", path);
  int rc = write_pack(c, fd, changed, digest, err);
  cb_sup_dir_give(&c->run, fd);
  if (rc == CB_OK && (fsync(fd) < 0 || rename(temp, path) < 0))
    rc = cb_err_errno(err, errno, "write %s", path);
  if (rc)
    unlink(temp);
  cb_close(&fd);
  return rc;
}

/* ---- the whole ------------------------------------------------------------------------------ */

static int open_all(struct collect *c, const struct cb_sup_collect *what, struct cb_err *err)
{
  int rc = cb_sup_dir_open(&c->run, what->run_dir, err);
  if (rc)
    return rc;
  cb_sup_dir_follow_owner(&c->run);
  c->project = open(what->project, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (c->project < 0)
    return cb_err_errno(err, errno, "open the project %s", what->project);
  return cb_sup_manifest_load(c->run.fd, "base.manifest", &c->base, err);
}

static size_t count_deleted(const struct collect *c)
{
  size_t n = 0;
  for (size_t i = 0; i < c->base.count; i++)
    n += !cb_manifest_find(&c->found, c->base.entries[i].path, c->base.entries[i].path_len);
  return n;
}

static int report_on(const struct collect *c, size_t changed, const char *pack, struct cb_err *err)
{
  char digest[CB_SHA256_HEX + 1], base_digest[CB_SHA256_HEX + 1];
  cb_manifest_digest(&c->found, digest);
  cb_manifest_digest(&c->base, base_digest);
  int rc = cb_record_addi(c->report, "count", (int64_t)c->found.count);
  if (!rc)
    rc = cb_record_addi(c->report, "changed", (int64_t)changed);
  if (!rc)
    rc = cb_record_addi(c->report, "deleted", (int64_t)count_deleted(c));
  if (!rc)
    rc = cb_record_addi(c->report, "bytes", (int64_t)cb_manifest_bytes(&c->found));
  if (!rc)
    rc = cb_record_addz(c->report, "digest", digest);
  if (!rc)
    rc = cb_record_addz(c->report, "base_digest", base_digest);
  if (!rc)
    rc = cb_record_addz(c->report, "pack", pack);
  if (!rc && c->skipped > SKIPPED_LISTED)
    rc = cb_record_addi(c->report, "skipped_more", (int64_t)(c->skipped - SKIPPED_LISTED));
  if (!rc && c->note)
    rc = cb_record_addz(c->report, "note", c->note);
  return rc ? cb_err_no_memory(err) : CB_OK;
}

int cb_sup_collect(const struct cb_sup_collect *what, struct cb_buf *report, struct cb_err *err)
{
  struct collect c = { .project = -1, .run = CB_SUP_DIR_INIT, .max_bytes = what->max_bytes,
                       .report = report };
  char pack[CB_SHA256_HEX + 1];
  size_t changed = 0;

  int rc = open_all(&c, what, err);
  if (!rc && cb_record_addi(report, "crewbox_collect", 1))
    rc = cb_err_no_memory(err);
  if (!rc)
    rc = list_candidates(&c, what, err);
  if (!rc)
    rc = check_size(&c, err);
  for (size_t i = 0; rc == CB_OK && i < c.paths.count; i++) {
    const char *path = cb_sup_candidates_at(&c.paths, i);
    rc = take(&c, path, strlen(path), err);
  }
  if (!rc)
    rc = cb_manifest_sort(&c.found, err);
  if (!rc)
    rc = write_out(&c, what->out, &changed, pack, err);
  if (!rc)
    rc = report_on(&c, changed, pack, err);
  cb_sup_candidates_clear(&c.paths);
  cb_manifest_clear(&c.base);
  cb_manifest_clear(&c.found);
  cb_close(&c.project);
  cb_sup_dir_close(&c.run);
  return rc;
}
