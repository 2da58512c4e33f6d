/* SPDX-License-Identifier: MIT */
#include "wire/state.h"

#include <inttypes.h>
#include <string.h>

#include "wire/record.h"

enum { VERSION = 1, DEFAULT_SEGMENT = 256 * 1024, SHA256_HEX = 64 };

static const char *const phases[] = {"starting", "running", "stopping", "finished"};
_Static_assert(sizeof phases / sizeof *phases == CB_PHASE_COUNT, "one name a phase");
static const char *const whys[] = {"", "exited", "stopped", "guard", "start_deadline",
                                   "spawn_failed"};
_Static_assert(sizeof whys / sizeof *whys == CB_WHY_COUNT, "one name a reason");

/* The plain numbers: name, place, smallest and largest that is believed. */
static const struct number {
  const char *name;
  size_t at;
  int64_t least, most;
} numbers[] = {
#define N(field, least, most) {#field, offsetof(struct cb_state, field), least, most}
  N(launch_seq, 0, INT32_MAX),
  N(sup_pid, 0, INT32_MAX),
  N(pid, 0, INT32_MAX),
  N(pid_start, 0, INT64_MAX),
  N(beat, 0, INT64_MAX),
  N(age_ms, 0, INT64_MAX),
  N(quiet_ms, 0, INT64_MAX),
  N(out_end, 0, INT64_C(1) << 53),
  N(err_end, 0, INT64_C(1) << 53),
  N(out_gap_from, 0, INT64_C(1) << 53),
  N(out_gap_to, 0, INT64_C(1) << 53),
  N(err_gap_from, 0, INT64_C(1) << 53),
  N(err_gap_to, 0, INT64_C(1) << 53),
  N(segment, 1, CB_STATE_SEGMENT_MAX),
  N(findings_size, 0, INT64_C(1) << 53),
#undef N
};

static int64_t *place(struct cb_state *s, const struct number *n)
{
  return (int64_t *)(void *)((char *)s + n->at);
}

const char *cb_phase_name(enum cb_phase phase)
{
  return (unsigned)phase < CB_PHASE_COUNT ? phases[phase] : "";
}

const char *cb_why_name(enum cb_why why)
{
  return (unsigned)why < CB_WHY_COUNT ? whys[why] : "";
}

void cb_state_init(struct cb_state *s)
{
  memset(s, 0, sizeof *s);
  s->exit = -1;
  s->findings_size = -1;
  s->segment = DEFAULT_SEGMENT;
}

int cb_state_add(struct cb_buf *b, const struct cb_state *s)
{
  struct cb_state copy = *s;
  int rc = cb_record_addi(b, "crewbox_state", VERSION);
  if (!rc)
    rc = cb_record_addz(b, "run", s->run);
  if (!rc)
    rc = cb_record_addz(b, "phase", cb_phase_name(s->phase));
  for (size_t i = 0; !rc && i < sizeof numbers / sizeof *numbers; i++) {
    int64_t v = *place(&copy, &numbers[i]);
    if (v >= 0) /* findings_size alone can say "none" */
      rc = cb_record_addi(b, numbers[i].name, v);
  }
  if (!rc)
    rc = cb_record_addi(b, "stopped", s->stopped);
  if (!rc)
    rc = cb_record_addi(b, "oom", s->oom);
  if (!rc && s->exit >= 0)
    rc = cb_record_addi(b, "exit", s->exit);
  if (!rc && s->signal > 0)
    rc = cb_record_addi(b, "signal", s->signal);
  if (!rc && s->why != CB_WHY_NONE)
    rc = cb_record_addz(b, "why", cb_why_name(s->why));
  if (!rc && s->error[0])
    rc = cb_record_addz(b, "error", s->error);
  if (!rc && s->findings_sha256[0])
    rc = cb_record_addz(b, "findings_sha256", s->findings_sha256);
  return rc;
}

/* ---- reading ---------------------------------------------------------------------------- */

static bool word(const struct cb_record *r, const char *const *names, size_t count, int *out)
{
  for (size_t i = 0; i < count; i++) {
    size_t n = strlen(names[i]);
    if (n > 0 && r->len == n && memcmp(r->value, names[i], n) == 0) {
      *out = (int)i;
      return true;
    }
  }
  return false;
}

static bool in_range(const struct cb_record *r, int64_t least, int64_t most, int64_t *out)
{
  int64_t v;
  if (!cb_record_int(r, &v) || v < least || v > most)
    return false;
  *out = v;
  return true;
}

static bool only(const struct cb_record *r, const char *set, size_t least, size_t most)
{
  if (r->len < least || r->len > most)
    return false;
  for (size_t i = 0; i < r->len; i++)
    if (r->value[i] == '\0' || !strchr(set, r->value[i]))
      return false;
  return true;
}

static void take_text(char *out, size_t max, const struct cb_record *r)
{
  size_t n = r->len < max ? r->len : max;
  for (size_t i = 0; i < n; i++) {
    unsigned char c = (unsigned char)r->value[i];
    out[i] = c < 0x20 || c == 0x7f ? '?' : (char)c;
  }
  out[n] = '\0';
}

