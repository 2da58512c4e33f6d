/* SPDX-License-Identifier: MIT */
#include "supervise/apply.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/path.h"
#include "supervise/apply_private.h"
#include "supervise/base_commit.h"
#include "supervise/tree_file.h"
#include "wire/record.h"

static const char base_name[] = "base.manifest";
static const char journal_name[] = "syncing.manifest";

static int open_pack(struct cb_sup_apply_work *a, const char *path, struct cb_err *err)
{
  struct stat st;
  a->pack = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (a->pack < 0 || fstat(a->pack, &st) < 0)
    return cb_err_errno(err, errno, "open the pack %s", path);
  if (!S_ISREG(st.st_mode))
    return cb_err_set(err, CB_DENIED, "pack %s: not a regular file", path);
  return CB_OK;
}

static int open_project(struct cb_sup_apply_work *a, const char *path, struct cb_err *err)
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
static int start_journal(struct cb_sup_apply_work *a, struct cb_err *err)
{
  struct cb_buf bytes;
  cb_buf_init(&bytes, CB_MANIFEST_MAX_BYTES);
  int rc = cb_manifest_write(&a->next, &bytes, err);
  if (rc == CB_OK)
    rc = cb_sup_dir_put(&a->run, journal_name, bytes.p ? bytes.p : "", bytes.len, true, err);
  cb_buf_clear(&bytes);
  return rc;
}

static int end_journal(struct cb_sup_apply_work *a, struct cb_err *err)
{
  if (syncfs(a->project) < 0 ||
      renameat(a->run.fd, journal_name, a->run.fd, base_name) < 0 || fsync(a->run.fd) < 0)
    return cb_err_errno(err, errno, "close the journal of the apply");
  return CB_OK;
}

static int report_on(const struct cb_sup_apply_work *a, const char *digest, const char *commit,
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
  struct cb_sup_apply_work a = { .project = -1, .pack = -1, .run = CB_SUP_DIR_INIT };
  char digest[CB_SHA256_HEX + 1], commit[CB_SUP_COMMIT_ID] = "", note[CB_SUP_NOTE] = "";

  int rc = cb_sup_dir_open(&a.run, what->run_dir, err);
  if (!rc)
    cb_sup_dir_follow_owner(&a.run);
  if (!rc)
    rc = open_pack(&a, what->pack, err);
  if (!rc)
    rc = cb_sup_apply_check_pack(&a, err);
  if (!rc)
    rc = open_project(&a, what->project, err);
  if (!rc)
    rc = cb_sup_manifest_load(a.run.fd, base_name, &a.base, err);
  if (!rc)
    rc = cb_sup_manifest_load(a.run.fd, journal_name, &a.journal, err);
  if (!rc)
    rc = cb_sup_apply_check(&a, err);
  if (!rc)
    rc = cb_sup_apply_delete(&a, &a.base, err);
  if (!rc)
    rc = cb_sup_apply_delete(&a, &a.journal, err);
  if (!rc)
    rc = start_journal(&a, err);
  if (!rc)
    rc = cb_sup_apply_write(&a, err);
  if (!rc)
    rc = cb_sup_apply_verify(&a, digest, err);
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
