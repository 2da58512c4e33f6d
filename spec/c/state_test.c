/* SPDX-License-Identifier: MIT
 * state_test.c: the state file of a run: round trip, hostile bytes, going backward. */
#include "c/check.h"

#include "wire/record.h"
#include "wire/state.h"

static struct cb_state full(void)
{
  struct cb_state s;
  cb_state_init(&s);
  strcpy(s.run, "r0123456789ab");
  s.launch_seq = 2;
  s.phase = CB_PHASE_FINISHED;
  s.sup_pid = 12;
  s.pid = 13;
  s.pid_start = 99999;
  s.beat = 44;
  s.age_ms = 44100;
  s.quiet_ms = 100;
  s.stopped = true;
  s.out_end = 5000;
  s.err_end = 7;
  s.out_gap_from = 1000;
  s.out_gap_to = 2000;
  s.segment = 512;
  s.exit = 3;
  s.oom = true;
  s.why = CB_WHY_EXITED;
  strcpy(s.error, "a line of text");
  s.findings_size = 0;
  memset(s.findings_sha256, 'e', 64);
  return s;
}

static void comes_back_as_it_was_written(void)
{
  struct cb_buf b;
  cb_buf_init(&b, CB_STATE_MAX);
  struct cb_state s = full(), t;
  struct cb_err err = CB_ERR_INIT;
  CHECK(cb_state_add(&b, &s) == CB_OK);
  CHECK(cb_state_read(&t, b.p, b.len, &err) == CB_OK);
  CHECK(memcmp(&s, &t, sizeof s) == 0);
  for (size_t n = 0; n < b.len; n++) { /* a torn file is never taken for a whole one with more */
    struct cb_state u;
    if (cb_state_read(&u, b.p, n, &err) == CB_OK)
      CHECK(strcmp(u.run, s.run) == 0 && u.phase == CB_PHASE_FINISHED);
  }
  cb_buf_clear(&b);
}

static void refuses_hostile_values(void)
{
  static const struct {
    const char *name, *value, *text;
  } cases[] = {
    {"run", "../x", "state of a run has a bad value for run"},
    {"run", "", "state of a run has a bad value for run"},
    {"run", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "state of a run has a bad value for run"},
    {"phase", "done", "state of a run has a bad value for phase"},
    {"why", "", "state of a run has a bad value for why"},
    {"beat", "-1", "state of a run has a bad value for beat"},
    {"beat", "99999999999999999999", "state of a run has a bad value for beat"},
    {"out_end", "9223372036854775807", "state of a run has a bad value for out_end"},
    {"out_end", "1e9", "state of a run has a bad value for out_end"},
    {"segment", "0", "state of a run has a bad value for segment"},
    {"segment", "999999999", "state of a run has a bad value for segment"},
    {"exit", "-1", "state of a run has a bad value for exit"},
    {"exit", "256", "state of a run has a bad value for exit"},
    {"signal", "65", "state of a run has a bad value for signal"},
    {"signal", "9", "state of a run: both exit and signal are given"},
    {"stopped", "yes", "state of a run has a bad value for stopped"},
    {"out_gap_to", "500", "state of a run: the gap of out is not inside it"},
    {"err_gap_to", "8", "state of a run: the gap of err is not inside it"},
    {"findings_sha256", "EEEE", "state of a run has a bad value for findings_sha256"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct cb_buf b;
    struct cb_state s = full(), t;
    struct cb_err err = CB_ERR_INIT;
    cb_buf_init(&b, CB_STATE_MAX);
    cb_state_add(&b, &s);
    cb_record_addz(&b, cases[i].name, cases[i].value);
    CHECK(cb_state_read(&t, b.p, b.len, &err) == CB_PROTOCOL);
    CHECK_STR(err.text, cases[i].text);
    cb_buf_clear(&b);
  }
}

static void keeps_text_to_one_bounded_line(void)
{
  struct cb_buf b;
  struct cb_state s = full(), t;
  char long_text[900];
  memset(long_text, 'x', sizeof long_text);
  cb_buf_init(&b, CB_STATE_MAX);
  cb_state_add(&b, &s);
  cb_record_add(&b, "error", "a\n\x1b[2Jb\0c", 9);
  CHECK(cb_state_read(&t, b.p, b.len, NULL) == CB_OK);
  CHECK_STR(t.error, "a??[2Jb?c");
  cb_record_add(&b, "error", long_text, sizeof long_text);
  CHECK(cb_state_read(&t, b.p, b.len, NULL) == CB_OK);
  CHECK(strlen(t.error) == CB_STATE_ERROR_MAX);
  cb_record_addz(&b, "made_up_later", "ignored");
  CHECK(cb_state_read(&t, b.p, b.len, NULL) == CB_OK);
  cb_buf_clear(&b);
}

static void needs_a_beginning_and_a_phase(void)
{
  struct cb_state t;
  struct cb_err err = CB_ERR_INIT;
  struct cb_buf b;
  char big[CB_STATE_MAX + 1];
  memset(big, 'a', sizeof big);
  CHECK(cb_state_read(&t, "", 0, &err) == CB_PROTOCOL);
  CHECK(cb_state_read(&t, big, sizeof big, &err) == CB_PROTOCOL);
  cb_buf_init(&b, 4096);
  cb_record_addi(&b, "crewbox_state", 2);
  CHECK(cb_state_read(&t, b.p, b.len, &err) == CB_PROTOCOL);
  cb_buf_reset(&b);
  cb_record_addi(&b, "crewbox_state", 1);
  cb_record_addz(&b, "run", "r1");
  CHECK(cb_state_read(&t, b.p, b.len, &err) == CB_PROTOCOL);
  CHECK_STR(err.text, "state of a run: phase is missing");
  cb_record_addz(&b, "phase", "finished");
  CHECK(cb_state_read(&t, b.p, b.len, &err) == CB_PROTOCOL);
  CHECK_STR(err.text, "state of a run: a finished run has no reason");
  cb_buf_clear(&b);
}

static void never_goes_backward(void)
{
  struct cb_state before = full(), now;
  before.phase = CB_PHASE_RUNNING;
  now = full();
  now.beat++;
  now.out_end += 10;
  now.out_gap_to += 10;
  CHECK(cb_state_follows(&before, &now, NULL) == CB_OK);
  CHECK(cb_state_follows(&now, &now, NULL) == CB_OK);
#define BACK(change)                                              \
  do {                                                            \
    struct cb_err err = CB_ERR_INIT;                              \
    struct cb_state s = now;                                      \
    change;                                                       \
    CHECK(cb_state_follows(&before, &s, &err) == CB_CORRUPT);     \
  } while (0)
  BACK(s.run[1] = '9');
  BACK(s.launch_seq = 3);
  BACK(s.sup_pid = 11);
  BACK(s.pid = 14);
  BACK(s.pid_start--);
  BACK(s.phase = CB_PHASE_STARTING);
  BACK(s.beat = 43);
  BACK(s.age_ms = 1);
  BACK(s.out_end = 4999);
  BACK(s.err_end = 6);
  BACK(s.segment = 513);
  BACK(s.out_gap_from = 999);
  BACK(s.out_gap_to = 1999);
#undef BACK
}

int main(void)
{
  comes_back_as_it_was_written();
  refuses_hostile_values();
  keeps_text_to_one_bounded_line();
  needs_a_beginning_and_a_phase();
  never_goes_backward();
  return check_done();
}
