/* SPDX-License-Identifier: MIT
 * The matcher against a search that leaves nothing out: at every place of the text every key is
 * compared, one after the other. What the matcher passes over by its tables must be what begins
 * with no key, in any number of values, at any length of text. */
#include "secrets/match.h"

#include <jansson.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/encode.h"
#include "check.h"
#include "secrets/forms.h"

enum { VALUES = 200, VALUE_MAX = 40, TEXT_MAX = 1 << 16, MATCHES = 1 << 14, KEYS = 1 << 18 };

static char values[VALUES][VALUE_MAX + 1];
static struct cb_secret secrets[VALUES];
static struct key {
  uint8_t bytes[CB_FORM_KEY];
  uint16_t value;
  uint8_t form;
} keys[KEYS];
static size_t key_count;

static uint64_t seed = 0x9e3779b97f4a7c15u;

static uint64_t rnd(void)
{
  seed ^= seed << 13;
  seed ^= seed >> 7;
  return seed ^= seed << 17;
}

static int note_key(void *arg, const uint8_t key[CB_FORM_KEY])
{
  const struct key *of = arg;
  CHECK(key_count < KEYS);
  keys[key_count] = *of;
  memcpy(keys[key_count++].bytes, key, CB_FORM_KEY);
  return 0;
}

/* Values that share beginnings, so that groups of one hash have many members. */
static void make_values(size_t count)
{
  static const char letters[] = "abcXYZ019+/=$'\"\\ %-_{";
  key_count = 0;
  for (size_t i = 0; i < count; i++) {
    size_t len = 8 + rnd() % (VALUE_MAX - 8), kept = i > 0 && rnd() % 3 == 0 ? 6 : 0;
    for (size_t k = 0; k < len; k++)
      values[i][k] = k < kept ? values[i - 1][k] : letters[rnd() % (sizeof letters - 1)];
    values[i][0] = values[i][0] == ' ' ? 'k' : values[i][0]; /* blanks around a value do not count */
    values[i][len - 1] = 'e';
    values[i][len] = '\0';
    secrets[i] = (struct cb_secret){ "S", values[i], len };
    for (int form = 0; form < CB_FORM_COUNT; form++) {
      struct key of = { { 0 }, (uint16_t)i, (uint8_t)form };
      cb_form_keys((enum cb_form)form, (const uint8_t *)values[i], len, note_key, &of);
    }
  }
}

/* ---- text, written by others than forms.c ------------------------------------------------- */

static int add_json(struct cb_buf *b, const char *s, int times)
{
  json_t *v = json_string(s);
  char *text = json_dumps(v, JSON_ENCODE_ANY | (rnd() % 2 ? JSON_ESCAPE_SLASH : 0));
  int rc = times > 1 ? add_json(b, text, times - 1) : cb_buf_addz(b, text);
  free(text);
  json_decref(v);
  return rc;
}

static int add_rendering(struct cb_buf *b, const struct cb_secret *s)
{
  char front[VALUE_MAX + 3] = "xy";
  int rc = CB_OK;
  switch (rnd() % 8) {
  case 0: case 1: {
    size_t before = rnd() % 3;
    memcpy(front + before, s->value, s->len);
    return cb_base64_add(b, front, s->len + before);
  }
  case 2:
    for (size_t i = 0; rc == CB_OK && i < s->len; i++)
      rc = cb_buf_addf(b, "%02x", (unsigned char)s->value[i]);
    return rc;
  case 3: return cb_percent_add(b, s->value, s->len);
  case 4: return add_json(b, s->value, 1);
  case 5: return add_json(b, s->value, 2);
  case 6:
    for (size_t i = 0; rc == CB_OK && i < s->len; i++)
      rc = cb_buf_add(b, (const char[]){ s->value[i], 0 }, 2);
    return rc;
  default: return cb_buf_add(b, s->value, s->len);
  }
}

static void make_text(struct cb_buf *b, size_t count, size_t len)
{
  cb_buf_reset(b);
  while (b->len < len) {
    const struct cb_secret *s = &secrets[rnd() % count];
    size_t part = 1 + rnd() % s->len;
    int rc;
    switch (rnd() % 6) {
    case 0: rc = add_rendering(b, s); break;
    case 1: rc = cb_buf_add(b, s->value, part); break;               /* only a beginning */
    case 2: rc = cb_buf_add(b, s->value + s->len - part, part); break; /* only an end */
    case 3: rc = cb_buf_addz(b, "\n"); break;
    default: rc = cb_buf_addf(b, "%llx %c", (unsigned long long)rnd(), "abcXYZ019"[rnd() % 9]);
    }
    CHECK(rc == CB_OK);
  }
  b->len = len; /* often in the middle of something */
}

