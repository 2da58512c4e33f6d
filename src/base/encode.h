/* SPDX-License-Identifier: MIT
 * encode.h: base64, hex, percent, UTF-8 checks. Pure. Any thread. */
#ifndef CB_BASE_ENCODE_H
#define CB_BASE_ENCODE_H
#include <stdbool.h>
#include <stddef.h>
#include "base/buf.h"

void cb_hex(const void *p, size_t n, char *out); /* 2n lower-case digits and a NUL */

/* Bytes that cb_base64 writes, without the NUL. */
#define CB_BASE64_LEN(n) (((n) + 2) / 3 * 4)
size_t cb_base64(const void *p, size_t n, char *out); /* standard alphabet, padded, NUL */
int cb_base64_add(struct cb_buf *b, const void *p, size_t n);
/* Accepts standard and URL-safe alphabets, with or without padding; anything else is
 * CB_PROTOCOL. */
int cb_base64_decode(struct cb_buf *into, const char *s, size_t n);

/* Percent-encodes everything but [A-Za-z0-9._~-]. */
int cb_percent_add(struct cb_buf *b, const void *p, size_t n);
/* Decodes %XX; a lone % is CB_PROTOCOL. plus_is_space for query strings. */
int cb_percent_decode(struct cb_buf *into, const char *s, size_t n, bool plus_is_space);

bool cb_utf8_valid(const char *s, size_t n);
/* Compares without telling by its time where the first difference is. */
bool cb_equal_const_time(const void *a, const void *b, size_t n);
#endif
