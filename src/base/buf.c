/* SPDX-License-Identifier: MIT */
#include "base/buf.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"

enum { FIRST_CAP = 256, READ_STEP = 65536 };

void cb_buf_init(struct cb_buf *b, size_t max)
{
  b->p = NULL;
  b->len = b->cap = 0;
  b->max = max;
}

void cb_buf_clear(struct cb_buf *b)
{
  cb_free(b->p);
  cb_buf_init(b, b->max);
}

void cb_buf_clear_wiped(struct cb_buf *b)
{
  cb_free_wiped(b->p, b->cap);
  cb_buf_init(b, b->max);
}

void cb_buf_reset(struct cb_buf *b)
{
  b->len = 0;
  if (b->p)
    b->p[0] = '\0';
}

int cb_buf_reserve(struct cb_buf *b, size_t more)
{
  size_t want;
  if (!cb_size_add(b->len, more, &want) || want > b->max)
    return CB_TOO_LARGE;
  if (b->p && want < b->cap)
    return CB_OK;
  size_t cap = b->cap ? b->cap : FIRST_CAP;
  while (cap <= want) {
    if (!cb_size_mul(cap, 2, &cap))
      return CB_TOO_LARGE;
  }
  char *p = cb_realloc(b->p, cap);
  if (!p)
    return CB_NO_MEMORY;
  b->p = p;
  b->cap = cap;
  b->p[b->len] = '\0';
  return CB_OK;
}

int cb_buf_add(struct cb_buf *b, const void *p, size_t n)
{
  int rc = cb_buf_reserve(b, n);
  if (rc)
    return rc;
  if (n)
    memcpy(b->p + b->len, p, n);
  b->len += n;
  b->p[b->len] = '\0';
  return CB_OK;
}

int cb_buf_addz(struct cb_buf *b, const char *s)
{
  return cb_buf_add(b, s, strlen(s));
}

int cb_buf_addc(struct cb_buf *b, char c)
{
  return cb_buf_add(b, &c, 1);
}

int cb_buf_addf(struct cb_buf *b, const char *fmt, ...)
{
  va_list ap;
  va_start(ap, fmt);
  int n = vsnprintf(NULL, 0, fmt, ap);
  va_end(ap);
  if (n < 0)
    return CB_INVALID;
  int rc = cb_buf_reserve(b, (size_t)n);
  if (rc)
    return rc;
  va_start(ap, fmt);
  vsnprintf(b->p + b->len, (size_t)n + 1, fmt, ap);
  va_end(ap);
  b->len += (size_t)n;
  return CB_OK;
}

void cb_buf_drop_front(struct cb_buf *b, size_t n)
{
  if (n == 0)
    return;
  memmove(b->p, b->p + n, b->len - n);
  b->len -= n;
  b->p[b->len] = '\0';
}

int cb_buf_read_all(struct cb_buf *b, int fd, struct cb_err *err)
{
  for (;;) {
    size_t room = b->max - b->len;
    size_t step = room < READ_STEP ? room : READ_STEP;
    if (step == 0) {
      char one;
      ssize_t n = read(fd, &one, 1);
      if (n == 0)
        return CB_OK;
      if (n < 0 && errno == EINTR)
        continue;
      if (n < 0)
        return cb_err_errno(err, errno, "read");
      return cb_err_set(err, CB_TOO_LARGE, "read: more than %zu bytes", b->max);
    }
    if (cb_buf_reserve(b, step))
      return cb_err_no_memory(err);
    ssize_t n = read(fd, b->p + b->len, step);
    if (n < 0) {
      if (errno == EINTR)
        continue;
      return cb_err_errno(err, errno, "read");
    }
    if (n == 0)
      return CB_OK;
    b->len += (size_t)n;
    b->p[b->len] = '\0';
  }
}

char *cb_buf_take(struct cb_buf *b, size_t *len)
{
  if (!b->p && cb_buf_reserve(b, 0))
    return NULL;
  char *p = b->p;
  if (len)
    *len = b->len;
  cb_buf_init(b, b->max);
  return p;
}
