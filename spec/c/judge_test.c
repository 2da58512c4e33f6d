/* SPDX-License-Identifier: MIT
 * judge_test.c: when a run may be called lost, on a clock of the test's own. */
#include "c/check.h"

#include "watch/judge.h"

enum { INTERVAL = 15000, DEADLINE = 60000 };

static struct cb_state state_at(int64_t beat)
{
  struct cb_state s;
  cb_state_init(&s);
  strcpy(s.run, "r1");
  s.launch_seq = 1;
  s.phase = CB_PHASE_RUNNING;
  s.sup_pid = 40;
  s.sup_start = 777;
  s.pid = 41;
  s.pid_start = 778;
  s.beat = beat;
  s.age_ms = beat * 1000;
  s.out.end = 100;
  s.segment = 64;
  return s;
}

static struct cb_judge fresh_judge(void)
{
  struct cb_judge j;
  cb_judge_init(&j, 1000, INTERVAL, DEADLINE, false);
  return j;
}

static struct cb_judge live_judge(void)
{
  struct cb_judge j = fresh_judge();
  struct cb_state s = state_at(5);
  CHECK(cb_judge_state(&j, 2000, &s) == CB_VERDICT_LIVE);
  return j;
}

static void a_box_that_is_gone_twice_is_lost_at_once(void)
{
  struct cb_judge j = live_judge();
  struct cb_evidence none = {0};
  CHECK(cb_judge_gone(&j) == CB_VERDICT_UNKNOWN);
  CHECK(cb_judge_unreachable(&j, 3000, &none) == CB_VERDICT_UNKNOWN); /* not in a row */
  CHECK(cb_judge_gone(&j) == CB_VERDICT_UNKNOWN);
  CHECK(cb_judge_gone(&j) == CB_VERDICT_BOX_LOST);
}

static void a_missing_state_counts_only_after_it_was_seen(void)
{
  struct cb_judge j = fresh_judge();
  CHECK(cb_judge_missing(&j, 2000) == CB_VERDICT_UNKNOWN);
  CHECK(cb_judge_missing(&j, 1000 + DEADLINE - 1) == CB_VERDICT_UNKNOWN);
  CHECK(cb_judge_missing(&j, 1000 + DEADLINE) == CB_VERDICT_START_FAILED);
  j = live_judge();
  CHECK(cb_judge_missing(&j, 3000) == CB_VERDICT_UNKNOWN);
  struct cb_state s = state_at(6);
  CHECK(cb_judge_state(&j, 4000, &s) == CB_VERDICT_LIVE);
  CHECK(cb_judge_missing(&j, 5000) == CB_VERDICT_UNKNOWN);
  CHECK(cb_judge_missing(&j, 6000) == CB_VERDICT_SUPERVISOR_LOST);
  cb_judge_init(&j, 1000, INTERVAL, DEADLINE, true); /* seen by the engine before this one */
  cb_judge_missing(&j, 2000);
  CHECK(cb_judge_missing(&j, 3000) == CB_VERDICT_SUPERVISOR_LOST);
}

static void nothing_may_go_backward(void)
{
#define BACK(change)                                                   \
  do {                                                                 \
    struct cb_judge j = live_judge();                                  \
    struct cb_state s = state_at(6);                                   \
    change;                                                            \
    CHECK(cb_judge_state(&j, 3000, &s) == CB_VERDICT_UNKNOWN);         \
    CHECK(cb_judge_state(&j, 4000, &s) == CB_VERDICT_SUPERVISOR_LOST); \
  } while (0)
  BACK(strcpy(s.run, "r2"));
  BACK(s.launch_seq = 2);
  BACK(s.phase = CB_PHASE_STARTING);
  BACK(s.sup_pid = 39);
  BACK(s.pid = 42);
  BACK(s.pid_start = 1);
  BACK(s.beat = 4);
  BACK(s.age_ms = 1);
  BACK(s.out.end = 99);
  BACK(s.segment = 65);
#undef BACK
  struct cb_judge j = live_judge();
  struct cb_state s = state_at(6), back = state_at(1);
  s.out = (struct cb_state_stream){300, 100, 200};
  CHECK(cb_judge_state(&j, 3000, &s) == CB_VERDICT_LIVE);
  s.out = (struct cb_state_stream){400, 100, 250};
  CHECK(cb_judge_state(&j, 3000, &s) == CB_VERDICT_LIVE);
  s.out.gap_from = 90;
  CHECK(cb_judge_state(&j, 3000, &s) == CB_VERDICT_UNKNOWN);
  s.out.gap_from = 100;
  CHECK(cb_judge_state(&j, 3000, &s) == CB_VERDICT_LIVE); /* one odd reading is forgotten */
  CHECK(cb_judge_state(&j, 3000, &back) == CB_VERDICT_UNKNOWN);
  CHECK(cb_judge_nonsense(&j) == CB_VERDICT_SUPERVISOR_LOST);
}

