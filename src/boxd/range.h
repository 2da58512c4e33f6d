/* SPDX-License-Identifier: MIT
 * range.h: the Range header of a download (RFC 9110 14.1): one range of bytes. Pure. */
#ifndef CB_BOXD_RANGE_H
#define CB_BOXD_RANGE_H
#include <stdint.h>

enum cb_range_kind {
  CB_RANGE_WHOLE,         /* no header, or one that may be ignored: another unit, several ranges */
  CB_RANGE_PART,          /* *first and *length are set */
  CB_RANGE_UNSATISFIABLE, /* begins behind the end */
};

enum cb_range_kind cb_range_read(const char *header, uint64_t size, uint64_t *first,
                                 uint64_t *length);
#endif
