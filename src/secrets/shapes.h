/* SPDX-License-Identifier: MIT
 * shapes.h: credentials known by their look: provider keys, private key blocks, JWTs, passwords
 * in URLs. Pure.
 *
 * A shape is decided once enough of it is there; from then on it is open: what follows and
 * fits belongs to it, and nothing needs to be held back to say so. Before that it is live for
 * a bounded number of bytes. */
#ifndef CB_SECRETS_SHAPES_H
#define CB_SECRETS_SHAPES_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum cb_shape {
  CB_SHAPE_NONE,
  CB_SHAPE_TOKEN, /* a run of characters of one class */
  CB_SHAPE_JWT,
  CB_SHAPE_PEM,
  CB_SHAPE_URL,
};

/* An open shape; plain data, kept by the stream between feeds. */
struct cb_shape_state {
  enum cb_shape shape; /* NONE: nothing is open */
  uint8_t allowed;     /* TOKEN: its class */
  bool in_word;        /* PEM: the bytes so far end inside a word that was taken */
  uint32_t taken;      /* PEM: bytes so far */
};

struct cb_shape_hit {
  size_t anchor;    /* where it was recognised: text from here is needed to see it again */
  size_t start, end;
  const char *kind; /* "github_token", ...: for the marker */
  struct cb_shape_state open; /* how to go on at end; NONE when it is closed */
};

enum cb_shape_found {
  CB_SHAPE_FOUND_NONE,
  CB_SHAPE_FOUND_HIT,
  CB_SHAPE_FOUND_LIVE, /* hit->anchor: from here it may become one */
};

/* Looks from `at` on, leftmost first. final: no text follows. */
enum cb_shape_found cb_shape_next(const uint8_t *text, size_t len, size_t at, bool final,
                                  struct cb_shape_hit *hit);

/* Goes on with an open shape at text[at]: returns the new end, state->shape NONE when it is
 * closed. Bytes from the end to len are undecided while it is open. */
size_t cb_shape_go_on(struct cb_shape_state *state, const uint8_t *text, size_t len, size_t at,
                      bool final);
#endif
