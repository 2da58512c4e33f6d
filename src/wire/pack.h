/* SPDX-License-Identifier: MIT
 * pack.h: a tree as one run of bytes (docs/reference/interfaces.md section 6):
 *     crewbox-pack 1 LF  manifest LENGTH LF BYTES  { file INDEX LENGTH LF BYTES }  end SHA256 LF
 * Pure: bytes go out and come in through functions of the caller, contents are streamed. A full
 * pack has the content of every entry, a result pack only what differs from a base. Not thread
 * safe. After a failure a writer or reader may not be used further; neither owns anything. */
#ifndef CB_WIRE_PACK_H
#define CB_WIRE_PACK_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/err.h"
#include "base/sha256.h"
#include "wire/manifest.h"

/* Writes all n bytes: CB_OK or a code with *err filled. */
typedef int cb_pack_sink(void *ctx, const void *p, size_t n, struct cb_err *err);
/* Reads between 1 and max bytes; *n = 0 means the end. */
typedef int cb_pack_source(void *ctx, void *p, size_t max, size_t *n, struct cb_err *err);

struct cb_pack_writer {
  cb_pack_sink *sink;
  void *ctx;
  const struct cb_manifest *manifest; /* borrowed until end */
  struct cb_sha256 sum;               /* of everything so far */
  struct cb_sha256 content;           /* of the file being written */
  size_t next;                        /* least index that may come */
  size_t current;                     /* index being written; SIZE_MAX: none */
  uint64_t left;                      /* bytes the current file still wants */
};

/* Writes the head and the manifest (sorted, borrowed). */
int cb_pack_begin(struct cb_pack_writer *w, cb_pack_sink *sink, void *ctx,
                  const struct cb_manifest *manifest, struct cb_err *err);
/* Opens the content of entry `index`, greater than every index before; then exactly `size` bytes
 * by data, in any pieces. Content that is longer, shorter or of another digest than its entry
 * says is CB_CONFLICT, noticed at the latest by the next file or end: the source changed. */
int cb_pack_file(struct cb_pack_writer *w, size_t index, struct cb_err *err);
int cb_pack_data(struct cb_pack_writer *w, const void *p, size_t n, struct cb_err *err);
/* Writes the end line; digest (may be NULL) gets its sum. */
int cb_pack_end(struct cb_pack_writer *w, char digest[CB_SHA256_HEX + 1], struct cb_err *err);

enum { CB_PACK_BUFFER = 16384 };

struct cb_pack_reader {
  cb_pack_source *source;
  void *ctx;
  const struct cb_manifest *manifest; /* the one open filled; borrowed */
  struct cb_sha256 sum;
  struct cb_sha256 content;
  size_t next;
  size_t current;
  uint64_t left;
  bool done; /* the end line was right and nothing followed */
  size_t at, len;
  char digest[CB_SHA256_HEX + 1]; /* the sum of the end line, once done */
  char buffer[CB_PACK_BUFFER];
};

/* Reads the head and the manifest into an empty *manifest, which must outlive the reader and stay
 * as it is. Bytes that break the format are CB_PROTOCOL; more than max_files entries, or
 * max_bytes of content by the sizes the manifest names, CB_TOO_LARGE. After a failure *manifest
 * is empty. */
int cb_pack_open(struct cb_pack_reader *r, cb_pack_source *source, void *ctx,
                 struct cb_manifest *manifest, size_t max_files, uint64_t max_bytes,
                 struct cb_err *err);
/* Goes to the next content: CB_OK with its index, or with SIZE_MAX when the end line was read and
 * its sum is right. What was not read of the content before is read and checked. */
int cb_pack_next(struct cb_pack_reader *r, size_t *index, struct cb_err *err);
/* Up to max bytes of the current content; *n = 0 at its end, where its digest was found right
 * (else CB_CORRUPT). */
int cb_pack_read(struct cb_pack_reader *r, void *p, size_t max, size_t *n, struct cb_err *err);
#endif
