/* SPDX-License-Identifier: MIT
 * buf.h: a byte buffer that knows its ceiling from birth. Not thread safe. The bytes are
 * always followed by a NUL that is not counted, so p can be used as a C string when the
 * content has no NUL of its own. */
#ifndef CB_BASE_BUF_H
#define CB_BASE_BUF_H
#include <stdarg.h>
#include <stddef.h>
#include "base/err.h"

struct cb_buf {
  char *p;    /* NULL while nothing was ever added */
  size_t len; /* bytes used */
  size_t cap; /* bytes allocated */
  size_t max; /* ceiling of len */
};

void cb_buf_init(struct cb_buf *b, size_t max);
void cb_buf_clear(struct cb_buf *b);       /* frees; max stays; can be used again */
void cb_buf_clear_wiped(struct cb_buf *b); /* the same, for secrets: overwrites first */
void cb_buf_reset(struct cb_buf *b);       /* len = 0, keeps the memory */

/* Each returns CB_OK, CB_TOO_LARGE (nothing added) or CB_NO_MEMORY (nothing added). */
int cb_buf_reserve(struct cb_buf *b, size_t more); /* room for `more` bytes behind len */
int cb_buf_add(struct cb_buf *b, const void *p, size_t n);
int cb_buf_addz(struct cb_buf *b, const char *s);
int cb_buf_addc(struct cb_buf *b, char c);
int cb_buf_addf(struct cb_buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

void cb_buf_drop_front(struct cb_buf *b, size_t n); /* n <= len */

/* Reads fd to its end. CB_TOO_LARGE when it holds more than max. */
int cb_buf_read_all(struct cb_buf *b, int fd, struct cb_err *err);

/* Gives the bytes away (free with cb_free); the buffer is empty afterwards. Never NULL-content:
 * an empty buffer gives "". Returns NULL only when memory runs out. */
char *cb_buf_take(struct cb_buf *b, size_t *len);
#endif
