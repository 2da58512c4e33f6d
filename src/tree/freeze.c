/* SPDX-License-Identifier: MIT
 * freeze.c: a checkout as it is now, as a pack.
 *
 * A pack begins with the digests of everything in it, and every file is read once: contents go
 * to a spool (a file without a name beside the pack) while they are hashed, and from there into
 * the pack. What the pack holds is what was read, whatever happens to the checkout since. */
#include "tree/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fd.h"
#include "base/path.h"
#include "base/rand.h"
#include "tree/args.h"
#include "tree/file.h"
#include "tree/never.h"

enum { TRIES = 3, LARGEST = 10, KEY_SEARCH = 64 * 1024, COPY = 64 * 1024 };

struct candidate {
  const char *path; /* in the arguments */
  size_t len;
  struct cb_tree_look look;
  uint64_t size;
};

struct freeze {
  int root;
  int spool;
  uint64_t spooled;
  struct candidate *list;
  size_t count;
  struct cb_manifest manifest;
  json_t *excluded;
  uint64_t max_bytes;
  size_t max_files;
  const json_t *exclude;
  const atomic_bool *stop;
};

static int by_path(const void *a, const void *b)
{
  const struct candidate *x = a, *y = b;
  return cb_path_order(x->path, x->len, y->path, y->len);
}

static int by_size(const void *a, const void *b)
{
  const struct candidate *x = a, *y = b;
  if (x->size != y->size)
    return x->size < y->size ? 1 : -1;
  return by_path(a, b);
}

static int exclude(struct freeze *f, const struct candidate *c, const char *reason,
                   struct cb_err *err)
{
  json_t *e = cb_tree_path_and(c->path, c->len, "reason", reason);
  return json_array_append_new(f->excluded, e) ? cb_err_no_memory(err) : CB_OK;
}

/* ---- what may come ------------------------------------------------------------------------- */

/* Why the candidate stays here, NULL when it may come. */
static const char *refusal(const struct freeze *f, const struct candidate *c)
{
  const char *reason = cb_tree_never(c->path, c->len);
  size_t i;
  json_t *pattern;
  if (reason)
    return reason;
  json_array_foreach(f->exclude, i, pattern) {
    if (cb_tree_matches(json_string_value(pattern), c->path))
      return "excluded by a rule of yours";
  }
  switch (c->look.kind) {
  case CB_TREE_KIND_ABSENT:
  case CB_TREE_KIND_BLOCKED: return "deleted";
  case CB_TREE_KIND_FOLDER: return "a folder";
  case CB_TREE_KIND_SPECIAL: return "not a regular file";
  case CB_TREE_KIND_BEHIND_LINK: return "behind a link";
  case CB_TREE_KIND_FILE:
  case CB_TREE_KIND_LINK: break;
  }
  return NULL;
}

static int take_paths(struct freeze *f, const json_t *paths, struct cb_err *err)
{
  size_t i;
  json_t *path;
  f->list = cb_calloc(json_array_size(paths), sizeof *f->list);
  if (!f->list)
    return cb_err_no_memory(err);
  json_array_foreach(paths, i, path) {
    struct candidate *c = &f->list[f->count];
    c->path = json_string_value(path);
    c->len = json_string_length(path);
    if (!cb_path_is_plain(c->path, c->len)) {
      int rc = exclude(f, c, "not a plain path", err);
      if (rc)
        return rc;
      continue;
    }
    f->count++;
  }
  if (f->count > 1)
    qsort(f->list, f->count, sizeof *f->list, by_path);
  size_t n = 0;
  for (i = 0; i < f->count; i++) {
    if (n == 0 || by_path(&f->list[n - 1], &f->list[i]) != 0)
      f->list[n++] = f->list[i];
  }
  f->count = n;
  return CB_OK;
}

/* Looks at each and drops what may not come; nothing is read yet. */
static int look_around(struct freeze *f, struct cb_err *err)
{
  size_t n = 0;
  for (size_t i = 0; i < f->count; i++) {
    struct candidate *c = &f->list[i];
    int rc = cb_tree_stopped(f->stop, err);
    if (rc == CB_OK)
      rc = cb_tree_look(f->root, c->path, &c->look, err);
    if (rc)
      return rc;
    const char *reason = refusal(f, c);
    if (reason) {
      rc = exclude(f, c, reason, err);
      if (rc)
        return rc;
      continue;
    }
    c->size = (uint64_t)c->look.st.st_size;
    f->list[n++] = *c;
  }
  f->count = n;
  return CB_OK;
}

