/* SPDX-License-Identifier: MIT
 * The stream: puts exact matches and shapes together, decides what is settled, writes markers.
 *
 * Text is worked through in steps. A step sees everything that is not settled yet; the cut is
 * the leftmost place where something could still begin. What begins before the cut is final
 * and written; the rest is looked at again with more text behind it. Since only complete
 * knowledge is ever acted on, where the input was cut cannot show in the output. */
#include "secrets/redact.h"

#include <string.h>

#include "base/alloc.h"
#include "secrets/match.h"
#include "secrets/shapes.h"

enum {
  SLICE = 64 * 1024, /* input is worked through in pieces of this size */
  BEHIND = 4,
};

static const char marker_begin[] = "[REDACTED:";

struct cb_redactor {
  struct cb_matcher *matcher;
  char (*names)[CB_REDACT_NAME_MAX + 1];
  size_t count;
  size_t *skipped; /* indexes into names */
  size_t skipped_count;
};

/* One thing to mask. */
struct hit {
  size_t anchor, start, end;
  const char *name;
  bool exact;
  bool goes_on; /* the rest of something that has its marker already */
};

struct cb_redact_stream {
  const struct cb_redactor *r;
  struct cb_buf held;      /* what is not settled, between steps */
  const uint8_t *text;     /* what a step looks at: held, or the caller's bytes themselves */
  size_t len;
  uint64_t base;           /* position of text[0] in the whole stream */
  uint64_t covered;        /* everything before this position is masked or written */
  uint64_t shape_end;      /* shapes are looked for from here on */
  struct cb_shape_state open;
  uint8_t behind[BEHIND];  /* the last bytes before base */
  const char *found;
  struct hit *hits;
  size_t hit_count, hit_cap;
};

/* ---- the redactor ------------------------------------------------------------------------ */

static void show_name(char out[CB_REDACT_NAME_MAX + 1], const char *name)
{
  size_t n = 0;
  for (; name && name[n] && n < CB_REDACT_NAME_MAX; n++) {
    char c = name[n];
    bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                 c == '_' || c == '.' || c == '-';
    out[n] = plain ? c : '_';
  }
  out[n] = '\0';
}

int cb_redactor_new(struct cb_redactor **out, const struct cb_secret *secrets, size_t count,
                    struct cb_err *err)
{
  struct cb_redactor *r = cb_calloc(1, sizeof *r);
  int rc = r ? CB_OK : cb_err_no_memory(err);

  *out = NULL;
  if (rc)
    return rc;
  r->names = cb_calloc(count, sizeof *r->names);
  r->skipped = cb_calloc(count, sizeof *r->skipped);
  if (!r->names || !r->skipped) {
    rc = cb_err_no_memory(err);
    goto out;
  }
  r->count = count;
  for (size_t i = 0; i < count; i++) {
    show_name(r->names[i], secrets[i].name);
    if (!cb_matcher_wants(&secrets[i]))
      r->skipped[r->skipped_count++] = i;
  }
  rc = cb_matcher_new(&r->matcher, secrets, count, err);
out:
  if (rc)
    cb_redactor_free(r);
  else
    *out = r;
  return rc;
}

void cb_redactor_free(struct cb_redactor *r)
{
  if (!r)
    return;
  cb_matcher_free(r->matcher);
  cb_free(r->names);
  cb_free(r->skipped);
  cb_free(r);
}

const char *cb_redactor_skipped(const struct cb_redactor *r, size_t i)
{
  return i < r->skipped_count ? r->names[r->skipped[i]] : NULL;
}

/* ---- whole escapes and characters ---------------------------------------------------------- */

