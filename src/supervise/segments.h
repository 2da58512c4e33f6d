/* SPDX-License-Identifier: MIT
 * segments.h: a log in pieces named by where they begin, so that a reader's ranges never shift
 * and a piece that is full never changes. Over log_max the first half and the newest half are
 * kept; a full disk costs bytes, never the run. Either way what is missing is counted, as one
 * range that begins once. (After a full disk up to a quarter more than log_max may be kept.) */
#ifndef CB_SUPERVISE_SEGMENTS_H
#define CB_SUPERVISE_SEGMENTS_H
#include <stddef.h>
#include <stdint.h>
#include "supervise/rundir.h"
#include "wire/state.h"

struct cb_sup_segments {
  const struct cb_sup_dir *dir;    /* borrowed */
  struct cb_state_stream *figures; /* borrowed: end and gap are kept there */
  const char *prefix;              /* "out", "err" */
  int64_t segment, log_max;
  int64_t head;  /* up to here nothing is ever given up */
  int64_t tail;  /* where the newest half begins now */
  int64_t start; /* where the open piece begins */
  int fd;        /* the open piece; -1: none */
};

/* log_max is at least two segments (orders see to it). */
void cb_sup_segments_init(struct cb_sup_segments *s, const struct cb_sup_dir *dir,
                          const char *prefix, int64_t segment, int64_t log_max,
                          struct cb_state_stream *figures);
void cb_sup_segments_add(struct cb_sup_segments *s, const void *p, size_t n);
/* Counts n bytes that are lost before they could be added. */
void cb_sup_segments_lose(struct cb_sup_segments *s, size_t n);
/* Makes what is there durable and closes. */
void cb_sup_segments_close(struct cb_sup_segments *s);
#endif