/* ---- the two searches ---------------------------------------------------------------------- */

/* Upper and lower case (and what else differs in that bit only) are one. */
static bool begins(const uint8_t *text, const struct key *k)
{
  for (size_t i = 0; i < CB_FORM_KEY; i++)
    if ((text[i] | 0x20) != (k->bytes[i] | 0x20))
      return false;
  return true;
}

static size_t everywhere(const uint8_t *text, size_t len, struct cb_match *out)
{
  size_t n = 0;
  for (size_t at = 0; at + CB_FORM_KEY <= len && n < MATCHES; at++) {
    struct cb_match best = { at, 0, 0 };
    for (const struct key *k = keys; k < keys + key_count; k++) {
      if (!begins(text + at, k))
        continue;
      struct cb_form_result r =
        cb_form_match((enum cb_form)k->form, (const uint8_t *)values[k->value],
                      secrets[k->value].len, text, len, at);
      if (r.end > best.end)
        best = (struct cb_match){ at, r.end, k->value };
    }
    if (best.end)
      out[n++] = best;
  }
  return n;
}

static size_t by_tables(const struct cb_matcher *m, const uint8_t *text, size_t len,
                        struct cb_match *out)
{
  struct cb_search s;
  size_t n = 0;
  cb_search_begin(&s, m, text, len, true);
  while (n < MATCHES && cb_search_next(&s, &out[n]) == CB_FOUND_MATCH)
    n++;
  return n;
}

static void compare(size_t count, size_t len)
{
  static struct cb_match all[MATCHES], found[MATCHES];
  struct cb_matcher *m = NULL;
  struct cb_err err = CB_ERR_INIT;
  struct cb_buf text;
  cb_buf_init(&text, TEXT_MAX);
  make_values(count);
  make_text(&text, count, len);
  CHECK(cb_matcher_new(&m, secrets, count, &err) == CB_OK);
  /* Exactly as long as the text: a read behind its end is a sanitizer's to see. */
  uint8_t *copy = malloc(len ? len : 1);
  memcpy(copy, text.p ? text.p : "", len);
  size_t want = everywhere(copy, len, all), got = by_tables(m, copy, len, found);
  CHECK(got == want);
  for (size_t i = 0; i < want && i < got; i++) {
    bool same = all[i].start == found[i].start && all[i].end == found[i].end &&
                (all[i].secret == found[i].secret ||
                 strcmp(values[all[i].secret], values[found[i].secret]) == 0);
    if (!same)
      fprintf(stderr, "%zu values: match %zu is at %zu to %zu, found at %zu to %zu\n", count, i,
              all[i].start, all[i].end, found[i].start, found[i].end);
    CHECK(same);
    if (!same)
      break;
  }
  free(copy);
  cb_matcher_free(m);
  cb_buf_clear(&text);
}

static void tables_leave_nothing_out(void)
{
  static const size_t counts[] = { 1, 2, 7, 64, VALUES };
  for (int round = 0; round < 6; round++)
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
      compare(counts[c], 2000 + rnd() % 100);
}

/* Every length up to where all lanes of the search are in use. */
static void every_length(void)
{
  for (size_t len = 0; len < 160; len++)
    compare(3, len);
  compare(3, 4 * CB_SEARCH_LANE + 13);
}

/* A text in which every place begins a match: what is between two stretches, too. */
static void no_place_is_passed_over(void)
{
  static const struct cb_secret one = { "E", "eeeeeeee", 8 };
  static struct cb_match found[MATCHES];
  static uint8_t text[3 * CB_SEARCH_LANES * CB_SEARCH_LANE];
  struct cb_matcher *m = NULL;
  struct cb_err err = CB_ERR_INIT;
  memset(text, 'e', sizeof text);
  CHECK(cb_matcher_new(&m, &one, 1, &err) == CB_OK);
  for (size_t len = 0; len < sizeof text; len += 1 + len / 7) {
    size_t n = by_tables(m, text, len, found), places = len < 8 ? 0 : len - 7;
    CHECK(n == places);
    for (size_t i = 0; i < n; i++)
      CHECK(found[i].start == i && found[i].end == i + 8);
  }
  cb_matcher_free(m);
}

int main(void)
{
  no_place_is_passed_over();
  tables_leave_nothing_out();
  every_length();
  return check_done();
}
