/* SPDX-License-Identifier: MIT
 * file.h: one path of a tree on disk: what is there, reading it whole without being fooled,
 * writing it new. Used inside src/tree only. */
#ifndef CB_TREE_FILE_H
#define CB_TREE_FILE_H
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/stat.h>
#include "base/buf.h"
#include "base/err.h"
#include "wire/manifest.h"
#include "wire/pack.h"

enum cb_tree_kind {
  CB_TREE_KIND_ABSENT, /* not there */
  CB_TREE_KIND_BLOCKED, /* not there: something that is no folder stands on the way */
  CB_TREE_KIND_FILE,
  CB_TREE_KIND_LINK,
  CB_TREE_KIND_FOLDER,
  CB_TREE_KIND_SPECIAL,    /* device, fifo, socket */
  CB_TREE_KIND_BEHIND_LINK /* a folder of its path is a link */
};

struct cb_tree_look {
  enum cb_tree_kind kind;
  struct stat st; /* of the thing itself, where there is one */
};

/* Fails only where it cannot be told. */
int cb_tree_look(int dir, const char *path, struct cb_tree_look *out, struct cb_err *err);

/* Reads what look found to be a file or a link: fills mode, size and sha256 of *e; `each` (may be
 * NULL) gets the bytes. CB_CONFLICT when it is not the same thing any more, or changed while
 * it was read. */
int cb_tree_read(int dir, const char *path, const struct cb_tree_look *seen,
                 struct cb_manifest_entry *e, cb_pack_sink *each, void *ctx, struct cb_err *err);

/* The same thing, unchanged, by inode, size and times. */
bool cb_tree_unchanged(const struct stat *a, const struct stat *b);

/* A pack that is read. */
struct cb_tree_pack {
  int fd;
  struct cb_manifest manifest;
  struct cb_pack_reader reader;
};
/* Opens the file and reads the manifest. Clear it in any case. */
int cb_tree_pack_open(struct cb_tree_pack *p, const char *file, size_t max_files,
                      uint64_t max_bytes, struct cb_err *err);
void cb_tree_pack_clear(struct cb_tree_pack *p);

/* Makes entry e at path below dir from the current content of the reader: its folders, then the
 * file (made new, mode 0644 or 0755) or link. CB_EXISTS when something is there. */
int cb_tree_put(int dir, const char *path, const struct cb_manifest_entry *e,
                struct cb_pack_reader *r, struct cb_err *err);

/* Makes the folders above path. */
int cb_tree_folders(int dir, const char *path, struct cb_err *err);

/* CB_CANCELLED when *stop (may be NULL) is true. */
int cb_tree_stopped(const atomic_bool *stop, struct cb_err *err);

/* A path in a text for people: bytes that are not printable ASCII become '?'. */
enum { CB_TREE_SHOWN = 200 };
const char *cb_tree_show(const char *path, char out[CB_TREE_SHOWN + 1]);
#endif
