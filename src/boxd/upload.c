/* SPDX-License-Identifier: MIT
 * upload.c: POST /files: one file as the raw body, or any number as parts of a form, plain or
 * gzipped. Nothing is buffered beyond the piece of body at hand: each file is opened by the
 * box's init when its first byte comes, and while that is awaited the upload stands still.
 *
 * The library's form parser calls back and cannot be told to wait, so what it says is noted as
 * steps (open, bytes, next) and carried out one after the other. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include "base/alloc.h"
#include "base/fd.h"
#include "boxd/boxd.h"
#include "boxd/envd.h"
#include "boxd/files_auth.h"
#include "boxd/json.h"

enum {
  PIECE = 64 * 1024,          /* of inflated body, and of the form parser's buffer */
  FILES_MAX = 20000,          /* in one request */
  RATIO_MAX = 200,            /* inflated bytes a gzipped byte may stand for, on the whole ... */
  RATIO_FREE = 64 * 1024 * 1024, /* ... beyond this many */
};

struct step {
  struct step *next;
  char *path; /* open this file; NULL: bytes */
  char *data;
  size_t n;
};

struct upload {
  struct cb_request *req;
  struct cb_row *row;
  char user[CB_AUTH_USER_MAX + 1];
  char *path;                       /* the query's; NULL: each part names its own */
  struct MHD_PostProcessor *form;   /* NULL: a raw body */
  bool gzip;
  z_stream z;
  bool z_ended;
  uint64_t z_in, z_out;

  struct step *steps, **steps_end;
  char *part;        /* name of the file the parser is within; NULL: within none */
  bool part_bytes;   /* ... and some of it has come */
  size_t files;
  bool opening;      /* the init was asked */
  bool waiting;      /* the library was told to wait */
  bool ended;        /* the whole body was taken */
  int fd;            /* of the current file; -1 before the first */
  json_t *written;   /* the answer */
  struct cb_err err; /* of the first failure; the rest of the body is then ignored */
  bool answered;
};

static void free_upload(struct upload *u)
{
  while (u->steps) {
    struct step *s = u->steps;
    u->steps = s->next;
    cb_free(s->path);
    cb_free(s->data);
    cb_free(s);
  }
  if (u->form)
    MHD_destroy_post_processor(u->form);
  if (u->gzip)
    inflateEnd(&u->z);
  cb_close(&u->fd);
  json_decref(u->written);
  cb_free(u->path);
  cb_free(u->part);
  cb_row_unref(u->row);
  cb_free(u);
}

static void drop_upload(struct cb_request *req)
{
  struct upload *u = req->op;
  req->op = NULL;
  if (!u)
    return;
  u->req = NULL;
  if (!u->opening) /* else the init's answer frees it */
    free_upload(u);
}

static bool failed(const struct upload *u)
{
  return u->err.code != CB_OK;
}

static void fail(struct upload *u, enum cb_code code, const char *text)
{
  if (!failed(u))
    cb_err_set(&u->err, code, "%s", text);
}

/* --- steps --- */

static void add_step(struct upload *u, const char *path, const char *data, size_t n)
{
  struct step *s = cb_calloc(1, sizeof *s);
  if (s && path)
    s->path = cb_strdup(path);
  else if (s)
    s->data = cb_memdup(data, n);
  if (!s || (!s->path && !s->data)) {
    cb_free(s);
    fail(u, CB_NO_MEMORY, "out of memory");
    return;
  }
  s->n = n;
  *u->steps_end = s;
  u->steps_end = &s->next;
}

static void write_bytes(struct upload *u, const char *p, size_t n)
{
  struct cb_err err = CB_ERR_INIT;
  if (failed(u) || u->fd < 0)
    return;
  if (cb_write_full(u->fd, p, n, &err)) {
    u->err = err;
    if (err.code == CB_DISK_FULL)
      cb_err_set(&u->err, CB_DISK_FULL, "not enough disk space available");
  }
}

static void on_opened(void *arg, struct cb_box_answer *answer);

static void open_file(struct upload *u, const char *path)
{
  struct cb_err err = CB_ERR_INIT;
  cb_close(&u->fd);
  if (failed(u))
    return;
  if (u->row->state != CB_ROW_RUNNING) {
    fail(u, CB_CLOSED, "the sandbox is gone");
    return;
  }
  u->opening = true;
  if (cb_box_open(u->row->box, path, *u->user ? u->user : NULL, true, on_opened, u, NULL, &err)) {
    u->opening = false;
    u->err = err;
  }
}

