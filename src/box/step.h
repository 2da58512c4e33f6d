/* SPDX-License-Identifier: MIT
 * step.h: how making a box fails. A step is a short name of what was tried; the outer process
 * turns it into one sentence for the daemon. */
#ifndef CB_BOX_STEP_H
#define CB_BOX_STEP_H
#include <stddef.h>
#include "base/err.h"

struct cb_step {
  enum cb_code code; /* CB_ISOLATION: the host does not allow it; else what it is */
  int sys;           /* errno, or 0 */
  char step[64];     /* "mount /proc" */
  char text[400];    /* the sentence, with what to allow */
};

/* Fills *s and returns -1. code of cb_step_host is CB_ISOLATION unless errno says that memory
 * or disk ran out. hint may be "". */
int cb_step_host(struct cb_step *s, int sys, const char *step, const char *hint);
int cb_step_set(struct cb_step *s, enum cb_code code, int sys, const char *step,
                const char *fmt, ...) __attribute__((format(printf, 5, 6)));

/* As records: step, errno, code, text; and back. The buffer of cb_step_put is a cb_buf. */
struct cb_buf;
int cb_step_put(struct cb_buf *into, const struct cb_step *s);
void cb_step_get(struct cb_step *s, const void *records, size_t n);
#endif
