/* SPDX-License-Identifier: MIT
 * apply.c: takes what a run changed into a checkout. Decides about every target first; one
 * refusal and nothing is written. The moving is place.c's.
 *
 *   the checkout has          the run had as base       answer
 *   nothing                   nothing                   create
 *   nothing                   a file                    refuse: deleted since
 *   the same as the base      that                      replace or delete
 *   the same as the result    anything                  done already
 *   something else            anything                  refuse: it changed, or is in the way */
#include "tree/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fd.h"
#include "base/path.h"
#include "tree/args.h"
#include "tree/changes.h"
#include "tree/file.h"
#include "tree/never.h"
#include "tree/place.h"
#include "tree/walk.h"

static const char behind_link[] = "a folder on its path is a link";

struct apply {
  struct cb_tree_place place;
  struct cb_tree_changes changes;
  struct cb_tree_pack base, result;
  json_t *refused;
  const json_t *args;
};

static int refuse(struct apply *a, const struct cb_tree_target *t, const char *reason,
                  struct cb_err *err)
{
  const struct cb_manifest_entry *e = cb_tree_change_entry(t->change);
  json_t *o = cb_tree_path_and(e->path, e->path_len, "reason", reason);
  return json_array_append_new(a->refused, o) ? cb_err_no_memory(err) : CB_OK;
}

/* ---- rules of names and links -------------------------------------------------------------- */

/* C:\x: a plain name here, an absolute path where the checkout may be looked at next. */
static bool is_drive_path(const char *path)
{
  char c = path[0];
  return ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) && path[1] == ':' &&
         (path[2] == '\\' || path[2] == '/');
}

/* ".." may only lead a link's text: behind a name that is itself a link it would mean another
 * place than the words say. */
static bool climbs_after_name(const char *text, size_t len)
{
  bool named = false;
  for (size_t at = 0; at <= len;) {
    const char *slash = memchr(text + at, '/', len - at);
    size_t n = slash ? (size_t)(slash - text) - at : len - at;
    bool up = n == 2 && text[at] == '.' && text[at + 1] == '.';
    if (up && named)
      return true;
    named = named || (!up && n > 0 && !(n == 1 && text[at] == '.'));
    at += n + 1;
  }
  return false;
}

/* Goes through the whole result pack once: it is sound, no content is missing, links are fit. */
static int check_contents(struct apply *a, struct cb_err *err)
{
  char shown[CB_TREE_SHOWN + 1], text[CB_PATH_MAX_BYTES];
  size_t index, at = 0;
  int rc;
  while ((rc = cb_pack_next(&a->result.reader, &index, err)) == CB_OK && index != SIZE_MAX) {
    const struct cb_manifest_entry *e = &a->result.manifest.entries[index];
    struct cb_tree_change *change = cb_tree_change_of(&a->changes, &at, e);
    rc = cb_tree_stopped(a->place.stop, err);
    if (rc)
      return rc;
    if (!change || !change->result)
      continue;
    change->have_result = true;
    if (e->mode != CB_TREE_LINK)
      continue;
    size_t len = 0, n;
    do {
      rc = cb_pack_read(&a->result.reader, text + len, sizeof text - len, &n, err);
      len += n;
    } while (rc == CB_OK && n > 0 && len < sizeof text);
    if (rc)
      return rc;
    if (len == sizeof text || !cb_link_stays_inside(e->path, e->path_len, text, len) ||
        climbs_after_name(text, len)) {
      struct cb_tree_target t = { .change = change };
      rc = refuse(a, &t, "link leaves checkout", err);
      if (rc)
        return rc;
    }
  }
  for (size_t i = 0; rc == CB_OK && i < a->changes.count; i++) {
    struct cb_tree_change *c = &a->changes.list[i];
    if (c->result && !c->have_result && strcmp(cb_tree_change_name(c), "mode") != 0)
      rc = cb_err_set(err, CB_CORRUPT, "the result lacks the content of %s",
                      cb_tree_show(c->result->path, shown));
  }
  return rc;
}

/* ---- rules of targets ---------------------------------------------------------------------- */

static const struct cb_tree_target *target_at(const struct apply *a, const char *path, size_t len)
{
  size_t lo = 0, hi = a->place.count;
  while (lo < hi) {
    size_t mid = lo + (hi - lo) / 2;
    const struct cb_manifest_entry *e = cb_tree_change_entry(a->place.targets[mid].change);
    int order = cb_path_order(path, len, e->path, e->path_len);
    if (order == 0)
      return &a->place.targets[mid];
    if (order < 0)
      hi = mid;
    else
      lo = mid + 1;
  }
  return NULL;
}

static bool will_go(void *ctx, const char *path)
{
  const struct cb_tree_target *t = target_at(ctx, path, strlen(path));
  return t && t->action == CB_TREE_DELETE;
}

