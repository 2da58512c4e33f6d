/* SPDX-License-Identifier: MIT
 * The first bytes of every rendering: the writing side of forms.c. A form's choices are listed
 * byte by byte (plain or escaped) and walked until a key is full. */
#include <stdio.h>
#include <string.h>

#include "secrets/forms.h"

enum { OPTION_BYTES = 32, OPTIONS = 6 };

/* One way to write the value's next `used` bytes. */
struct option {
  uint8_t b[OPTION_BYTES];
  size_t n, used;
};

struct options {
  struct option o[OPTIONS];
  size_t n;
};

static void add(struct options *out, const void *p, size_t n, size_t used)
{
  if (out->n == OPTIONS || n > OPTION_BYTES)
    return;
  struct option *o = &out->o[out->n++];
  memcpy(o->b, p, n);
  o->n = n;
  o->used = used;
}

static void addf(struct options *out, const char *fmt, unsigned v)
{
  char text[16];
  /* the formats are the literals below */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
  int n = snprintf(text, sizeof text, fmt, v);
#pragma GCC diagnostic pop
  add(out, text, (size_t)n, 1);
}

static bool is_alnum(uint8_t c)
{
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* Printed with a backslash by some shell. */
static bool is_shell_special(uint8_t c)
{
  return c > ' ' && c < 0x7f ? !is_alnum(c) && !strchr("_-./:=@%+", c) : c == ' ' || c == '\t';
}

static void json_options(const uint8_t *v, size_t len, struct options *out)
{
  static const char from[] = "\b\f\n\r\t", to[] = "bfnrt";
  uint8_t c = v[0];
  const char *at = c ? strchr(from, c) : NULL;
  uint8_t pair[2] = { '\\', c };
  if (at)
    pair[1] = (uint8_t)to[at - from];
  if (at || c == '"' || c == '\\' || c == '/')
    add(out, pair, 2, 1);
  if (c >= ' ' && c != '"' && c != '\\')
    add(out, &c, 1, 1);
  if (c < 0x80) {
    addf(out, "\\u%04x", c);
    return;
  }
  unsigned cp = 0;
  size_t n = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : c >= 0xc2 ? 2 : 0;
  if (n == 0 || n > len)
    return;
  cp = c & (0xffu >> (n + 1));
  for (size_t i = 1; i < n; i++)
    cp = cp << 6 | (v[i] & 63);
  char text[16];
  int w = cp < 0x10000 ? snprintf(text, sizeof text, "\\u%04x", cp)
                       : snprintf(text, sizeof text, "\\u%04x\\u%04x",
                                  0xd800 + ((cp - 0x10000) >> 10) % 0x400,
                                  0xdc00 + (cp - 0x10000) % 0x400);
  add(out, text, (size_t)w, n);
}

static void ansi_options(uint8_t c, struct options *out)
{
  static const char from[] = "\a\b\033\f\n\r\t\v\\'", to[] = "abEfnrtv\\'";
  const char *at = c ? strchr(from, c) : NULL;
  uint8_t pair[2] = { '\\', c };
  if (at)
    pair[1] = (uint8_t)to[at - from];
  if (at || c == '"' || c == '?')
    add(out, pair, 2, 1);
  if (c == 033)
    add(out, "\\e", 2, 1);
  if (c >= ' ' && c != 0x7f && c != '\\' && c != '\'')
    add(out, &c, 1, 1);
  if (c < ' ' || c >= 0x7f) {
    addf(out, "\\x%02x", c);
    addf(out, "\\%03o", c);
  }
}

/* Puts what is there into a JSON string once more, in the usual way. */
static void escape_again(struct options *out)
{
  for (size_t i = 0; i < out->n; i++) {
    struct option was = out->o[i], *o = &out->o[i];
    o->n = 0;
    for (size_t k = 0; k < was.n && o->n + 2 <= OPTION_BYTES; k++) {
      if (was.b[k] == '\\' || was.b[k] == '"')
        o->b[o->n++] = '\\';
      o->b[o->n++] = was.b[k];
    }
  }
}

static void list_options(enum cb_form form, const uint8_t *v, size_t len, struct options *out)
{
  uint8_t c = v[0], pair[2] = { '\\', c };
  out->n = 0;
  switch (form) {
  case CB_FORM_PERCENT:
    add(out, &c, 1, 1);
    addf(out, "%%%02x", c);
    if (c == ' ')
      add(out, "+", 1, 1);
    break;
  case CB_FORM_JSON:
  case CB_FORM_JSON2:
    json_options(v, len, out);
    break;
  case CB_FORM_SQUOTE:
  case CB_FORM_JSON_SQUOTE:
    if (c == '\'') {
      add(out, "'\\''", 4, 1);
      add(out, "'\"'\"'", 5, 1);
    } else {
      add(out, &c, 1, 1);
    }
    break;
  case CB_FORM_BACKSLASH:
  case CB_FORM_JSON_BACKSLASH:
    add(out, &c, 1, 1);
    if (is_shell_special(c))
      add(out, pair, 2, 1);
    break;
  case CB_FORM_ANSI:
  case CB_FORM_JSON_ANSI:
    ansi_options(c, out);
    break;
  default:
    add(out, &c, 1, 1);
  }
  if (form == CB_FORM_JSON2 || form == CB_FORM_JSON_SQUOTE || form == CB_FORM_JSON_BACKSLASH ||
      form == CB_FORM_JSON_ANSI) {
    escape_again(out);
    if (c == '/') /* some writers escape that, too */
      add(out, "\\/", 2, 1);
    if (c == '/' && form == CB_FORM_JSON2)
      add(out, "\\\\\\/", 4, 1);
  }
}

/* Does the form write this value otherwise than the plainer forms do? */
static bool differs(enum cb_form form, const uint8_t *v, size_t len)
{
  for (size_t i = 0; i < len; i++) {
    switch (form) {
    case CB_FORM_SQUOTE:
    case CB_FORM_JSON_SQUOTE:
      if (v[i] == '\'')
        return true;
      break;
    case CB_FORM_BACKSLASH:
    case CB_FORM_JSON_BACKSLASH:
      if (is_shell_special(v[i]))
        return true;
      break;
    case CB_FORM_ANSI:
    case CB_FORM_JSON_ANSI:
      if (v[i] < ' ' || v[i] >= 0x7f || strchr("\\'\"?", v[i]))
        return true;
      break;
    default:
      return true;
    }
  }
  return false;
}

struct walk {
  enum cb_form form;
  const uint8_t *v;
  size_t len;
  int (*fn)(void *arg, const uint8_t key[CB_FORM_KEY]);
  void *arg;
  uint8_t key[CB_FORM_KEY + OPTION_BYTES];
};

static int walk_options(struct walk *w, size_t at, size_t n)
{
  struct options opts;
  if (n >= CB_FORM_KEY)
    return w->fn(w->arg, w->key);
  if (at >= w->len)
    return 0;
  list_options(w->form, w->v + at, w->len - at, &opts);
  for (size_t i = 0; i < opts.n; i++) {
    memcpy(w->key + n, opts.o[i].b, opts.o[i].n);
    int rc = walk_options(w, at + opts.o[i].used, n + opts.o[i].n);
    if (rc)
      return rc;
  }
  return 0;
}

/* The key of unwrapped text, and the keys of that text with a line break in its first bytes. */
static int with_wraps(struct walk *w, const uint8_t *text)
{
  static const struct {
    const char *p;
    size_t n;
  } breaks[] = { { "\n", 1 }, { "\r\n", 2 }, { "\\n", 2 } };
  int rc = w->fn(w->arg, text);
  for (size_t b = 0; b < sizeof breaks / sizeof *breaks; b++) {
    for (size_t at = CB_FORM_WRAP_LEAST; rc == 0 && at < CB_FORM_KEY; at++) {
      memcpy(w->key, text, at);
      memcpy(w->key + at, breaks[b].p, breaks[b].n);
      memcpy(w->key + at + breaks[b].n, text + at, CB_FORM_KEY - at);
      rc = w->fn(w->arg, w->key);
    }
  }
  return rc;
}

static int hex_keys(struct walk *w, const uint8_t *value)
{
  uint8_t text[CB_FORM_KEY];
  for (size_t i = 0; i < CB_FORM_KEY; i++)
    text[i] = (uint8_t)"0123456789abcdef"[value[i / 2] >> (i % 2 ? 0 : 4) & 15];
  return w->form == CB_FORM_HEX ? with_wraps(w, text) : w->fn(w->arg, text);
}

static int base64_keys(struct walk *w, unsigned phase, size_t left_out)
{
  static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
  static const size_t first[3] = { 0, 2, 3 };
  size_t begin = first[phase] + left_out;
  int rc = 0;
  if ((w->len + phase) * 8 / 6 - begin < CB_FORM_KEY)
    return 0; /* too short for a key once its begin is left out */
  for (int url_safe = 0; rc == 0 && url_safe < 2; url_safe++) {
    uint8_t text[CB_FORM_KEY];
    bool special = false;
    for (size_t k = 0; k < CB_FORM_KEY; k++) {
      unsigned v = 0;
      for (size_t bit = 6 * (k + begin), i = 0; i < 6; i++, bit++)
        v = v << 1 | (w->v[bit / 8 - phase] >> (7 - bit % 8) & 1u);
      special = special || v >= 62;
      text[k] = v < 62 ? (uint8_t)alphabet[v] : (uint8_t)(url_safe ? "-_" : "+/")[v - 62];
    }
    if (url_safe && !special)
      break;
    rc = left_out ? w->fn(w->arg, text) : with_wraps(w, text);
  }
  return rc;
}

int cb_form_keys(enum cb_form form, const uint8_t *value, size_t len,
                 int (*fn)(void *arg, const uint8_t key[CB_FORM_KEY]), void *arg)
{
  struct walk w = { .form = form, .v = value, .len = len, .fn = fn, .arg = arg };
  uint8_t key[CB_FORM_KEY];
  switch (form) {
  case CB_FORM_UTF16:
    return cb_form_utf16_key(value, len, key) ? fn(arg, key) : 0;
  case CB_FORM_HEX: return hex_keys(&w, value);
  case CB_FORM_HEX_REST: return hex_keys(&w, value + 1);
  default: break;
  }
  if (form < CB_FORM_BASE64)
    return differs(form, value, len) ? walk_options(&w, 0, 0) : 0;
  unsigned which = (unsigned)(form - CB_FORM_BASE64);
  return base64_keys(&w, which % 3, which / 3);
}