static int too_large(struct freeze *f, json_t **out, struct cb_err *err, uint64_t bytes)
{
  json_t *largest = json_array();
  qsort(f->list, f->count, sizeof *f->list, by_size);
  for (size_t i = 0; i < f->count && i < LARGEST; i++) {
    json_t *e = cb_tree_path_and(f->list[i].path, f->list[i].len, NULL, NULL);
    json_object_set_new(e, "size", json_integer((json_int_t)f->list[i].size));
    json_array_append_new(largest, e);
  }
  *out = json_pack("{s:o}", "largest", largest);
  char shown[CB_TREE_SHOWN + 1];
  if (f->count > f->max_files)
    return cb_err_set(err, CB_TOO_LARGE, "the tree has %zu files, more than %zu: ignore some in "
                      ".gitignore", f->count, f->max_files);
  return cb_err_set(err, CB_TOO_LARGE,
                    "the tree has %" PRIu64 " bytes, more than %" PRIu64 "; the largest file is %s: "
                    "ignore it in .gitignore", bytes, f->max_bytes,
                    f->count ? cb_tree_show(f->list[0].path, shown) : "none");
}

static int check_size(struct freeze *f, json_t **out, struct cb_err *err)
{
  uint64_t bytes = 0;
  for (size_t i = 0; i < f->count; i++)
    bytes += f->list[i].size;
  if (bytes > f->max_bytes || f->count > f->max_files)
    return too_large(f, out, err, bytes);
  return CB_OK;
}

/* ---- reading ------------------------------------------------------------------------------- */

struct spooling {
  struct freeze *f;
  struct cb_buf head; /* the first bytes, to look for a key */
  uint64_t start;
};

static int spool(void *ctx, const void *p, size_t n, struct cb_err *err)
{
  struct spooling *s = ctx;
  size_t room = s->head.max - s->head.len;
  if (cb_buf_add(&s->head, p, n < room ? n : room))
    return cb_err_no_memory(err);
  int rc = cb_tree_stopped(s->f->stop, err);
  if (rc == CB_OK)
    rc = cb_write_full(s->f->spool, p, n, err);
  if (rc == CB_OK)
    s->f->spooled += n;
  return rc;
}

static int rewind_spool(struct freeze *f, uint64_t to, struct cb_err *err)
{
  if (ftruncate(f->spool, (off_t)to) < 0 || lseek(f->spool, (off_t)to, SEEK_SET) < 0)
    return cb_err_errno(err, errno, "the spool of the pack");
  f->spooled = to;
  return CB_OK;
}

static bool holds_key(const struct cb_buf *head)
{
  static const char mark[] = "PRIVATE KEY-----";
  return head->len && memmem(head->p, head->len, mark, sizeof mark - 1) != NULL;
}

/* Reads one candidate to the spool and adds its entry, unless it may not come after all. */
static int take(struct freeze *f, struct candidate *c, json_t **out, struct cb_err *err)
{
  struct spooling s = { .f = f, .start = f->spooled };
  struct cb_manifest_entry e;
  const char *reason = NULL;
  int rc = CB_OK;

  cb_buf_init(&s.head, KEY_SEARCH);
  for (int left = TRIES; left > 0; left--) {
    rc = cb_tree_read(f->root, c->path, &c->look, &e, spool, &s, err);
    if (rc != CB_CONFLICT)
      break;
    cb_buf_reset(&s.head);
    rc = rewind_spool(f, s.start, err);
    if (rc == CB_OK)
      rc = cb_tree_look(f->root, c->path, &c->look, err);
    if (rc)
      goto out;
    reason = refusal(f, c); /* gone, or something else: that is an answer, too */
    if (reason)
      break;
    rc = CB_CONFLICT;
  }
  if (rc == CB_CONFLICT) {
    char shown[CB_TREE_SHOWN + 1];
    *out = cb_tree_path_and(c->path, c->len, "reason", "changed_while_reading");
    rc = cb_err_set(err, CB_CONFLICT, "%s changes while it is read: stop what writes it and try again",
                    cb_tree_show(c->path, shown));
  }
  if (rc)
    goto out;
  if (!reason && holds_key(&s.head))
    reason = e.mode == CB_TREE_LINK ? NULL : "never uploaded: a private key is inside";
  if (!reason && e.mode == CB_TREE_LINK &&
      !cb_link_stays_inside(c->path, c->len, s.head.p ? s.head.p : "", s.head.len))
    reason = "link leaves checkout";
  if (reason) {
    rc = rewind_spool(f, s.start, err);
    if (rc == CB_OK)
      rc = exclude(f, c, reason, err);
  } else if (f->spooled > f->max_bytes) {
    c->size = e.size; /* it grew since it was looked at */
    rc = too_large(f, out, err, f->spooled);
  } else {
    rc = cb_manifest_add(&f->manifest, e.mode, e.size, e.sha256, c->path, c->len, err);
  }
out:
  cb_buf_clear(&s.head);
  return rc;
}

/* ---- the pack ------------------------------------------------------------------------------ */

static int to_file(void *ctx, const void *p, size_t n, struct cb_err *err)
{
  return cb_write_full(*(const int *)ctx, p, n, err);
}

