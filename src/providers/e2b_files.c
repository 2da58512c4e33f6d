/* SPDX-License-Identifier: MIT
 * e2b_files.c: files of a box: upload, ranged read, list, remove. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/encode.h"
#include "providers/e2b_call.h"

enum {
  PATH_MAX_BYTES = 4096,
  FILES_MAX = 4096,
  ENTRIES_MAX = 50000,
  UPLOAD_MS = 600000,
  READ_BYTES_MAX = 256 << 20,
  REFUSAL_MAX = 4096
};

struct file {
  struct cb_http_part *parts; /* upload */
  struct cb_buf data;         /* read: what was asked for, no more */
  struct cb_buf refusal;      /* read: beginning of an answer that is no file */
  int64_t offset, max_bytes;
  int64_t skip; /* bytes to drop because the server ignored the range */
  int status;
  char range[64];
};

static void file_free(void *own)
{
  struct file *f = own;
  cb_free(f->parts);
  cb_buf_clear_wiped(&f->data);
  cb_buf_clear(&f->refusal);
  cb_free(f);
}

static struct file *new_file(struct cb_e2b_call *c)
{
  struct file *f = cb_calloc(1, sizeof *f);
  if (!f) {
    struct cb_err err = CB_ERR_INIT;
    cb_err_no_memory(&err);
    cb_e2b_fail(c, &err);
    return NULL;
  }
  c->own = f;
  c->free_own = file_free;
  return f;
}

static int check_path(const char *path, struct cb_err *err)
{
  if (!path || !*path)
    return cb_err_set(err, CB_INVALID, "path is missing");
  if (strlen(path) > PATH_MAX_BYTES)
    return cb_err_set(err, CB_INVALID, "path is over %d bytes", (int)PATH_MAX_BYTES);
  for (const char *p = path; *p; p++)
    if ((unsigned char)*p < 0x20 || *p == 0x7f)
      return cb_err_set(err, CB_INVALID, "path has a control character in it");
  return CB_OK;
}

static int add_query(struct cb_buf *url, const char *sep, const char *name, const char *value)
{
  int rc = cb_buf_addf(url, "%s%s=", sep, name);
  return rc ? rc : cb_percent_add(url, value, strlen(value));
}

/* ---- upload ------------------------------------------------------------------------------ */

static int take_part(const json_t *file, struct cb_http_part *part, struct cb_err *err)
{
  const json_t *data = json_object_get(file, "data");
  int rc = cb_arg_text(file, "path", true, &part->filename, err);
  if (!rc)
    rc = check_path(part->filename, err);
  if (!rc)
    rc = cb_arg_text(file, "source", false, &part->source, err);
  if (rc)
    return rc;
  if (json_is_string(data) == (part->source != NULL))
    return cb_err_set(err, CB_INVALID, "a file needs data or a source, and not both");
  if (!part->source) {
    part->data = json_string_value(data);
    part->len = json_string_length(data);
  }
  return CB_OK;
}

static int take_parts(struct cb_e2b_call *c, struct file *f, struct cb_err *err)
{
  const json_t *files;
  int rc = cb_arg_list(c->args, "files", &files, err);
  if (rc)
    return rc;
  size_t n = json_array_size(files);
  if (n == 0 || n > FILES_MAX)
    return cb_err_set(err, CB_INVALID, "files are 1 to %d", (int)FILES_MAX);
  f->parts = cb_calloc(n, sizeof *f->parts);
  if (!f->parts)
    return cb_err_no_memory(err);
  for (size_t i = 0; i < n && !rc; i++) {
    rc = take_part(json_array_get(files, i), &f->parts[i], err);
    if (rc)
      cb_err_wrap(err, "file %zu", i + 1);
  }
  return rc;
}

static void upload_end(struct cb_e2b_call *c, struct cb_http_res *res, const struct cb_err *err)
{
  if (err) {
    struct cb_err why = *err;
    why.unknown = !res && c->sent; /* some files may be there, whole or in part */
    cb_e2b_fail(c, &why);
  } else {
    cb_e2b_finish(c, json_object());
  }
}

/* Servers disagree on how a quote or a backslash in a part's file name is escaped. The path in the
 * query is exact everywhere, but names one file only. */
static const char *awkward_name(const struct file *f, size_t count)
{
  for (size_t i = 0; i < count; i++)
    if (strpbrk(f->parts[i].filename, "\"\\"))
      return f->parts[i].filename;
  return NULL;
}

