/* SPDX-License-Identifier: MIT
 * run.c: watches one run. A turn is one ranged read of the state file, then as many reads of log
 * segments as there is new output, up to the bound of a turn; what is left comes in the next
 * turn, at once. A failed read is followed by a look at the box itself. What it all means is
 * decided in judge.c. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "providers/args.h"
#include "watch/judge.h"
#include "watch/watch_private.h"

enum {
  INTERVAL_LEAST_MS = 50,
  SOON_MS = 1000,          /* the next turn when something is odd */
  WAIT_MS = 20000,         /* most that one request of a turn may take */
  TURN_BYTES = 1 << 20,
  TURN_BYTES_MAX = 64 << 20,
  START_DEADLINE_MS = 60000,
  SEGMENT_MAX = 64 << 20,
  PATIENCE = 3,            /* turns for which a segment may be missing before it is given up */
  LOST_SEGMENTS = 8,       /* after so many the rest of the stream is given up at once */
  LOOK_MS = 10000,
  PATH_MAX_BYTES = 1024
};

enum stream { OUT, ERR, STREAMS };
static const char *const stream_names[STREAMS] = {"out", "err"};

struct tail { /* how far one stream was read */
  int64_t offset; /* of the next byte that was not told yet */
  int absent;     /* turns in a row in which its segment was not there */
  int lost;       /* segments given up */
  struct cb_buf bytes; /* read in this turn */
};

struct run {
  struct cb_watch_job job; /* first */
  struct cb_judge judge;
  char run[64], dir[PATH_MAX_BYTES];
  const char *user;
  int64_t launch_seq, interval_ms, max_bytes, segment, stall_ms, wait_ms;
  struct tail tails[STREAMS];
  json_t *gaps;          /* of this turn */
  enum stream reading;
  int64_t asked;         /* bytes of the segment read in flight */
  bool stuck;            /* no more reads in this turn */
  bool told_stall;
  struct cb_err why;     /* of the failed read while the box is looked at */
};

static void next_read(struct run *r);

static void run_free(struct cb_watch_job *job)
{
  struct run *r = (struct run *)job;
  for (int i = 0; i < STREAMS; i++)
    cb_buf_clear_wiped(&r->tails[i].bytes);
  json_decref(r->gaps);
}

static json_t *box_of(const struct run *r)
{
  return json_incref(json_object_get(r->job.args, "box"));
}

/* ---- what is told ------------------------------------------------------------------------ */

static json_t *text(const char *s)
{
  return json_stringn_nocheck(s, strlen(s)); /* from a box: any bytes */
}

static json_t *state_value(const struct cb_state *s)
{
  json_t *v = json_pack(
    "{s:o, s:I, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:b}", "run", text(s->run), "launch_seq",
    (json_int_t)s->launch_seq, "phase", cb_phase_name(s->phase), "sup_pid",
    (json_int_t)s->sup_pid, "pid", (json_int_t)s->pid, "pid_start", (json_int_t)s->pid_start,
    "beat", (json_int_t)s->beat, "age_ms", (json_int_t)s->age_ms, "quiet_ms",
    (json_int_t)s->quiet_ms, "stopped", (int)s->stopped);
  json_t *more = json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "out_end",
                           (json_int_t)s->out.end, "err_end", (json_int_t)s->err.end,
                           "out_gap_from", (json_int_t)s->out.gap_from, "out_gap_to",
                           (json_int_t)s->out.gap_to, "err_gap_from", (json_int_t)s->err.gap_from,
                           "err_gap_to", (json_int_t)s->err.gap_to, "segment",
                           (json_int_t)s->segment);
  json_object_update(v, more);
  json_decref(more);
  if (v && s->exit_status >= 0)
    json_object_set_new(v, "exit", json_integer(s->exit_status));
  if (v && s->signal > 0)
    json_object_set_new(v, "signal", json_integer(s->signal));
  if (v && s->oom >= 0)
    json_object_set_new(v, "oom", json_boolean(s->oom));
  if (v && s->why != CB_WHY_NONE)
    json_object_set_new(v, "why", json_string(cb_why_name(s->why)));
  if (v && s->error[0])
    json_object_set_new_nocheck(v, "error", text(s->error));
  if (v && s->findings_size >= 0) {
    json_object_set_new(v, "findings_size", json_integer(s->findings_size));
    json_object_set_new(v, "findings_sha256", text(s->findings_sha256));
  }
  return v;
}

