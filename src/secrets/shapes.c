/* SPDX-License-Identifier: MIT */
#include "secrets/shapes.h"

#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum { /* classes of characters */
  UPPER = 1,
  LOWER = 2,
  DIGIT = 4,
  DASH = 8,
  UNDER = 16,
  HEX = 32, /* a-f and digits */
  BASE64 = 64, /* + / = */
  ALNUM = UPPER | LOWER | DIGIT,
  WORD = ALNUM | DASH | UNDER,
};

static unsigned class_of(uint8_t c)
{
  if (c >= '0' && c <= '9')
    return DIGIT | HEX;
  if (c >= 'a' && c <= 'z')
    return c <= 'f' ? LOWER | HEX : LOWER;
  if (c >= 'A' && c <= 'Z')
    return UPPER;
  return c == '-' ? DASH : c == '_' ? UNDER : c == '+' || c == '/' || c == '=' ? BASE64 : 0;
}

static size_t run(const uint8_t *text, size_t len, size_t at, unsigned allowed)
{
  while (at < len && (class_of(text[at]) & allowed))
    at++;
  return at;
}

/* Keys that are a fixed beginning and then at least `least` characters of a class. The least
 * lengths are below the real ones where a provider has changed its own before. */
static const struct token {
  const char *begin;
  const char *kind;
  uint8_t allowed;
  uint8_t least;
} tokens[] = {
  { "sk-ant-", "anthropic_key", WORD, 20 },
  { "sk-proj-", "openai_key", WORD, 20 },
  { "sk-svcacct-", "openai_key", WORD, 20 },
  { "sk-or-v1-", "openrouter_key", ALNUM, 32 },
  { "sk-", "openai_key", ALNUM, 32 },
  { "ghp_", "github_token", ALNUM, 30 },
  { "gho_", "github_token", ALNUM, 30 },
  { "ghs_", "github_token", ALNUM | UNDER, 30 },
  { "ghu_", "github_token", ALNUM, 30 },
  { "ghr_", "github_token", ALNUM, 30 },
  { "github_pat_", "github_token", ALNUM | UNDER, 22 },
  { "glpat-", "gitlab_token", WORD, 20 },
  { "xoxa-", "slack_token", ALNUM | DASH, 10 },
  { "xoxb-", "slack_token", ALNUM | DASH, 10 },
  { "xoxp-", "slack_token", ALNUM | DASH, 10 },
  { "xoxr-", "slack_token", ALNUM | DASH, 10 },
  { "xoxs-", "slack_token", ALNUM | DASH, 10 },
  { "AKIA", "aws_key", UPPER | DIGIT, 16 },
  { "ASIA", "aws_key", UPPER | DIGIT, 16 },
  { "AIza", "google_key", WORD, 35 },
  { "e2b_", "e2b_key", HEX, 40 },
  { "npm_", "npm_token", ALNUM, 36 },
  { "plane_api_", "plane_token", WORD, 16 },
  { "plane_wh_", "plane_token", WORD, 16 },
};

/* How far a beginning reaches: 1 whole, 0 cut by the end of the text, -1 something else. */
static int begins(const uint8_t *text, size_t len, size_t at, const char *what)
{
  for (size_t i = 0; what[i]; i++) {
    if (at + i == len)
      return 0;
    if (text[at + i] != (uint8_t)what[i])
      return -1;
  }
  return 1;
}

static enum cb_shape_found live(struct cb_shape_hit *hit, size_t at, bool final)
{
  hit->anchor = at;
  return final ? CB_SHAPE_FOUND_NONE : CB_SHAPE_FOUND_LIVE;
}

