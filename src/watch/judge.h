/* SPDX-License-Identifier: MIT
 * judge.h: what may be believed about a run that lives in a box nobody can look into. Pure: it
 * is told what was seen and what time it is (ms of one clock that goes on), and says whether the
 * run is lost. The rules:
 *
 * - Twice "there is no such box" from the provider, with nothing else in between: box_lost.
 * - A state that is missing after it was seen, makes no sense, is another run's or went backward,
 *   twice in a row while the box is there: supervisor_lost. One such reading can be a cut answer.
 * - No state at all until the start deadline while the box is there: start_failed.
 * - A beat that stands still only raises a question. The supervisor is dead when a look at its
 *   process from inside the box proves it (no such process, a zombie, another start time), twice
 *   in a row, with the state read again in between. A failed look proves nothing (bug-B7).
 * - A box that cannot be reached is lost only when it is this box: at least CB_JUDGE_TRIES failed
 *   polls over at least CB_JUDGE_OTHER_MS while another box of the provider answers, or over
 *   CB_JUDGE_CONTROL_MS while only the provider's own plane does. Otherwise not before its lease
 *   has surely run out. */
#ifndef CB_WATCH_JUDGE_H
#define CB_WATCH_JUDGE_H
#include <stdbool.h>
#include <stdint.h>
#include "wire/state.h"

enum {
  CB_JUDGE_TRIES = 4,
  CB_JUDGE_OTHER_MS = 60000,    /* of failing, while another box answers */
  CB_JUDGE_CONTROL_MS = 300000, /* of failing, while the control plane alone answers: it may be
                                 * the way to all boxes that is broken */
  CB_JUDGE_FRESH_MS = 30000,    /* how new an answer from elsewhere must be to count */
  CB_JUDGE_LEASE_MARGIN_MS = 60000,
  CB_JUDGE_FROZEN_MS = 10000    /* least time without a beat before anybody looks */
};

enum cb_verdict {
  CB_VERDICT_LIVE,    /* as it should be */
  CB_VERDICT_UNKNOWN, /* something is odd; look again soon */
  CB_VERDICT_BOX_LOST,
  CB_VERDICT_SUPERVISOR_LOST,
  CB_VERDICT_START_FAILED
};

struct cb_judge {
  int64_t began, start_deadline_ms, interval_ms;
  bool seen;             /* a state was read, now or by whoever watched before */
  bool have;             /* last is one */
  struct cb_state last;
  int64_t beat_at;       /* when the beat was last seen to move */
  int missing, nonsense, gone, dead; /* in a row */
  int failed;
  int64_t failing_since;
};

void cb_judge_init(struct cb_judge *j, int64_t now, int64_t interval_ms, int64_t start_deadline_ms,
                   bool seen);

/* A state was read that is the run's own (run and launch compared by the caller). */
enum cb_verdict cb_judge_state(struct cb_judge *j, int64_t now, const struct cb_state *s);
/* Bytes that are no state of this run. */
enum cb_verdict cb_judge_nonsense(struct cb_judge *j);
/* The file is not there, the box is. */
enum cb_verdict cb_judge_missing(struct cb_judge *j, int64_t now);
/* The provider says that there is no such box. */
enum cb_verdict cb_judge_gone(struct cb_judge *j);

struct cb_evidence { /* times of the same clock as now; 0: never */
  int64_t other_box_at;  /* another box of this provider answered */
  int64_t control_at;    /* the provider's own plane answered */
  int64_t lease_end;     /* when the lease is over at the latest; 0: not known */
};
/* A poll failed. */
enum cb_verdict cb_judge_unreachable(struct cb_judge *j, int64_t now, const struct cb_evidence *e);
/* The box is paused: it cannot answer, and is not failing either. */
void cb_judge_paused(struct cb_judge *j, int64_t now);

/* True when the beat stands still long enough for a look at the supervisor. */
bool cb_judge_frozen(const struct cb_judge *j, int64_t now);
/* What the look gave: the line of /proc/PID/stat, "gone", or anything else (proves nothing). */
enum cb_verdict cb_judge_look(struct cb_judge *j, const char *said);

const char *cb_verdict_reason(enum cb_verdict v); /* NULL when it is not lost */

/* Whether now can be a later reading of the run that before was read from. */
bool cb_state_follows(const struct cb_state *before, const struct cb_state *now);
#endif