/* "/files" with the query of the upload. */
static int upload_path(const struct cb_e2b_call *c, const struct file *f, const char *user,
                       struct cb_buf *path, struct cb_err *err)
{
  size_t count = json_array_size(json_object_get(c->args, "files"));
  const char *awkward = awkward_name(f, count);
  if (awkward && count > 1)
    return cb_err_set(err, CB_INVALID,
                      "a file with a quote or a backslash in its path must be uploaded alone");
  if (cb_buf_addz(path, "/files") || (awkward && add_query(path, "?", "path", awkward)) ||
      (user && add_query(path, awkward ? "&" : "?", "username", user)))
    return cb_err_set(err, CB_INVALID, "path or user is too long");
  return CB_OK;
}

void cb_e2b_v_upload(struct cb_provider *p, const json_t *args, cb_done *done, void *arg)
{
  static const char *const names[] = {"box", "user", "files", NULL};
  struct cb_err err = CB_ERR_INIT;
  struct cb_buf path;
  const char *user;
  struct cb_e2b_call *c = cb_e2b_begin(p, "upload", args, names, UPLOAD_MS, done, arg);
  struct file *f = c ? new_file(c) : NULL;
  if (!f)
    return;
  cb_buf_init(&path, 65536);
  int rc = cb_e2b_arg_box(c, &err);
  if (!rc)
    rc = cb_arg_text(c->args, "user", false, &user, &err);
  if (!rc)
    rc = take_parts(c, f, &err);
  if (!rc)
    rc = upload_path(c, f, user, &path, &err);
  if (rc) {
    cb_e2b_fail(c, &err);
  } else {
    cb_e2b_new_step(c);
    c->parts = f->parts;
    c->part_count = json_array_size(json_object_get(c->args, "files"));
    /* Each file is written whole by this request, so a second one gives the same files. */
    cb_e2b_envd(c, "POST", path.p, true, upload_end);
  }
  cb_buf_clear(&path);
}

/* ---- read -------------------------------------------------------------------------------- */

static void read_head(void *arg, int status, const char *content_type)
{
  struct cb_e2b_call *c = arg;
  struct file *f = c->own;
  (void)content_type;
  f->status = status;
  f->skip = status == 200 ? f->offset : 0; /* the server sends the whole file */
  cb_buf_reset(&f->data);                  /* of a try before */
  cb_buf_reset(&f->refusal);
}

/* Keeps what was asked for and leaves once it is there. */
static bool read_data(void *arg, const char *p, size_t n)
{
  struct cb_e2b_call *c = arg;
  struct file *f = c->own;
  if (f->status != 200 && f->status != 206) {
    size_t left = f->refusal.max - f->refusal.len;
    return cb_buf_add(&f->refusal, p, n < left ? n : left) == CB_OK && n <= left;
  }
  if (f->status == 200 && f->skip > 0) {
    size_t drop = (uint64_t)f->skip < n ? (size_t)f->skip : n;
    f->skip -= (int64_t)drop;
    p += drop;
    n -= drop;
  }
  size_t room = f->data.max - f->data.len;
  if (cb_buf_add(&f->data, p, n < room ? n : room))
    return false;
  return n <= room;
}

/* "bytes 10-19/300" or "bytes * /300"; *size -1 when it is unknown. */
static bool content_range(const struct cb_http_res *res, int64_t *from, int64_t *size)
{
  size_t n;
  char text[96];
  const char *v = cb_http_header(res, "content-range", &n);
  *from = *size = -1;
  if (!v || n >= sizeof text)
    return false;
  memcpy(text, v, n);
  text[n] = '\0';
  int64_t to, whole;
  if (sscanf(text, "bytes %" SCNd64 "-%" SCNd64 "/%" SCNd64, from, &to, &whole) == 3 ||
      sscanf(text, "bytes */%" SCNd64, &whole) == 1)
    *size = whole;
  else if (sscanf(text, "bytes %" SCNd64 "-%" SCNd64 "/*", from, &to) != 2)
    return false;
  return true;
}

static int64_t content_length(const struct cb_http_res *res)
{
  size_t n;
  char text[24], *end;
  const char *v = cb_http_header(res, "content-length", &n);
  if (!v || n == 0 || n >= sizeof text)
    return -1;
  memcpy(text, v, n);
  text[n] = '\0';
  int64_t len = strtoll(text, &end, 10);
  return *end || len < 0 ? -1 : len;
}