static bool is_hex(uint8_t c)
{
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

/* Backslashes directly before `at`, an odd number of them? `from` is no later than `at` and
 * not inside an escape. */
static bool is_escaped(const uint8_t *t, size_t from, size_t at)
{
  size_t n = 0;
  while (at - n > from && t[at - n - 1] == '\\')
    n++;
  return n % 2 == 1;
}

/* Where the escape begins that has `at` inside, else `at`. *end: where it should end, which may
 * be past len. */
static size_t escape_around(const uint8_t *t, size_t len, size_t from, size_t at, size_t *end)
{
  *end = at;
  if (at > from && is_escaped(t, from, at)) {
    *end = at + 1;
    if (at < len && t[at] == 'u') {
      while (*end < at + 5 && (*end >= len || is_hex(t[*end])))
        ++*end;
    }
    return at - 1;
  }
  for (size_t back = 1; back <= 4 && back < at - from; back++) {
    size_t u = at - back;
    if (t[u] == 'u') {
      if (!is_escaped(t, from, u))
        return at;
      for (*end = at; *end < u + 5 && (*end >= len || is_hex(t[*end])); ++*end)
        ;
      return u - 1;
    }
    if (!is_hex(t[u]))
      return at;
  }
  return at;
}

/* The same for a UTF-8 character. */
static size_t character_around(const uint8_t *t, size_t len, size_t from, size_t at, size_t *end)
{
  *end = at;
  if (at < len && (t[at] & 0xc0) != 0x80)
    return at;
  for (size_t back = 1; back <= 3 && back <= at - from; back++) {
    uint8_t c = t[at - back];
    if ((c & 0xc0) == 0x80)
      continue;
    size_t need = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : c >= 0xc2 ? 2 : 1;
    if (need <= back)
      return at; /* the character before is complete */
    size_t p = at;
    while (p < at - back + need && p < len && (t[p] & 0xc0) == 0x80)
      p++;
    if (p < len && p < at - back + need)
      return at; /* not a character after all */
    *end = at - back + need;
    return at - back;
  }
  return at;
}

static size_t whole_before(const uint8_t *t, size_t len, size_t from, size_t at)
{
  size_t end, start = at;
  if (at <= from)
    return at;
  start = escape_around(t, len, from, at, &end);
  return start < at ? start : character_around(t, len, from, at, &end);
}

static size_t whole_after(const uint8_t *t, size_t len, size_t from, size_t at)
{
  size_t end;
  if (at <= from)
    return at;
  if (escape_around(t, len, from, at, &end) < at)
    at = end;
  if (character_around(t, len, from, at, &end) < at)
    at = end;
  return at;
}

/* ---- one step ------------------------------------------------------------------------------ */

/* In order of start; at one start what began earlier first, then named values, the longest
 * first: the first one's name is the marker's. */
static bool before(const struct hit *a, const struct hit *b)
{
  if (a->start != b->start)
    return a->start < b->start;
  if (a->goes_on != b->goes_on)
    return a->goes_on;
  if (a->exact != b->exact)
    return a->exact;
  return a->end >= b->end;
}

static int add_hit(struct cb_redact_stream *s, struct hit h)
{
  if (s->hit_count == s->hit_cap) {
    size_t cap = s->hit_cap ? s->hit_cap * 2 : 16;
    struct hit *more = cb_realloc(s->hits, cap * sizeof *more);
    if (!more)
      return CB_NO_MEMORY;
    s->hits = more;
    s->hit_cap = cap;
  }
  size_t i = s->hit_count++;
  for (; i > 0; i--) {
    const struct hit *b = &s->hits[i - 1];
    if (before(b, &h))
      break;
    s->hits[i] = *b;
  }
  s->hits[i] = h;
  return CB_OK;
}

static size_t relative(const struct cb_redact_stream *s, uint64_t position)
{
  return position > s->base ? (size_t)(position - s->base) : 0;
}

/* Lists what is to be masked; *cut becomes the first place that is not settled. */
static int find_exact(struct cb_redact_stream *s, bool final, size_t *cut)
{
  struct cb_search search;
  struct cb_match m;
  cb_search_begin(&search, s->r->matcher, s->text, s->len, final);
  for (;;) {
    switch (cb_search_next(&search, &m)) {
    case CB_FOUND_NONE:
      return CB_OK;
    case CB_FOUND_LIVE:
      if (m.start < *cut)
        *cut = m.start;
      return CB_OK;
    case CB_FOUND_MATCH: {
      struct hit h = { m.start, m.start, m.end, s->r->names[m.secret], true, false };
      int rc = add_hit(s, h);
      if (rc)
        return rc;
    }
    }
  }
}

/* What find_shapes makes of the stream's shape state; taken over when the step is done. */
struct shapes_after {
  struct cb_shape_state old; /* the shape that was open before */
  uint64_t old_end;
  struct cb_shape_state fresh; /* one that is open at the end of this text */
  size_t fresh_anchor;
};

static int find_shapes(struct cb_redact_stream *s, bool final, size_t *cut,
                       struct shapes_after *after)
{
  const uint8_t *t = s->text;
  size_t len = s->len, at = relative(s, s->shape_end);
  struct cb_shape_hit found;

  memset(after, 0, sizeof *after);
  if (s->open.shape != CB_SHAPE_NONE) {
    after->old = s->open;
    size_t end = cb_shape_go_on(&after->old, t, len, at, final);
    struct hit h = { at, at, end, NULL, false, true };
    after->old_end = s->base + end;
    if (end > at && add_hit(s, h))
      return CB_NO_MEMORY;
    if (after->old.shape != CB_SHAPE_NONE) {
      if (end < *cut)
        *cut = end;
      return CB_OK;
    }
    at = end;
  }
  for (;;) {
    switch (cb_shape_next(t, len, at, final, &found)) {
    case CB_SHAPE_FOUND_NONE:
      return CB_OK;
    case CB_SHAPE_FOUND_LIVE:
      if (found.anchor < *cut)
        *cut = found.anchor;
      return CB_OK;
    case CB_SHAPE_FOUND_HIT: {
      struct hit h = { found.anchor, found.start, found.end, found.kind, false, false };
      if (add_hit(s, h))
        return CB_NO_MEMORY;
      at = found.end;
      if (found.open.shape != CB_SHAPE_NONE) {
        after->fresh = found.open;
        after->fresh_anchor = found.anchor;
        if (found.end < *cut)
          *cut = found.end;
        return CB_OK;
      }
    }
    }
  }
}

/* The byte `back` before text[at], also when it is written already; 0 at the very begin. */
static uint8_t byte_before(const struct cb_redact_stream *s, size_t at, size_t back)
{
  if (back <= at)
    return s->text[at - back];
  return back - at <= BEHIND ? s->behind[BEHIND - (back - at)] : 0;
}

static bool is_number(const uint8_t *t, const struct hit *h)
{
  if (!h->exact)
    return false;
  for (size_t i = h->start; i < h->end; i++) {
    if (t[i] < '0' || t[i] > '9')
      return false;
  }
  return true;
}

/* Is this match a whole number behind a key of a JSON object? Then its marker must be a
 * string. Inside a string the quote of a key has a backslash, so that is told apart. */
static bool is_json_number(const struct cb_redact_stream *s, const struct hit *h)
{
  const uint8_t *t = s->text;
  size_t back = 1;
  if (!is_number(t, h))
    return false;
  if (byte_before(s, h->start, back) == ' ')
    back++;
  if (byte_before(s, h->start, back) != ':' || byte_before(s, h->start, back + 1) != '"' ||
      byte_before(s, h->start, back + 2) == '\\')
    return false;
  return h->end == s->len || strchr(",} \t\r\n", t[h->end]);
}

/* Writes the step's text with markers; into NULL: only counts. */
struct writer {
  struct cb_buf *into;
  size_t n;
};

static void put(struct writer *w, const void *p, size_t n)
{
  if (w->into && n) { /* room was reserved */
    memcpy(w->into->p + w->into->len, p, n);
    w->into->len += n;
  }
  w->n += n;
}

static size_t write_step(const struct cb_redact_stream *s, size_t cut, struct writer *w,
                         const char **found)
{
  const uint8_t *t = s->text;
  size_t len = s->len, covered = relative(s, s->covered), at = covered;

  for (size_t i = 0; i < s->hit_count; i++) {
    const struct hit *h = &s->hits[i];
    /* The rest of an open shape counts in any case: its begin was settled earlier. */
    if (h->anchor >= cut && !h->goes_on)
      continue;
    size_t end = h->exact ? whole_after(t, len, covered, h->end) : h->end;
    if (end > len)
      end = len;
    if (h->exact && !*found)
      *found = h->name;
    if (h->start >= covered && !h->goes_on) {
      size_t start = whole_before(t, len, covered, h->start);
      if (start > at)
        put(w, t + at, start - at);
      bool quoted = is_json_number(s, h);
      put(w, "\"", quoted);
      put(w, marker_begin, sizeof marker_begin - 1);
      put(w, h->name, strlen(h->name));
      put(w, "]\"", quoted ? 2 : 1);
    }
    if (end > covered)
      covered = end;
    at = covered;
  }
  if (cut > at)
    put(w, t + at, cut - at);
  return covered > cut ? covered : cut;
}

/* An escape or a character that the end of the text cuts is kept until it is whole. */
static size_t whole_tail(const struct cb_redact_stream *s, size_t cut)
{
  const uint8_t *t = s->text;
  size_t len = s->len, from = relative(s, s->covered), end;
  if (cut < len || len <= from)
    return cut;
  if (escape_around(t, len, from, len, &end) < len)
    return end > len ? escape_around(t, len, from, len, &end) : cut;
  size_t start = character_around(t, len, from, len, &end);
  return end > len ? start : cut;
}

/* Moves the cut before every match that is not to be cut in two: one whose end needs a look at
 * what follows, and one that begins behind the place where it was recognised. */
static size_t settle(const struct cb_redact_stream *s, size_t cut)
{
  const uint8_t *t = s->text;
  size_t len = s->len, was;
  do {
    size_t covered = relative(s, s->covered);
    was = cut;
    for (size_t i = 0; i < s->hit_count; i++) {
      const struct hit *h = &s->hits[i];
      size_t end = h->exact ? whole_after(t, len, covered, h->end) : h->end;
      if (h->anchor < cut && !h->goes_on &&
          (h->start >= cut || end > len || (end == len && is_number(t, h))))
        cut = h->anchor;
      if (end > covered && (h->anchor < cut || h->goes_on))
        covered = end;
    }
    covered = relative(s, s->covered);
    if (cut > covered)
      cut = whole_before(t, len, covered, cut);
  } while (cut < was);
  return cut;
}

/* Works the text through. Nothing changes when it fails. */
static int step(struct cb_redact_stream *s, bool final, struct cb_buf *out, struct cb_err *err)
{
  bool in_place = s->text == (const uint8_t *)s->held.p;
  size_t len = s->len, cut = len;
  struct shapes_after after;

  s->hit_count = 0;
  if (len == 0)
    return CB_OK;
  if (find_exact(s, final, &cut) || find_shapes(s, final, &cut, &after))
    return cb_err_no_memory(err);
  if (!final)
    cut = whole_tail(s, cut);

  if (!final)
    cut = settle(s, cut);

  if (!in_place && len > cut && cb_buf_reserve(&s->held, len - cut))
    return cb_err_no_memory(err);
  struct writer w = { NULL, 0 };
  const char *found = s->found;
  write_step(s, cut, &w, &found);
  int rc = cb_buf_reserve(out, w.n);
  if (rc == CB_NO_MEMORY)
    return cb_err_no_memory(err);
  if (rc)
    return cb_err_set(err, rc, "redact: more than %zu bytes", out->max);
  w.into = out;
  s->covered = s->base + write_step(s, cut, &w, &found);
  if (out->p)
    out->p[out->len] = '\0';
  s->found = found;

  if (s->open.shape != CB_SHAPE_NONE) {
    s->open = after.old;
    s->shape_end = after.old_end;
  }
  for (size_t i = 0; i < s->hit_count; i++) {
    const struct hit *h = &s->hits[i];
    if (h->exact || h->goes_on || h->anchor >= cut)
      continue;
    s->shape_end = s->base + h->end;
    if (after.fresh.shape != CB_SHAPE_NONE && h->anchor == after.fresh_anchor)
      s->open = after.fresh;
  }
  for (size_t i = 0; i < BEHIND; i++)
    s->behind[i] = byte_before(s, cut, BEHIND - i);
  s->base += cut;
  if (in_place)
    cb_buf_drop_front(&s->held, cut);
  else if (len > cut)
    cb_buf_add(&s->held, s->text + cut, len - cut); /* room was reserved */
  return CB_OK;
}

/* ---- streams ------------------------------------------------------------------------------ */

int cb_redact_stream_new(struct cb_redact_stream **out, const struct cb_redactor *r,
                         struct cb_err *err)
{
  struct cb_redact_stream *s = cb_calloc(1, sizeof *s);
  *out = s;
  if (!s)
    return cb_err_no_memory(err);
  s->r = r;
  cb_buf_init(&s->held, SIZE_MAX / 4);
  return CB_OK;
}

void cb_redact_stream_free(struct cb_redact_stream *s)
{
  if (!s)
    return;
  cb_buf_clear_wiped(&s->held);
  cb_free(s->hits);
  cb_free_wiped(s, sizeof *s);
}

int cb_redact_feed(struct cb_redact_stream *s, const void *p, size_t n, struct cb_buf *out,
                   size_t *taken, struct cb_err *err)
{
  size_t ignored;
  if (!taken)
    taken = &ignored;
  *taken = 0;
  do {
    const char *piece = (const char *)p + *taken;
    size_t len = n - *taken < SLICE ? n - *taken : SLICE;
    /* With nothing held, the caller's bytes are looked at where they are. */
    bool held = s->held.len > 0;
    if (held && cb_buf_add(&s->held, piece, len))
      return cb_err_no_memory(err);
    if (held)
      *taken += len;
    s->text = (const uint8_t *)(held ? s->held.p : piece);
    s->len = held ? s->held.len : len;
    int rc = step(s, false, out, err);
    s->text = NULL;
    if (rc)
      return rc;
    if (!held)
      *taken += len;
  } while (*taken < n);
  return CB_OK;
}

int cb_redact_finish(struct cb_redact_stream *s, struct cb_buf *out, struct cb_err *err)
{
  s->text = (const uint8_t *)s->held.p;
  s->len = s->held.len;
  int rc = step(s, true, out, err);
  s->text = NULL;
  if (rc)
    return rc;
  cb_buf_reset(&s->held);
  s->base = s->covered = s->shape_end = 0;
  s->open.shape = CB_SHAPE_NONE;
  memset(s->behind, 0, sizeof s->behind);
  return CB_OK;
}

size_t cb_redact_held(const struct cb_redact_stream *s)
{
  return s->held.len;
}

const char *cb_redact_stream_found(const struct cb_redact_stream *s)
{
  return s->found;
}

/* ---- whole buffers ------------------------------------------------------------------------ */

int cb_redact_mask(const struct cb_redactor *r, const void *p, size_t n, struct cb_buf *out,
                   struct cb_err *err)
{
  struct cb_redact_stream *s;
  int rc = cb_redact_stream_new(&s, r, err);
  if (rc == CB_OK)
    rc = cb_redact_feed(s, p, n, out, NULL, err);
  if (rc == CB_OK)
    rc = cb_redact_finish(s, out, err);
  cb_redact_stream_free(s);
  return rc;
}

int cb_redact_find(const struct cb_redactor *r, const void *p, size_t n, const char **name,
                   struct cb_err *err)
{
  struct cb_search search;
  struct cb_match m;
  *name = NULL;
  cb_search_begin(&search, r->matcher, p, n, true);
  if (cb_search_next(&search, &m) != CB_FOUND_MATCH)
    return CB_OK;
  *name = r->names[m.secret];
  return cb_err_set(err, CB_CONTAINS_SECRET, "the bytes contain the value of %s", *name);
}

const char *cb_redact_shape(const void *p, size_t n)
{
  struct cb_shape_hit hit;
  return cb_shape_next(p, n, 0, true, &hit) == CB_SHAPE_FOUND_HIT ? hit.kind : NULL;
}
