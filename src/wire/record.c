/* SPDX-License-Identifier: MIT */
#include "wire/record.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { LENGTH_DIGITS = 10 };

void cb_record_open(struct cb_record_reader *r, const void *p, size_t len)
{
  r->p = p;
  r->len = len;
  r->at = 0;
}

static int broken(struct cb_record_reader *r)
{
  r->at = SIZE_MAX;
  return -1;
}

static bool name_byte(char c, bool first)
{
  return (c >= 'a' && c <= 'z') || (!first && ((c >= '0' && c <= '9') || c == '_'));
}

int cb_record_next(struct cb_record_reader *r, struct cb_record *out)
{
  if (r->at == SIZE_MAX)
    return -1;
  if (r->at == r->len)
    return 0;
  size_t n = 0;
  while (r->at < r->len && name_byte(r->p[r->at], n == 0)) {
    if (n == CB_RECORD_NAME_MAX)
      return broken(r);
    out->name[n++] = r->p[r->at++];
  }
  out->name[n] = '\0';
  if (n == 0 || r->at == r->len || r->p[r->at++] != ' ')
    return broken(r);
  size_t len = 0, digits = 0;
  while (r->at < r->len && r->p[r->at] >= '0' && r->p[r->at] <= '9') {
    if (++digits > LENGTH_DIGITS || (digits == 2 && len == 0))
      return broken(r);
    len = len * 10 + (size_t)(r->p[r->at++] - '0');
  }
  if (digits == 0 || r->at == r->len || r->p[r->at++] != '\n')
    return broken(r);
  if (len >= r->len - r->at || r->p[r->at + len] != '\n')
    return broken(r);
  out->value = r->p + r->at;
  out->len = len;
  r->at += len + 1;
  return 1;
}

bool cb_record_is(const struct cb_record *rec, const char *name)
{
  return strcmp(rec->name, name) == 0;
}

bool cb_record_int(const struct cb_record *rec, int64_t *out)
{
  bool minus = rec->len > 0 && rec->value[0] == '-';
  uint64_t v = 0, limit = (uint64_t)INT64_MAX + (minus ? 1 : 0);
  size_t i = minus ? 1 : 0;
  if (i == rec->len)
    return false;
  for (; i < rec->len; i++) {
    if (rec->value[i] < '0' || rec->value[i] > '9')
      return false;
    uint64_t d = (uint64_t)(rec->value[i] - '0');
    if (v > (limit - d) / 10)
      return false;
    v = v * 10 + d;
  }
  *out = minus ? (int64_t)(0 - v) : (int64_t)v;
  return true;
}

bool cb_record_find(const void *p, size_t len, const char *name, struct cb_record *out)
{
  struct cb_record_reader r;
  cb_record_open(&r, p, len);
  while (cb_record_next(&r, out) == 1) {
    if (cb_record_is(out, name))
      return true;
  }
  return false;
}

bool cb_record_kind(const void *p, size_t len, const char *kind, int64_t version)
{
  struct cb_record_reader r;
  struct cb_record rec;
  int64_t v;
  cb_record_open(&r, p, len);
  return cb_record_next(&r, &rec) == 1 && cb_record_is(&rec, kind) && cb_record_int(&rec, &v) &&
         v == version;
}

int cb_record_add(struct cb_buf *b, const char *name, const void *value, size_t len)
{
  assert(strlen(name) > 0 && strlen(name) <= CB_RECORD_NAME_MAX);
  size_t start = b->len;
  int rc = cb_buf_addf(b, "%s %zu\n", name, len);
  if (!rc)
    rc = cb_buf_add(b, value, len);
  if (!rc)
    rc = cb_buf_addc(b, '\n');
  if (rc && b->p) { /* all or nothing */
    b->len = start;
    b->p[start] = '\0';
  }
  return rc;
}

int cb_record_addz(struct cb_buf *b, const char *name, const char *value)
{
  return cb_record_add(b, name, value, strlen(value));
}

int cb_record_addi(struct cb_buf *b, const char *name, int64_t value)
{
  char text[24];
  int n = snprintf(text, sizeof text, "%" PRId64, value);
  return cb_record_add(b, name, text, (size_t)n);
}