static enum cb_shape_found try_tokens(const uint8_t *text, size_t len, size_t at, bool final,
                                      struct cb_shape_hit *hit)
{
  enum cb_shape_found found = CB_SHAPE_FOUND_NONE;
  for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++) {
    const struct token *t = &tokens[i];
    if (text[at] != (uint8_t)t->begin[0])
      continue;
    int b = begins(text, len, at, t->begin);
    if (b < 0)
      continue;
    size_t body = at + strlen(t->begin), end = b ? run(text, len, body, t->allowed) : len;
    if (b && end - body >= t->least) {
      *hit = (struct cb_shape_hit){ at, at, end, t->kind, { .shape = CB_SHAPE_NONE } };
      if (end == len)
        hit->open = (struct cb_shape_state){ .shape = CB_SHAPE_TOKEN, .allowed = t->allowed };
      return CB_SHAPE_FOUND_HIT;
    }
    if (end == len && found == CB_SHAPE_FOUND_NONE)
      found = live(hit, at, final);
  }
  return found;
}

/* ---- JWT: header "." payload "." signature, the first two being base64 of '{"...' ---------- */

enum { JWT_HEADER_MAX = 1024, JWT_PART_LEAST = 8 };

static size_t jwt_go_on(struct cb_shape_state *state, const uint8_t *text, size_t len, size_t at,
                        bool final)
{
  for (;;) {
    at = run(text, len, at, WORD);
    if (at == len) {
      if (final)
        state->shape = CB_SHAPE_NONE;
      return at;
    }
    /* A full stop belongs to it when a further part follows. */
    if (text[at] == '.' && at + 1 == len && !final)
      return at;
    if (text[at] != '.' || at + 1 == len || !(class_of(text[at + 1]) & WORD)) {
      state->shape = CB_SHAPE_NONE;
      return at;
    }
    at++;
  }
}

static enum cb_shape_found try_jwt(const uint8_t *text, size_t len, size_t at, bool final,
                                   struct cb_shape_hit *hit)
{
  size_t limit = len - at > JWT_HEADER_MAX ? at + JWT_HEADER_MAX : len;
  int b = begins(text, len, at, "eyJ");
  if (b < 0)
    return CB_SHAPE_FOUND_NONE;
  size_t dot = b ? run(text, limit, at, WORD) : len;
  if (dot == len)
    return live(hit, at, final);
  if (dot == limit || text[dot] != '.' || dot - at < JWT_PART_LEAST)
    return CB_SHAPE_FOUND_NONE;
  b = begins(text, len, dot + 1, "eyJ");
  if (b < 0)
    return CB_SHAPE_FOUND_NONE;
  size_t end = b ? run(text, len, dot + 1, WORD) : len;
  if (end - (dot + 1) < JWT_PART_LEAST)
    return end == len ? live(hit, at, final) : CB_SHAPE_FOUND_NONE;
  *hit = (struct cb_shape_hit){ at, at, end, "jwt", { .shape = CB_SHAPE_JWT } };
  hit->end = jwt_go_on(&hit->open, text, len, end, final);
  return CB_SHAPE_FOUND_HIT;
}

/* ---- a password in a URL: scheme "://" user ":" password "@" ------------------------------ */

enum { URL_USER_MAX = 128, URL_PASSWORD_MAX = 512 };

static bool ends_userinfo(uint8_t c)
{
  switch (c) {
  case '/': case '?': case '#': case '"': case '\'': case '<': case '>': case '\\': case '`':
  case '|': case '{': case '}': case 0x7f: return true;
  default: return c <= ' ';
  }
}

static enum cb_shape_found try_url(const uint8_t *text, size_t len, size_t at, bool final,
                                   struct cb_shape_hit *hit)
{
  int b = begins(text, len, at, "://");
  size_t user = at + 3;
  if (b < 0) {
    b = begins(text, len, at, ":\\/\\/"); /* as some JSON writers put it */
    user = at + 5;
  }
  if (b < 0)
    return CB_SHAPE_FOUND_NONE;
  if (b == 0)
    return live(hit, at, final);
  size_t p = user;
  while (p < len && p - user < URL_USER_MAX && !ends_userinfo(text[p]) && text[p] != ':' &&
         text[p] != '@')
    p++;
  if (p == len)
    return live(hit, at, final);
  if (text[p] != ':')
    return CB_SHAPE_FOUND_NONE;
  size_t start = ++p;
  if (begins(text, len, start, "[REDACTED:") == 1) /* masked before */
    return CB_SHAPE_FOUND_NONE;
  while (p < len && p - start < URL_PASSWORD_MAX && !ends_userinfo(text[p]) && text[p] != '@')
    p++;
  if (p == len)
    return live(hit, at, final);
  if (text[p] != '@' || p == start)
    return CB_SHAPE_FOUND_NONE;
  *hit = (struct cb_shape_hit){ at, start, p, "url_password", { .shape = CB_SHAPE_NONE } };
  return CB_SHAPE_FOUND_HIT;
}