static void an_unreachable_box_is_lost_only_when_others_answer(void)
{
  struct cb_judge j = live_judge();
  int64_t t = 10000;
  struct cb_evidence e = {0};
  for (int i = 0; i < 100; i++, t += INTERVAL) /* a whole provider that is down proves nothing */
    CHECK(cb_judge_unreachable(&j, t, &e) == CB_VERDICT_UNKNOWN);

  j = live_judge();
  t = 10000;
  e.other_box_at = 9999; /* before it began to fail */
  for (int i = 0; i < 10; i++, t += INTERVAL)
    CHECK(cb_judge_unreachable(&j, t, &e) == CB_VERDICT_UNKNOWN);

  j = live_judge();
  t = 10000;
  for (int i = 0; i < 4; i++, t += INTERVAL) { /* 45 s so far */
    e.other_box_at = t;
    CHECK(cb_judge_unreachable(&j, t, &e) == CB_VERDICT_UNKNOWN);
  }
  e.other_box_at = t;
  CHECK(cb_judge_unreachable(&j, t, &e) == CB_VERDICT_BOX_LOST);

  j = live_judge(); /* a minute, but too few tries */
  cb_judge_unreachable(&j, 10000, &e);
  e.other_box_at = 80000;
  CHECK(cb_judge_unreachable(&j, 80000, &e) == CB_VERDICT_UNKNOWN);

  j = live_judge(); /* an answer in between begins it anew */
  for (int i = 0; i < 5; i++) {
    struct cb_state s = state_at(6 + i);
    e.other_box_at = 10000 + i * 20000;
    CHECK(cb_judge_unreachable(&j, 10000 + i * 20000, &e) == CB_VERDICT_UNKNOWN);
    cb_judge_state(&j, 10001 + i * 20000, &s);
  }
}

static void the_plane_alone_needs_longer(void)
{
  struct cb_judge j = live_judge();
  struct cb_evidence e = {0};
  int64_t t;
  for (t = 10000; t < 10000 + CB_JUDGE_CONTROL_MS; t += INTERVAL) {
    e.control_at = t;
    CHECK(cb_judge_unreachable(&j, t, &e) == CB_VERDICT_UNKNOWN);
  }
  e.control_at = t;
  CHECK(cb_judge_unreachable(&j, t, &e) == CB_VERDICT_BOX_LOST);
}

static void a_lease_that_has_surely_run_out_decides(void)
{
  struct cb_judge j = live_judge();
  struct cb_evidence e = {.lease_end = 100000};
  CHECK(cb_judge_unreachable(&j, 100000, &e) == CB_VERDICT_UNKNOWN);
  CHECK(cb_judge_unreachable(&j, 100000 + CB_JUDGE_LEASE_MARGIN_MS - 1, &e) == CB_VERDICT_UNKNOWN);
  CHECK(cb_judge_unreachable(&j, 100000 + CB_JUDGE_LEASE_MARGIN_MS, &e) == CB_VERDICT_BOX_LOST);
}

static void a_paused_box_stops_all_clocks(void)
{
  struct cb_judge j = fresh_judge();
  cb_judge_paused(&j, 1000000);
  CHECK(cb_judge_missing(&j, 1000000 + DEADLINE - 1) == CB_VERDICT_UNKNOWN);
  j = live_judge();
  cb_judge_paused(&j, 1000000);
  CHECK(!cb_judge_frozen(&j, 1000001));
}

#define STAT(state, start) "40 (a b) c) " state " 1 40 40 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 " start " 1 2"

static void only_proof_makes_a_supervisor_dead(void) /* bug-B1, bug-B3, bug-B7 */
{
  struct cb_judge j = live_judge();
  CHECK(!cb_judge_frozen(&j, 2000 + 2 * INTERVAL - 1));
  CHECK(cb_judge_frozen(&j, 2000 + 2 * INTERVAL));
  CHECK(cb_judge_look(&j, "gone\n") == CB_VERDICT_UNKNOWN);
  CHECK(cb_judge_look(&j, "") == CB_VERDICT_UNKNOWN); /* a failed look takes no proof away */
  CHECK(cb_judge_look(&j, "unseen\n") == CB_VERDICT_UNKNOWN);
  CHECK(cb_judge_look(&j, "<html>error</html>") == CB_VERDICT_UNKNOWN);
  CHECK(cb_judge_look(&j, STAT("S", "777")) == CB_VERDICT_UNKNOWN); /* it lives */
  CHECK(cb_judge_look(&j, "gone\n") == CB_VERDICT_UNKNOWN);
  CHECK(cb_judge_look(&j, "gone\n") == CB_VERDICT_SUPERVISOR_LOST);
  j = live_judge();
  CHECK(cb_judge_look(&j, STAT("Z", "777")) == CB_VERDICT_UNKNOWN); /* a zombie is dead */
  CHECK(cb_judge_look(&j, STAT("S", "999")) == CB_VERDICT_SUPERVISOR_LOST); /* a reused pid too */
  j = live_judge();
  cb_judge_look(&j, "gone\n");
  struct cb_state s = state_at(6); /* the beat goes on: it was the look that erred */
  cb_judge_state(&j, 50000, &s);
  CHECK(!cb_judge_frozen(&j, 50001));
  CHECK(cb_judge_look(&j, "gone\n") == CB_VERDICT_UNKNOWN);
  j = live_judge();
  s.phase = CB_PHASE_FINISHED;
  s.why = CB_WHY_EXITED;
  cb_judge_state(&j, 3000, &s);
  CHECK(!cb_judge_frozen(&j, 9000000));
}

int main(void)
{
  a_box_that_is_gone_twice_is_lost_at_once();
  a_missing_state_counts_only_after_it_was_seen();
  nothing_may_go_backward();
  an_unreachable_box_is_lost_only_when_others_answer();
  the_plane_alone_needs_longer();
  a_lease_that_has_surely_run_out_decides();
  a_paused_box_stops_all_clocks();
  only_proof_makes_a_supervisor_dead();
  return check_done();
}