/* True when the record was understood or is of no interest. */
static bool take(struct cb_state *s, const struct cb_record *r)
{
  int64_t v;
  int w;
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
    if (cb_record_is(r, numbers[i].name))
      return in_range(r, numbers[i].least, numbers[i].most, place(s, &numbers[i]));
  if (cb_record_is(r, "run")) {
    if (!only(r, "abcdefghijklmnopqrstuvwxyz0123456789", 1, CB_STATE_RUN_MAX))
      return false;
    memcpy(s->run, r->value, r->len);
    s->run[r->len] = '\0';
  } else if (cb_record_is(r, "phase")) {
    if (!word(r, phases, CB_PHASE_COUNT, &w))
      return false;
    s->phase = (enum cb_phase)w;
  } else if (cb_record_is(r, "why")) {
    if (!word(r, whys, CB_WHY_COUNT, &w))
      return false;
    s->why = (enum cb_why)w;
  } else if (cb_record_is(r, "stopped")) {
    if (!in_range(r, 0, 1, &v))
      return false;
    s->stopped = v != 0;
  } else if (cb_record_is(r, "oom")) {
    if (!in_range(r, 0, 1, &v))
      return false;
    s->oom = v != 0;
  } else if (cb_record_is(r, "exit")) {
    if (!in_range(r, 0, 255, &v))
      return false;
    s->exit = (int)v;
  } else if (cb_record_is(r, "signal")) {
    if (!in_range(r, 1, 64, &v))
      return false;
    s->signal = (int)v;
  } else if (cb_record_is(r, "error")) {
    take_text(s->error, CB_STATE_ERROR_MAX, r);
  } else if (cb_record_is(r, "findings_sha256")) {
    if (!only(r, "0123456789abcdef", SHA256_HEX, SHA256_HEX))
      return false;
    memcpy(s->findings_sha256, r->value, SHA256_HEX);
    s->findings_sha256[SHA256_HEX] = '\0';
  }
  return true;
}

static const char *contradiction(const struct cb_state *s)
{
  if (!s->run[0])
    return "run is missing";
  if (s->out_gap_from > s->out_gap_to || s->out_gap_to > s->out_end)
    return "the gap of out is not inside it";
  if (s->err_gap_from > s->err_gap_to || s->err_gap_to > s->err_end)
    return "the gap of err is not inside it";
  if (s->exit >= 0 && s->signal > 0)
    return "both exit and signal are given";
  if ((s->findings_size >= 0) != (s->findings_sha256[0] != '\0'))
    return "findings have a size or a digest, not both";
  if (s->phase == CB_PHASE_FINISHED && s->why == CB_WHY_NONE)
    return "a finished run has no reason";
  return NULL;
}

int cb_state_read(struct cb_state *out, const void *p, size_t len, struct cb_err *err)
{
  if (len > CB_STATE_MAX)
    return cb_err_set(err, CB_PROTOCOL, "state of a run is over %d bytes", (int)CB_STATE_MAX);
  if (!cb_record_kind(p, len, "crewbox_state", VERSION))
    return cb_err_set(err, CB_PROTOCOL, "state of a run does not begin as version %d of it does",
                      (int)VERSION);
  struct cb_state s;
  cb_state_init(&s);
  bool phase = false;
  struct cb_record_reader reader;
  struct cb_record r;
  int rc;
  cb_record_open(&reader, p, len);
  while ((rc = cb_record_next(&reader, &r)) == 1) {
    if (!take(&s, &r))
      return cb_err_set(err, CB_PROTOCOL, "state of a run has a bad value for %s", r.name);
    phase = phase || cb_record_is(&r, "phase");
  }
  if (rc < 0)
    return cb_err_set(err, CB_PROTOCOL, "state of a run is torn");
  const char *wrong = phase ? contradiction(&s) : "phase is missing";
  if (wrong)
    return cb_err_set(err, CB_PROTOCOL, "state of a run: %s", wrong);
  *out = s;
  return CB_OK;
}

int cb_state_follows(const struct cb_state *before, const struct cb_state *now,
                     struct cb_err *err)
{
  const char *what = NULL;
  if (strcmp(before->run, now->run) != 0 || before->launch_seq != now->launch_seq)
    what = "it is another run's";
  else if (before->sup_pid != now->sup_pid)
    what = "it has another supervisor";
  else if (before->pid != 0 && (before->pid != now->pid || before->pid_start != now->pid_start))
    what = "it has another process";
  else if (now->phase < before->phase)
    what = "its phase went backward";
  else if (now->beat < before->beat || now->age_ms < before->age_ms)
    what = "its beat went backward";
  else if (now->out_end < before->out_end || now->err_end < before->err_end)
    what = "its output became shorter";
  else if (now->segment != before->segment)
    what = "its segment size changed";
  else if ((before->out_gap_to > 0 && now->out_gap_from != before->out_gap_from) ||
           (before->err_gap_to > 0 && now->err_gap_from != before->err_gap_from) ||
           now->out_gap_to < before->out_gap_to || now->err_gap_to < before->err_gap_to)
    what = "its gap moved back";
  if (what)
    return cb_err_set(err, CB_CORRUPT, "state of a run cannot follow what was read before: %s",
                      what);
  return CB_OK;
}
