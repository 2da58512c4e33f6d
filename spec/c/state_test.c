/* SPDX-License-Identifier: MIT
 * state_test.c: the state file comes back as written; what an agent may have put there instead is
 * refused, not believed. */
#include "wire/state.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "c/check.h"
#include "wire/record.h"

#define DIGEST "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

static void fill(struct cb_state *s)
{
  cb_state_init(s);
  strcpy(s->run, "r0123456789ab");
  s->launch_seq = 3;
  s->phase = CB_PHASE_FINISHED;
  s->sup_pid = 10;
  s->sup_start = 1000;
  s->pid = 11;
  s->pid_start = 1001;
  s->beat = 77;
  s->age_ms = 123456;
  s->quiet_ms = 5;
  s->stopped = true;
  s->out = (struct cb_state_stream){ 1 << 20, 4096, 8192 };
  s->err = (struct cb_state_stream){ 10, 0, 0 };
  s->segment = 4096;
  s->signal = 9;
  s->oom = 1;
  s->why = CB_WHY_STOPPED;
  strcpy(s->error, "disk full");
  s->findings_size = 0;
  strcpy(s->findings_sha256, DIGEST);
}

static void comes_back_as_written(void)
{
  struct cb_state s, t;
  struct cb_buf b;
  fill(&s);
  cb_buf_init(&b, CB_STATE_MAX_BYTES);
  CHECK(cb_state_write(&s, &b, NULL) == CB_OK);
  CHECK(cb_state_parse(&t, b.p, b.len, NULL) == CB_OK);
  CHECK(memcmp(&s, &t, sizeof s) == 0);
  for (size_t n = 0; n < b.len; n++) {
    char *copy = malloc(n + 1);
    memcpy(copy, b.p, n);
    int rc = cb_state_parse(&t, copy, n, NULL);
    CHECK(rc == CB_PROTOCOL || (rc == CB_OK && copy[n - 1] == '\n'));
    free(copy);
  }
  cb_buf_clear(&b);
  cb_state_init(&s);
  strcpy(s.run, "r1");
  s.launch_seq = 1;
  cb_buf_init(&b, CB_STATE_MAX_BYTES);
  CHECK(cb_state_write(&s, &b, NULL) == CB_OK);
  CHECK(cb_state_parse(&t, b.p, b.len, NULL) == CB_OK);
  CHECK(t.exit_status == -1 && t.signal == 0 && t.oom == -1 && t.findings_size == -1);
  cb_buf_clear(&b);
}

/* A state of these records behind kind, run, launch_seq and phase. */
static int parse_with(const char *phase, const char *const *more, struct cb_state *s)
{
  struct cb_buf b;
  cb_buf_init(&b, 1 << 16);
  CHECK(cb_record_addi(&b, "crewbox_state", 1) == CB_OK);
  CHECK(cb_record_addz(&b, "run", "r1") == CB_OK && cb_record_addi(&b, "launch_seq", 1) == CB_OK);
  CHECK(cb_record_addz(&b, "phase", phase) == CB_OK);
  for (; *more; more += 2)
    CHECK(cb_record_addz(&b, more[0], more[1]) == CB_OK);
  int rc = cb_state_parse(s, b.p ? b.p : "", b.len, NULL);
  cb_buf_clear(&b);
  return rc;
}

static void refuses_lies(void)
{
  static const char *const cases[][5] = {
    { "beat", "-1", NULL },
    { "beat", "99999999999999999999", NULL },
    { "beat", "", NULL },
    { "age_ms", "1.5", NULL },
    { "stopped", "2", NULL },
    { "exit", "256", NULL },
    { "exit", "-1", NULL },
    { "signal", "0", NULL },
    { "signal", "65", NULL },
    { "exit", "0", "signal", "9", NULL },
    { "why", "bored", NULL },
    { "why", "", NULL },
    { "oom", "yes", NULL },
    { "out_gap_from", "5", NULL },
    { "out_gap_to", "5", NULL },
    { "err_end", "9", "err_gap_to", "10", NULL },
    { "findings_size", "3", NULL },
    { "findings_size", "3", "findings_sha256", "e3", NULL },
    { "findings_size", "-3", "findings_sha256", DIGEST, NULL },
  };
  struct cb_state s;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    int rc = parse_with("running", cases[i], &s);
    if (rc != CB_PROTOCOL)
      fprintf(stderr, "case %zu: %s\n", i, cases[i][0]);
    CHECK(rc == CB_PROTOCOL);
  }
  static const char *const none[] = { NULL };
  static const char *const how[] = { "why", "exited", "exit", "0", NULL };
  static const char *const half[] = { "why", "exited", NULL };
  static const char *const spawn[] = { "why", "spawn_failed", "error", "exec: not there", NULL };
  static const char *const twice[] = { "beat", "5", "beat", "9", NULL };
  static const char *const unknown[] = { "later", "x", NULL };
  CHECK(parse_with("running", none, &s) == CB_OK);
  CHECK(parse_with("sleeping", none, &s) == CB_PROTOCOL);
  CHECK(parse_with("finished", none, &s) == CB_PROTOCOL);
  CHECK(parse_with("finished", half, &s) == CB_PROTOCOL);
  CHECK(parse_with("finished", how, &s) == CB_OK && s.exit_status == 0);
  CHECK(parse_with("finished", spawn, &s) == CB_OK);
  CHECK_STR(s.error, "exec: not there");
  CHECK(parse_with("running", twice, &s) == CB_OK && s.beat == 5);
  CHECK(parse_with("running", unknown, &s) == CB_OK);
  CHECK(cb_state_parse(&s, "", 0, NULL) == CB_PROTOCOL);
  CHECK(cb_state_parse(&s, "crewbox_state 1\n2\n", 18, NULL) == CB_PROTOCOL);
  CHECK(cb_state_parse(&s, "crewbox_state 1\n1\n", 18, NULL) == CB_PROTOCOL);
  static char big[CB_STATE_MAX_BYTES + 1];
  CHECK(cb_state_parse(&s, big, sizeof big, NULL) == CB_PROTOCOL);
}

int main(void)
{
  comes_back_as_written();
  refuses_lies();
  return check_done();
}