static json_t *bytes_value(struct cb_buf *b)
{
  json_t *v = json_stringn_nocheck(b->p ? b->p : "", b->len);
  if (v)
    cb_buf_reset(b);
  return v;
}

/* Everything read in this turn, with where each stream goes on. */
static json_t *progress_value(struct run *r)
{
  json_t *gaps = r->gaps ? r->gaps : json_array();
  r->gaps = NULL;
  return json_pack("{s:s, s:o, s:o, s:o, s:I, s:I, s:o}", "event", "progress", "state",
                   state_value(&r->judge.last), "out", bytes_value(&r->tails[OUT].bytes), "err",
                   bytes_value(&r->tails[ERR].bytes), "out_offset",
                   (json_int_t)r->tails[OUT].offset, "err_offset",
                   (json_int_t)r->tails[ERR].offset, "gaps", gaps);
}

static void add_gap(struct run *r, enum stream which, int64_t to)
{
  struct tail *t = &r->tails[which];
  if (!r->gaps)
    r->gaps = json_array();
  json_array_append_new(r->gaps, json_pack("{s:s, s:I, s:I}", "stream", stream_names[which], "from",
                                           (json_int_t)t->offset, "to", (json_int_t)to));
  t->offset = to;
}

static void tell_stall(struct run *r, const char *why)
{
  if (!why) {
    r->told_stall = false;
  } else if (!r->told_stall) { /* once for each time it comes to a stand */
    r->told_stall = true;
    cb_watch_tell(&r->job, json_pack("{s:s, s:s, s:o}", "event", "stalled", "why", why, "state",
                                     state_value(&r->judge.last)));
  }
}

static void tell_unreachable(struct run *r, const struct cb_err *err)
{
  int64_t since = r->judge.failing_since ? cb_boot_ms() - r->judge.failing_since : 0;
  json_t *e = json_pack("{s:s, s:o}", "code", cb_code_name(err->code), "message", text(err->text));
  if (e && err->status)
    json_object_set_new(e, "status", json_integer(err->status));
  cb_watch_tell(&r->job, json_pack("{s:s, s:I, s:o}", "event", "unreachable", "since_ms",
                                   (json_int_t)since, "err", e));
}

/* Ends the job when the verdict says so. */
static bool is_over(struct run *r, enum cb_verdict v)
{
  const char *reason = cb_verdict_reason(v);
  if (!reason)
    return false;
  cb_watch_end(&r->job, json_pack("{s:s, s:s}", "event", "lost", "reason", reason), NULL);
  return true;
}

static void sleep_soon(struct run *r)
{
  int64_t ms = r->interval_ms < SOON_MS ? r->interval_ms : SOON_MS;
  cb_watch_sleep(&r->job, ms);
}

/* ---- a look at the box after a failed read ------------------------------------------------ */

static void box_unreachable(struct run *r, const struct cb_err *err)
{
  struct cb_evidence e = {0};
  int64_t now = cb_boot_ms();
  cb_watch_answers(r->job.w, r->job.p, r->job.box_id, &e.other_box_at, &e.control_at);
  e.lease_end = cb_watch_lease_end(r->job.w, r->job.p, r->job.box_id);
  enum cb_verdict v = cb_judge_unreachable(&r->judge, now, &e);
  tell_unreachable(r, err);
  if (!is_over(r, v))
    cb_watch_sleep(&r->job, cb_watch_jitter(r->interval_ms));
}

static void box_there(struct run *r, const json_t *value)
{
  const char *state = json_string_value(json_object_get(value, "state"));
  cb_watch_note(r->job.w, r->job.p, NULL);
  if (state && strcmp(state, "paused") == 0) {
    struct cb_err err = CB_ERR_INIT;
    cb_err_set(&err, CB_CONFLICT, "the box is paused");
    cb_judge_paused(&r->judge, cb_boot_ms());
    tell_unreachable(r, &err);
    cb_watch_sleep(&r->job, cb_watch_jitter(r->interval_ms));
  } else if (r->why.code == CB_NOT_FOUND) {
    if (!is_over(r, cb_judge_missing(&r->judge, cb_boot_ms())))
      sleep_soon(r);
  } else {
    box_unreachable(r, &r->why);
  }
}

