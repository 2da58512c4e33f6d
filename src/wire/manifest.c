/* SPDX-License-Identifier: MIT */
#include "wire/manifest.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/path.h"

enum { FIRST_CAP = 64, SIZE_DIGITS = 19, MODE_LEN = 6 };

void cb_manifest_clear(struct cb_manifest *m)
{
  for (size_t i = 0; i < m->count; i++)
    cb_free(m->entries[i].path);
  cb_free(m->entries);
  m->entries = NULL;
  m->count = m->cap = 0;
}

static bool is_digest(const char *s, size_t n)
{
  if (n != CB_SHA256_HEX)
    return false;
  for (size_t i = 0; i < n; i++) {
    if (!((s[i] >= '0' && s[i] <= '9') || (s[i] >= 'a' && s[i] <= 'f')))
      return false;
  }
  return true;
}

static bool is_mode(enum cb_tree_mode mode)
{
  return mode == CB_TREE_FILE || mode == CB_TREE_PROGRAM || mode == CB_TREE_LINK;
}

static int grow(struct cb_manifest *m, struct cb_err *err)
{
  size_t cap = m->cap ? m->cap : FIRST_CAP / 2, bytes;
  if (!cb_size_mul(cap, 2, &cap) || !cb_size_mul(cap, sizeof *m->entries, &bytes))
    return cb_err_no_memory(err);
  struct cb_manifest_entry *entries = cb_realloc(m->entries, bytes);
  if (!entries)
    return cb_err_no_memory(err);
  m->entries = entries;
  m->cap = cap;
  return CB_OK;
}

int cb_manifest_add(struct cb_manifest *m, enum cb_tree_mode mode, uint64_t size,
                    const char *sha256, const char *path, size_t path_len, struct cb_err *err)
{
  if (!cb_path_is_plain(path, path_len))
    return cb_err_set(err, CB_INVALID, "manifest: a path that is not plain and relative");
  if (!is_mode(mode) || !is_digest(sha256, strnlen(sha256, CB_SHA256_HEX + 1)))
    return cb_err_set(err, CB_INVALID, "manifest: mode or digest of %.200s", path);
  if (m->count == m->cap) {
    int rc = grow(m, err);
    if (rc)
      return rc;
  }
  char *copy = cb_memdup(path, path_len);
  if (!copy)
    return cb_err_no_memory(err);
  struct cb_manifest_entry *e = &m->entries[m->count++];
  e->mode = mode;
  e->size = size;
  memcpy(e->sha256, sha256, CB_SHA256_HEX);
  e->sha256[CB_SHA256_HEX] = '\0';
  e->path = copy;
  e->path_len = path_len;
  return CB_OK;
}

int cb_path_order(const char *a, size_t a_len, const char *b, size_t b_len)
{
  int d = memcmp(a, b, a_len < b_len ? a_len : b_len);
  if (d)
    return d;
  return a_len < b_len ? -1 : a_len > b_len;
}

static int by_path(const void *a, const void *b)
{
  const struct cb_manifest_entry *x = a, *y = b;
  return cb_path_order(x->path, x->path_len, y->path, y->path_len);
}

const struct cb_manifest_entry *cb_manifest_find(const struct cb_manifest *m, const char *path,
                                                 size_t path_len)
{
  size_t lo = 0, hi = m->count;
  while (lo < hi) {
    size_t mid = lo + (hi - lo) / 2;
    const struct cb_manifest_entry *e = &m->entries[mid];
    int d = cb_path_order(path, path_len, e->path, e->path_len);
    if (d == 0)
      return e;
    if (d < 0)
      hi = mid;
    else
      lo = mid + 1;
  }
  return NULL;
}

/* The first entry that lies below another one, NULL when none does. "a", "a.b", "a/c" is an
 * order in which parent and child are no neighbours, so every parent is looked up. */
static const struct cb_manifest_entry *first_below(const struct cb_manifest *m)
{
  for (size_t i = 0; i < m->count; i++) {
    const struct cb_manifest_entry *e = &m->entries[i];
    for (size_t n = 1; n < e->path_len; n++) {
      if (e->path[n] == '/' && cb_manifest_find(m, e->path, n))
        return e;
    }
  }
  return NULL;
}

int cb_manifest_sort(struct cb_manifest *m, struct cb_err *err)
{
  if (m->count > 1)
    qsort(m->entries, m->count, sizeof *m->entries, by_path);
  for (size_t i = 1; i < m->count; i++) {
    if (by_path(&m->entries[i - 1], &m->entries[i]) == 0)
      return cb_err_set(err, CB_INVALID, "manifest: %.200s comes twice", m->entries[i].path);
  }
  const struct cb_manifest_entry *below = first_below(m);
  if (below)
    return cb_err_set(err, CB_INVALID, "manifest: %.200s lies below another entry", below->path);
  return CB_OK;
}

/* Takes decimal text without sign or leading zero up to the space that ends it. */
static bool take_size(const char **at, const char *end, uint64_t *out)
{
  const char *p = *at;
  uint64_t v = 0;
  size_t digits = 0;
  while (p < end && *p >= '0' && *p <= '9') {
    if (++digits > SIZE_DIGITS || (digits == 2 && v == 0))
      return false;
    v = v * 10 + (uint64_t)(*p++ - '0');
  }
  if (digits == 0 || p == end || *p != ' ')
    return false;
  *at = p + 1;
  *out = v;
  return true;
}

