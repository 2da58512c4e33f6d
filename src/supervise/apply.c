/* SPDX-License-Identifier: MIT */
#include "supervise/apply.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fd.h"
#include "base/path.h"
#include "base/rand.h"
#include "supervise/base_commit.h"
#include "supervise/rundir.h"
#include "supervise/tree_file.h"
#include "wire/manifest.h"
#include "wire/pack.h"
#include "wire/record.h"

enum { DEPTH_MAX = 256, COPY_BYTES = 64 << 10 };
static const char base_name[] = "base.manifest";
static const char journal_name[] = "syncing.manifest";

struct apply {
  int project;
  int pack;
  struct cb_sup_dir run;
  bool own; /* we are root and the project is somebody's */
  uid_t uid;
  gid_t gid;
  struct cb_manifest next;    /* what is to be there */
  struct cb_manifest base;    /* what the last apply put there */
  struct cb_manifest journal; /* what an apply that did not end may have put there */
  char pack_digest[CB_SHA256_HEX + 1];
  size_t written, unchanged, deleted;
};

/* ---- the pack, before anything is touched --------------------------------------------------- */

static int open_pack(struct apply *a, const char *path, struct cb_err *err)
{
  struct stat st;
  a->pack = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (a->pack < 0 || fstat(a->pack, &st) < 0)
    return cb_err_errno(err, errno, "open the pack %s", path);
  if (!S_ISREG(st.st_mode))
    return cb_err_set(err, CB_DENIED, "pack %s: not a regular file", path);
  return CB_OK;
}

/* Reads it all once: its sum is right, every content is there and is what the manifest says. */
static int check_pack(struct apply *a, struct cb_err *err)
{
  struct cb_pack_reader r;
  size_t index, want = 0;
  int rc = cb_pack_open(&r, cb_sup_read_fd, &a->pack, &a->next, CB_TREE_MAX_FILES,
                        CB_TREE_MAX_BYTES, err);
  if (rc)
    return rc;
  for (;; want++) {
    rc = cb_pack_next(&r, &index, err);
    if (rc)
      return rc;
    if (index != want)
      break;
  }
  if (index != SIZE_MAX || want != a->next.count)
    return cb_err_set(err, CB_INVALID, "pack: no content for %.200s", a->next.entries[want].path);
  memcpy(a->pack_digest, r.digest, sizeof r.digest);
  for (size_t i = 0; i < a->next.count; i++) {
    if (cb_sup_path_has_git(a->next.entries[i].path))
      return cb_err_set(err, CB_DENIED, "pack: %.200s belongs to git, not to a tree",
                        a->next.entries[i].path);
  }
  return CB_OK;
}

static bool was_ours(const struct apply *a, const char *path)
{
  size_t n = strlen(path);
  return cb_manifest_find(&a->base, path, n) || cb_manifest_find(&a->journal, path, n);
}

