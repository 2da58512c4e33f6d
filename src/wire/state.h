/* SPDX-License-Identifier: MIT
 * state.h: what a supervisor says about its run (docs/reference/interfaces.md section 5). Pure.
 * The reader trusts nothing: the file lies where the agent can write. */
#ifndef CB_WIRE_STATE_H
#define CB_WIRE_STATE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/buf.h"
#include "base/err.h"
#include "base/sha256.h"

enum { CB_STATE_MAX_BYTES = 8192 };

enum cb_phase { CB_PHASE_STARTING, CB_PHASE_RUNNING, CB_PHASE_STOPPING, CB_PHASE_FINISHED };
enum cb_why {
  CB_WHY_NONE, /* not finished and nothing asked it to */
  CB_WHY_EXITED,
  CB_WHY_STOPPED,
  CB_WHY_GUARD,
  CB_WHY_START_DEADLINE,
  CB_WHY_SPAWN_FAILED
};

struct cb_state_stream {
  int64_t end;              /* scrubbed bytes so far */
  int64_t gap_from, gap_to; /* the least range that covers all that is missing; equal: nothing */
};

struct cb_state {
  char run[64];
  int64_t launch_seq;
  enum cb_phase phase;
  int64_t sup_pid, sup_start; /* sup_start: field 22 of its /proc stat */
  int64_t pid, pid_start;     /* 0 before the start and after a failed one */
  int64_t beat;
  int64_t age_ms, quiet_ms;
  bool stopped; /* the main process is in state T */
  struct cb_state_stream out, err;
  int64_t segment;
  int exit_status; /* -1: none */
  int signal;      /* 0: none */
  int oom;         /* -1: cannot be told from here; else 0 or 1 */
  enum cb_why why;
  char error[256];       /* what failed, for people; "" nothing */
  int64_t findings_size; /* bytes of findings.md; -1: none */
  char findings_sha256[CB_SHA256_HEX + 1];
};

void cb_state_init(struct cb_state *s); /* starting, nothing known */
int cb_state_write(const struct cb_state *s, struct cb_buf *into, struct cb_err *err);
/* CB_PROTOCOL for bytes that break the format, words that are none, numbers below zero, a gap
 * outside its stream, a missing run, launch_seq or phase, a finished state that does not say how.
 * Unknown records are passed over; of a known one that repeats the first counts. */
int cb_state_parse(struct cb_state *s, const void *p, size_t len, struct cb_err *err);

const char *cb_phase_name(enum cb_phase phase);
const char *cb_why_name(enum cb_why why); /* "" for none */
#endif
