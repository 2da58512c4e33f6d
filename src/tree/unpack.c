/* SPDX-License-Identifier: MIT
 * unpack.c: a pack as files, and two packs as two folders that hold only what differs. Both write
 * into private folders that they make: what a name or a link in a pack says stays text. */
#include "tree/tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/path.h"
#include "tree/args.h"
#include "tree/changes.h"
#include "tree/file.h"

/* Opens the folder, made if need be; one that holds something is CB_EXISTS. */
static int open_empty(const char *path, int *out, struct cb_err *err)
{
  int rc = cb_mkdirs(path, 0700, err);
  if (rc)
    return rc;
  *out = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  int listing = *out < 0 ? -1 : fcntl(*out, F_DUPFD_CLOEXEC, 3);
  DIR *d = listing < 0 ? NULL : fdopendir(listing);
  if (!d) {
    rc = cb_err_errno(err, errno, "open the folder %s", path);
    cb_close(&listing);
    return rc;
  }
  struct dirent *e;
  while (rc == CB_OK && (e = readdir(d))) {
    if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
      rc = cb_err_set(err, CB_EXISTS, "the folder %s is not empty", path);
  }
  closedir(d);
  return rc;
}

static uint64_t most_bytes(const json_t *args)
{
  return cb_tree_number(args, "max_bytes", CB_TREE_MAX_BYTES);
}

static size_t most_files(const json_t *args)
{
  return (size_t)cb_tree_number(args, "max_files", CB_TREE_MAX_FILES);
}

static int lacks(const char *path, struct cb_err *err)
{
  char shown[CB_TREE_SHOWN + 1];
  return cb_err_set(err, CB_CORRUPT, "the pack lacks the content of %s", cb_tree_show(path, shown));
}

int cb_tree_unpack(const json_t *args, const atomic_bool *stop, json_t **out, struct cb_err *err)
{
  struct cb_tree_pack pack;
  char digest[CB_SHA256_HEX + 1];
  size_t index, next = 0;
  int dir = -1;

  *out = NULL;
  int rc = cb_tree_pack_open(&pack, cb_tree_text(args, "pack"), most_files(args),
                             most_bytes(args), err);
  if (rc == CB_OK)
    rc = open_empty(cb_tree_text(args, "dir"), &dir, err);
  while (rc == CB_OK) {
    rc = cb_pack_next(&pack.reader, &index, err);
    if (rc || index == SIZE_MAX)
      break;
    const struct cb_manifest_entry *e = &pack.manifest.entries[index];
    if (index != next++)
      rc = lacks(pack.manifest.entries[next - 1].path, err);
    if (rc == CB_OK)
      rc = cb_tree_stopped(stop, err);
    if (rc == CB_OK)
      rc = cb_tree_put(dir, e->path, e, &pack.reader, err);
  }
  if (rc == CB_OK && next < pack.manifest.count)
    rc = lacks(pack.manifest.entries[next].path, err);
  if (rc == CB_OK) {
    cb_manifest_digest(&pack.manifest, digest);
    *out = json_pack("{s:s, s:I}", "digest", digest, "count", (json_int_t)pack.manifest.count);
    rc = *out ? CB_OK : cb_err_no_memory(err);
  }
  cb_close(&dir);
  cb_tree_pack_clear(&pack);
  return rc;
}

/* ---- compare ------------------------------------------------------------------------------- */

struct compare {
  int a, b; /* the two folders */
  struct cb_tree_changes changes;
  const atomic_bool *stop;
};

/* Contents of the base go to a/, and to b/ where only the mode differs. */
static int write_base(struct compare *c, struct cb_tree_pack *base, struct cb_err *err)
{
  size_t index, at = 0;
  int rc;
  while ((rc = cb_pack_next(&base->reader, &index, err)) == CB_OK && index != SIZE_MAX) {
    const struct cb_manifest_entry *e = &base->manifest.entries[index];
    struct cb_tree_change *change = cb_tree_change_of(&c->changes, &at, e);
    if (!change || !change->base)
      continue;
    rc = cb_tree_stopped(c->stop, err);
    if (rc == CB_OK)
      rc = cb_tree_put(c->a, e->path, e, &base->reader, err);
    change->have_base = rc == CB_OK;
    if (rc)
      break;
  }
  return rc;
}

