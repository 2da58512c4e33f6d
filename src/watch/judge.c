/* SPDX-License-Identifier: MIT */
#include "watch/judge.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { IN_A_ROW = 2, START_FIELD = 22, STATE_FIELD = 3 };

void cb_judge_init(struct cb_judge *j, int64_t now, int64_t interval_ms, int64_t start_deadline_ms,
                   bool seen)
{
  memset(j, 0, sizeof *j);
  j->began = j->beat_at = now;
  j->interval_ms = interval_ms;
  j->start_deadline_ms = start_deadline_ms;
  j->seen = seen;
}

static bool stream_follows(const struct cb_state_stream *a, const struct cb_state_stream *b)
{
  if (b->end < a->end)
    return false;
  /* A gap begins once and grows at its end. */
  return a->gap_to == a->gap_from || (b->gap_from == a->gap_from && b->gap_to >= a->gap_to);
}

bool cb_state_follows(const struct cb_state *before, const struct cb_state *now)
{
  if (strcmp(before->run, now->run) != 0 || before->launch_seq != now->launch_seq ||
      before->sup_pid != now->sup_pid || before->segment != now->segment)
    return false;
  if (before->pid != 0 && (before->pid != now->pid || before->pid_start != now->pid_start))
    return false;
  if (now->phase < before->phase || now->beat < before->beat || now->age_ms < before->age_ms)
    return false;
  return stream_follows(&before->out, &now->out) && stream_follows(&before->err, &now->err);
}

/* The box answered, whatever it said. */
static void reached(struct cb_judge *j)
{
  j->failed = 0;
  j->failing_since = 0;
  j->gone = 0;
}

enum cb_verdict cb_judge_nonsense(struct cb_judge *j)
{
  reached(j);
  j->missing = 0;
  return ++j->nonsense >= IN_A_ROW ? CB_VERDICT_SUPERVISOR_LOST : CB_VERDICT_UNKNOWN;
}

enum cb_verdict cb_judge_state(struct cb_judge *j, int64_t now, const struct cb_state *s)
{
  if (j->have && !cb_state_follows(&j->last, s))
    return cb_judge_nonsense(j);
  reached(j);
  j->missing = j->nonsense = 0;
  if (!j->have || s->beat != j->last.beat || s->phase != j->last.phase) {
    j->beat_at = now;
    j->dead = 0;
  }
  j->last = *s;
  j->have = j->seen = true;
  return CB_VERDICT_LIVE;
}

enum cb_verdict cb_judge_missing(struct cb_judge *j, int64_t now)
{
  reached(j);
  j->nonsense = 0;
  if (j->seen)
    return ++j->missing >= IN_A_ROW ? CB_VERDICT_SUPERVISOR_LOST : CB_VERDICT_UNKNOWN;
  return now - j->began >= j->start_deadline_ms ? CB_VERDICT_START_FAILED : CB_VERDICT_UNKNOWN;
}

enum cb_verdict cb_judge_gone(struct cb_judge *j)
{
  return ++j->gone >= IN_A_ROW ? CB_VERDICT_BOX_LOST : CB_VERDICT_UNKNOWN;
}

static bool fresh(int64_t at, const struct cb_judge *j, int64_t now)
{
  return at > j->failing_since && now - at <= CB_JUDGE_FRESH_MS + 2 * j->interval_ms;
}

enum cb_verdict cb_judge_unreachable(struct cb_judge *j, int64_t now, const struct cb_evidence *e)
{
  j->gone = 0;
  if (j->failed++ == 0)
    j->failing_since = now;
  int64_t failing = now - j->failing_since;
  bool many = j->failed >= CB_JUDGE_TRIES;
  if (many && failing >= CB_JUDGE_OTHER_MS && fresh(e->other_box_at, j, now))
    return CB_VERDICT_BOX_LOST;
  if (many && failing >= CB_JUDGE_CONTROL_MS && fresh(e->control_at, j, now))
    return CB_VERDICT_BOX_LOST;
  if (e->lease_end > 0 && now >= e->lease_end + CB_JUDGE_LEASE_MARGIN_MS)
    return CB_VERDICT_BOX_LOST;
  return CB_VERDICT_UNKNOWN;
}

void cb_judge_paused(struct cb_judge *j, int64_t now)
{
  reached(j);
  j->beat_at = now; /* a frozen box has no beat, and its start deadline stands still */
  j->began = now;
}

bool cb_judge_frozen(const struct cb_judge *j, int64_t now)
{
  if (!j->have || j->last.phase == CB_PHASE_FINISHED || j->last.sup_pid <= 0)
    return false;
  int64_t least = 2 * j->interval_ms;
  return now - j->beat_at >= (least > CB_JUDGE_FROZEN_MS ? least : CB_JUDGE_FROZEN_MS);
}

/* Field n (counted from 1) of a /proc stat line; the name in field 2 can hold anything. */
static const char *stat_field(const char *line, int n)
{
  const char *p = strrchr(line, ')');
  for (int at = 2; p && at < n; at++) {
    p = strchr(p, ' ');
    if (p)
      p++;
  }
  return p;
}

enum cb_verdict cb_judge_look(struct cb_judge *j, const char *said)
{
  bool dead = strncmp(said, "gone", 4) == 0;
  int64_t pid, start;
  if (!dead) {
    const char *state = stat_field(said, STATE_FIELD), *began = stat_field(said, START_FIELD);
    if (!state || !began || sscanf(said, "%" SCNd64, &pid) != 1 || pid != j->last.sup_pid ||
        sscanf(began, "%" SCNd64, &start) != 1)
      return CB_VERDICT_UNKNOWN; /* no proof of anything; what was proven stands */
    dead = *state == 'Z' || *state == 'X' ||
           (j->last.sup_start > 0 && start != j->last.sup_start);
  }
  j->dead = dead ? j->dead + 1 : 0;
  return j->dead >= IN_A_ROW ? CB_VERDICT_SUPERVISOR_LOST : CB_VERDICT_UNKNOWN;
}

const char *cb_verdict_reason(enum cb_verdict v)
{
  switch (v) {
  case CB_VERDICT_BOX_LOST:
    return "box_lost";
  case CB_VERDICT_SUPERVISOR_LOST:
    return "supervisor_lost";
  case CB_VERDICT_START_FAILED:
    return "start_failed";
  case CB_VERDICT_LIVE:
  case CB_VERDICT_UNKNOWN:
    break;
  }
  return NULL;
}
