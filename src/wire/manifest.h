/* SPDX-License-Identifier: MIT
 * manifest.h: the list of what a tree holds, and its bytes (docs/reference/interfaces.md
 * section 6). Pure: no I/O. Not thread safe.
 *
 * A manifest is either sorted (after parse or sort: paths grow by bytes, none twice, none below
 * another entry) or still being filled by add. Everything but add and sort wants it sorted. */
#ifndef CB_WIRE_MANIFEST_H
#define CB_WIRE_MANIFEST_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/buf.h"
#include "base/err.h"
#include "base/sha256.h"

enum cb_tree_mode { CB_TREE_FILE = 0100644, CB_TREE_PROGRAM = 0100755, CB_TREE_LINK = 0120000 };

/* What a tree may hold unless told otherwise, and what a manifest may take in any case. */
enum {
  CB_TREE_MAX_FILES = 50000,
  CB_TREE_MAX_BYTES = 100 << 20,
  CB_MANIFEST_MAX_BYTES = 64 << 20
};

struct cb_manifest_entry {
  enum cb_tree_mode mode;
  uint64_t size;                   /* of the content; of the text for a link */
  char sha256[CB_SHA256_HEX + 1];  /* of the content; of the text for a link */
  char *path;                      /* owned by the manifest, NUL-terminated, never a NUL inside */
  size_t path_len;
};

struct cb_manifest {
  struct cb_manifest_entry *entries;
  size_t count;
  size_t cap;
};
#define CB_MANIFEST_INIT { NULL, 0, 0 }

void cb_manifest_clear(struct cb_manifest *m); /* frees; can be used again */

/* Copies the path. CB_INVALID for a path that is not plain, a mode or digest that is none. */
int cb_manifest_add(struct cb_manifest *m, enum cb_tree_mode mode, uint64_t size,
                    const char *sha256, const char *path, size_t path_len, struct cb_err *err);
/* Puts entries in order. CB_INVALID when a path comes twice or lies below another entry. */
int cb_manifest_sort(struct cb_manifest *m, struct cb_err *err);

/* Reads the bytes of section 6 into an empty *m; at most max_files entries. Bytes that break the
 * format, the order or the rules of paths are CB_PROTOCOL, too many CB_TOO_LARGE; *m is then
 * empty. */
int cb_manifest_parse(struct cb_manifest *m, const void *p, size_t len, size_t max_files,
                      struct cb_err *err);
/* Appends the bytes. CB_TOO_LARGE or CB_NO_MEMORY as the buffer says. */
int cb_manifest_write(const struct cb_manifest *m, struct cb_buf *into, struct cb_err *err);
/* sha256 of the bytes. */
void cb_manifest_digest(const struct cb_manifest *m, char out[CB_SHA256_HEX + 1]);

/* NULL when it is not there. */
const struct cb_manifest_entry *cb_manifest_find(const struct cb_manifest *m, const char *path,
                                                 size_t path_len);
/* Same mode, size and digest; the paths are not compared. */
bool cb_manifest_same(const struct cb_manifest_entry *a, const struct cb_manifest_entry *b);
/* Sum of all sizes; UINT64_MAX when it does not fit. */
uint64_t cb_manifest_bytes(const struct cb_manifest *m);

/* Order of two paths, as the manifest sorts: by bytes, the shorter first. */
int cb_path_order(const char *a, size_t a_len, const char *b, size_t b_len);

/* True when a link at `path` with this text points, by the words alone, into the tree: relative,
 * not empty, no NUL, and no ".." ever climbs above the root. */
bool cb_link_stays_inside(const char *path, size_t path_len, const char *text, size_t text_len);
#endif
