/* SPDX-License-Identifier: MIT
 * record.h: the one flat format of crewbox, for orders, state, init frames and the ask file:
 *     NAME SP LENGTH LF BYTES LF   ...   (docs/reference/interfaces.md section 5)
 * Pure: no I/O. A reader never allocates and points into the bytes it was given. */
#ifndef CB_WIRE_RECORD_H
#define CB_WIRE_RECORD_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/buf.h"

enum { CB_RECORD_NAME_MAX = 32 };

struct cb_record {
  char name[CB_RECORD_NAME_MAX + 1];
  const char *value; /* not NUL-terminated by the format; value[len] is the LF */
  size_t len;
};

struct cb_record_reader {
  const char *p;
  size_t len, at;
};

void cb_record_open(struct cb_record_reader *r, const void *p, size_t len);
/* 1 with *out filled, 0 at the end, -1 for bytes that break the format (then always -1). */
int cb_record_next(struct cb_record_reader *r, struct cb_record *out);
bool cb_record_is(const struct cb_record *rec, const char *name);
/* Decimal, optional leading '-', no blanks; false when it is not a number that fits. */
bool cb_record_int(const struct cb_record *rec, int64_t *out);
/* Finds the first record of that name. */
bool cb_record_find(const void *p, size_t len, const char *name, struct cb_record *out);
/* True when the first record is `kind` and its value is the number version. */
bool cb_record_kind(const void *p, size_t len, const char *kind, int64_t version);

int cb_record_add(struct cb_buf *b, const char *name, const void *value, size_t len);
int cb_record_addz(struct cb_buf *b, const char *name, const char *value);
int cb_record_addi(struct cb_buf *b, const char *name, int64_t value);
#endif
