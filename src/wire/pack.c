/* SPDX-License-Identifier: MIT */
#include "wire/pack.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"

static const char magic[] = "crewbox-pack 1\n";

enum { LINE_MAX_BYTES = 96 };

/* Writer -------------------------------------------------------------------------------- */

static int put(struct cb_pack_writer *w, const void *p, size_t n, struct cb_err *err)
{
  cb_sha256_add(&w->sum, p, n);
  return n ? w->sink(w->ctx, p, n, err) : CB_OK;
}

int cb_pack_begin(struct cb_pack_writer *w, cb_pack_sink *sink, void *ctx,
                  const struct cb_manifest *manifest, struct cb_err *err)
{
  char line[LINE_MAX_BYTES];
  struct cb_buf bytes;

  w->sink = sink;
  w->ctx = ctx;
  w->manifest = manifest;
  w->next = 0;
  w->current = SIZE_MAX;
  w->left = 0;
  cb_sha256_init(&w->sum);
  cb_buf_init(&bytes, CB_MANIFEST_MAX_BYTES);
  int rc = cb_manifest_write(manifest, &bytes, err);
  if (rc)
    goto out;
  int n = snprintf(line, sizeof line, "%smanifest %zu\n", magic, bytes.len);
  rc = put(w, line, (size_t)n, err);
  if (!rc)
    rc = put(w, bytes.p, bytes.len, err);
out:
  cb_buf_clear(&bytes);
  return rc;
}

/* Ends the content that is open: all of it came, and it is what its entry says. */
static int settle_file(struct cb_pack_writer *w, struct cb_err *err)
{
  char digest[CB_SHA256_HEX + 1];
  if (w->current == SIZE_MAX)
    return CB_OK;
  const struct cb_manifest_entry *e = &w->manifest->entries[w->current];
  w->current = SIZE_MAX;
  if (w->left > 0)
    return cb_err_set(err, CB_CONFLICT, "pack %.200s: %" PRIu64 " bytes short", e->path, w->left);
  cb_sha256_end_hex(&w->content, digest);
  if (memcmp(digest, e->sha256, CB_SHA256_HEX) != 0)
    return cb_err_set(err, CB_CONFLICT, "pack %.200s: it changed while it was read", e->path);
  return CB_OK;
}

int cb_pack_file(struct cb_pack_writer *w, size_t index, struct cb_err *err)
{
  char line[LINE_MAX_BYTES];
  int rc = settle_file(w, err);
  if (rc)
    return rc;
  assert(index >= w->next && index < w->manifest->count);
  const struct cb_manifest_entry *e = &w->manifest->entries[index];
  w->current = index;
  w->next = index + 1;
  w->left = e->size;
  cb_sha256_init(&w->content);
  int n = snprintf(line, sizeof line, "file %zu %" PRIu64 "\n", index, e->size);
  return put(w, line, (size_t)n, err);
}

int cb_pack_data(struct cb_pack_writer *w, const void *p, size_t n, struct cb_err *err)
{
  assert(w->current != SIZE_MAX);
  if (n > w->left)
    return cb_err_set(err, CB_CONFLICT, "pack %.200s: it grew while it was read",
                      w->manifest->entries[w->current].path);
  w->left -= n;
  cb_sha256_add(&w->content, p, n);
  return put(w, p, n, err);
}

int cb_pack_end(struct cb_pack_writer *w, char digest[CB_SHA256_HEX + 1], struct cb_err *err)
{
  char line[LINE_MAX_BYTES], sum[CB_SHA256_HEX + 1];
  int rc = settle_file(w, err);
  if (rc)
    return rc;
  cb_sha256_end_hex(&w->sum, sum);
  int n = snprintf(line, sizeof line, "end %s\n", sum);
  if (digest)
    memcpy(digest, sum, sizeof sum);
  return w->sink(w->ctx, line, (size_t)n, err);
}

/* Reader -------------------------------------------------------------------------------- */

