/* SPDX-License-Identifier: MIT */
#include "secrets/match.h"

#include <string.h>

#include "base/alloc.h"
#include "secrets/forms.h"

enum {
  BLOCK = 3, /* bytes the shift table looks at */
  HASH_BITS = 16,
  HASHES = 1 << HASH_BITS,
  SHIFT_MAX = CB_FORM_KEY - BLOCK + 1,
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
  uint32_t *head; /* HASHES + 1: where a group begins in by_hash */
  uint8_t *shift; /* HASHES: how far the window can move, 0: look closer */
};

static uint32_t hash_block(const uint8_t *last_of_key) /* reads the byte before, too */
{
  uint32_t v;
  memcpy(&v, last_of_key - 1, sizeof v);
  v |= (uint32_t)fold;
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
  v &= 0xffffff00u;
#else
  v &= 0x00ffffffu;
#endif
  return v * 2654435761u >> (32 - HASH_BITS);
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

static int index_entries(struct cb_matcher *m)
{
  m->by_hash = cb_calloc(m->entry_count, sizeof *m->by_hash);
  m->head = cb_calloc(HASHES + 1, sizeof *m->head);
  m->shift = cb_malloc(HASHES);
  if (!m->by_hash || !m->head || !m->shift)
    return CB_NO_MEMORY;
  memset(m->shift, SHIFT_MAX, HASHES);
  for (size_t i = 0; i < m->entry_count; i++) {
    const uint8_t *key = m->by_key[i].key;
    for (int at = CB_FORM_KEY - BLOCK, shift = 0; at >= 1; at--, shift++) {
      uint8_t *s = &m->shift[hash_block(key + at)];
      if (shift < *s)
        *s = (uint8_t)shift;
    }
    /* The first block has no byte before it inside the key. */
    uint8_t first[BLOCK + 1] = { 0, key[0], key[1], key[2] };
    uint8_t *s = &m->shift[hash_block(first + 1)];
    if (SHIFT_MAX - 1 < *s)
      *s = SHIFT_MAX - 1;
    m->head[hash_block(key + CB_FORM_KEY - BLOCK) + 1]++;
  }
  for (size_t h = 0; h < HASHES; h++)
    m->head[h + 1] += m->head[h];
  /* Each group is filled from its end, head[h + 1] being the cursor of group h. */
  for (size_t i = m->entry_count; i-- > 0;) {
    uint32_t h = hash_block(m->by_key[i].key + CB_FORM_KEY - BLOCK);
    m->by_hash[--m->head[h + 1]] = m->by_key[i];
  }
  /* Every head[h + 1] now holds the begin of group h: move them down by one. */
  memmove(m->head, m->head + 1, HASHES * sizeof *m->head);
  m->head[HASHES] = (uint32_t)m->entry_count;
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
static enum cb_found look_at_tail(const struct cb_matcher *m, const uint8_t *text, size_t len,
                                  size_t at, struct cb_match *out)
{
  uint8_t key[CB_FORM_KEY];
  for (; at < len; at++) {
    size_t n = len - at, lo = 0, hi = m->entry_count;
    for (size_t i = 0; i < n; i++)
      key[i] = text[at + i] | (uint8_t)fold;
    while (lo < hi) {
      size_t mid = lo + (hi - lo) / 2;
      if (memcmp(m->by_key[mid].key, key, n) < 0)
        lo = mid + 1;
      else
        hi = mid;
    }
    struct best best = { .live = false };
    for (; !best.live && lo < m->entry_count && memcmp(m->by_key[lo].key, key, n) == 0; lo++)
      try_entry(m, &m->by_key[lo], text, len, at, &best);
    if (best.live)
      return verdict(&best, at, false, out);
  }
  return CB_FOUND_NONE;
}

enum cb_found cb_matcher_next(const struct cb_matcher *m, const uint8_t *text, size_t len,
                              size_t at, bool final, struct cb_match *out)
{
  if (m->entry_count == 0)
    return CB_FOUND_NONE;
  while (len >= CB_FORM_KEY && at <= len - CB_FORM_KEY) {
    uint32_t h = hash_block(text + at + CB_FORM_KEY - BLOCK);
    if (m->shift[h]) {
      at += m->shift[h];
      continue;
    }
    uint64_t window, key;
    struct best best = { .live = false };
    memcpy(&window, text + at, sizeof window);
    window |= fold;
    for (uint32_t i = m->head[h]; i < m->head[h + 1]; i++) {
      memcpy(&key, m->by_hash[i].key, sizeof key);
      if (key == window)
        try_entry(m, &m->by_hash[i], text, len, at, &best);
    }
    enum cb_found found = verdict(&best, at, final, out);
    if (found != CB_FOUND_NONE)
      return found;
    at++;
  }
  return final ? CB_FOUND_NONE : look_at_tail(m, text, len, at, out);
}
