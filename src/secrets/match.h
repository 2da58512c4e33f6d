/* SPDX-License-Identifier: MIT
 * match.h: finds exact values, in every form of forms.h, in a piece of text. A block shift
 * table (Wu and Manber, 1994) over the first 8 bytes of all renderings skips most of the text;
 * what it lets through is decoded and compared. Immutable once made. */
#ifndef CB_SECRETS_MATCH_H
#define CB_SECRETS_MATCH_H
#include "secrets/redact.h"

enum {
  CB_NEEDLES_MAX = 16384, /* values and lines of values */
  CB_SEARCH_LANES = 4,
  CB_SEARCH_LANE = 1024, /* places in one lane */
};

struct cb_matcher;

/* Copies the values; too short ones (cb_matcher_wants) are left out. */
int cb_matcher_new(struct cb_matcher **out, const struct cb_secret *secrets, size_t count,
                   struct cb_err *err);
void cb_matcher_free(struct cb_matcher *m); /* wipes */

/* True when a value is long enough to be looked for. */
bool cb_matcher_wants(const struct cb_secret *s);

struct cb_match {
  size_t start, end;
  size_t secret; /* index into the secrets */
};

enum cb_found {
  CB_FOUND_NONE,
  CB_FOUND_MATCH, /* *out: the longest match at the leftmost place */
  CB_FOUND_LIVE,  /* out->start: the rest of the text from here may be the begin of a match */
};

/* One walk through a text. Borrows both. */
struct cb_search {
  const struct cb_matcher *m;
  const uint8_t *text;
  size_t len;
  bool final; /* no text follows, so nothing is live */
  size_t at;  /* places before are done or in the lists */
  struct {    /* places where the shift table says: look closer */
    size_t from;
    unsigned n;
    uint16_t place[CB_SEARCH_LANE]; /* from `from` on */
  } lane[CB_SEARCH_LANES];
  unsigned lanes, now, next; /* lanes in use, the one that is looked at, its next place */
};

void cb_search_begin(struct cb_search *s, const struct cb_matcher *m, const uint8_t *text,
                     size_t len, bool final);
enum cb_found cb_search_next(struct cb_search *s, struct cb_match *out);
#endif