/* ---- private key blocks ------------------------------------------------------------------- */

enum {
  PEM_LABEL_MAX = 48,
  PEM_MAX = 64 * 1024,  /* a block longer than that is none */
  PEM_GAP_MAX = 64,     /* bytes between two words: line ends, indentation, line numbers */
  PEM_WORD_SURE = 16,   /* a word this long is key material wherever it stands */
  PEM_HEADER_MAX = 160, /* "Proc-Type: 4,ENCRYPTED" and the like */
  PEM_NAME_MAX = 32,
};

/* "-----" what LABEL "PRIVATE KEY[ BLOCK]-----": its end; 0 when it is not one; len + 1 when the
 * text ends before that can be said. */
static size_t armour_end(const uint8_t *text, size_t len, size_t at, const char *what)
{
  int b = begins(text, len, at, what);
  if (b <= 0)
    return b < 0 ? 0 : len + 1;
  size_t p = at + strlen(what);
  size_t limit = len - p > PEM_LABEL_MAX ? p + PEM_LABEL_MAX : len;
  while (p < limit && ((class_of(text[p]) & (UPPER | DIGIT)) || text[p] == ' '))
    p++;
  if (p == len)
    return len + 1;
  b = begins(text, len, p, "-----");
  if (b <= 0)
    return b < 0 ? 0 : len + 1;
  size_t n = p - at;
  bool is_key = (n >= 11 && memcmp(text + p - 11, "PRIVATE KEY", 11) == 0) ||
                (n >= 17 && memcmp(text + p - 17, "PRIVATE KEY BLOCK", 17) == 0);
  return is_key ? p + 5 : 0;
}

/* What may stand between two words of a block: blanks, line ends (also as escapes), what tools
 * put before a line: numbers, colons, bars, arrows, quote and diff marks. One item; 0: none,
 * len + 1: cut by the end of the text. *newline: it ends a line. */
static size_t gap_item(const uint8_t *text, size_t len, size_t at, bool *newline)
{
  static const uint8_t arrow[] = { 0xe2, 0x86, 0x92 };
  uint8_t c = text[at];
  if (c == '\n' || c == '\r') {
    *newline = true;
    return at + 1;
  }
  if (c == ' ' || c == '\t' || c == ':' || c == '|' || c == '>' || c == ',')
    return at + 1;
  if (c == '\\') {
    size_t p = at;
    while (p < len && text[p] == '\\' && p - at < 8)
      p++;
    if (p == len)
      return len + 1;
    if (text[p] == 'n' || text[p] == 'r') {
      *newline = true;
      return p + 1;
    }
    if (text[p] == 't')
      return p + 1;
    int b = begins(text, len, p, "u2192"); /* the arrow, escaped */
    return b < 0 ? 0 : b ? p + 5 : len + 1;
  }
  if (c == arrow[0]) {
    for (size_t i = 1; i < sizeof arrow; i++) {
      if (at + i == len)
        return len + 1;
      if (text[at + i] != arrow[i])
        return 0;
    }
    return at + sizeof arrow;
  }
  return 0;
}