static int write_result(struct compare *c, struct cb_tree_pack *result, struct cb_err *err)
{
  size_t index, at = 0;
  int rc;
  while ((rc = cb_pack_next(&result->reader, &index, err)) == CB_OK && index != SIZE_MAX) {
    const struct cb_manifest_entry *e = &result->manifest.entries[index];
    struct cb_tree_change *change = cb_tree_change_of(&c->changes, &at, e);
    if (!change || !change->result)
      continue;
    rc = cb_tree_stopped(c->stop, err);
    if (rc == CB_OK)
      rc = cb_tree_put(c->b, e->path, e, &result->reader, err);
    change->have_result = rc == CB_OK;
    if (rc)
      break;
  }
  return rc;
}

/* A result pack may leave out a content that only got another mode. */
static int copy_rest(struct compare *c, struct cb_err *err)
{
  int rc = CB_OK;
  for (size_t i = 0; rc == CB_OK && i < c->changes.count; i++) {
    struct cb_tree_change *change = &c->changes.list[i];
    const struct cb_manifest_entry *base = change->base, *result = change->result;
    struct cb_buf bytes;
    if (base && !change->have_base)
      return lacks(base->path, err);
    if (!result || change->have_result)
      continue;
    if (!base || strcmp(base->sha256, result->sha256) != 0 || base->mode == CB_TREE_LINK ||
        result->mode == CB_TREE_LINK)
      return lacks(result->path, err);
    cb_buf_init(&bytes, SIZE_MAX / 4);
    rc = cb_read_file_beneath(c->a, base->path, &bytes, err);
    if (rc == CB_OK)
      rc = cb_tree_folders(c->b, result->path, err);
    if (rc == CB_OK)
      rc = cb_write_file_beneath(c->b, result->path, bytes.p ? bytes.p : "", bytes.len,
                                 result->mode == CB_TREE_PROGRAM ? 0755 : 0644, false, err);
    cb_buf_clear(&bytes);
  }
  return rc;
}

static json_t *list_changes(const struct cb_tree_changes *changes)
{
  json_t *list = json_array();
  for (size_t i = 0; i < changes->count; i++) {
    const struct cb_manifest_entry *e = cb_tree_change_entry(&changes->list[i]);
    json_t *one = cb_tree_path_and(e->path, e->path_len, "change",
                                   cb_tree_change_name(&changes->list[i]));
    if (json_array_append_new(list, one)) {
      json_decref(list);
      return NULL;
    }
  }
  return list;
}

int cb_tree_compare(const json_t *args, const atomic_bool *stop, json_t **out, struct cb_err *err)
{
  struct compare c = { .a = -1, .b = -1, .stop = stop };
  struct cb_tree_pack base = { .fd = -1 }, result = { .fd = -1 };
  char before[CB_SHA256_HEX + 1], after[CB_SHA256_HEX + 1];
  int dir = -1;

  *out = NULL;
  int rc = cb_tree_pack_open(&base, cb_tree_text(args, "base"), most_files(args),
                             most_bytes(args), err);
  if (rc == CB_OK)
    rc = cb_tree_pack_open(&result, cb_tree_text(args, "result"), most_files(args),
                           most_bytes(args), err);
  if (rc == CB_OK)
    rc = cb_tree_changes_find(&c.changes, &base.manifest, &result.manifest, err);
  if (rc == CB_OK)
    rc = open_empty(cb_tree_text(args, "dir"), &dir, err);
  if (rc == CB_OK && (mkdirat(dir, "a", 0700) < 0 || mkdirat(dir, "b", 0700) < 0))
    rc = cb_err_errno(err, errno, "make the folders to compare");
  if (rc == CB_OK)
    rc = cb_open_beneath(dir, "a", O_RDONLY | O_DIRECTORY, 0, &c.a, err);
  if (rc == CB_OK)
    rc = cb_open_beneath(dir, "b", O_RDONLY | O_DIRECTORY, 0, &c.b, err);
  if (rc == CB_OK)
    rc = write_base(&c, &base, err);
  if (rc == CB_OK)
    rc = write_result(&c, &result, err);
  if (rc == CB_OK)
    rc = copy_rest(&c, err);
  if (rc == CB_OK) {
    json_t *list = list_changes(&c.changes);
    cb_manifest_digest(&base.manifest, before);
    cb_manifest_digest(&result.manifest, after);
    *out = list ? json_pack("{s:o, s:s, s:s}", "changed", list, "base_digest", before, "digest",
                            after)
                : NULL;
    rc = *out ? CB_OK : cb_err_no_memory(err);
  }
  cb_tree_changes_clear(&c.changes);
  cb_close(&c.a);
  cb_close(&c.b);
  cb_close(&dir);
  cb_tree_pack_clear(&base);
  cb_tree_pack_clear(&result);
  return rc;
}
