/* SPDX-License-Identifier: MIT */
#include "secrets/match.h"

#include <string.h>

#include "base/alloc.h"
#include "secrets/forms.h"

enum {
  BLOCK = 4, /* bytes the shift table looks at */
  SHIFT_MAX = CB_FORM_KEY - BLOCK + 1,
  HASH_BITS_LEAST = 13,
  HASH_BITS_MOST = 19,
  PAIRS = 1 << 16,
  KEY_HASH_BITS = 17,
};

/* Letters of keys and text are compared without their case bit; forms.c knows better. */
static const uint64_t fold = 0x2020202020202020u;

struct needle {
  const uint8_t *v; /* into values */
  size_t len;
  size_t secret;
};

struct entry {
  uint8_t key[CB_FORM_KEY]; /* folded */
  uint32_t needle;
  uint8_t form;
};

struct cb_matcher {
  uint8_t *values; /* copies of all values, one block */
  size_t values_len;
  struct needle *needles;
  size_t needle_count;
  struct entry *by_hash; /* grouped by the hash of the key's last block */
  struct entry *by_key;  /* the same entries in byte order */
  size_t entry_count, entry_cap;
  unsigned hash_shift;   /* 32 - bits of a hash */
  uint32_t *head; /* one a hash and one more: where a group begins in by_hash */
  uint8_t *shift; /* one a hash: how far the window can move, 0: look closer */
  uint8_t *pairs; /* one bit a pair of bytes: does a key begin so? */
  uint8_t *keys;  /* one bit a hash of a whole key: is there one? */
};

static uint32_t hash_block(const uint8_t *block, unsigned hash_shift)
{
  uint32_t v;
  _Static_assert(BLOCK == sizeof v, "a block is one load");
  memcpy(&v, block, sizeof v);
  v |= (uint32_t)fold;
  return v * 2654435761u >> hash_shift;
}

/* ---- building --------------------------------------------------------------------------- */

static bool is_armour(const uint8_t *p, size_t n)
{
  return n >= 11 && (memcmp(p, "-----BEGIN ", 11) == 0 || memcmp(p, "-----END ", 9) == 0);
}