/* Carries out steps until one must wait. */
static void pump(struct upload *u)
{
  while (u->steps && !u->opening) {
    struct step *s = u->steps;
    u->steps = s->next;
    if (!u->steps)
      u->steps_end = &u->steps;
    if (s->path)
      open_file(u, s->path);
    else
      write_bytes(u, s->data, s->n);
    cb_free(s->path);
    cb_free(s->data);
    cb_free(s);
  }
}

static void answer_upload(struct upload *u)
{
  if (u->answered || !u->req)
    return;
  u->answered = true;
  if (failed(u)) {
    cb_files_fail(u->req, &u->err);
    return;
  }
  cb_answer_json(u->req, 200, json_incref(u->written));
}

static void note_written(struct upload *u, const char *path)
{
  const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
  json_array_append_new(u->written,
                        json_pack("{s:o,s:o,s:s}", "path", cb_json_text(path, strlen(path)),
                                  "name", cb_json_text(name, strlen(name)), "type", "file"));
}

static void on_opened(void *arg, struct cb_box_answer *answer)
{
  struct upload *u = arg;
  struct stat st;
  u->opening = false;
  if (!u->req) { /* the client has left */
    free_upload(u);
    return;
  }
  if (answer->err) {
    if (!failed(u))
      u->err = *answer->err;
  } else if (fstat(answer->fds[0], &st) < 0 || !S_ISREG(st.st_mode)) {
    fail(u, CB_INVALID, "path is not a regular file");
  } else {
    u->fd = answer->fds[0];
    answer->fds[0] = -1;
    /* The daemon waits for the disk here; it must not wait for whoever else has the file open. */
    fcntl(u->fd, F_SETFL, fcntl(u->fd, F_GETFL) & ~O_NONBLOCK);
    note_written(u, answer->path ? answer->path : "");
  }
  pump(u);
  if (u->opening)
    return;
  if (failed(u) || u->ended)
    answer_upload(u); /* a failure is told at once; the rest of the body is thrown away */
  else if (u->waiting)
    cb_request_continue(u->req);
  u->waiting = false;
}

/* --- the body --- */

static void begin_file(struct upload *u, const char *path)
{
  if (u->files++ >= FILES_MAX)
    fail(u, CB_INVALID, "too many files in one upload");
  else
    add_step(u, path, NULL, 0);
}

/* The parser tells neither begin nor end of a part. With offset 0 it may call twice for one
 * part, without bytes and then with the first ones, or once with bytes; for an empty part only
 * without. So offset 0 begins a part if the current one has bytes or another name. */
static bool is_new_part(const struct upload *u, const char *path, uint64_t offset)
{
  return offset == 0 && (!u->part || u->part_bytes || strcmp(u->part, path) != 0);
}

static enum MHD_Result on_part(void *cls, enum MHD_ValueKind kind, const char *key,
                               const char *filename, const char *type, const char *encoding,
                               const char *data, uint64_t offset, size_t n)
{
  struct upload *u = cls;
  const char *path = u->path ? u->path : filename;
  (void)kind;
  (void)type;
  (void)encoding;
  if (!key || strcmp(key, "file") != 0) { /* other fields mean nothing here */
    cb_free(u->part);
    u->part = NULL;
    return MHD_YES;
  }
  if (!path || !*path) {
    fail(u, CB_INVALID, "a part without a file name, and no path in the query");
    return MHD_NO;
  }
  if (is_new_part(u, path, offset)) {
    if (u->path && u->files > 0) {
      fail(u, CB_INVALID, "several files for one path");
      return MHD_NO;
    }
    cb_free(u->part);
    u->part = cb_strdup(path);
    u->part_bytes = false;
    if (u->part)
      begin_file(u, path);
    else
      fail(u, CB_NO_MEMORY, "out of memory");
  }
  if (n && u->part) {
    u->part_bytes = true;
    add_step(u, NULL, data, n);
  }
  return failed(u) ? MHD_NO : MHD_YES;
}

static void take_plain(struct upload *u, const char *p, size_t n)
{
  if (n == 0 || failed(u))
    return;
  if (!u->form) {
    if (u->steps || u->opening)
      add_step(u, NULL, p, n);
    else
      write_bytes(u, p, n); /* the common case: no copy */
    return;
  }
  if (MHD_post_process(u->form, p, n) != MHD_YES)
    fail(u, CB_INVALID, "the form of the upload is broken");
  pump(u);
}