/* Fills the buffer when it is empty. False with rc CB_OK at the end of the source. */
static bool fill(struct cb_pack_reader *r, int *rc, struct cb_err *err)
{
  *rc = CB_OK;
  if (r->at < r->len)
    return true;
  r->at = r->len = 0;
  *rc = r->source(r->ctx, r->buffer, sizeof r->buffer, &r->len, err);
  return *rc == CB_OK && r->len > 0;
}

static int cut_short(struct cb_err *err)
{
  return cb_err_set(err, CB_PROTOCOL, "pack: it ends early");
}

/* Up to max bytes, never 0 except at the end of the source. */
static int get_some(struct cb_pack_reader *r, void *p, size_t max, size_t *n, struct cb_err *err)
{
  int rc;
  *n = 0;
  if (!fill(r, &rc, err))
    return rc ? rc : cut_short(err);
  size_t have = r->len - r->at;
  *n = have < max ? have : max;
  memcpy(p, r->buffer + r->at, *n);
  r->at += *n;
  return CB_OK;
}

/* A line without its LF, into line as a C string. The caller adds it to the sum: the end
 * line is not part of it. */
static int get_line(struct cb_pack_reader *r, char line[LINE_MAX_BYTES], size_t *len,
                    struct cb_err *err)
{
  for (*len = 0; *len < LINE_MAX_BYTES; (*len)++) {
    size_t n;
    int rc = get_some(r, line + *len, 1, &n, err);
    if (rc)
      return rc;
    /* NOLINTNEXTLINE(clang-analyzer-core.UndefinedBinaryOperatorResult): a source fills what it says */
    if (line[*len] == '\n') {
      line[*len] = '\0';
      if (strlen(line) != *len)
        break;
      return CB_OK;
    }
  }
  return cb_err_set(err, CB_PROTOCOL, "pack: a line that is none");
}

static void sum_line(struct cb_pack_reader *r, const char *line, size_t len)
{
  cb_sha256_add(&r->sum, line, len);
  cb_sha256_add(&r->sum, "\n", 1);
}

/* Decimal without sign or leading zero; *at moves behind it. */
static bool take_number(const char **at, uint64_t *out)
{
  const char *p = *at;
  uint64_t v = 0;
  size_t digits = 0;
  for (; *p >= '0' && *p <= '9'; p++) {
    if (++digits > 19 || (digits == 2 && v == 0))
      return false;
    v = v * 10 + (uint64_t)(*p - '0');
  }
  *at = p;
  *out = v;
  return digits > 0;
}

static int read_manifest(struct cb_pack_reader *r, struct cb_manifest *m, uint64_t bytes,
                         size_t max_files, struct cb_err *err)
{
  struct cb_buf text;
  int rc = CB_OK;
  cb_buf_init(&text, CB_MANIFEST_MAX_BYTES);
  while (rc == CB_OK && text.len < bytes) { /* grows with what comes, not with what is claimed */
    char piece[4096];
    size_t n, want = bytes - text.len < sizeof piece ? (size_t)(bytes - text.len) : sizeof piece;
    rc = get_some(r, piece, want, &n, err);
    if (!rc && cb_buf_add(&text, piece, n))
      rc = cb_err_no_memory(err);
  }
  if (!rc) {
    cb_sha256_add(&r->sum, text.p, text.len);
    rc = cb_manifest_parse(m, text.p ? text.p : "", text.len, max_files, err);
  }
  cb_buf_clear(&text);
  return rc;
}

int cb_pack_open(struct cb_pack_reader *r, cb_pack_source *source, void *ctx,
                 struct cb_manifest *manifest, size_t max_files, uint64_t max_bytes,
                 struct cb_err *err)
{
  char line[LINE_MAX_BYTES];
  size_t len;
  uint64_t bytes;