static void look_back(void *arg, json_t *value, const struct cb_err *err)
{
  struct run *r = arg;
  if (cb_watch_back(&r->job)) {
    if (!err) {
      box_there(r, value);
    } else if (err->code == CB_NOT_FOUND) {
      cb_watch_note(r->job.w, r->job.p, NULL);
      if (!is_over(r, cb_judge_gone(&r->judge)))
        sleep_soon(r);
    } else {
      /* The first trouble says more about the box than that its provider is silent too. */
      box_unreachable(r, r->why.code == CB_NOT_FOUND ? err : &r->why);
    }
  }
  json_decref(value);
}

static void look_at_box(struct run *r, const struct cb_err *err)
{
  r->why = *err;
  cb_watch_call(&r->job, r->job.p->ops->info,
                json_pack("{s:s, s:I}", "id", r->job.box_id, "wait_ms", (json_int_t)r->wait_ms),
                look_back);
}

/* ---- a look at the supervisor when the beat stands still ----------------------------------- */

/* Says the line of the process, or "gone" where it is certain that processes can be seen. */
static const char look_script[] =
  "if [ -r /proc/$1/stat ]; then cat /proc/$1/stat; "
  "elif [ -r /proc/1/stat ]; then echo gone; else echo unseen; fi";

static void turn_over(struct run *r)
{
  bool more = r->tails[OUT].offset < r->judge.last.out.end ||
              r->tails[ERR].offset < r->judge.last.err.end;
  if (more && !r->stuck)
    cb_watch_sleep(&r->job, 0); /* the rest, behind whoever waits in line */
  else if (more && r->judge.last.phase == CB_PHASE_FINISHED)
    sleep_soon(r);
  else
    cb_watch_sleep(&r->job, cb_watch_jitter(r->interval_ms));
}

static void supervisor_back(void *arg, json_t *value, const struct cb_err *err)
{
  struct run *r = arg;
  if (cb_watch_back(&r->job)) {
    const char *said = err ? "" : json_string_value(json_object_get(value, "stdout"));
    if (!is_over(r, cb_judge_look(&r->judge, said ? said : ""))) {
      if (r->judge.dead > 0)
        sleep_soon(r); /* proven once: read the state again, then look again */
      else
        turn_over(r);
    }
  }
  json_decref(value);
}

static void look_at_supervisor(struct run *r)
{
  char pid[24];
  snprintf(pid, sizeof pid, "%" PRId64, r->judge.last.sup_pid);
  cb_watch_call(&r->job, r->job.p->ops->exec,
                json_pack("{s:o, s:s, s:[s, s, s, s], s:i, s:i}", "box", box_of(r), "cmd",
                          "/bin/sh", "args", "-c", look_script, "look", pid, "timeout_ms",
                          (int)LOOK_MS, "max_bytes", 4096),
                supervisor_back);
}

/* ---- reading ----------------------------------------------------------------------------- */

/* The turn has read what it could: tells it, and decides how to go on. */
static void turn_read(struct run *r)
{
  const struct cb_state *s = &r->judge.last;
  int64_t now = cb_boot_ms();
  bool all = r->tails[OUT].offset >= s->out.end && r->tails[ERR].offset >= s->err.end;
  bool frozen = cb_judge_frozen(&r->judge, now);
  cb_watch_tell(&r->job, progress_value(r));
  if (s->phase == CB_PHASE_FINISHED && all) {
    cb_watch_end(&r->job, json_pack("{s:s, s:o}", "event", "finished", "state", state_value(s)),
                 NULL);
    return;
  }
  if (s->phase == CB_PHASE_FINISHED)
    tell_stall(r, NULL);
  else
    tell_stall(r, frozen                                          ? "beat"
                  : s->stopped                                    ? "stopped"
                  : r->stall_ms > 0 && s->quiet_ms >= r->stall_ms ? "quiet"
                                                                  : NULL);
  if (frozen)
    look_at_supervisor(r);
  else
    turn_over(r);
}

static const struct cb_state_stream *stream_of(const struct run *r, enum stream which)
{
  return which == OUT ? &r->judge.last.out : &r->judge.last.err;
}

/* The segment that should be there is not: the state was older than the log, or it is lost. */
static void segment_absent(struct run *r)
{
  struct tail *t = &r->tails[r->reading];
  int64_t end = stream_of(r, r->reading)->end;
  if (++t->absent < PATIENCE) {
    r->stuck = true; /* the next turn reads a newer state first */
    r->reading++;
    return;
  }
  int64_t next = (t->offset / r->segment + 1) * r->segment;
  t->absent = 0;
  if (++t->lost > LOST_SEGMENTS || next > end)
    next = end;
  add_gap(r, r->reading, next);
}