/* "Name: value" up to the end of its line: its end, 0: not one, len + 1: cut. */
static size_t header_end(const uint8_t *text, size_t len, size_t at, bool final)
{
  size_t limit = len - at > PEM_NAME_MAX ? at + PEM_NAME_MAX : len;
  size_t p = run(text, limit, at, UPPER | LOWER | DASH);
  if (p == len)
    return final ? 0 : len + 1;
  if (p == at || text[p] != ':')
    return 0;
  for (; p < len && p - at < PEM_HEADER_MAX; p++) {
    uint8_t c = text[p];
    if (c == '\n' || c == '\r' || c == '\\' || c == '"')
      return p;
    if (c < ' ' || c >= 0x7f)
      return 0;
  }
  return p == len ? (final ? len : len + 1) : 0;
}

static size_t pem_go_on(struct cb_shape_state *state, const uint8_t *text, size_t len, size_t at,
                        bool final)
{
  size_t taken = at; /* end of what belongs to the block for sure */
  for (;;) {
    if (state->in_word) {
      size_t room = state->taken < PEM_MAX ? PEM_MAX - state->taken : 0;
      size_t limit = len - taken > room ? taken + room : len;
      size_t end = run(text, limit, taken, ALNUM | BASE64);
      state->taken += (uint32_t)(end - taken);
      taken = end;
      if (taken == len && !final)
        return taken;
      state->in_word = false;
    }
    if (state->taken >= PEM_MAX)
      break;
    size_t p = taken;
    bool newline = false;
    while (p < len && p - taken < PEM_GAP_MAX) {
      size_t digits = run(text, len, p, DIGIT), next;
      if (digits > p && digits == len && digits - p < PEM_WORD_SURE && !final)
        return taken;
      /* A number before a separator is a line number, else the begin of a word. */
      if (digits > p && digits - p < 8 && digits < len &&
          (text[digits] == '\t' || text[digits] == ':' || text[digits] == ' ' ||
           text[digits] == '|' || text[digits] == '\\' || text[digits] == 0xe2)) {
        bool ignored;
        next = gap_item(text, len, digits, &ignored);
        if (next > digits && next <= len) {
          p = digits;
          continue;
        }
        if (next == len + 1 && !final)
          return taken;
      }
      next = gap_item(text, len, p, &newline);
      if (next == len + 1 && !final)
        return taken;
      if (next == 0 || next == len + 1)
        break;
      p = next;
    }
    if (p == len) { /* only blanks so far */
      if (final)
        break;
      return p - taken < PEM_GAP_MAX ? taken : (state->shape = CB_SHAPE_NONE, taken);
    }
    if (p - taken >= PEM_GAP_MAX)
      break;
    if (text[p] == '-') {
      size_t end = armour_end(text, len, p, "-----END ");
      if (end == 0 && newline && ++p < len) /* the mark of a removed line in a diff */
        end = text[p] == '-' ? armour_end(text, len, p, "-----END ") : 0;
      if ((end == len + 1 || p == len) && !final)
        return taken;
      if (end && end <= len)
        taken = end;
      if (end || p == len || !newline || text[p] == '-')
        break;
    }
    size_t end = newline ? header_end(text, len, p, final) : 0;
    if (end == len + 1)
      return taken;
    if (end) {
      state->taken += (uint32_t)(end - taken);
      taken = end;
      continue;
    }
    end = run(text, len, p, ALNUM | BASE64);
    if (end == p)
      break;
    if (end - p >= PEM_WORD_SURE) {
      end = p + PEM_WORD_SURE;
      state->taken += (uint32_t)(end - taken);
      taken = end;
      state->in_word = true;
      continue;
    }
    if (end == len) {
      if (!final)
        return taken;
      taken = end;
      break;
    }
    /* A short word is the last line of a block, or prose behind a lone header: it is taken
     * when its line, its string or the block ends behind it. */
    bool ends_line = false;
    size_t after = end;
    while (after < len && after - end < PEM_GAP_MAX && !ends_line) {
      size_t next = gap_item(text, len, after, &ends_line);
      if (next == len + 1 && !final)
        return taken;
      if (next == 0 || next == len + 1)
        break;
      after = next;
    }
    if (after == len && !ends_line && !final)
      return taken;
    if (!ends_line && after < len && text[after] == '-') {
      size_t armour = armour_end(text, len, after, "-----END ");
      if (armour == len + 1 && !final)
        return taken;
      ends_line = armour != 0 && armour <= len;
    }
    if (!ends_line && after == len)
      ends_line = true;
    if (!ends_line && (text[end] == '"' || text[end] == '\'' || text[end] == '`'))
      ends_line = true;
    if (!ends_line)
      break;
    state->taken += (uint32_t)(end - taken);
    taken = end;
  }
  state->shape = CB_SHAPE_NONE;
  return taken;
}