static bool is_blank(uint8_t c)
{
  return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static void trim(const uint8_t **p, size_t *n)
{
  while (*n && is_blank((*p)[*n - 1]))
    --*n;
  while (*n && is_blank(**p))
    ++*p, --*n;
}

bool cb_matcher_wants(const struct cb_secret *s)
{
  const uint8_t *p = (const uint8_t *)s->value;
  size_t n = s->len;
  trim(&p, &n);
  return n >= CB_SECRET_MIN;
}

/* The value without blanks around it, and each of its lines. Armour lines of PEM say nothing
 * and stand in files of other people. into NULL: counts. */
static size_t split(const uint8_t *p, size_t n, size_t secret, struct needle *into)
{
  size_t count = 0;
  trim(&p, &n);
  if (n >= CB_SECRET_MIN) {
    if (into)
      into[count] = (struct needle){ p, n, secret };
    count++;
  }
  if (!memchr(p, '\n', n))
    return count;
  while (n) {
    const uint8_t *line = p, *nl = memchr(p, '\n', n);
    size_t len = nl ? (size_t)(nl - p) : n;
    p += len + (nl ? 1 : 0);
    n -= len + (nl ? 1 : 0);
    trim(&line, &len);
    if (len < CB_SECRET_MIN || is_armour(line, len))
      continue;
    if (into)
      into[count] = (struct needle){ line, len, secret };
    count++;
  }
  return count;
}

struct filling {
  struct cb_matcher *m;
  uint32_t needle;
  uint8_t form;
};

static int add_entry(void *arg, const uint8_t key[CB_FORM_KEY])
{
  struct filling *f = arg;
  struct cb_matcher *m = f->m;
  if (m->entry_count == m->entry_cap) {
    size_t cap = m->entry_cap ? m->entry_cap * 2 : 1024, bytes;
    /* Keys are pieces of values: no copy may stay behind, so no realloc. */
    struct entry *more = cb_size_mul(cap, sizeof *more, &bytes) ? cb_malloc(bytes) : NULL;
    if (!more)
      return CB_NO_MEMORY;
    if (m->entry_count)
      memcpy(more, m->by_key, m->entry_count * sizeof *more);
    cb_free_wiped(m->by_key, m->entry_cap * sizeof *more);
    m->by_key = more;
    m->entry_cap = cap;
  }
  struct entry *e = &m->by_key[m->entry_count++];
  memset(e, 0, sizeof *e);
  for (size_t i = 0; i < CB_FORM_KEY; i++)
    e->key[i] = key[i] | (uint8_t)fold;
  e->needle = f->needle;
  e->form = f->form;
  return CB_OK;
}

static int compare(const struct entry *x, const struct entry *y)
{
  int c = memcmp(x->key, y->key, CB_FORM_KEY);
  if (c == 0 && x->needle != y->needle)
    c = x->needle < y->needle ? -1 : 1;
  return c ? c : (int)x->form - (int)y->form;
}

static void sift_down(struct entry *e, size_t at, size_t n)
{
  for (size_t kid; (kid = 2 * at + 1) < n; at = kid) {
    if (kid + 1 < n && compare(&e[kid], &e[kid + 1]) < 0)
      kid++;
    if (compare(&e[at], &e[kid]) >= 0)
      return;
    struct entry t = e[at];
    e[at] = e[kid];
    e[kid] = t;
  }
}

/* In place: qsort may copy the keys to memory that nobody wipes. */
static void sort_entries(struct entry *e, size_t n)
{
  for (size_t i = n / 2; i-- > 0;)
    sift_down(e, i, n);
  for (size_t i = n; i-- > 1;) {
    struct entry t = e[0];
    e[0] = e[i];
    e[i] = t;
    sift_down(e, 0, i);
  }
}

static int list_entries(struct cb_matcher *m)
{
  for (size_t i = 0; i < m->needle_count; i++) {
    for (int form = 0; form < CB_FORM_COUNT; form++) {
      struct filling f = { m, (uint32_t)i, (uint8_t)form };
      int rc = cb_form_keys(form, m->needles[i].v, m->needles[i].len, add_entry, &f);
      if (rc)
        return rc;
    }
  }
  if (m->entry_count == 0)
    return CB_OK;
  sort_entries(m->by_key, m->entry_count);
  size_t n = 0;
  for (size_t i = 0; i < m->entry_count; i++) {
    if (n == 0 || compare(&m->by_key[i], &m->by_key[n - 1]) != 0)
      m->by_key[n++] = m->by_key[i];
  }
  m->entry_count = n;
  return CB_OK;
}

static uint32_t hash_key(uint64_t key)
{
  return (uint32_t)(key * 0x9e3779b97f4a7c15u >> (64 - KEY_HASH_BITS));
}

static unsigned pair_of(const uint8_t *p)
{
  return (unsigned)p[0] << 8 | p[1];
}

static void note_blocks(struct cb_matcher *m, const uint8_t key[CB_FORM_KEY])
{
  for (int at = 0; at <= CB_FORM_KEY - BLOCK; at++) {
    uint8_t *s = &m->shift[hash_block(key + at, m->hash_shift)];
    int shift = CB_FORM_KEY - BLOCK - at;
    if (shift < *s)
      *s = (uint8_t)shift;
  }
  m->pairs[pair_of(key) / 8] |= (uint8_t)(1u << pair_of(key) % 8);
  uint64_t whole;
  memcpy(&whole, key, sizeof whole);
  m->keys[hash_key(whole) / 8] |= (uint8_t)(1u << hash_key(whole) % 8);
}

static int index_entries(struct cb_matcher *m)
{
  /* A full table lets the window move too little, a large one leaves the near caches: each key
   * puts five blocks into it, and a third of them being taken is a good middle. */
  unsigned bits = HASH_BITS_LEAST;
  while (bits < HASH_BITS_MOST && ((size_t)1 << bits) < m->entry_count * 16)
    bits++;
  size_t hashes = (size_t)1 << bits;
  m->hash_shift = 32 - bits;
  m->by_hash = cb_calloc(m->entry_count, sizeof *m->by_hash);
  m->head = cb_calloc(hashes + 1, sizeof *m->head);
  m->shift = cb_malloc(hashes);
  m->pairs = cb_calloc(PAIRS / 8, 1);
  m->keys = cb_calloc((1u << KEY_HASH_BITS) / 8, 1);
  if (!m->by_hash || !m->head || !m->shift || !m->pairs || !m->keys)
    return CB_NO_MEMORY;
  memset(m->shift, SHIFT_MAX, hashes);
  for (size_t i = 0; i < m->entry_count; i++) {
    const uint8_t *key = m->by_key[i].key;
    note_blocks(m, key);
    m->head[hash_block(key + CB_FORM_KEY - BLOCK, m->hash_shift) + 1]++;
  }
  for (size_t h = 0; h < hashes; h++)
    m->head[h + 1] += m->head[h];
  /* Each group is filled from its end, head[h + 1] being the cursor of group h. */
  for (size_t i = m->entry_count; i-- > 0;) {
    uint32_t h = hash_block(m->by_key[i].key + CB_FORM_KEY - BLOCK, m->hash_shift);
    m->by_hash[--m->head[h + 1]] = m->by_key[i];
  }
  /* Every head[h + 1] now holds the begin of group h: move them down by one. */
  memmove(m->head, m->head + 1, hashes * sizeof *m->head);
  m->head[hashes] = (uint32_t)m->entry_count;
  return CB_OK;
}

int cb_matcher_new(struct cb_matcher **out, const struct cb_secret *secrets, size_t count,
                   struct cb_err *err)
{
  struct cb_matcher *m = cb_calloc(1, sizeof *m);
  size_t total = 0, at = 0, needles = 0;
  int rc = m ? CB_OK : CB_NO_MEMORY;

  *out = NULL;
  if (rc == CB_OK && count > CB_SECRETS_MAX)
    rc = cb_err_set(err, CB_TOO_LARGE, "redactor: more than %d secrets", CB_SECRETS_MAX);
  for (size_t i = 0; rc == CB_OK && i < count; i++) {
    if (secrets[i].len > CB_SECRET_MAX)
      rc = cb_err_set(err, CB_TOO_LARGE, "redactor: the value of %.64s has more than %d bytes",
                      secrets[i].name, CB_SECRET_MAX);
    total += secrets[i].len;
    needles += rc ? 0 : split((const uint8_t *)secrets[i].value, secrets[i].len, i, NULL);
  }
  if (rc == CB_OK && needles > CB_NEEDLES_MAX)
    rc = cb_err_set(err, CB_TOO_LARGE, "redactor: the secrets have more than %d lines",
                    CB_NEEDLES_MAX);
  if (rc)
    goto out;
  m->values = cb_malloc(total);
  m->values_len = total;
  m->needles = cb_calloc(needles, sizeof *m->needles);
  rc = m->values && m->needles ? CB_OK : CB_NO_MEMORY;
  for (size_t i = 0; rc == CB_OK && i < count; i++) {
    if (secrets[i].len)
      memcpy(m->values + at, secrets[i].value, secrets[i].len);
    m->needle_count += split(m->values + at, secrets[i].len, i, m->needles + m->needle_count);
    at += secrets[i].len;
  }
  if (rc == CB_OK)
    rc = list_entries(m);
  if (rc == CB_OK)
    rc = index_entries(m);
out:
  if (rc == CB_NO_MEMORY)
    cb_err_no_memory(err);
  if (rc)
    cb_matcher_free(m);
  else
    *out = m;
  return rc;
}

void cb_matcher_free(struct cb_matcher *m)
{
  if (!m)
    return;
  cb_free_wiped(m->values, m->values ? m->values_len : 0);
  cb_free_wiped(m->needles, m->needles ? m->needle_count * sizeof *m->needles : 0);
  cb_free_wiped(m->by_hash, m->by_hash ? m->entry_count * sizeof *m->by_hash : 0);
  cb_free_wiped(m->by_key, m->by_key ? m->entry_cap * sizeof *m->by_key : 0);
  cb_free(m->head);
  cb_free(m->shift);
  cb_free(m->pairs);
  cb_free(m->keys);
  cb_free(m);
}

/* ---- looking ------------------------------------------------------------------------------ */

/* What begins at one place, over all entries tried there. */
struct best {
  struct cb_match match; /* end 0: none */
  bool live;
};

static void try_entry(const struct cb_matcher *m, const struct entry *e, const uint8_t *text,
                      size_t len, size_t at, struct best *best)
{
  const struct needle *n = &m->needles[e->needle];
  struct cb_form_result r = cb_form_match(e->form, n->v, n->len, text, len, at);
  best->live = best->live || r.live;
  if (r.end > best->match.end ||
      (r.end && r.end == best->match.end && n->secret < best->match.secret))
    best->match = (struct cb_match){ at, r.end, n->secret };
}

static enum cb_found verdict(const struct best *best, size_t at, bool final,
                             struct cb_match *out)
{
  if (best->live && !final) {
    out->start = at;
    return CB_FOUND_LIVE;
  }
  if (!best->match.end)
    return CB_FOUND_NONE;
  *out = best->match;
  return CB_FOUND_MATCH;
}

/* Fewer than a key's bytes are left: is there a key that begins with them? */
static enum cb_found look_at_tail(struct cb_search *s, struct cb_match *out)
{
  const struct cb_matcher *m = s->m;
  uint8_t key[CB_FORM_KEY];
  for (; s->at < s->len; s->at++) {
    size_t n = s->len - s->at, lo = 0, hi = m->entry_count;
    for (size_t i = 0; i < n; i++)
      key[i] = s->text[s->at + i] | (uint8_t)fold;
    if (n >= 2 && !(m->pairs[pair_of(key) / 8] >> pair_of(key) % 8 & 1))
      continue;
    while (lo < hi) {
      size_t mid = lo + (hi - lo) / 2;
      if (memcmp(m->by_key[mid].key, key, n) < 0)
        lo = mid + 1;
      else
        hi = mid;
    }
    struct best best = { .live = false };
    for (; !best.live && lo < m->entry_count && memcmp(m->by_key[lo].key, key, n) == 0; lo++)
      try_entry(m, &m->by_key[lo], s->text, s->len, s->at, &best);
    if (best.live)
      return verdict(&best, s->at, false, out);
  }
  return CB_FOUND_NONE;
}

static enum cb_found look_closer(const struct cb_search *s, size_t at, struct cb_match *out)
{
  const struct cb_matcher *m = s->m;
  uint64_t window, key;
  memcpy(&window, s->text + at, sizeof window);
  window |= fold;
  if (!(m->keys[hash_key(window) / 8] >> hash_key(window) % 8 & 1))
    return CB_FOUND_NONE;
  uint32_t h = hash_block(s->text + at + CB_FORM_KEY - BLOCK, m->hash_shift);
  struct best best = { .live = false };
  for (uint32_t i = m->head[h]; i < m->head[h + 1]; i++) {
    memcpy(&key, m->by_hash[i].key, sizeof key);
    if (key == window)
      try_entry(m, &m->by_hash[i], s->text, s->len, at, &best);
  }
  return verdict(&best, at, s->final, out);
}

/* A window that moves along one lane. Everything it needs is its own, so that the compiler can
 * keep four of them in registers. */
struct window {
  const uint8_t *block; /* the last block of a key at place 0 */
  uint16_t *place;
  size_t at;
  unsigned n;
};

/* Moves by what the shift table says, and lists the place when that is nothing. */
static inline void move(struct window *w, const uint8_t *shifts, unsigned hash_shift)
{
  unsigned shift = shifts[hash_block(w->block + w->at, hash_shift)];
  w->place[w->n] = (uint16_t)w->at;
  w->n += shift == 0;
  w->at += shift + (shift == 0);
}

static void run_lane(struct cb_search *s, unsigned lane, struct window w, size_t places)
{
  const uint8_t *shifts = s->m->shift;
  unsigned hash_shift = s->m->hash_shift;
  while (w.at < places)
    move(&w, shifts, hash_shift);
  s->lane[lane].n = w.n;
}

/* Fills the lanes with the places of the next stretch of text. Each step of a window waits for
 * a load that depends on the step before: four windows at once hide most of that. */
static void fill_lanes(struct cb_search *s)
{
  const uint8_t *shifts = s->m->shift;
  unsigned hash_shift = s->m->hash_shift;
  size_t left = s->len - CB_FORM_KEY + 1 - s->at; /* places where a whole key fits */
  size_t each = CB_SEARCH_LANE;
  struct window w[CB_SEARCH_LANES];

  if (left < CB_SEARCH_LANES * each)
    each = left / CB_SEARCH_LANES;
  s->lanes = each < 16 ? 1 : CB_SEARCH_LANES;
  if (s->lanes == 1)
    each = left < CB_SEARCH_LANE ? left : CB_SEARCH_LANE;
  for (unsigned i = 0; i < s->lanes; i++) {
    s->lane[i].from = s->at + i * each;
    w[i] = (struct window){ s->text + s->lane[i].from + CB_FORM_KEY - BLOCK, s->lane[i].place,
                            0, 0 };
  }
  if (s->lanes == CB_SEARCH_LANES) {
    struct window a = w[0], b = w[1], c = w[2], d = w[3];
    while (a.at < each && b.at < each && c.at < each && d.at < each) {
      move(&a, shifts, hash_shift);
      move(&b, shifts, hash_shift);
      move(&c, shifts, hash_shift);
      move(&d, shifts, hash_shift);
    }
    w[0] = a, w[1] = b, w[2] = c, w[3] = d;
  }
  for (unsigned i = 0; i < s->lanes; i++)
    run_lane(s, i, w[i], each);
  s->at += s->lanes * each;
  s->now = s->next = 0;
}

void cb_search_begin(struct cb_search *s, const struct cb_matcher *m, const uint8_t *text,
                     size_t len, bool final)
{
  s->m = m;
  s->text = text;
  s->len = len;
  s->final = final;
  s->at = 0;
  s->lanes = s->now = s->next = 0;
}

enum cb_found cb_search_next(struct cb_search *s, struct cb_match *out)
{
  if (s->m->entry_count == 0)
    return CB_FOUND_NONE;
  for (;;) {
    for (; s->now < s->lanes; s->now++, s->next = 0) {
      while (s->next < s->lane[s->now].n) {
        size_t at = s->lane[s->now].from + s->lane[s->now].place[s->next++];
        enum cb_found found = look_closer(s, at, out);
        if (found != CB_FOUND_NONE)
          return found;
      }
    }
    if (s->len < CB_FORM_KEY || s->at > s->len - CB_FORM_KEY)
      return s->final ? CB_FOUND_NONE : look_at_tail(s, out);
    fill_lanes(s);
  }
}
