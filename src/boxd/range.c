/* SPDX-License-Identifier: MIT
 * range.c: see range.h. */
#include "boxd/range.h"
#include <stdbool.h>
#include <string.h>
#include <strings.h>

/* Digits at *p; numbers that do not fit count as the greatest. */
static bool number(const char **p, uint64_t *out)
{
  uint64_t n = 0;
  if (**p < '0' || **p > '9')
    return false;
  for (; **p >= '0' && **p <= '9'; (*p)++)
    n = n > (UINT64_MAX - 9) / 10 ? UINT64_MAX : n * 10 + (uint64_t)(**p - '0');
  *out = n;
  return true;
}

enum cb_range_kind cb_range_read(const char *header, uint64_t size, uint64_t *first,
                                 uint64_t *length)
{
  uint64_t from = 0, to = UINT64_MAX;
  if (!header || strncasecmp(header, "bytes=", 6) != 0)
    return CB_RANGE_WHOLE;
  const char *p = header + 6;
  p += strspn(p, " \t");
  bool has_from = number(&p, &from);
  if (*p != '-')
    return CB_RANGE_WHOLE;
  p++;
  bool has_to = number(&p, &to);
  p += strspn(p, " \t");
  if (*p || (!has_from && !has_to) || (has_from && has_to && to < from))
    return CB_RANGE_WHOLE;
  if (!has_from) { /* the last `to` bytes */
    if (to == 0 || size == 0)
      return CB_RANGE_UNSATISFIABLE;
    from = to >= size ? 0 : size - to;
    to = size - 1;
  }
  if (from >= size)
    return CB_RANGE_UNSATISFIABLE;
  if (!has_to || to >= size)
    to = size - 1;
  *first = from;
  *length = to - from + 1;
  return CB_RANGE_PART;
}