static enum cb_shape_found try_pem(const uint8_t *text, size_t len, size_t at, bool final,
                                   struct cb_shape_hit *hit)
{
  size_t end = armour_end(text, len, at, "-----BEGIN ");
  if (end == 0)
    return CB_SHAPE_FOUND_NONE;
  if (end == len + 1)
    return live(hit, at, final);
  *hit = (struct cb_shape_hit){ at, at, end, "private_key", { .shape = CB_SHAPE_PEM } };
  hit->end = pem_go_on(&hit->open, text, len, end, final);
  return CB_SHAPE_FOUND_HIT;
}

/* ---- looking ------------------------------------------------------------------------------ */

enum { SEEK_AHEAD = 5 }; /* bytes behind a place that the filter looks at */

/* Could a shape begin at p? SEEK_AHEAD bytes follow. Lets through more than try_at takes. */
static bool could_begin(const uint8_t *p)
{
  switch (p[0]) {
  case 's': return p[1] == 'k' && p[2] == '-';
  case 'g': return (p[1] == 'h' && p[3] == '_') || (p[1] == 'i' && p[3] == 'h') ||
                   (p[1] == 'l' && p[2] == 'p');
  case 'x': return p[1] == 'o' && p[2] == 'x';
  case 'A': return p[1] == 'K' || p[1] == 'S' || p[1] == 'I';
  case 'e': return (p[1] == '2' && p[2] == 'b') || (p[1] == 'y' && p[2] == 'J');
  case 'n': return p[1] == 'p' && p[3] == '_';
  case 'p': return p[1] == 'l' && p[5] == '_';
  case '-': return p[1] == '-' && p[5] == 'B';
  case ':': return p[2] == '/' && (p[1] == '/' || p[1] == '\\');
  default: return false;
  }
}

/* The next place where a shape could begin, or len. The last places all pass. */
static size_t seek_slowly(const uint8_t *text, size_t len, size_t at)
{
  while (len - at > SEEK_AHEAD && !could_begin(text + at))
    at++;
  return at;
}

#if defined(__x86_64__)
/* The first three bytes of all shapes, in eight groups of one bit each:
 *   s k -   g [hil] [psourt]   x o x   A [KSI] [Iz]   e [2y] [bJ]   [np] [pl] [ma]   - - -
 *   : [/\] /
 * A byte belongs to a group when both its halves do: [0] is indexed by the lower four bits, [1] by
 * the upper four. 32 places are looked at with six table look-ups (the method is known as
 * Teddy, from Hyperscan). */
static const uint8_t halves[3][2][16] = {
  { { 0x20, 0x08, 0x00, 0x01, 0x00, 0x10, 0x00, 0x02, 0x04, 0x00, 0x80, 0x00, 0x00, 0x40, 0x20, 0x00 },
    { 0x00, 0x00, 0x40, 0x80, 0x08, 0x00, 0x32, 0x25, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00 } },
  { { 0x20, 0x00, 0x10, 0x08, 0x00, 0x00, 0x00, 0x00, 0x02, 0x1a, 0x00, 0x09, 0xa2, 0x40, 0x00, 0x84 },
    { 0x00, 0x00, 0xc0, 0x10, 0x08, 0x88, 0x27, 0x30, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00 } },
  { { 0x02, 0x20, 0x12, 0x02, 0x02, 0x02, 0x00, 0x00, 0x04, 0x08, 0x18, 0x00, 0x00, 0x61, 0x00, 0x82 },
    { 0x00, 0x00, 0xc1, 0x00, 0x18, 0x00, 0x32, 0x0e, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00 } },
};

