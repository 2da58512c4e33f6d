/* SPDX-License-Identifier: MIT
 * box_answer.h: the bytes of an init's answer as the struct that callbacks get. Pure. The init
 * has the host id of the box's processes, so what it says is taken with care: bounds and kinds
 * are checked, unknown records passed over. */
#ifndef CB_BOXD_BOX_ANSWER_H
#define CB_BOXD_BOX_ANSWER_H
#include "boxd/box_client.h"

struct cb_box_parsed {
  struct cb_box_answer answer; /* points into the bytes and into the arrays below */
  struct cb_err err;
  struct cb_box_entry *entries;
  struct cb_box_proc *procs;
  const char **words; /* arguments and environments of all processes */
  struct cb_box_metrics metrics;
  int stdio[3]; /* index among the descriptors that came along, -1 for none */
};

/* bytes: the answer's records without the leading `f` and `n`, all messages of it in a row; it
 * is written to (strings are ended in place). failed: it was an `error`. After CB_OK and after
 * an error, cb_box_parsed_clear. */
int cb_box_answer_parse(struct cb_box_parsed *out, char *bytes, size_t n, bool failed);
void cb_box_parsed_clear(struct cb_box_parsed *p);
#endif