/* The spool holds the contents in the order of the manifest. */
static int write_pack(struct freeze *f, int fd, struct cb_err *err)
{
  struct cb_pack_writer w;
  char piece[COPY];
  if (lseek(f->spool, 0, SEEK_SET) < 0)
    return cb_err_errno(err, errno, "the spool of the pack");
  int rc = cb_pack_begin(&w, to_file, &fd, &f->manifest, err);
  for (size_t i = 0; rc == CB_OK && i < f->manifest.count; i++) {
    uint64_t left = f->manifest.entries[i].size;
    rc = cb_tree_stopped(f->stop, err);
    if (rc == CB_OK)
      rc = cb_pack_file(&w, i, err);
    while (rc == CB_OK && left > 0) {
      size_t n = left < sizeof piece ? (size_t)left : sizeof piece;
      rc = cb_read_full(f->spool, piece, n, err);
      if (rc == CB_OK)
        rc = cb_pack_data(&w, piece, n, err);
      left -= n;
    }
  }
  return rc ? rc : cb_pack_end(&w, NULL, err);
}

static int open_beside(const char *pack, const char *end, char **name, struct cb_err *err)
{
  char id[17];
  struct cb_buf b;
  cb_random_id(id, sizeof id - 1);
  cb_buf_init(&b, CB_PATH_MAX_BYTES);
  *name = NULL;
  int rc = cb_buf_addf(&b, "%s.%s-%s", pack, end, id);
  if (rc) {
    if (rc == CB_NO_MEMORY)
      cb_err_no_memory(err);
    else
      cb_err_set(err, CB_INVALID, "the name of the pack is too long");
    return -1;
  }
  int fd = open(b.p, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (fd < 0)
    cb_err_errno(err, errno, "write %s", b.p);
  *name = fd < 0 ? NULL : cb_buf_take(&b, NULL);
  cb_buf_clear(&b);
  return fd;
}

static int publish(struct freeze *f, const char *pack, struct cb_err *err)
{
  char *temp = NULL;
  int fd = open_beside(pack, "new", &temp, err);
  if (fd < 0)
    return err->code;
  int rc = write_pack(f, fd, err);
  if (rc == CB_OK && fsync(fd) < 0)
    rc = cb_err_errno(err, errno, "write %s", pack);
  if (rc == CB_OK && rename(temp, pack) < 0)
    rc = cb_err_errno(err, errno, "write %s", pack);
  if (rc)
    unlink(temp);
  cb_close(&fd);
  cb_free(temp);
  return rc;
}

int cb_tree_freeze(const json_t *args, const atomic_bool *stop, json_t **out, struct cb_err *err)
{
  struct freeze f = { .root = -1, .spool = -1, .manifest = CB_MANIFEST_INIT, .stop = stop };
  const char *root = cb_tree_text(args, "root"), *pack = cb_tree_text(args, "pack");
  char *spool_name = NULL, digest[CB_SHA256_HEX + 1];
  struct cb_err mine = CB_ERR_INIT;
  int rc = CB_OK;

  *out = NULL;
  f.max_bytes = cb_tree_number(args, "max_bytes", CB_TREE_MAX_BYTES);
  f.max_files = (size_t)cb_tree_number(args, "max_files", CB_TREE_MAX_FILES);
  f.exclude = json_object_get(args, "exclude");
  f.excluded = json_array();
  f.root = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (f.root < 0)
    rc = cb_err_errno(&mine, errno, "open the checkout %s", root);
  if (rc == CB_OK)
    rc = take_paths(&f, json_object_get(args, "paths"), &mine);
  if (rc == CB_OK)
    rc = look_around(&f, &mine);
  if (rc == CB_OK)
    rc = check_size(&f, out, &mine);
  if (rc == CB_OK) {
    f.spool = open_beside(pack, "spool", &spool_name, &mine);
    rc = f.spool < 0 ? (int)mine.code : CB_OK;
  }
  /* NOLINTNEXTLINE(clang-analyzer-core.NonNullParamChecker): what was opened has its name */
  if (rc == CB_OK && unlink(spool_name) < 0)
    rc = cb_err_errno(&mine, errno, "the spool of the pack");
  for (size_t i = 0; rc == CB_OK && i < f.count; i++)
    rc = take(&f, &f.list[i], out, &mine);
  if (rc == CB_OK)
    rc = cb_manifest_sort(&f.manifest, &mine);
  if (rc == CB_OK)
    rc = publish(&f, pack, &mine);
  if (rc == CB_OK) {
    cb_manifest_digest(&f.manifest, digest);
    *out = json_pack("{s:s, s:I, s:I, s:O}", "digest", digest, "count",
                     (json_int_t)f.manifest.count, "bytes",
                     (json_int_t)cb_manifest_bytes(&f.manifest), "excluded", f.excluded);
    if (!*out)
      rc = cb_err_no_memory(&mine);
  }
  if (rc && err)
    *err = mine;
  json_decref(f.excluded);
  cb_manifest_clear(&f.manifest);
  cb_free(f.list);
  cb_free(spool_name);
  cb_close(&f.spool);
  cb_close(&f.root);
  return rc;
}