__attribute__((target("avx2"))) static __m256i groups_at(const uint8_t *p, int which)
{
  const __m256i low_bits = _mm256_set1_epi8(15);
  const __m256i lower = _mm256_broadcastsi128_si256(
      _mm_loadu_si128((const __m128i *)(const void *)halves[which][0]));
  const __m256i upper = _mm256_broadcastsi128_si256(
      _mm_loadu_si128((const __m128i *)(const void *)halves[which][1]));
  __m256i v = _mm256_loadu_si256((const __m256i *)(const void *)p);
  __m256i lo = _mm256_and_si256(v, low_bits);
  __m256i hi = _mm256_and_si256(_mm256_srli_epi16(v, 4), low_bits);
  return _mm256_and_si256(_mm256_shuffle_epi8(lower, lo), _mm256_shuffle_epi8(upper, hi));
}

__attribute__((target("avx2"))) static size_t seek_32(const uint8_t *text, size_t len, size_t at)
{
  const __m256i zero = _mm256_setzero_si256();
  for (; len - at >= 32 + SEEK_AHEAD; at += 32) {
    const uint8_t *p = text + at;
    __m256i groups = _mm256_and_si256(_mm256_and_si256(groups_at(p, 0), groups_at(p + 1, 1)),
                                      groups_at(p + 2, 2));
    uint32_t places = ~(uint32_t)_mm256_movemask_epi8(_mm256_cmpeq_epi8(groups, zero));
    for (; places; places &= places - 1) {
      size_t i = (size_t)__builtin_ctz(places);
      if (could_begin(p + i))
        return at + i;
    }
  }
  return seek_slowly(text, len, at);
}

static size_t seek(const uint8_t *text, size_t len, size_t at)
{
  return __builtin_cpu_supports("avx2") ? seek_32(text, len, at) : seek_slowly(text, len, at);
}
#else
static size_t seek(const uint8_t *text, size_t len, size_t at)
{
  return seek_slowly(text, len, at);
}
#endif

static enum cb_shape_found try_at(const uint8_t *text, size_t len, size_t at, bool final,
                                  struct cb_shape_hit *hit)
{
  switch (text[at]) {
  case ':': return try_url(text, len, at, final, hit);
  case '-': return try_pem(text, len, at, final, hit);
  case 's':
  case 'g':
  case 'x':
  case 'A':
  case 'n':
  case 'p': return try_tokens(text, len, at, final, hit);
  case 'e': {
    enum cb_shape_found found = try_jwt(text, len, at, final, hit);
    return found == CB_SHAPE_FOUND_NONE ? try_tokens(text, len, at, final, hit) : found;
  }
  default: return CB_SHAPE_FOUND_NONE;
  }
}

enum cb_shape_found cb_shape_next(const uint8_t *text, size_t len, size_t at, bool final,
                                  struct cb_shape_hit *hit)
{
  for (;;) {
    at = seek(text, len, at);
    if (at == len)
      return CB_SHAPE_FOUND_NONE;
    enum cb_shape_found found = try_at(text, len, at, final, hit);
    if (found != CB_SHAPE_FOUND_NONE)
      return found;
    at++;
  }
}

size_t cb_shape_go_on(struct cb_shape_state *state, const uint8_t *text, size_t len, size_t at,
                      bool final)
{
  switch (state->shape) {
  case CB_SHAPE_TOKEN:
    at = run(text, len, at, state->allowed);
    if (at < len || final)
      state->shape = CB_SHAPE_NONE;
    return at;
  case CB_SHAPE_JWT: return jwt_go_on(state, text, len, at, final);
  case CB_SHAPE_PEM: return pem_go_on(state, text, len, at, final);
  case CB_SHAPE_URL:
  case CB_SHAPE_NONE: break;
  }
  return at;
}