/* Inflates until the input is used up or a step must wait. Returns the input taken. */
static size_t take_gzip(struct upload *u, const char *p, size_t n)
{
  char piece[PIECE];
  u->z.next_in = (Bytef *)(uintptr_t)p;
  u->z.avail_in = (uInt)n;
  for (;;) {
    if (failed(u) || (u->z_ended && u->z.avail_in == 0))
      return n;
    if (u->opening)
      return n - u->z.avail_in;
    if (u->z_ended) { /* members may follow each other (RFC 1952 2.2) */
      inflateReset(&u->z);
      u->z_ended = false;
    }
    u->z.next_out = (Bytef *)piece;
    u->z.avail_out = sizeof piece;
    uInt before = u->z.avail_in;
    int rc = inflate(&u->z, Z_NO_FLUSH);
    size_t made = sizeof piece - u->z.avail_out;
    u->z_in += before - u->z.avail_in;
    u->z_out += made;
    if (rc != Z_OK && rc != Z_STREAM_END && rc != Z_BUF_ERROR) {
      fail(u, CB_INVALID, "the upload is not valid gzip");
      return n;
    }
    if (u->z_out > RATIO_FREE && u->z_out / RATIO_MAX > u->z_in) {
      fail(u, CB_INVALID, "the gzipped upload unpacks to too much");
      return n;
    }
    u->z_ended = rc == Z_STREAM_END;
    take_plain(u, piece, made);
    if (made == 0 && (rc == Z_BUF_ERROR || u->z.avail_in == 0))
      return n - u->z.avail_in;
  }
}

static int begin(struct upload *u, struct cb_request *req)
{
  const char *type = cb_request_header(req, "Content-Type");
  const char *coding = cb_request_header(req, "Content-Encoding");
  const char *path = cb_request_query(req, "path");
  int rc = cb_files_user(req, u->user, &u->err);
  if (rc)
    return rc;
  if (coding && strcasecmp(coding, "identity") != 0) {
    if (strcasecmp(coding, "gzip") != 0)
      return cb_err_set(&u->err, CB_INVALID, "Content-Encoding %.40s is not offered", coding);
    if (inflateInit2(&u->z, 15 + 16) != Z_OK)
      return cb_err_no_memory(&u->err);
    u->gzip = true;
  }
  if (path && *path && !(u->path = cb_strdup(path)))
    return cb_err_no_memory(&u->err);
  if (type && strncasecmp(type, "multipart/form-data", 19) == 0) {
    u->form = MHD_create_post_processor(req->conn, PIECE, on_part, u);
    return u->form ? CB_OK : cb_err_set(&u->err, CB_INVALID, "the form has no boundary");
  }
  if (!type || strncasecmp(type, "application/octet-stream", 24) != 0)
    return cb_err_set(&u->err, CB_INVALID,
                      "Content-Type must be multipart/form-data or application/octet-stream");
  if (!u->path)
    return cb_err_set(&u->err, CB_INVALID, "path is missing");
  begin_file(u, u->path);
  return CB_OK;
}

/* The upload of a request, made at its first byte or, without any, at its end. */
static struct upload *upload_of(struct cb_request *req)
{
  if (req->op)
    return req->op;
  struct upload *u = cb_calloc(1, sizeof *u);
  if (!u) {
    cb_answer_error(req, 503, NULL, "out of memory");
    return NULL;
  }
  u->fd = -1;
  u->req = req;
  u->row = cb_row_of(req);
  cb_row_ref(u->row);
  u->steps_end = &u->steps;
  u->written = json_array();
  req->op = u;
  req->drop = drop_upload;
  if (!u->written)
    fail(u, CB_NO_MEMORY, "out of memory");
  else
    begin(u, req);
  pump(u);
  return u;
}

static size_t on_data(struct cb_request *req, const char *p, size_t n)
{
  struct upload *u = upload_of(req);
  if (!u || u->answered)
    return n;
  size_t took = 0;
  if (!failed(u) && !u->opening) {
    if (u->gzip) {
      took = take_gzip(u, p, n);
    } else {
      take_plain(u, p, n);
      took = n;
    }
  }
  if (failed(u) && !u->opening) {
    answer_upload(u);
    return n;
  }
  if (took < n)
    u->waiting = true;
  return took;
}

static void on_end(struct cb_request *req)
{
  struct upload *u = upload_of(req);
  if (!u || u->answered)
    return;
  u->ended = true;
  if (u->gzip && !u->z_ended && !failed(u))
    fail(u, CB_INVALID, "the gzipped upload ends too early");
  if (u->form) {
    if (MHD_destroy_post_processor(u->form) != MHD_YES)
      fail(u, CB_INVALID, "the form of the upload ends too early");
    u->form = NULL;
  }
  pump(u);
  if (!u->opening)
    answer_upload(u);
}

const struct cb_endpoint cb_envd_upload = { .data = on_data, .end = on_end };