/* Looks for anything below a folder that no apply put there. */
static int check_folder(const struct apply *a, int fd, const char *path, int depth,
                        struct cb_err *err)
{
  char below[CB_PATH_MAX_BYTES + 1];
  int rc = CB_OK, own = fcntl(fd, F_DUPFD_CLOEXEC, 3);
  DIR *d = own < 0 ? NULL : fdopendir(own);
  struct dirent *e;
  if (!d || depth > DEPTH_MAX) {
    if (d)
      closedir(d);
    else
      cb_close(&own);
    return cb_err_set(err, CB_CONFLICT, "blocked: the folder %.200s cannot be looked into", path);
  }
  rewinddir(d);
  while (rc == CB_OK && (e = readdir(d))) {
    struct stat st;
    if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
      continue;
    int n = snprintf(below, sizeof below, "%s/%s", path, e->d_name);
    if (n < 0 || (size_t)n >= sizeof below || fstatat(fd, e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
      rc = cb_err_set(err, CB_CONFLICT, "blocked: %.200s is in the way", path);
    } else if (S_ISDIR(st.st_mode)) {
      int sub = openat(fd, e->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
      rc = sub < 0 ? cb_err_errno(err, errno, "open %.200s", below)
                   : check_folder(a, sub, below, depth + 1, err);
      cb_close(&sub);
    } else if (!was_ours(a, below)) {
      rc = cb_err_set(err, CB_CONFLICT, "blocked: %.200s is in the way and not of the tree", below);
    }
  }
  closedir(d);
  return rc;
}

/* A folder where a file is to be must hold nothing but what we are going to delete. */
static int check_nothing_blocks(const struct apply *a, struct cb_err *err)
{
  for (size_t i = 0; i < a->next.count; i++) {
    const char *path = a->next.entries[i].path;
    struct cb_sup_file f;
    int fd = -1;
    int rc = cb_sup_file_look(a->project, path, &f, err);
    if (rc == CB_OK && f.kind == CB_SUP_FOLDER) {
      rc = cb_open_beneath(a->project, path, O_RDONLY | O_DIRECTORY, 0, &fd, err);
      if (rc == CB_OK)
        rc = check_folder(a, fd, path, 0, err);
      cb_close(&fd);
    }
    if (rc)
      return rc;
  }
  return CB_OK;
}

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

static int delete_old(struct apply *a, const struct cb_manifest *old, struct cb_err *err)
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

static void give(const struct apply *a, int dir, const char *name)
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
static int make_parents(struct apply *a, const char *path, int *out, const char **base,
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
  int fd = depth > DEPTH_MAX ? -1 : open_folder(at, name);
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
static int write_entry(struct apply *a, struct cb_pack_reader *r,
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
static bool is_right(struct apply *a, const struct cb_manifest_entry *e,
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

static int write_all(struct apply *a, struct cb_err *err)
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
    if (index >= a->next.count || strcmp(again.entries[index].path, a->next.entries[index].path)) {
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

/* ---- looking again -------------------------------------------------------------------------- */

static int check_deleted(const struct apply *a, const struct cb_manifest *old, struct cb_err *err)
{
  for (size_t i = 0; i < old->count; i++) {
    const struct cb_manifest_entry *e = &old->entries[i];
    struct cb_sup_file f;
    if (cb_manifest_find(&a->next, e->path, e->path_len))
      continue;
    int rc = cb_sup_file_look(a->project, e->path, &f, err);
    if (rc)
      return rc;
    if (f.kind == CB_SUP_FILE || f.kind == CB_SUP_SYMLINK || f.kind == CB_SUP_SPECIAL)
      return cb_err_set(err, CB_CORRUPT, "verify: %.200s is still there", e->path);
  }
  return CB_OK;
}

/* Every entry as it is on disk now; digest is of what was found, not of what was wanted. */
static int verify(const struct apply *a, char digest[CB_SHA256_HEX + 1], struct cb_err *err)
{
  struct cb_manifest found = CB_MANIFEST_INIT;
  int rc = check_deleted(a, &a->base, err);
  if (rc == CB_OK)
    rc = check_deleted(a, &a->journal, err);
  for (size_t i = 0; rc == CB_OK && i < a->next.count; i++) {
    const struct cb_manifest_entry *e = &a->next.entries[i];
    struct cb_manifest_entry now = { .size = 0 };
    struct cb_sup_file f;
    rc = cb_sup_file_look(a->project, e->path, &f, err);
    if (rc == CB_OK)
      rc = cb_sup_file_read(a->project, e->path, &f, &now, NULL, NULL, err);
    if (rc == CB_OK && !cb_manifest_same(e, &now))
      rc = cb_err_set(err, CB_CORRUPT, "verify: %.200s is not what was written", e->path);
    if (rc == CB_OK)
      rc = cb_manifest_add(&found, now.mode, now.size, now.sha256, e->path, e->path_len, err);
  }
  if (rc == CB_OK)
    cb_manifest_digest(&found, digest);
  cb_manifest_clear(&found);
  return rc;
}

/* ---- the whole ------------------------------------------------------------------------------ */

static int open_project(struct apply *a, const char *path, struct cb_err *err)
{
  struct stat st;
  if (lstat(path, &st) < 0 && errno == ENOENT) {
    int rc = cb_mkdirs(path, 0755, err);
    if (rc)
      return rc;
  }
  a->project = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (a->project < 0 || fstat(a->project, &st) < 0)
    return cb_err_errno(err, errno, "open the project %s", path);
  if (flock(a->project, LOCK_EX | LOCK_NB) < 0)
    return cb_err_set(err, CB_BUSY, "project %s: another apply is at work", path);
  a->own = geteuid() == 0 && st.st_uid != 0;
  a->uid = st.st_uid;
  a->gid = st.st_gid;
  return CB_OK;
}

/* Written behind the deletions and before the first write: what an older journal names is then
 * either gone or named by this one too, so one journal is always enough. */
static int start_journal(struct apply *a, struct cb_err *err)
{
  struct cb_buf bytes;
  cb_buf_init(&bytes, CB_MANIFEST_MAX_BYTES);
  int rc = cb_manifest_write(&a->next, &bytes, err);
  if (rc == CB_OK)
    rc = cb_sup_dir_put(&a->run, journal_name, bytes.p ? bytes.p : "", bytes.len, true, err);
  cb_buf_clear(&bytes);
  return rc;
}

static int end_journal(struct apply *a, struct cb_err *err)
{
  if (syncfs(a->project) < 0 ||
      renameat(a->run.fd, journal_name, a->run.fd, base_name) < 0 || fsync(a->run.fd) < 0)
    return cb_err_errno(err, errno, "close the journal of the apply");
  return CB_OK;
}

static int report_on(const struct apply *a, const char *digest, const char *commit,
                     const char *note, struct cb_buf *report, struct cb_err *err)
{
  int rc = cb_record_addi(report, "crewbox_apply", 1);
  if (!rc)
    rc = cb_record_addz(report, "digest", digest);
  if (!rc)
    rc = cb_record_addz(report, "pack", a->pack_digest);
  if (!rc)
    rc = cb_record_addi(report, "count", (int64_t)a->next.count);
  if (!rc)
    rc = cb_record_addi(report, "written", (int64_t)a->written);
  if (!rc)
    rc = cb_record_addi(report, "unchanged", (int64_t)a->unchanged);
  if (!rc)
    rc = cb_record_addi(report, "deleted", (int64_t)a->deleted);
  if (!rc && commit[0])
    rc = cb_record_addz(report, "commit", commit);
  if (!rc && note[0])
    rc = cb_record_addz(report, "note", note);
  return rc ? cb_err_no_memory(err) : CB_OK;
}

int cb_sup_apply(const struct cb_sup_apply *what, struct cb_buf *report, struct cb_err *err)
{
  struct apply a = { .project = -1, .pack = -1, .run = CB_SUP_DIR_INIT };
  char digest[CB_SHA256_HEX + 1], commit[CB_SUP_COMMIT_ID] = "", note[CB_SUP_NOTE] = "";

  int rc = cb_sup_dir_open(&a.run, what->run_dir, err);
  if (!rc)
    cb_sup_dir_follow_owner(&a.run);
  if (!rc)
    rc = open_pack(&a, what->pack, err);
  if (!rc)
    rc = check_pack(&a, err);
  if (!rc)
    rc = open_project(&a, what->project, err);
  if (!rc)
    rc = cb_sup_manifest_load(a.run.fd, base_name, &a.base, err);
  if (!rc)
    rc = cb_sup_manifest_load(a.run.fd, journal_name, &a.journal, err);
  if (!rc)
    rc = check_nothing_blocks(&a, err);
  if (!rc)
    rc = delete_old(&a, &a.base, err);
  if (!rc)
    rc = delete_old(&a, &a.journal, err);
  if (!rc)
    rc = start_journal(&a, err);
  if (!rc)
    rc = write_all(&a, err);
  if (!rc)
    rc = verify(&a, digest, err);
  if (!rc)
    rc = end_journal(&a, err);
  if (!rc && what->base_commit)
    rc = cb_sup_base_commit(what->project, a.project, &a.next, commit, note, err);
  if (!rc)
    rc = report_on(&a, digest, commit, note, report, err);
  cb_manifest_clear(&a.next);
  cb_manifest_clear(&a.base);
  cb_manifest_clear(&a.journal);
  cb_close(&a.pack);
  cb_close(&a.project);
  cb_sup_dir_close(&a.run);
  return rc;
}