/* Something that is no folder stands above the target: fine when it will be deleted. */
static bool way_will_be_free(const struct apply *a, const char *path)
{
  for (const char *slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/')) {
    const struct cb_tree_target *t = target_at(a, path, (size_t)(slash - path));
    if (t && t->action == CB_TREE_DELETE)
      return true;
  }
  return false;
}

static int compare_current(struct apply *a, struct cb_tree_target *t, struct cb_err *err)
{
  const struct cb_tree_change *c = t->change;
  const struct cb_manifest_entry *e = cb_tree_change_entry(c);
  struct cb_manifest_entry now = { .size = 0 };
  int rc = cb_tree_read(a->place.root, e->path, &t->look, &now, NULL, NULL, err);
  if (rc)
    return rc;
  if (c->result && cb_manifest_same(&now, c->result))
    t->action = CB_TREE_KEEP;
  else if (!c->base)
    return refuse(a, t, "it is there already, and differs", err);
  else if (!cb_manifest_same(&now, c->base))
    return refuse(a, t, "stale_base: it changed since the run began", err);
  else
    t->action = c->result ? CB_TREE_REPLACE : CB_TREE_DELETE;
  return CB_OK;
}

/* Everything about one target that does not depend on what becomes of others. */
static int check_target(struct apply *a, struct cb_tree_target *t, struct cb_err *err)
{
  const struct cb_tree_change *c = t->change;
  const struct cb_manifest_entry *e = cb_tree_change_entry(c);
  const char *never = cb_tree_never(e->path, e->path_len);
  int rc = cb_tree_stopped(a->place.stop, err);
  if (rc)
    return rc;
  if (never)
    return refuse(a, t, never, err);
  if (is_drive_path(e->path))
    return refuse(a, t, "not a path inside the checkout", err);
  rc = cb_tree_look(a->place.root, e->path, &t->look, err);
  if (rc)
    return rc;
  switch (t->look.kind) {
  case CB_TREE_KIND_SPECIAL: return refuse(a, t, "not a regular file", err);
  case CB_TREE_KIND_FOLDER:
    if (c->base)
      return refuse(a, t, "stale_base: it is a folder now", err);
    t->over_folder = true;
    t->action = CB_TREE_CREATE;
    return CB_OK;
  case CB_TREE_KIND_BEHIND_LINK:
    if (c->base)
      return refuse(a, t, behind_link, err);
    t->action = CB_TREE_CREATE; /* unless the link stays: check_way */
    return CB_OK;
  case CB_TREE_KIND_ABSENT:
  case CB_TREE_KIND_BLOCKED:
    if (!c->result)
      return CB_OK; /* gone already */
    if (c->base)
      return refuse(a, t, "stale_base: it was deleted since the run began", err);
    t->action = CB_TREE_CREATE;
    return CB_OK;
  case CB_TREE_KIND_FILE:
  case CB_TREE_KIND_LINK: break;
  }
  return compare_current(a, t, err);
}

/* Targets that need the place of something else. */
static int check_way(struct apply *a, struct cb_tree_target *t, struct cb_err *err)
{
  const char *path = cb_tree_change_entry(t->change)->path;
  bool all = true;
  if (t->action != CB_TREE_CREATE)
    return CB_OK;
  bool link = t->look.kind == CB_TREE_KIND_BEHIND_LINK;
  if ((link || t->look.kind == CB_TREE_KIND_BLOCKED) && !way_will_be_free(a, path))
    return refuse(a, t, link ? behind_link : "a file stands where a folder is needed", err);
  if (t->over_folder) {
    int rc = cb_tree_walk(a->place.root, path, will_go, a, &all, err);
    if (rc)
      return rc;
    if (!all)
      return refuse(a, t, "a folder with other files stands there", err);
  }
  return CB_OK;
}

static int check_all(struct apply *a, json_t **out, struct cb_err *err)
{
  int rc = CB_OK;
  a->place.targets = cb_calloc(a->changes.count, sizeof *a->place.targets);
  if (!a->place.targets)
    return cb_err_no_memory(err);
  a->place.count = a->changes.count;
  for (size_t i = 0; i < a->place.count; i++)
    a->place.targets[i].change = &a->changes.list[i];
  rc = check_contents(a, err);
  for (size_t i = 0; rc == CB_OK && i < a->place.count; i++)
    rc = check_target(a, &a->place.targets[i], err);
  for (size_t i = 0; rc == CB_OK && i < a->place.count; i++)
    rc = check_way(a, &a->place.targets[i], err);
  size_t n = json_array_size(a->refused);
  if (rc == CB_OK && n > 0) {
    *out = json_pack("{s:O}", "refused", a->refused);
    rc = cb_err_set(err, CB_CONFLICT, "%zu of %zu changes cannot be applied: nothing was written", n,
                    a->changes.count);
  }
  return rc;
}

/* ---- doing it ------------------------------------------------------------------------------ */

static int open_pack(const json_t *args, const char *which, struct cb_tree_pack *pack,
                     struct cb_err *err)
{
  return cb_tree_pack_open(pack, cb_tree_text(args, which),
                           (size_t)cb_tree_number(args, "max_files", CB_TREE_MAX_FILES),
                           cb_tree_number(args, "max_bytes", CB_TREE_MAX_BYTES), err);
}

