/* SPDX-License-Identifier: MIT
 * redact.h: the redactor. Masks known values in the forms programs print them in, and things
 * that look like credentials, in a stream of bytes. libc only: the supervisor links it.
 *
 * Forms of a value (8 bytes or more; every line of a many-line value counts as a value of the
 * same name): raw, base64 at all three alignments (standard and URL-safe alphabet, padded or
 * not, wrapped or not), hex, percent-encoded, JSON-escaped (also JSON inside JSON),
 * shell-quoted ('..', "..", backslashes, $'..'), UTF-16LE.
 * Shapes: provider keys, private key blocks, JWTs, passwords in URLs.
 *
 * What is promised
 *  - The output depends on the concatenation of what was fed, never on where it was cut.
 *  - Only a suffix that may still become something to mask is held back (and a character or
 *    backslash escape that is cut by the end of the data).
 *  - Overlapping matches are masked together under one marker: [REDACTED:NAME] of the longest
 *    named value at the leftmost start, else [REDACTED:kind]. No byte of a match is let out.
 *  - Text that is valid JSON stays valid JSON: escapes are taken whole.
 * What is not: values transformed in other ways (encrypted, compressed, reversed, split).
 *
 * Bytes that will be applied to a checkout are never rewritten: use cb_redact_find. */
#ifndef CB_SECRETS_REDACT_H
#define CB_SECRETS_REDACT_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/buf.h"
#include "base/err.h"

enum {
  CB_SECRET_MIN = 8,             /* shorter values are not masked, see cb_redactor_skipped */
  CB_SECRET_MAX = 256 * 1024,    /* longer values are CB_TOO_LARGE */
  CB_SECRETS_MAX = 4096,         /* more values are CB_TOO_LARGE */
  CB_REDACT_NAME_MAX = 64,       /* bytes of a name that are shown in its marker */
  CB_REDACT_ROOM = 1024 * 1024,  /* an output buffer needs room for that much, see feed */
};

struct cb_secret {
  const char *name; /* shown in markers; bytes outside [A-Za-z0-9_.-] become '_' */
  const char *value;
  size_t len;
};

struct cb_redactor; /* immutable once made: any number of threads and streams may share it */

/* Builds a redactor. Copies names and values. Without values it masks shapes only. */
int cb_redactor_new(struct cb_redactor **out, const struct cb_secret *secrets, size_t count,
                    struct cb_err *err);
/* Wipes every copy of a value. NULL is fine. No stream may use it afterwards. */
void cb_redactor_free(struct cb_redactor *r);

/* Names whose values are too short to mask safely; i from 0, NULL past the end. The caller
 * reports them once, at start. */
const char *cb_redactor_skipped(const struct cb_redactor *r, size_t i);

/* ---- streams ------------------------------------------------------------------------------ */

struct cb_redact_stream; /* one thread at a time */

/* Borrows r. */
int cb_redact_stream_new(struct cb_redact_stream **out, const struct cb_redactor *r,
                         struct cb_err *err);
/* Wipes what is held. NULL is fine. */
void cb_redact_stream_free(struct cb_redact_stream *s);

/* Takes n bytes and appends the clean ones to out. On CB_NO_MEMORY or CB_TOO_LARGE (out's
 * ceiling) the stream goes on: whatever could not be appended yet comes with the next call,
 * and *taken (may be NULL) says how many of the n bytes must not be fed again. An empty out
 * whose ceiling is CB_REDACT_ROOM and the longest value has room for at least 64 KiB of input:
 * it never ends in CB_TOO_LARGE twice in a row. */
int cb_redact_feed(struct cb_redact_stream *s, const void *p, size_t n, struct cb_buf *out,
                   size_t *taken, struct cb_err *err);
/* The end: appends what was held. The stream can then be fed again, as if new. */
int cb_redact_finish(struct cb_redact_stream *s, struct cb_buf *out, struct cb_err *err);

/* Bytes held back now. */
size_t cb_redact_held(const struct cb_redact_stream *s);
/* Name of the first exact value seen in this stream, NULL when none was. */
const char *cb_redact_stream_found(const struct cb_redact_stream *s);

/* ---- whole buffers ------------------------------------------------------------------------ */

/* Appends p masked to out. */
int cb_redact_mask(const struct cb_redactor *r, const void *p, size_t n, struct cb_buf *out,
                   struct cb_err *err);
/* CB_OK with *name NULL: no exact value in any form. CB_CONTAINS_SECRET with *name (owned by r)
 * and *err saying so. Allocates nothing: it has no other outcome. */
int cb_redact_find(const struct cb_redactor *r, const void *p, size_t n, const char **name,
                   struct cb_err *err);
/* Kind of the first shape in p ("github_token", ...), NULL when none: for warnings. */
const char *cb_redact_shape(const void *p, size_t n);
#endif
