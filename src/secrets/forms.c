/* SPDX-License-Identifier: MIT */
#include "secrets/forms.h"

#include <string.h>

/* ---- reading text: one unit at a time --------------------------------------------------- */

struct text {
  const uint8_t *p;
  size_t len, at;
};

/* What one step of a decoder gives: a byte, or the UTF-8 bytes of an escaped character. */
struct unit {
  uint8_t b[4];
  unsigned n;
};

enum step { STEP_OK, STEP_MORE, STEP_NO };

static int hex_digit(uint8_t c)
{
  if (c >= '0' && c <= '9')
    return c - '0';
  c |= 0x20;
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static void put_utf8(struct unit *u, uint32_t cp)
{
  if (cp < 0x80) {
    u->b[0] = (uint8_t)cp;
    u->n = 1;
  } else if (cp < 0x800) {
    u->b[0] = (uint8_t)(0xc0 | cp >> 6);
    u->b[1] = (uint8_t)(0x80 | (cp & 63));
    u->n = 2;
  } else if (cp < 0x10000) {
    u->b[0] = (uint8_t)(0xe0 | cp >> 12);
    u->b[1] = (uint8_t)(0x80 | (cp >> 6 & 63));
    u->b[2] = (uint8_t)(0x80 | (cp & 63));
    u->n = 3;
  } else {
    u->b[0] = (uint8_t)(0xf0 | (cp >> 18 & 7));
    u->b[1] = (uint8_t)(0x80 | (cp >> 12 & 63));
    u->b[2] = (uint8_t)(0x80 | (cp >> 6 & 63));
    u->b[3] = (uint8_t)(0x80 | (cp & 63));
    u->n = 4;
  }
}

static enum step next_unit(struct text *t, int level, struct unit *u);

/* Up to `most` hex digits read at a level, at least `least`. */
static enum step next_hex(struct text *t, int level, int least, int most, uint32_t *out)
{
  struct unit u;
  *out = 0;
  for (int i = 0; i < most; i++) {
    size_t before = t->at;
    enum step s = next_unit(t, level, &u);
    if (s == STEP_MORE)
      return s;
    int d = s == STEP_OK && u.n == 1 ? hex_digit(u.b[0]) : -1;
    if (d < 0) {
      t->at = before;
      return i < least ? STEP_NO : STEP_OK;
    }
    *out = *out << 4 | (uint32_t)d;
  }
  return STEP_OK;
}

static enum step next_byte(struct text *t, int level, uint8_t *c)
{
  struct unit u;
  enum step s = next_unit(t, level, &u);
  if (s != STEP_OK)
    return s;
  if (u.n != 1)
    return STEP_NO;
  *c = u.b[0];
  return STEP_OK;
}

static enum step json_u(struct text *t, int level, struct unit *u)
{
  uint32_t cp, low;
  uint8_t c;
  enum step s = next_hex(t, level, 4, 4, &cp);
  if (s != STEP_OK)
    return s;
  if (cp >= 0xd800 && cp <= 0xdbff) { /* RFC 8259 section 7: a pair of escapes */
    s = next_byte(t, level, &c);
    if (s == STEP_OK && c != '\\')
      s = STEP_NO;
    if (s == STEP_OK)
      s = next_byte(t, level, &c);
    if (s == STEP_OK && c != 'u')
      s = STEP_NO;
    if (s == STEP_OK)
      s = next_hex(t, level, 4, 4, &low);
    if (s == STEP_OK && (low < 0xdc00 || low > 0xdfff))
      s = STEP_NO;
    if (s != STEP_OK)
      return s;
    cp = 0x10000 + ((cp - 0xd800) << 10) + (low - 0xdc00);
  }
  put_utf8(u, cp);
  return STEP_OK;
}

/* level 0: bytes as they are; 1: the text of a JSON string; 2: of one inside another. */
static enum step next_unit(struct text *t, int level, struct unit *u)
{
  if (level == 0) {
    if (t->at >= t->len)
      return STEP_MORE;
    u->b[0] = t->p[t->at++];
    u->n = 1;
    return STEP_OK;
  }
  enum step s = next_unit(t, level - 1, u);
  if (s != STEP_OK || u->n != 1)
    return s;
  if (u->b[0] == '"')
    return STEP_NO; /* the string ends here */
  if (u->b[0] != '\\')
    return STEP_OK;
  uint8_t c;
  s = next_byte(t, level - 1, &c);
  if (s != STEP_OK)
    return s;
  switch (c) {
  case '"':
  case '\\':
  case '/': u->b[0] = c; return STEP_OK;
  case 'b': u->b[0] = '\b'; return STEP_OK;
  case 'f': u->b[0] = '\f'; return STEP_OK;
  case 'n': u->b[0] = '\n'; return STEP_OK;
  case 'r': u->b[0] = '\r'; return STEP_OK;
  case 't': u->b[0] = '\t'; return STEP_OK;
  case 'u': return json_u(t, level - 1, u);
  default: return STEP_NO;
  }
}

/* ---- escapes on top of units; `want` is the byte the value has here ----------------------- */

static enum step next_percent(struct text *t, uint8_t want, struct unit *u)
{
  uint32_t v;
  enum step s = next_unit(t, 0, u);
  if (s != STEP_OK)
    return s;
  if (u->b[0] == '+' && want == ' ') {
    u->b[0] = ' ';
  } else if (u->b[0] == '%') {
    size_t before = t->at;
    s = next_hex(t, 0, 2, 2, &v);
    if (s == STEP_MORE)
      return s;
    if (s == STEP_OK)
      u->b[0] = (uint8_t)v;
    else
      t->at = before; /* a lone percent sign stands for itself */
  }
  return STEP_OK;
}

static enum step expect(struct text *t, int level, const char *what)
{
  for (; *what; what++) {
    uint8_t c;
    enum step s = next_byte(t, level, &c);
    if (s != STEP_OK)
      return s;
    if (c != (uint8_t)*what)
      return STEP_NO;
  }
  return STEP_OK;
}

static enum step next_squote(struct text *t, int level, uint8_t want, struct unit *u)
{
  enum step s = next_unit(t, level, u);
  if (s != STEP_OK || u->n != 1 || u->b[0] != '\'')
    return s;
  if (want != '\'')
    return STEP_NO;
  uint8_t c;
  s = next_byte(t, level, &c);
  if (s != STEP_OK)
    return s;
  if (c == '\\')
    return expect(t, level, "''");
  return c == '"' ? expect(t, level, "'\"'") : STEP_NO;
}

static enum step next_backslash(struct text *t, int level, uint8_t want, struct unit *u)
{
  enum step s = next_unit(t, level, u);
  if (s != STEP_OK || u->n != 1 || u->b[0] != '\\')
    return s;
  size_t before = t->at;
  struct unit next;
  s = next_unit(t, level, &next);
  if (s == STEP_MORE)
    return s;
  if (want == '\\' && (s != STEP_OK || next.b[0] != '\\')) {
    t->at = before; /* inside "..", a backslash before an ordinary character is itself */
    return STEP_OK;
  }
  if (s == STEP_OK)
    *u = next;
  return s;
}

static enum step next_ansi(struct text *t, int level, struct unit *u)
{
  static const char from[] = "abeEfnrtv\\'\"?";
  static const char to[] = "\a\b\033\033\f\n\r\t\v\\'\"?";
  enum step s = next_unit(t, level, u);
  if (s != STEP_OK || u->n != 1 || u->b[0] != '\\')
    return s;
  uint8_t c;
  uint32_t v = 0;
  s = next_byte(t, level, &c);
  if (s != STEP_OK)
    return s;
  const char *at = c ? strchr(from, c) : NULL;
  if (at) {
    u->b[0] = (uint8_t)to[at - from];
    return STEP_OK;
  }
  if (c == 'x' || c == 'u' || c == 'U') {
    s = next_hex(t, level, 1, c == 'x' ? 2 : c == 'u' ? 4 : 8, &v);
    if (s != STEP_OK)
      return s;
    if (c != 'x') {
      put_utf8(u, v);
      return STEP_OK;
    }
  } else if (c >= '0' && c <= '7') {
    v = (uint32_t)(c - '0');
    for (int i = 0; i < 2; i++) {
      size_t before = t->at;
      s = next_byte(t, level, &c);
      if (s == STEP_MORE)
        return s;
      if (s != STEP_OK || c < '0' || c > '7') {
        t->at = before;
        break;
      }
      v = v * 8 + (uint32_t)(c - '0');
    }
  } else {
    return STEP_NO;
  }
  u->b[0] = (uint8_t)v;
  return STEP_OK;
}

static const struct {
  uint8_t level;
  uint8_t inner; /* CB_FORM_RAW, _PERCENT, _SQUOTE, _BACKSLASH or _ANSI */
} decoder[CB_FORM_UTF16] = {
  [CB_FORM_RAW] = { 0, CB_FORM_RAW },
  [CB_FORM_PERCENT] = { 0, CB_FORM_PERCENT },
  [CB_FORM_JSON] = { 1, CB_FORM_RAW },
  [CB_FORM_JSON2] = { 2, CB_FORM_RAW },
  [CB_FORM_SQUOTE] = { 0, CB_FORM_SQUOTE },
  [CB_FORM_BACKSLASH] = { 0, CB_FORM_BACKSLASH },
  [CB_FORM_ANSI] = { 0, CB_FORM_ANSI },
  [CB_FORM_JSON_SQUOTE] = { 1, CB_FORM_SQUOTE },
  [CB_FORM_JSON_BACKSLASH] = { 1, CB_FORM_BACKSLASH },
  [CB_FORM_JSON_ANSI] = { 1, CB_FORM_ANSI },
};

static enum step next_decoded(enum cb_form form, struct text *t, uint8_t want, struct unit *u)
{
  int level = decoder[form].level;
  switch (decoder[form].inner) {
  case CB_FORM_PERCENT: return next_percent(t, want, u);
  case CB_FORM_SQUOTE: return next_squote(t, level, want, u);
  case CB_FORM_BACKSLASH: return next_backslash(t, level, want, u);
  case CB_FORM_ANSI: return next_ansi(t, level, u);
  default: return next_unit(t, level, u);
  }
}

static struct cb_form_result match_decoded(enum cb_form form, const uint8_t *v, size_t len,
                                           struct text t)
{
  struct cb_form_result r = { 0, false };
  for (size_t i = 0; i < len;) {
    struct unit u;
    enum step s = next_decoded(form, &t, v[i], &u);
    if (s != STEP_OK) {
      r.live = s == STEP_MORE;
      return r;
    }
    if (u.n > len - i || memcmp(u.b, v + i, u.n) != 0)
      return r;
    i += u.n;
  }
  r.end = t.at;
  return r;
}

static struct cb_form_result match_raw(const uint8_t *v, size_t len, const struct text *t)
{
  struct cb_form_result r = { 0, false };
  size_t have = t->len - t->at;
  if (memcmp(v, t->p + t->at, have < len ? have : len) != 0)
    return r;
  if (have < len)
    r.live = true;
  else
    r.end = t->at + len;
  return r;
}

/* ---- hex and base64: these are wrapped by the tools that print them ----------------------- */

/* Steps over one line break (real, or as JSON writes it). STEP_NO: there is none. */
static enum step skip_wrap(struct text *t)
{
  size_t at = t->at;
  if (at < t->len && t->p[at] == '\r')
    at++;
  if (at < t->len && t->p[at] == '\n') {
    t->at = at + 1;
    return STEP_OK;
  }
  if (at == t->len)
    return STEP_MORE;
  if (at != t->at || t->p[at] != '\\')
    return STEP_NO;
  if (at + 1 < t->len && t->p[at + 1] == 'r') { /* \r\n */
    at += 2;
    if (at < t->len && t->p[at] != '\\')
      return STEP_NO;
  }
  if (at + 1 >= t->len)
    return STEP_MORE;
  if (t->p[at + 1] != 'n')
    return STEP_NO;
  t->at = at + 2;
  return STEP_OK;
}

static struct cb_form_result match_hex(const uint8_t *v, size_t len, struct text t)
{
  struct cb_form_result r = { 0, false };
  for (size_t i = 0; i < 2 * len; i++) {
    int want = i % 2 ? v[i / 2] & 15 : v[i / 2] >> 4;
    if (i >= CB_FORM_WRAP_LEAST && (t.at >= t.len || hex_digit(t.p[t.at]) < 0)) {
      enum step s = skip_wrap(&t);
      r.live = s == STEP_MORE;
      if (s != STEP_OK)
        return r;
    }
    if (t.at >= t.len) {
      r.live = true;
      return r;
    }
    if (hex_digit(t.p[t.at++]) != want)
      return r;
  }
  r.end = t.at;
  return r;
}

static int base64_value(uint8_t c)
{
  if (c >= 'A' && c <= 'Z')
    return c - 'A';
  if (c >= 'a' && c <= 'z')
    return c - 'a' + 26;
  if (c >= '0' && c <= '9')
    return c - '0' + 52;
  if (c == '+' || c == '-')
    return 62;
  return c == '/' || c == '_' ? 63 : -1;
}

/* Sextet number k of the stream that is `phase` unknown bytes and then the value. */
static int sextet(const uint8_t *v, size_t len, unsigned phase, size_t k)
{
  int out = 0;
  for (unsigned i = 0; i < 6; i++) {
    size_t bit = 6 * k + i;
    size_t byte = bit / 8 - phase; /* never below the first whole sextet */
    int b = byte < len ? v[byte] >> (7 - bit % 8) & 1 : 0;
    out = out << 1 | b;
  }
  return out;
}

static const size_t first_sextet[3] = { 0, 2, 3 };

static struct cb_form_result match_base64(const uint8_t *v, size_t len, unsigned phase,
                                          size_t left_out, struct text t)
{
  struct cb_form_result r = { 0, false };
  size_t bits = (len + phase) * 8, last = bits / 6, first = first_sextet[phase] + left_out;
  for (size_t k = first; k < last; k++) {
    if (k - first >= CB_FORM_WRAP_LEAST && (t.at >= t.len || base64_value(t.p[t.at]) < 0)) {
      enum step s = skip_wrap(&t);
      r.live = s == STEP_MORE;
      if (s != STEP_OK)
        return r;
    }
    if (t.at >= t.len) {
      r.live = true;
      return r;
    }
    if (base64_value(t.p[t.at++]) != sextet(v, len, phase, k))
      return r;
  }
  r.end = t.at;
  unsigned rest = (unsigned)(bits % 6);
  if (rest == 0)
    return r;
  /* The value's last bits share a character with what follows: it goes too, and padding. */
  if (t.at == t.len) {
    r.live = true;
    return r;
  }
  int c = base64_value(t.p[t.at]);
  if (c < 0 || c >> (6 - rest) != sextet(v, len, phase, last) >> (6 - rest))
    return r;
  r.end = ++t.at;
  for (unsigned pad = rest == 4 ? 1 : 2; pad > 0; pad--) {
    if (r.end == t.len) {
      r.live = true;
      break;
    }
    if (t.p[r.end] != '=')
      break;
    r.end++;
  }
  return r;
}

/* ---- UTF-16 ------------------------------------------------------------------------------- */

/* Length of the UTF-8 sequence at p with its code point, 0 when it is not one. */
static size_t utf8_at(const uint8_t *p, size_t n, uint32_t *cp)
{
  size_t len = p[0] < 0x80 ? 1 : p[0] >= 0xf0 ? 4 : p[0] >= 0xe0 ? 3 : p[0] >= 0xc2 ? 2 : 0;
  if (len == 0 || len > n || p[0] > 0xf4)
    return 0;
  *cp = len == 1 ? p[0] : p[0] & (0xffu >> (len + 1));
  for (size_t i = 1; i < len; i++) {
    if ((p[i] & 0xc0) != 0x80)
      return 0;
    *cp = *cp << 6 | (p[i] & 63);
  }
  return len;
}

static size_t utf16_at(const uint8_t *p, size_t n, uint8_t out[4], size_t *used)
{
  uint32_t cp;
  *used = utf8_at(p, n, &cp);
  if (*used == 0)
    return 0;
  if (cp < 0x10000) {
    out[0] = (uint8_t)cp;
    out[1] = (uint8_t)(cp >> 8);
    return 2;
  }
  uint32_t hi = 0xd800 + ((cp - 0x10000) >> 10), lo = 0xdc00 + ((cp - 0x10000) & 0x3ff);
  out[0] = (uint8_t)hi;
  out[1] = (uint8_t)(hi >> 8);
  out[2] = (uint8_t)lo;
  out[3] = (uint8_t)(lo >> 8);
  return 4;
}

bool cb_form_utf16_key(const uint8_t *value, size_t len, uint8_t key[CB_FORM_KEY])
{
  uint8_t w[4];
  size_t used, got = 0;
  for (size_t i = 0; got < CB_FORM_KEY; i += used) {
    size_t n = i < len ? utf16_at(value + i, len - i, w, &used) : 0;
    if (n == 0)
      return false;
    memcpy(key + got, w, n < CB_FORM_KEY - got ? n : CB_FORM_KEY - got);
    got += n;
  }
  return true;
}

static struct cb_form_result match_utf16(const uint8_t *v, size_t len, struct text t)
{
  struct cb_form_result r = { 0, false };
  for (size_t i = 0; i < len;) {
    uint8_t w[4];
    size_t used, n = utf16_at(v + i, len - i, w, &used);
    size_t have = t.len - t.at;
    if (n == 0 || memcmp(w, t.p + t.at, have < n ? have : n) != 0)
      return r;
    if (have < n) {
      r.live = true;
      return r;
    }
    t.at += n;
    i += used;
  }
  r.end = t.at;
  return r;
}

struct cb_form_result cb_form_match(enum cb_form form, const uint8_t *v, size_t len,
                                    const uint8_t *text, size_t text_len, size_t at)
{
  struct text t = { text, text_len, at };
  switch (form) {
  case CB_FORM_RAW: return match_raw(v, len, &t);
  case CB_FORM_UTF16: return match_utf16(v, len, t);
  case CB_FORM_HEX: return match_hex(v, len, t);
  case CB_FORM_HEX_REST: return match_hex(v + 1, len - 1, t);
  default: break;
  }
  if (form < CB_FORM_BASE64)
    return match_decoded(form, v, len, t);
  unsigned which = (unsigned)(form - CB_FORM_BASE64);
  return match_base64(v, len, which % 3, which / 3, t);
}
