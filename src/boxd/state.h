/* SPDX-License-Identifier: MIT
 * state.h: the state folder of a daemon: who may use it, its key and its seed. Before the loop
 * runs; any thread. */
#ifndef CB_BOXD_STATE_H
#define CB_BOXD_STATE_H
#include "base/err.h"

enum { CB_STATE_KEY_LEN = 44, CB_STATE_SEED_BYTES = 32 };

struct cb_state {
  char *path; /* absolute, links resolved */
  int dir;    /* the folder */
  int lock;   /* DIR/lock, flock held: one daemon a folder */
  char key[CB_STATE_KEY_LEN + 1];        /* "e2b_" and 40 hex digits: DIR/key, 0600 */
  unsigned char seed[CB_STATE_SEED_BYTES]; /* DIR/seed, 0600: what box tokens are made from */
};

/* Makes the folder (0700) and what is missing in it. CB_BUSY when another daemon holds it. */
int cb_state_open(struct cb_state *s, const char *path, struct cb_err *err);
void cb_state_close(struct cb_state *s);
#endif
