/* SPDX-License-Identifier: MIT
 * state_test.c: the state file of a run: round trip, hostile bytes. */
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
  s.sup_start = 88888;
  s.pid = 13;
  s.pid_start = 99999;
  s.beat = 44;
  s.age_ms = 44100;
  s.quiet_ms = 100;
  s.stopped = true;
  s.out.end = 5000;
  s.err.end = 7;
  s.out.gap_from = 1000;
  s.out.gap_to = 2000;
  s.segment = 512;
  s.exit_status = 3;
  s.oom = 1;
  s.why = CB_WHY_EXITED;
  strcpy(s.error, "a line of text");
  s.findings_size = 0;
  memset(s.findings_sha256, 'e', 64);
  return s;
}

static void comes_back_as_it_was_written(void)
{
  struct cb_buf b;
  cb_buf_init(&b, CB_STATE_MAX_BYTES);
  struct cb_state s = full(), t;
  struct cb_err err = CB_ERR_INIT;
  CHECK(cb_state_write(&s, &b, NULL) == CB_OK);
  CHECK(cb_state_parse(&t, b.p, b.len, &err) == CB_OK);
  CHECK(memcmp(&s, &t, sizeof s) == 0);
  for (size_t n = 0; n < b.len; n++) { /* a torn file is never taken for a whole one with more */
    struct cb_state u;
    if (cb_state_parse(&u, b.p, n, &err) == CB_OK)
      CHECK(strcmp(u.run, s.run) == 0 && u.phase == CB_PHASE_FINISHED);
  }
  cb_buf_clear(&b);
}

/* Writes s with one record put before all others: the first of a name counts. */
static void write_with(struct cb_buf *b, const struct cb_state *s, const char *name,
                       const void *value, size_t len)
{
  struct cb_buf rest;
  static const char kind[] = "crewbox_state 1\n1\n";
  cb_buf_init(&rest, CB_STATE_MAX_BYTES);
  cb_state_write(s, &rest, NULL);
  cb_buf_addz(b, kind);
  cb_record_add(b, name, value, len);
  cb_buf_add(b, rest.p + strlen(kind), rest.len - strlen(kind));
  cb_buf_clear(&rest);
}

static void refuses_hostile_values(void)
{
  static const struct {
    const char *name, *value, *text;
  } cases[] = {
    {"run", "../x", "state of a run has a bad value for run"},
    {"run", "", "state of a run has a bad value for run"},
    {"run", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
     "state of a run has a bad value for run"},
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
    cb_buf_init(&b, CB_STATE_MAX_BYTES);
    write_with(&b, &s, cases[i].name, cases[i].value, strlen(cases[i].value));
    CHECK(cb_state_parse(&t, b.p, b.len, &err) == CB_PROTOCOL);
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
  cb_buf_init(&b, CB_STATE_MAX_BYTES);
  write_with(&b, &s, "error", "a\n\x1b[2Jb\0c", 9);
  CHECK(cb_state_parse(&t, b.p, b.len, NULL) == CB_OK);
  CHECK_STR(t.error, "a??[2Jb?c");
  cb_buf_reset(&b);
  write_with(&b, &s, "error", long_text, sizeof long_text);
  CHECK(cb_state_parse(&t, b.p, b.len, NULL) == CB_OK);
  CHECK(strlen(t.error) == sizeof t.error - 1);
  cb_record_addz(&b, "made_up_later", "ignored");
  cb_record_addz(&b, "beat", "not looked at"); /* a repeated name is not */
  CHECK(cb_state_parse(&t, b.p, b.len, NULL) == CB_OK);
  cb_buf_clear(&b);
}

static void needs_a_beginning_and_a_phase(void)
{
  struct cb_state t;
  struct cb_err err = CB_ERR_INIT;
  struct cb_buf b;
  char big[CB_STATE_MAX_BYTES + 1];
  memset(big, 'a', sizeof big);
  CHECK(cb_state_parse(&t, "", 0, &err) == CB_PROTOCOL);
  CHECK(cb_state_parse(&t, big, sizeof big, &err) == CB_PROTOCOL);
  cb_buf_init(&b, 4096);
  cb_record_addi(&b, "crewbox_state", 2);
  CHECK(cb_state_parse(&t, b.p, b.len, &err) == CB_PROTOCOL);
  cb_buf_reset(&b);
  cb_record_addi(&b, "crewbox_state", 1);
  cb_record_addz(&b, "run", "r1");
  CHECK(cb_state_parse(&t, b.p, b.len, &err) == CB_PROTOCOL);
  CHECK_STR(err.text, "state of a run: launch_seq is missing");
  cb_record_addz(&b, "launch_seq", "1");
  CHECK(cb_state_parse(&t, b.p, b.len, &err) == CB_PROTOCOL);
  CHECK_STR(err.text, "state of a run: phase is missing");
  cb_record_addz(&b, "phase", "finished");
  CHECK(cb_state_parse(&t, b.p, b.len, &err) == CB_PROTOCOL);
  CHECK_STR(err.text, "state of a run: it is finished and does not say how");
  cb_buf_clear(&b);
}

int main(void)
{
  comes_back_as_it_was_written();
  refuses_hostile_values();
  keeps_text_to_one_bounded_line();
  needs_a_beginning_and_a_phase();
  return check_done();
}