static void segment_back(void *arg, json_t *value, const struct cb_err *err)
{
  struct run *r = arg;
  struct tail *t = &r->tails[r->reading];
  if (!cb_watch_back(&r->job)) {
    json_decref(value);
    return;
  }
  json_t *data = json_object_get(value, "data");
  size_t n = json_string_length(data);
  if (err && err->code != CB_NOT_FOUND) {
    r->stuck = true; /* the offsets stand; a state that was read is told all the same */
    r->reading = STREAMS;
  } else if (err || n == 0) {
    segment_absent(r);
  } else if ((int64_t)n <= r->asked && cb_buf_add(&t->bytes, json_string_value(data), n) == CB_OK) {
    t->offset += (int64_t)n;
    t->absent = 0;
  } else {
    r->stuck = true;
    r->reading = STREAMS;
  }
  json_decref(value);
  next_read(r);
}

/* Up to which offset the current stream may be read in one go; skips what is known to be gone. */
static int64_t read_to(struct run *r)
{
  const struct cb_state_stream *s = stream_of(r, r->reading);
  struct tail *t = &r->tails[r->reading];
  bool gap = s->gap_to > s->gap_from;
  if (gap && t->offset >= s->gap_from && t->offset < s->gap_to)
    add_gap(r, r->reading, s->gap_to);
  int64_t to = gap && t->offset < s->gap_from ? s->gap_from : s->end;
  int64_t segment_end = (t->offset / r->segment + 1) * r->segment;
  int64_t room = r->max_bytes - (int64_t)(r->tails[OUT].bytes.len + r->tails[ERR].bytes.len);
  if (segment_end < to)
    to = segment_end;
  if (r->reading == OUT && r->tails[ERR].offset < r->judge.last.err.end)
    room -= r->max_bytes / 2; /* a flood of one stream must not silence the other */
  if (room <= 0)
    return t->offset;
  return t->offset + room < to ? t->offset + room : to;
}

static void next_read(struct run *r)
{
  int64_t to = 0;
  while (r->reading < STREAMS) {
    to = read_to(r);
    if (to > r->tails[r->reading].offset)
      break;
    r->reading++; /* all of it, or as much of it as fits into this turn */
  }
  if (r->reading >= STREAMS) {
    turn_read(r);
    return;
  }
  char path[PATH_MAX_BYTES + 64];
  int64_t offset = r->tails[r->reading].offset;
  r->asked = to - offset;
  snprintf(path, sizeof path, "%s/%s.%016" PRId64, r->dir, stream_names[r->reading],
           offset / r->segment * r->segment);
  json_t *args = json_pack("{s:o, s:s, s:I, s:I, s:I}", "box", box_of(r), "path", path, "offset",
                           (json_int_t)(offset % r->segment), "max_bytes", (json_int_t)r->asked,
                           "wait_ms", (json_int_t)r->wait_ms);
  if (args && r->user)
    json_object_set_new(args, "user", json_string(r->user));
  cb_watch_call(&r->job, r->job.p->ops->read, args, segment_back);
}

/* The state is a box's word: numbers that no supervisor of ours writes are nonsense. */
static bool makes_sense(const struct run *r, const struct cb_state *s)
{
  const int64_t most = INT64_C(1) << 53;
  if (strcmp(s->run, r->run) != 0 || s->launch_seq != r->launch_seq)
    return false;
  if (s->segment < 1 || s->segment > SEGMENT_MAX || (r->segment > 0 && s->segment != r->segment))
    return false;
  return s->out.end <= most && s->err.end <= most;
}

static enum cb_verdict take_state(struct run *r, const json_t *data)
{
  struct cb_state s;
  if (cb_state_parse(&s, json_string_value(data), json_string_length(data), NULL) ||
      !makes_sense(r, &s))
    return cb_judge_nonsense(&r->judge);
  enum cb_verdict v = cb_judge_state(&r->judge, cb_boot_ms(), &s);
  if (v == CB_VERDICT_LIVE)
    r->segment = s.segment;
  return v;
}

static void state_back(void *arg, json_t *value, const struct cb_err *err)
{
  struct run *r = arg;
  if (!cb_watch_back(&r->job)) {
    json_decref(value);
    return;
  }
  r->job.troubled = err && err->code != CB_NOT_FOUND;
  if (err) {
    look_at_box(r, err);
    return;
  }
  cb_watch_note(r->job.w, r->job.p, r->job.box_id);
  enum cb_verdict v = take_state(r, json_object_get(value, "data"));
  json_decref(value);
  if (v == CB_VERDICT_LIVE) {
    r->reading = OUT;
    r->stuck = false;
    next_read(r);
  } else if (!is_over(r, v)) {
    sleep_soon(r);
  }
}