static json_t *read_value(const struct file *f, const struct cb_buf *data, int64_t size)
{
  json_t *v = json_pack("{s:o, s:I}", "data", json_stringn_nocheck(data->p ? data->p : "", data->len),
                        "offset", (json_int_t)f->offset);
  if (v && size >= 0)
    json_object_set_new(v, "size", json_integer(size));
  return v;
}

static void read_end(struct cb_e2b_call *c, struct cb_http_res *res, const struct cb_err *err)
{
  struct file *f = c->own;
  struct cb_err own = CB_ERR_INIT;
  int64_t from = -1, size = -1;
  if (res && res->status == 416) { /* nothing at or behind the offset */
    content_range(res, &from, &size);
    cb_e2b_finish(c, read_value(f, &f->data, size));
    return;
  }
  if (err && res) { /* its words went into our buffer, as all bytes do */
    cb_rpc_refusal(&own, "envd", res->status, f->refusal.p, f->refusal.len, res->retry_after_ms);
    cb_e2b_fail(c, &own);
    return;
  }
  if (err) {
    cb_e2b_fail(c, err);
    return;
  }
  if (res->status == 206) { /* NOLINT(clang-analyzer-core.NullDereference): no err, so an answer */
    if (!content_range(res, &from, &size) || from != f->offset) {
      cb_err_set(&own, CB_PROTOCOL, "the server gave another range than was asked for");
      cb_e2b_fail(c, &own);
      return;
    }
  } else {
    size = content_length(res);
    if (size < 0 && f->skip == 0 && (int64_t)f->data.len < f->max_bytes)
      size = f->offset + (int64_t)f->data.len; /* it came to its end */
  }
  cb_e2b_finish(c, read_value(f, &f->data, size));
}

void cb_e2b_v_read(struct cb_provider *p, const json_t *args, cb_done *done, void *arg)
{
  static const char *const names[] = {"box", "path", "offset", "max_bytes", "user", NULL};
  struct cb_err err = CB_ERR_INIT;
  struct cb_buf url;
  const char *path, *user;
  struct cb_e2b_call *c = cb_e2b_begin(p, "read", args, names, 0, done, arg);
  struct file *f = c ? new_file(c) : NULL;
  if (!f)
    return;
  cb_buf_init(&url, 65536);
  int rc = cb_e2b_arg_box(c, &err);
  if (!rc)
    rc = cb_arg_text(c->args, "path", true, &path, &err);
  if (!rc)
    rc = check_path(path, &err);
  if (!rc)
    rc = cb_arg_text(c->args, "user", false, &user, &err);
  if (!rc)
    rc = cb_arg_int(c->args, "offset", 0, INT64_C(1) << 53, 0, &f->offset, &err);
  if (!rc)
    rc = cb_arg_int(c->args, "max_bytes", 1, READ_BYTES_MAX, -1, &f->max_bytes, &err);
  if (!rc && (add_query(&url, "/files?", "path", path) ||
              (user && add_query(&url, "&", "username", user))))
    rc = cb_err_set(&err, CB_INVALID, "path or user is too long");
  if (rc) {
    cb_e2b_fail(c, &err);
  } else {
    cb_buf_init(&f->data, (size_t)f->max_bytes);
    cb_buf_init(&f->refusal, REFUSAL_MAX);
    snprintf(f->range, sizeof f->range, "bytes=%" PRId64 "-%" PRId64, f->offset,
             f->offset + f->max_bytes - 1);
    cb_e2b_new_step(c);
    c->range = f->range;
    c->on_head = read_head;
    c->on_data = read_data;
    cb_e2b_envd(c, "GET", url.p, true, read_end);
  }
  cb_buf_clear(&url);
}

/* ---- ls and remove ----------------------------------------------------------------------- */

static const char *type_of(const json_t *entry)
{
  const json_t *type = json_object_get(entry, "type");
  const char *name = json_string_value(type);
  if (json_is_string(json_object_get(entry, "symlinkTarget")))
    return "symlink"; /* the type is then that of the target */
  if ((name && strcmp(name, "FILE_TYPE_DIRECTORY") == 0) || json_integer_value(type) == 2)
    return "dir";
  if ((name && strcmp(name, "FILE_TYPE_SYMLINK") == 0) || json_integer_value(type) == 3)
    return "symlink";
  return "file";
}

