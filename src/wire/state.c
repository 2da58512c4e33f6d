/* SPDX-License-Identifier: MIT */
#include "wire/state.h"

#include <string.h>

#include "wire/record.h"

static const char *const phases[] = { "starting", "running", "stopping", "finished" };
static const char *const whys[] = { "",      "exited",         "stopped",
                                    "guard", "start_deadline", "spawn_failed" };
_Static_assert(sizeof phases / sizeof *phases == CB_PHASE_FINISHED + 1, "one word a phase");
_Static_assert(sizeof whys / sizeof *whys == CB_WHY_SPAWN_FAILED + 1, "one word a why");

const char *cb_phase_name(enum cb_phase phase)
{
  return phases[phase];
}

const char *cb_why_name(enum cb_why why)
{
  return whys[why];
}

void cb_state_init(struct cb_state *s)
{
  memset(s, 0, sizeof *s);
  s->phase = CB_PHASE_STARTING;
  s->exit_status = -1;
  s->oom = -1;
  s->findings_size = -1;
}

/* Numbers that are always there. One table serves both directions. */
struct number {
  const char *name;
  size_t at;
};
#define NUMBER(name, field) { name, offsetof(struct cb_state, field) }
static const struct number numbers[] = {
  NUMBER("launch_seq", launch_seq),     NUMBER("sup_pid", sup_pid),
  NUMBER("sup_start", sup_start),       NUMBER("pid", pid),
  NUMBER("pid_start", pid_start),       NUMBER("beat", beat),
  NUMBER("age_ms", age_ms),             NUMBER("quiet_ms", quiet_ms),
  NUMBER("out_end", out.end),           NUMBER("err_end", err.end),
  NUMBER("out_gap_from", out.gap_from), NUMBER("out_gap_to", out.gap_to),
  NUMBER("err_gap_from", err.gap_from), NUMBER("err_gap_to", err.gap_to),
  NUMBER("segment", segment),
};
enum { NUMBERS = sizeof numbers / sizeof *numbers };

static int64_t *number_of(struct cb_state *s, size_t i)
{
  return (int64_t *)(void *)((char *)s + numbers[i].at);
}

int cb_state_write(const struct cb_state *s, struct cb_buf *into, struct cb_err *err)
{
  struct cb_state copy = *s;
  int rc = cb_record_addi(into, "crewbox_state", 1);

  if (!rc)
    rc = cb_record_addz(into, "run", s->run);
  if (!rc)
    rc = cb_record_addz(into, "phase", phases[s->phase]);
  for (size_t i = 0; i < NUMBERS && !rc; i++)
    rc = cb_record_addi(into, numbers[i].name, *number_of(&copy, i));
  if (!rc)
    rc = cb_record_addi(into, "stopped", s->stopped);
  if (!rc && s->exit_status >= 0)
    rc = cb_record_addi(into, "exit", s->exit_status);
  if (!rc && s->signal > 0)
    rc = cb_record_addi(into, "signal", s->signal);
  if (!rc && s->oom >= 0)
    rc = cb_record_addi(into, "oom", s->oom);
  if (!rc && s->why != CB_WHY_NONE)
    rc = cb_record_addz(into, "why", whys[s->why]);
  if (!rc && s->error[0])
    rc = cb_record_addz(into, "error", s->error);
  if (!rc && s->findings_size >= 0) {
    rc = cb_record_addi(into, "findings_size", s->findings_size);
    if (!rc)
      rc = cb_record_addz(into, "findings_sha256", s->findings_sha256);
  }
  if (rc == CB_TOO_LARGE)
    return cb_err_set(err, CB_TOO_LARGE, "state: over %zu bytes", into->max);
  return rc ? cb_err_no_memory(err) : CB_OK;
}

static bool word_of(const struct cb_record *rec, const char *const *words, size_t count, int *out)
{
  for (size_t i = 0; i < count; i++) {
    if (strlen(words[i]) == rec->len && memcmp(words[i], rec->value, rec->len) == 0) {
      *out = (int)i;
      return true;
    }
  }
  return false;
}

static bool small_number(const struct cb_record *rec, int64_t least, int64_t most, int *out)
{
  int64_t v;
  if (!cb_record_int(rec, &v) || v < least || v > most)
    return false;
  *out = (int)v;
  return true;
}

/* Text without NULs into an array of `room` bytes; text that is longer is cut when cut is set. */
static bool text_of(const struct cb_record *rec, char *to, size_t room, bool cut)
{
  size_t n = rec->len < room - 1 ? rec->len : room - 1;
  if ((n < rec->len && !cut) || memchr(rec->value, '\0', rec->len))
    return false;
  memcpy(to, rec->value, n);
  to[n] = '\0';
  return true;
}

