/* SPDX-License-Identifier: MIT */
#include "base/encode.h"

#include <stdint.h>
#include <string.h>

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void cb_hex(const void *p, size_t n, char *out)
{
  static const char digits[] = "0123456789abcdef";
  const unsigned char *s = p;
  for (size_t i = 0; i < n; i++) {
    out[2 * i] = digits[s[i] >> 4];
    out[2 * i + 1] = digits[s[i] & 15];
  }
  out[2 * n] = '\0';
}

size_t cb_base64(const void *p, size_t n, char *out)
{
  const unsigned char *s = p;
  char *w = out;
  size_t i = 0;
  for (; i + 3 <= n; i += 3) {
    uint32_t v = (uint32_t)s[i] << 16 | (uint32_t)s[i + 1] << 8 | s[i + 2];
    *w++ = alphabet[v >> 18];
    *w++ = alphabet[v >> 12 & 63];
    *w++ = alphabet[v >> 6 & 63];
    *w++ = alphabet[v & 63];
  }
  if (i < n) {
    uint32_t v = (uint32_t)s[i] << 16 | (i + 1 < n ? (uint32_t)s[i + 1] << 8 : 0);
    *w++ = alphabet[v >> 18];
    *w++ = alphabet[v >> 12 & 63];
    *w++ = i + 1 < n ? alphabet[v >> 6 & 63] : '=';
    *w++ = '=';
  }
  *w = '\0';
  return (size_t)(w - out);
}

int cb_base64_add(struct cb_buf *b, const void *p, size_t n)
{
  if (n > b->max / 4 * 3)
    return CB_TOO_LARGE;
  int rc = cb_buf_reserve(b, CB_BASE64_LEN(n));
  if (rc)
    return rc;
  b->len += cb_base64(p, n, b->p + b->len);
  return CB_OK;
}

static int value_of(char c)
{
  if (c >= 'A' && c <= 'Z')
    return c - 'A';
  if (c >= 'a' && c <= 'z')
    return c - 'a' + 26;
  if (c >= '0' && c <= '9')
    return c - '0' + 52;
  if (c == '+' || c == '-')
    return 62;
  if (c == '/' || c == '_')
    return 63;
  return -1;
}

int cb_base64_decode(struct cb_buf *into, const char *s, size_t n)
{
  while (n > 0 && s[n - 1] == '=')
    n--;
  if (n % 4 == 1)
    return CB_PROTOCOL;
  int rc = cb_buf_reserve(into, n / 4 * 3 + 3);
  if (rc)
    return rc;
  size_t start = into->len;
  uint32_t v = 0;
  int have = 0;
  for (size_t i = 0; i < n; i++) {
    int d = value_of(s[i]);
    if (d < 0) {
      into->len = start;
      into->p[start] = '\0';
      return CB_PROTOCOL;
    }
    v = v << 6 | (uint32_t)d;
    have += 6;
    if (have >= 8) {
      have -= 8;
      into->p[into->len++] = (char)(v >> have & 0xff);
    }
  }
  into->p[into->len] = '\0';
  return CB_OK;
}

int cb_percent_add(struct cb_buf *b, const void *p, size_t n)
{
  static const char digits[] = "0123456789ABCDEF";
  const unsigned char *s = p;
  for (size_t i = 0; i < n; i++) {
    unsigned char c = s[i];
    int plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                c == '.' || c == '_' || c == '~' || c == '-';
    char out[3] = { '%', digits[c >> 4], digits[c & 15] };
    int rc = plain ? cb_buf_addc(b, (char)c) : cb_buf_add(b, out, sizeof out);
    if (rc)
      return rc;
  }
  return CB_OK;
}

static int hex_value(char c)
{
  if (c >= '0' && c <= '9')
    return c - '0';
  if (c >= 'a' && c <= 'f')
    return c - 'a' + 10;
  if (c >= 'A' && c <= 'F')
    return c - 'A' + 10;
  return -1;
}

int cb_percent_decode(struct cb_buf *into, const char *s, size_t n, bool plus_is_space)
{
  for (size_t i = 0; i < n; i++) {
    char c = s[i];
    if (c == '%') {
      int hi = i + 2 < n ? hex_value(s[i + 1]) : -1;
      int lo = i + 2 < n ? hex_value(s[i + 2]) : -1;
      if (hi < 0 || lo < 0)
        return CB_PROTOCOL;
      c = (char)(hi << 4 | lo);
      i += 2;
    } else if (c == '+' && plus_is_space) {
      c = ' ';
    }
    int rc = cb_buf_addc(into, c);
    if (rc)
      return rc;
  }
  return CB_OK;
}

bool cb_utf8_valid(const char *p, size_t n)
{
  const unsigned char *s = (const unsigned char *)p;
  size_t i = 0;
  while (i < n) {
    unsigned char c = s[i];
    size_t more;
    uint32_t v;
    if (c < 0x80) {
      i++;
      continue;
    }
    if (c >= 0xc2 && c <= 0xdf)
      more = 1, v = c & 0x1f;
    else if (c >= 0xe0 && c <= 0xef)
      more = 2, v = c & 0x0f;
    else if (c >= 0xf0 && c <= 0xf4)
      more = 3, v = c & 0x07;
    else
      return false;
    if (n - i <= more)
      return false;
    for (size_t k = 1; k <= more; k++) {
      if ((s[i + k] & 0xc0) != 0x80)
        return false;
      v = v << 6 | (s[i + k] & 0x3f);
    }
    if ((more == 2 && (v < 0x800 || (v >= 0xd800 && v <= 0xdfff))) ||
        (more == 3 && (v < 0x10000 || v > 0x10ffff)))
      return false;
    i += more + 1;
  }
  return true;
}

bool cb_equal_const_time(const void *a, const void *b, size_t n)
{
  const unsigned char *x = a, *y = b;
  unsigned char diff = 0;
  for (size_t i = 0; i < n; i++)
    diff |= x[i] ^ y[i];
  return diff == 0;
}