static bool wants_content(const struct cb_tree_target *t)
{
  return (t->action == CB_TREE_CREATE || t->action == CB_TREE_REPLACE) && !t->staged;
}

static int stage_all(struct apply *a, struct cb_err *err)
{
  struct cb_tree_pack again = { .fd = -1 };
  char first[CB_SHA256_HEX + 1], second[CB_SHA256_HEX + 1];
  size_t index;
  int rc = open_pack(a->args, "result", &again, err);
  if (rc == CB_OK) {
    cb_manifest_digest(&a->result.manifest, first);
    cb_manifest_digest(&again.manifest, second);
    if (strcmp(first, second) != 0)
      rc = cb_err_set(err, CB_CONFLICT, "the result changed while it was applied");
  }
  while (rc == CB_OK && (rc = cb_pack_next(&again.reader, &index, err)) == CB_OK &&
         index != SIZE_MAX) {
    const struct cb_manifest_entry *e = &again.manifest.entries[index];
    const struct cb_tree_target *t = target_at(a, e->path, e->path_len);
    if (t && t->change->result && wants_content(t))
      rc = cb_tree_place_stage(&a->place, (size_t)(t - a->place.targets), &again.reader, err);
  }
  for (size_t i = 0; rc == CB_OK && i < a->place.count; i++) {
    if (wants_content(&a->place.targets[i])) /* only its mode changed */
      rc = cb_tree_place_stage(&a->place, i, NULL, err);
  }
  cb_tree_pack_clear(&again);
  return rc;
}

/* {written, deleted}: of all targets, or of those that are done. */
static json_t *list_targets(const struct apply *a, bool only_done)
{
  json_t *written = json_array(), *deleted = json_array();
  for (size_t i = 0; i < a->place.count; i++) {
    const struct cb_tree_target *t = &a->place.targets[i];
    const struct cb_manifest_entry *e = cb_tree_change_entry(t->change);
    if (t->action == CB_TREE_KEEP || (only_done && !t->done))
      continue;
    json_array_append_new(t->action == CB_TREE_DELETE ? deleted : written,
                          json_stringn_nocheck(e->path, e->path_len));
  }
  return json_pack("{s:o, s:o}", "written", written, "deleted", deleted);
}

static bool nothing_to_do(const struct apply *a)
{
  for (size_t i = 0; i < a->place.count; i++) {
    if (a->place.targets[i].action != CB_TREE_KEEP)
      return false;
  }
  return true;
}

static int do_all(struct apply *a, json_t **out, struct cb_err *err)
{
  int rc = cb_tree_place_begin(&a->place, err);
  if (rc == CB_OK)
    rc = stage_all(a, err);
  if (rc == CB_OK)
    rc = cb_tree_place_commit(&a->place, err);
  if (rc && a->place.stuck) {
    *out = list_targets(a, true);
    json_object_set_new(*out, "kept", json_string(a->place.name));
    cb_err_wrap(err, "not everything could be undone; what was there before is in %s",
                a->place.name);
  } else if (rc && err) {
    cb_err_wrap(err, "nothing was changed");
  }
  cb_tree_place_end(&a->place);
  return rc;
}

int cb_tree_apply(const json_t *args, const atomic_bool *stop, json_t **out, struct cb_err *err)
{
  struct apply a = { .place = { .root = -1, .staging = -1, .stop = stop },
                     .base = { .fd = -1 },
                     .result = { .fd = -1 },
                     .args = args };
  const char *root = cb_tree_text(args, "root");
  struct cb_err mine = CB_ERR_INIT;

  *out = NULL;
  a.refused = json_array();
  a.place.root = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  int rc = a.place.root < 0 ? cb_err_errno(&mine, errno, "open the checkout %s", root) : CB_OK;
  if (rc == CB_OK)
    rc = open_pack(args, "base", &a.base, &mine);
  if (rc == CB_OK)
    rc = open_pack(args, "result", &a.result, &mine);
  if (rc == CB_OK)
    rc = cb_tree_changes_find(&a.changes, &a.base.manifest, &a.result.manifest, &mine);
  if (rc == CB_OK)
    rc = check_all(&a, out, &mine);
  if (rc == CB_OK && !json_is_true(json_object_get(args, "dry_run")) && !nothing_to_do(&a))
    rc = do_all(&a, out, &mine);
  if (rc == CB_OK) {
    *out = list_targets(&a, false);
    rc = *out ? CB_OK : cb_err_no_memory(&mine);
  }
  if (rc && err)
    *err = mine;
  cb_free(a.place.targets);
  cb_tree_changes_clear(&a.changes);
  cb_tree_pack_clear(&a.base);
  cb_tree_pack_clear(&a.result);
  cb_close(&a.place.root);
  json_decref(a.refused);
  return rc;
}