static bool hex_digest(const struct cb_record *rec, char out[CB_SHA256_HEX + 1])
{
  return rec->len == CB_SHA256_HEX && text_of(rec, out, CB_SHA256_HEX + 1, false) &&
         strspn(out, "0123456789abcdef") == CB_SHA256_HEX;
}

enum field {
  F_RUN = NUMBERS,
  F_PHASE,
  F_STOPPED,
  F_EXIT,
  F_SIGNAL,
  F_OOM,
  F_WHY,
  F_ERROR,
  F_FINDINGS_SIZE,
  F_FINDINGS_SHA256,
  F_COUNT
};
static const char *const others[] = { "run",           "phase", "stopped", "exit",
                                      "signal",        "oom",   "why",     "error",
                                      "findings_size", "findings_sha256" };
_Static_assert(sizeof others / sizeof *others == F_COUNT - NUMBERS, "one name a field");

static int field_of(const struct cb_record *rec)
{
  for (int i = 0; i < NUMBERS; i++) {
    if (cb_record_is(rec, numbers[i].name))
      return i;
  }
  for (int i = NUMBERS; i < F_COUNT; i++) {
    if (cb_record_is(rec, others[i - NUMBERS]))
      return i;
  }
  return -1;
}

static bool take(struct cb_state *s, int field, const struct cb_record *rec)
{
  int word = 0;
  if (field < NUMBERS) {
    int64_t *to = number_of(s, (size_t)field);
    return cb_record_int(rec, to) && *to >= 0;
  }
  switch (field) {
  case F_RUN:
    return text_of(rec, s->run, sizeof s->run, false) && s->run[0] &&
           strspn(s->run, "abcdefghijklmnopqrstuvwxyz0123456789") == rec->len;
  case F_PHASE:
    if (!word_of(rec, phases, sizeof phases / sizeof *phases, &word))
      return false;
    s->phase = (enum cb_phase)word;
    return true;
  case F_STOPPED:
    if (!small_number(rec, 0, 1, &word))
      return false;
    s->stopped = word == 1;
    return true;
  case F_EXIT:
    return small_number(rec, 0, 255, &s->exit_status);
  case F_SIGNAL:
    return small_number(rec, 1, 64, &s->signal);
  case F_OOM:
    return small_number(rec, 0, 1, &s->oom);
  case F_WHY:
    if (!word_of(rec, whys, sizeof whys / sizeof *whys, &word) || word == CB_WHY_NONE)
      return false;
    s->why = (enum cb_why)word;
    return true;
  case F_ERROR:
    return text_of(rec, s->error, sizeof s->error, true);
  case F_FINDINGS_SIZE:
    return cb_record_int(rec, &s->findings_size) && s->findings_size >= 0;
  case F_FINDINGS_SHA256:
    return hex_digest(rec, s->findings_sha256);
  default:
    return false;
  }
}

static bool gap_fits(const struct cb_state_stream *g)
{
  return g->gap_from <= g->gap_to && g->gap_to <= g->end;
}

static const char *what_is_wrong(const struct cb_state *s, const bool *seen)
{
  if (!seen[F_RUN] || !seen[F_PHASE] || s->launch_seq < 1)
    return "run, phase or launch_seq is missing";
  if (!gap_fits(&s->out) || !gap_fits(&s->err))
    return "a gap outside its stream";
  if (s->exit_status >= 0 && s->signal > 0)
    return "an exit status and a signal";
  if (seen[F_FINDINGS_SIZE] != seen[F_FINDINGS_SHA256])
    return "findings with half of their figures";
  if (s->phase == CB_PHASE_FINISHED &&
      (s->why == CB_WHY_NONE ||
       (s->why != CB_WHY_SPAWN_FAILED && s->exit_status < 0 && s->signal == 0)))
    return "finished, but not how";
  return NULL;
}

int cb_state_parse(struct cb_state *s, const void *p, size_t len, struct cb_err *err)
{
  struct cb_record_reader r;
  struct cb_record rec;
  bool seen[F_COUNT] = { false };
  int got;

  cb_state_init(s);
  if (len > CB_STATE_MAX_BYTES || !cb_record_kind(p, len, "crewbox_state", 1))
    return cb_err_set(err, CB_PROTOCOL, "state: not a state of version 1");
  cb_record_open(&r, p, len);
  while ((got = cb_record_next(&r, &rec)) == 1) {
    int field = field_of(&rec);
    if (field < 0 || seen[field])
      continue;
    seen[field] = true;
    if (!take(s, field, &rec))
      return cb_err_set(err, CB_PROTOCOL, "state: %s has no value of its kind", rec.name);
  }
  if (got < 0)
    return cb_err_set(err, CB_PROTOCOL, "state: broken record");
  const char *wrong = what_is_wrong(s, seen);
  return wrong ? cb_err_set(err, CB_PROTOCOL, "state: %s", wrong) : CB_OK;
}