/* int64 comes as text, and smaller servers send a number. */
static int64_t whole_number(const json_t *v)
{
  char *end;
  if (json_is_integer(v))
    return json_integer_value(v) < 0 ? 0 : json_integer_value(v);
  const char *text = json_string_value(v);
  int64_t n = text && *text ? strtoll(text, &end, 10) : 0;
  return !text || !*text || *end || n < 0 ? 0 : n;
}

static json_t *entry_of(const json_t *entry, struct cb_err *err)
{
  const char *name = json_string_value(json_object_get(entry, "name"));
  const char *path = json_string_value(json_object_get(entry, "path"));
  if (!name || !path) {
    cb_err_set(err, CB_PROTOCOL, "an entry has no usable %s", name ? "path" : "name");
    return NULL;
  }
  return json_pack("{s:s, s:s, s:s, s:I, s:I}", "name", name, "path", path, "type",
                   type_of(entry), "size",
                   (json_int_t)whole_number(json_object_get(entry, "size")), "mode",
                   (json_int_t)whole_number(json_object_get(entry, "mode")));
}

static void ls_end(struct cb_e2b_call *c, json_t *value, const struct cb_err *err)
{
  struct cb_err own = CB_ERR_INIT;
  const json_t *list = json_object_get(value, "entries"); /* absent: none */
  if (err) {
    cb_e2b_fail(c, err);
    return;
  }
  if (list && !json_is_array(list))
    cb_err_set(&own, CB_PROTOCOL, "the answer has no usable entries");
  else if (json_array_size(list) > ENTRIES_MAX)
    cb_err_set(&own, CB_TOO_LARGE, "more than %d entries", (int)ENTRIES_MAX);
  json_t *entries = json_array();
  for (size_t i = 0; i < json_array_size(list) && !own.code; i++) {
    json_t *entry = entry_of(json_array_get(list, i), &own);
    if (entry)
      json_array_append_new(entries, entry);
    else if (!own.code)
      cb_err_no_memory(&own);
  }
  if (own.code) {
    json_decref(entries);
    cb_e2b_fail(c, &own);
  } else {
    cb_e2b_finish(c, json_pack("{s:o}", "entries", entries));
  }
}

/* Takes "box" and "path"; false when the call is over. */
static bool take_box_path(struct cb_e2b_call *c, const char **path)
{
  struct cb_err err = CB_ERR_INIT;
  if (cb_e2b_arg_box(c, &err) || cb_arg_text(c->args, "path", true, path, &err) ||
      check_path(*path, &err) || cb_arg_text(c->args, "user", false, &c->user, &err)) {
    cb_e2b_fail(c, &err);
    return false;
  }
  return true;
}

void cb_e2b_v_ls(struct cb_provider *p, const json_t *args, cb_done *done, void *arg)
{
  static const char *const names[] = {"box", "path", "depth", "user", NULL};
  struct cb_err err = CB_ERR_INIT;
  const char *path;
  int64_t depth;
  struct cb_e2b_call *c = cb_e2b_begin(p, "ls", args, names, 0, done, arg);
  if (!c || !take_box_path(c, &path))
    return;
  if (cb_arg_int(c->args, "depth", 1, 64, 1, &depth, &err))
    cb_e2b_fail(c, &err);
  else
    cb_e2b_unary(c, "filesystem.Filesystem/ListDir",
                 json_pack("{s:s, s:I}", "path", path, "depth", (json_int_t)depth), true, ls_end);
}

static void remove_end(struct cb_e2b_call *c, json_t *value, const struct cb_err *err)
{
  (void)value;
  if (err)
    cb_e2b_fail(c, err);
  else
    cb_e2b_finish(c, json_object());
}

void cb_e2b_v_remove(struct cb_provider *p, const json_t *args, cb_done *done, void *arg)
{
  static const char *const names[] = {"box", "path", "user", NULL};
  const char *path;
  struct cb_e2b_call *c = cb_e2b_begin(p, "remove", args, names, 0, done, arg);
  if (c && take_box_path(c, &path))
    cb_e2b_unary(c, "filesystem.Filesystem/Remove", json_pack("{s:s}", "path", path), true,
                 remove_end);
}
