/* SPDX-License-Identifier: MIT
 * state.h: the state file of a run, what the supervisor in the box tells the engine
 * (docs/reference/interfaces.md section 5). The writer is the supervisor's; the reader is the
 * engine's and takes hostile bytes: everything is bounded, in range, and consistent in itself,
 * or it is refused. Pure: no I/O. */
#ifndef CB_WIRE_STATE_H
#define CB_WIRE_STATE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/buf.h"

enum {
  CB_STATE_MAX = 16 * 1024, /* bytes of a whole file; more is not a state */
  CB_STATE_RUN_MAX = 32,
  CB_STATE_ERROR_MAX = 400,
  CB_STATE_SEGMENT_MAX = 64 * 1024 * 1024
};

enum cb_phase { CB_PHASE_STARTING, CB_PHASE_RUNNING, CB_PHASE_STOPPING, CB_PHASE_FINISHED };
#define CB_PHASE_COUNT 4

enum cb_why { /* how a finished run came to its end */
  CB_WHY_NONE,
  CB_WHY_EXITED,
  CB_WHY_STOPPED,
  CB_WHY_GUARD,
  CB_WHY_START_DEADLINE,
  CB_WHY_SPAWN_FAILED
};
#define CB_WHY_COUNT 6

struct cb_state {
  char run[CB_STATE_RUN_MAX + 1]; /* [a-z0-9]+ */
  int64_t launch_seq;             /* 1 and up, or 0 */
  enum cb_phase phase;
  int64_t sup_pid;
  int64_t pid, pid_start;    /* 0 before the spawn; start time as field 22 of /proc/PID/stat */
  int64_t beat;              /* grows while the supervisor lives */
  int64_t age_ms, quiet_ms;  /* accumulated in small steps: a pause does not count */
  bool stopped;              /* the process is in state T */
  int64_t out_end, err_end;  /* scrubbed bytes so far */
  int64_t out_gap_from, out_gap_to, err_gap_from, err_gap_to; /* both 0: nothing is missing */
  int64_t segment;           /* bytes of a full segment, > 0 */
  int exit;                  /* 0..255, or -1: none */
  int signal;                /* 1..64, or 0: none */
  bool oom;
  enum cb_why why;           /* not CB_WHY_NONE when phase is finished */
  char error[CB_STATE_ERROR_MAX + 1]; /* one line of text; control bytes read as '?' */
  int64_t findings_size;     /* -1: no findings */
  char findings_sha256[65];  /* lower-case hex; "" without findings */
};

/* All zero but for what has another word for "none" (exit, findings_size, segment 256 KiB). */
void cb_state_init(struct cb_state *s);

/* Adds the whole file. CB_OK, CB_TOO_LARGE or CB_NO_MEMORY. */
int cb_state_add(struct cb_buf *b, const struct cb_state *s);

/* CB_PROTOCOL with what is wrong when the bytes are not a state. Unknown names are ignored, of
 * a repeated name the last counts. */
int cb_state_read(struct cb_state *out, const void *p, size_t len, struct cb_err *err);

/* Whether `now` can be a later reading of the run that `before` was read from: same run, launch,
 * supervisor and process, and no counter or phase gone backward. CB_CORRUPT with what is wrong. */
int cb_state_follows(const struct cb_state *before, const struct cb_state *now,
                     struct cb_err *err);

const char *cb_phase_name(enum cb_phase phase);
const char *cb_why_name(enum cb_why why); /* "" for none */
#endif