static bool take_mode(const char **at, const char *end, enum cb_tree_mode *out)
{
  static const struct {
    char text[MODE_LEN + 2];
    enum cb_tree_mode mode;
  } modes[] = { { "100644 ", CB_TREE_FILE },
                { "100755 ", CB_TREE_PROGRAM },
                { "120000 ", CB_TREE_LINK } };
  if (end - *at < MODE_LEN + 1)
    return false;
  for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
    if (memcmp(*at, modes[i].text, MODE_LEN + 1) == 0) {
      *at += MODE_LEN + 1;
      *out = modes[i].mode;
      return true;
    }
  }
  return false;
}

static int parse_entry(struct cb_manifest *m, const char **at, const char *end, struct cb_err *err)
{
  enum cb_tree_mode mode;
  uint64_t size;
  char digest[CB_SHA256_HEX + 1];

  if (!take_mode(at, end, &mode) || !take_size(at, end, &size))
    return cb_err_set(err, CB_PROTOCOL, "manifest: entry %zu: mode or size", m->count);
  if (end - *at < CB_SHA256_HEX + 1 || !is_digest(*at, CB_SHA256_HEX) ||
      (*at)[CB_SHA256_HEX] != ' ')
    return cb_err_set(err, CB_PROTOCOL, "manifest: entry %zu: digest", m->count);
  memcpy(digest, *at, CB_SHA256_HEX);
  digest[CB_SHA256_HEX] = '\0';
  *at += CB_SHA256_HEX + 1;
  const char *nul = memchr(*at, '\0', (size_t)(end - *at));
  if (!nul)
    return cb_err_set(err, CB_PROTOCOL, "manifest: entry %zu: path without an end", m->count);
  size_t len = (size_t)(nul - *at);
  if (!cb_path_is_plain(*at, len))
    return cb_err_set(err, CB_PROTOCOL, "manifest: entry %zu: a path that is not plain", m->count);
  if (m->count > 0) {
    const struct cb_manifest_entry *last = &m->entries[m->count - 1];
    if (cb_path_order(last->path, last->path_len, *at, len) >= 0)
      return cb_err_set(err, CB_PROTOCOL, "manifest: entry %zu: out of order", m->count);
  }
  int rc = cb_manifest_add(m, mode, size, digest, *at, len, err);
  *at = nul + 1;
  return rc;
}

int cb_manifest_parse(struct cb_manifest *m, const void *p, size_t len, size_t max_files,
                      struct cb_err *err)
{
  const char *at = p;
  const char *end = at + len;
  int rc = CB_OK;

  assert(m->count == 0);
  if (len > CB_MANIFEST_MAX_BYTES)
    return cb_err_set(err, CB_TOO_LARGE, "manifest: over %d bytes", CB_MANIFEST_MAX_BYTES);
  while (rc == CB_OK && at < end) {
    if (m->count == max_files)
      rc = cb_err_set(err, CB_TOO_LARGE, "manifest: more than %zu entries", max_files);
    else
      rc = parse_entry(m, &at, end, err);
  }
  if (rc == CB_OK && first_below(m))
    rc = cb_err_set(err, CB_PROTOCOL, "manifest: an entry lies below another one");
  if (rc)
    cb_manifest_clear(m);
  return rc;
}

static size_t format_head(const struct cb_manifest_entry *e, char out[128])
{
  int n = snprintf(out, 128, "%06o %" PRIu64 " %s ", (unsigned)e->mode, e->size, e->sha256);
  assert(n > 0 && n < 128);
  return (size_t)n;
}

int cb_manifest_write(const struct cb_manifest *m, struct cb_buf *into, struct cb_err *err)
{
  char head[128];
  for (size_t i = 0; i < m->count; i++) {
    const struct cb_manifest_entry *e = &m->entries[i];
    int rc = cb_buf_add(into, head, format_head(e, head));
    if (!rc)
      rc = cb_buf_add(into, e->path, e->path_len + 1);
    if (rc == CB_TOO_LARGE)
      return cb_err_set(err, CB_TOO_LARGE, "manifest: over %zu bytes", into->max);
    if (rc)
      return cb_err_no_memory(err);
  }
  return CB_OK;
}

void cb_manifest_digest(const struct cb_manifest *m, char out[CB_SHA256_HEX + 1])
{
  struct cb_sha256 sum;
  char head[128];
  cb_sha256_init(&sum);
  for (size_t i = 0; i < m->count; i++) {
    const struct cb_manifest_entry *e = &m->entries[i];
    cb_sha256_add(&sum, head, format_head(e, head));
    cb_sha256_add(&sum, e->path, e->path_len + 1);
  }
  cb_sha256_end_hex(&sum, out);
}

bool cb_manifest_same(const struct cb_manifest_entry *a, const struct cb_manifest_entry *b)
{
  return a->mode == b->mode && a->size == b->size && memcmp(a->sha256, b->sha256,
                                                            CB_SHA256_HEX) == 0;
}

uint64_t cb_manifest_bytes(const struct cb_manifest *m)
{
  uint64_t sum = 0;
  for (size_t i = 0; i < m->count; i++) {
    if (m->entries[i].size > UINT64_MAX - sum)
      return UINT64_MAX;
    sum += m->entries[i].size;
  }
  return sum;
}

bool cb_link_stays_inside(const char *path, size_t path_len, const char *text, size_t text_len)
{
  size_t depth = 0, start = 0;
  if (text_len == 0 || text[0] == '/' || memchr(text, '\0', text_len))
    return false;
  for (size_t i = 0; i < path_len; i++)
    depth += path[i] == '/';
  for (size_t i = 0; i <= text_len; i++) {
    if (i < text_len && text[i] != '/')
      continue;
    size_t n = i - start;
    const char *part = text + start;
    if (n == 2 && part[0] == '.' && part[1] == '.') {
      if (depth == 0)
        return false;
      depth--;
    } else if (n > 0 && !(n == 1 && part[0] == '.')) {
      depth++;
    }
    start = i + 1;
  }
  return true;
}