static void run_turn(struct cb_watch_job *job)
{
  struct run *r = (struct run *)job;
  char path[PATH_MAX_BYTES + 16];
  snprintf(path, sizeof path, "%s/state", r->dir);
  json_t *args = json_pack("{s:o, s:s, s:i, s:I}", "box", box_of(r), "path", path, "max_bytes",
                           CB_STATE_MAX_BYTES + 1, "wait_ms", (json_int_t)r->wait_ms);
  if (args && r->user)
    json_object_set_new(args, "user", json_string(r->user));
  cb_watch_call(job, job->p->ops->read, args, state_back);
}

/* ---- starting ---------------------------------------------------------------------------- */

static int take_texts(struct run *r, const json_t *args, struct cb_err *err)
{
  const char *run, *dir;
  int rc = cb_arg_text(args, "run", true, &run, err);
  if (!rc)
    rc = cb_arg_text(args, "run_dir", true, &dir, err);
  if (!rc)
    rc = cb_arg_text(args, "user", false, &r->user, err);
  if (!rc && (strlen(run) >= sizeof r->run || strlen(dir) >= sizeof r->dir))
    rc = cb_err_set(err, CB_INVALID, "run or run_dir is too long");
  if (rc)
    return rc;
  snprintf(r->run, sizeof r->run, "%s", run);
  snprintf(r->dir, sizeof r->dir, "%s", dir);
  return CB_OK;
}

static int take_numbers(struct run *r, const json_t *args, int64_t *start_ms, struct cb_err *err)
{
  const struct {
    const char *name;
    int64_t least, most, otherwise, *out;
  } numbers[] = {
    {"launch_seq", 0, INT32_MAX, -1, &r->launch_seq},
    {"interval_ms", INTERVAL_LEAST_MS, 3600000, -1, &r->interval_ms},
    {"out_offset", 0, INT64_C(1) << 53, 0, &r->tails[OUT].offset},
    {"err_offset", 0, INT64_C(1) << 53, 0, &r->tails[ERR].offset},
    {"segment", 1, SEGMENT_MAX, 0, &r->segment},
    {"max_bytes", 1, TURN_BYTES_MAX, TURN_BYTES, &r->max_bytes},
    {"start_deadline_ms", 0, INT32_MAX, START_DEADLINE_MS, start_ms},
    {"stall_ms", 1, INT32_MAX, 0, &r->stall_ms},
    {"wait_ms", 100, 600000, WAIT_MS, &r->wait_ms},
  };
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
    int rc = cb_arg_int(args, numbers[i].name, numbers[i].least, numbers[i].most,
                            numbers[i].otherwise, numbers[i].out, err);
    if (rc)
      return rc;
  }
  return CB_OK;
}

struct cb_watch_job *cb_watch_run(struct cb_watch *w, struct cb_provider *p, const json_t *args,
                                  cb_watch_event *on_event, void *arg, struct cb_err *err)
{
  const json_t *lease = json_object_get(args, "lease_end_at");
  int64_t start_ms = 0;
  struct run *r = cb_calloc(1, sizeof *r);
  if (!r) {
    cb_err_no_memory(err);
    return NULL;
  }
  r->job.turn = run_turn;
  r->job.free_own = run_free;
  int rc = take_texts(r, args, err);
  if (!rc)
    rc = take_numbers(r, args, &start_ms, err);
  if (!rc)
    rc = cb_watch_job_init(&r->job, w, p, args, on_event, arg, 0, err);
  if (rc) {
    cb_free(r);
    return NULL;
  }
  for (int i = 0; i < STREAMS; i++)
    cb_buf_init(&r->tails[i].bytes, (size_t)r->max_bytes);
  if (json_is_number(lease)) { /* on a wall clock: carried over to one that nobody sets */
    double left_ms = json_number_value(lease) * 1000 - (double)cb_wall_ms();
    r->job.lease_end = cb_boot_ms() + (left_ms > 0 ? (int64_t)left_ms : 0);
  }
  /* Offsets beyond zero were read from a state by whoever watched before. */
  cb_judge_init(&r->judge, cb_boot_ms(), r->interval_ms, start_ms,
                r->tails[OUT].offset > 0 || r->tails[ERR].offset > 0);
  return &r->job;
}