  assert(manifest->count == 0);
  r->source = source;
  r->ctx = ctx;
  r->manifest = manifest;
  r->next = 0;
  r->current = SIZE_MAX;
  r->left = 0;
  r->done = false;
  r->at = r->len = 0;
  r->digest[0] = '\0';
  cb_sha256_init(&r->sum);
  int rc = get_line(r, line, &len, err);
  if (rc)
    return rc;
  if (len != sizeof magic - 2 || memcmp(line, magic, len) != 0)
    return cb_err_set(err, CB_PROTOCOL, "pack: not a pack of version 1");
  sum_line(r, line, len);
  rc = get_line(r, line, &len, err);
  if (rc)
    return rc;
  const char *at = line + 9;
  if (len < 10 || memcmp(line, "manifest ", 9) != 0 || !take_number(&at, &bytes) || *at)
    return cb_err_set(err, CB_PROTOCOL, "pack: no manifest");
  if (bytes > CB_MANIFEST_MAX_BYTES)
    return cb_err_set(err, CB_TOO_LARGE, "pack: a manifest over %d bytes", CB_MANIFEST_MAX_BYTES);
  sum_line(r, line, len);
  rc = read_manifest(r, manifest, bytes, max_files, err);
  if (!rc && cb_manifest_bytes(manifest) > max_bytes)
    rc = cb_err_set(err, CB_TOO_LARGE, "pack: more than %" PRIu64 " bytes of content", max_bytes);
  if (rc)
    cb_manifest_clear(manifest);
  return rc;
}

int cb_pack_read(struct cb_pack_reader *r, void *p, size_t max, size_t *n, struct cb_err *err)
{
  char digest[CB_SHA256_HEX + 1];
  *n = 0;
  if (r->current == SIZE_MAX)
    return CB_OK;
  if (r->left > 0) {
    int rc = get_some(r, p, max < r->left ? max : (size_t)r->left, n, err);
    if (rc)
      return rc;
    r->left -= *n;
    cb_sha256_add(&r->sum, p, *n);
    cb_sha256_add(&r->content, p, *n);
    return CB_OK;
  }
  const struct cb_manifest_entry *e = &r->manifest->entries[r->current];
  r->current = SIZE_MAX;
  cb_sha256_end_hex(&r->content, digest);
  if (memcmp(digest, e->sha256, CB_SHA256_HEX) != 0)
    return cb_err_set(err, CB_CORRUPT, "pack %.200s: content and digest differ", e->path);
  return CB_OK;
}

static int read_end(struct cb_pack_reader *r, const char *claimed, struct cb_err *err)
{
  int rc;
  cb_sha256_end_hex(&r->sum, r->digest);
  if (strcmp(claimed, r->digest) != 0)
    return cb_err_set(err, CB_CORRUPT, "pack: its sum is not the one at its end");
  if (fill(r, &rc, err))
    return cb_err_set(err, CB_PROTOCOL, "pack: bytes behind its end");
  if (rc == CB_OK)
    r->done = true;
  return rc;
}

int cb_pack_next(struct cb_pack_reader *r, size_t *index, struct cb_err *err)
{
  char line[LINE_MAX_BYTES];
  size_t len;
  int rc;

  *index = SIZE_MAX;
  while (r->current != SIZE_MAX) { /* what the caller did not want still counts */
    char skip[4096];
    size_t n;
    rc = cb_pack_read(r, skip, sizeof skip, &n, err);
    if (rc)
      return rc;
  }
  if (r->done)
    return CB_OK;
  rc = get_line(r, line, &len, err);
  if (rc)
    return rc;
  if (strncmp(line, "end ", 4) == 0)
    return read_end(r, line + 4, err);
  uint64_t i, bytes;
  const char *at = line + 5;
  if (strncmp(line, "file ", 5) != 0 || !take_number(&at, &i) || *at++ != ' ' ||
      !take_number(&at, &bytes) || *at)
    return cb_err_set(err, CB_PROTOCOL, "pack: neither a file nor the end");
  if (i < r->next || i >= r->manifest->count || r->manifest->entries[i].size != bytes)
    return cb_err_set(err, CB_PROTOCOL, "pack: a file its manifest does not announce");
  sum_line(r, line, len);
  r->current = (size_t)i;
  r->next = (size_t)i + 1;
  r->left = bytes;
  cb_sha256_init(&r->content);
  *index = r->current;
  return CB_OK;
}
