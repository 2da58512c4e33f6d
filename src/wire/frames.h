/* SPDX-License-Identifier: MIT
 * frames.h: the envelopes of the Connect protocol's streams:
 *     1 byte flags | 4 bytes length, big-endian | payload
 * Client and server use it: a request is one envelope, an answer any number and last the end.
 * Pure: no I/O. The decoder takes bytes cut anywhere and holds at most one payload. */
#ifndef CB_WIRE_FRAMES_H
#define CB_WIRE_FRAMES_H
#include <stdbool.h>
#include <stddef.h>
#include "base/buf.h"

enum {
  CB_FRAME_HEAD_BYTES = 5,
  CB_FRAME_COMPRESSED = 1, /* never asked for by us, so refused when it comes */
  CB_FRAME_END = 2,        /* the trailer; nothing may follow */
  CB_FRAME_MAX = 16 * 1024 * 1024 /* a payload no decoder accepts more than */
};

/* Adds one envelope. CB_OK, CB_TOO_LARGE or CB_NO_MEMORY (then nothing was added). */
int cb_frame_add(struct cb_buf *b, int flags, const void *p, size_t n);

struct cb_frame {
  int flags;
  const char *p; /* never NULL, followed by a NUL; valid until the next call on the decoder */
  size_t n;
};

struct cb_frame_decoder {
  unsigned char head[CB_FRAME_HEAD_BYTES];
  size_t head_used;
  size_t want; /* payload bytes the head announced */
  struct cb_buf body;
  bool ended;  /* an end envelope was given out */
  bool failed;
};

/* max_payload: an envelope that announces more is CB_TOO_LARGE before a byte of it is kept. */
void cb_frame_decoder_init(struct cb_frame_decoder *d, size_t max_payload);
void cb_frame_decoder_clear(struct cb_frame_decoder *d);

/* Takes from *p (moving *p and *n on) until one envelope is whole or the bytes are used up.
 * Returns 1 with *out filled (call again: more may wait in *p), 0 when it needs more bytes, -1
 * with *err filled for bytes that break the format (compressed or unknown flags, too long,
 * anything after the end), after which it always gives -1. */
int cb_frame_next(struct cb_frame_decoder *d, const char **p, size_t *n, struct cb_frame *out,
                  struct cb_err *err);
/* True when the bytes so far stop in the middle of an envelope. */
bool cb_frame_is_torn(const struct cb_frame_decoder *d);
#endif
