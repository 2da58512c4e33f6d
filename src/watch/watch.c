/* SPDX-License-Identifier: MIT
 * watch.c: the life of a watch and of a job, the gates, and what is known of providers. */
#include "watch/watch_private.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/rand.h"
#include "providers/args.h"

enum { RENEWALS_LEAST = 8, TROUBLED_SHARE = 4 };

/* ---- gates ------------------------------------------------------------------------------- */

static void line_up(struct cb_gate *g, struct cb_watch_job *job)
{
  job->waiting = true;
  job->behind = NULL;
  if (g->last)
    g->last->behind = job;
  else
    g->first = job;
  g->last = job;
}

static void leave_line(struct cb_gate *g, struct cb_watch_job *job)
{
  struct cb_watch_job *before = NULL;
  for (struct cb_watch_job *at = g->first; at; before = at, at = at->behind)
    if (at == job) {
      if (before)
        before->behind = job->behind;
      else
        g->first = job->behind;
      if (g->last == job)
        g->last = before;
      job->waiting = false;
      return;
    }
}

/* Lets in as many as fit. A turn can end at once and free its place again, so that this would
 * call itself through it: the outermost does the serving. */
static void serve(struct cb_gate *g)
{
  if (g->serving)
    return;
  g->serving = true;
  while (g->first && g->used < g->limit) {
    struct cb_watch_job *job = g->first;
    leave_line(g, job);
    g->used++;
    job->holding = true;
    job->turn(job);
  }
  g->serving = false;
}

static void give_back(struct cb_watch_job *job)
{
  if (!job->holding)
    return;
  job->holding = false;
  job->gate->used--;
}

/* ---- jobs -------------------------------------------------------------------------------- */

static struct cb_gate *gate_of(struct cb_watch_job *job)
{
  struct cb_watch *w = job->w;
  if (job->is_lease)
    return &w->renewals;
  return job->troubled && w->troubled.limit > 0 ? &w->troubled : &w->polls;
}

static void due(void *arg)
{
  struct cb_watch_job *job = arg;
  job->timer = NULL;
  job->gate = gate_of(job);
  line_up(job->gate, job);
  serve(job->gate);
}

int cb_watch_job_init(struct cb_watch_job *job, struct cb_watch *w, struct cb_provider *p,
                      const json_t *args, cb_watch_event *on_event, void *arg, int64_t ms,
                      struct cb_err *err)
{
  const json_t *box = json_object_get(args, "box");
  job->w = w;
  job->p = p;
  job->on_event = on_event;
  job->arg = arg;
  job->gate = gate_of(job);
  job->box_id = json_string_value(json_object_get(box, "id"));
  if (w->closing)
    return cb_err_set(err, CB_CLOSED, "the watch is closed");
  if (!cb_box_id_ok(job->box_id))
    return cb_err_set(err, CB_INVALID, "box is not the {id, token, domain} that create gave");
  job->timer = cb_timer_start(w->io, ms, due, job);
  if (!job->timer)
    return cb_io_closing(w->io) ? cb_err_set(err, CB_CLOSED, "the I/O handle is closed")
                                : cb_err_no_memory(err);
  job->args = json_incref((json_t *)(uintptr_t)args);
  cb_provider_hold(p);
  job->next = w->jobs;
  if (job->next)
    job->next->prev = job;
  w->jobs = job;
  w->leases += job->is_lease;
  return CB_OK;
}

void cb_watch_tell(struct cb_watch_job *job, json_t *event)
{
  if (event)
    job->on_event(job->arg, event, NULL, true);
}

void cb_watch_end(struct cb_watch_job *job, json_t *event, const struct cb_err *err)
{
  struct cb_watch *w = job->w;
  struct cb_gate *gate = job->gate;
  cb_watch_event *on_event = job->on_event;
  void *arg = job->arg;
  struct cb_err memory = CB_ERR_INIT;
  if (job->timer)
    cb_timer_stop(job->timer);
  if (job->waiting)
    leave_line(gate, job);
  give_back(job);
  if (job->prev)
    job->prev->next = job->next;
  else
    w->jobs = job->next;
  if (job->next)
    job->next->prev = job->prev;
  w->leases -= job->is_lease;
  cb_provider_drop(job->p);
  if (job->free_own)
    job->free_own(job);
  json_decref(job->args);
  cb_free(job);
  if (!event && !err) {
    cb_err_no_memory(&memory);
    err = &memory;
  }
  on_event(arg, event, err, false);
  serve(gate);
}

void cb_watch_sleep(struct cb_watch_job *job, int64_t ms)
{
  struct cb_gate *gate = job->gate;
  give_back(job);
  if (job->poked)
    ms = 0;
  job->poked = false;
  job->timer = cb_timer_start(job->w->io, ms, due, job);
  if (!job->timer && !cb_io_closing(job->w->io)) {
    struct cb_err err = CB_ERR_INIT;
    cb_err_no_memory(&err);
    cb_watch_end(job, NULL, &err);
    return;
  }
  serve(gate);
}

void cb_watch_call(struct cb_watch_job *job, cb_verb *verb, json_t *args, cb_done *done)
{
  job->call = done;
  if (!args) {
    struct cb_err err = CB_ERR_INIT;
    cb_err_no_memory(&err);
    done(job, NULL, &err);
    return;
  }
  cb_provider_call(job->p, verb, args, done, job);
  json_decref(args);
}

bool cb_watch_back(struct cb_watch_job *job)
{
  job->call = NULL;
  return !job->ending;
}

static void end_early(struct cb_watch_job *job, enum cb_code code)
{
  struct cb_err err = CB_ERR_INIT;
  job->ending = true;
  if (job->call)
    cb_provider_cancel(job->p, job->call, job);
  cb_err_set(&err, code, code == CB_CLOSED ? "the watch was closed" : "cancelled");
  cb_watch_end(job, NULL, &err);
}

void cb_watch_cancel(struct cb_watch_job *job)
{
  end_early(job, CB_CANCELLED);
}

void cb_watch_set_tag(struct cb_watch_job *job, uint64_t tag)
{
  job->tag = tag;
}

struct cb_watch_job *cb_watch_by_tag(const struct cb_watch *w, uint64_t tag)
{
  for (struct cb_watch_job *job = w->jobs; job; job = job->next)
    if (job->tag == tag)
      return job;
  return NULL;
}

void cb_watch_poke(struct cb_watch_job *job)
{
  if (job->timer) {
    cb_timer_stop(job->timer);
    due(job);
  } else if (job->holding) {
    job->poked = true; /* what is under way may have read too early: once more behind it */
  }
}

/* ---- the watch --------------------------------------------------------------------------- */

int cb_watch_new(struct cb_watch **out, struct cb_io *io, int max_parallel, struct cb_err *err)
{
  *out = NULL;
  if (max_parallel < 1 || max_parallel > 1024)
    return cb_err_set(err, CB_INVALID, "max_parallel is 1 to 1024");
  struct cb_watch *w = cb_calloc(1, sizeof *w);
  if (!w)
    return cb_err_no_memory(err);
  w->io = cb_io_keep(io);
  w->troubled.limit = max_parallel / TROUBLED_SHARE;
  w->polls.limit = max_parallel - w->troubled.limit;
  w->renewals.limit = max_parallel / 4 > RENEWALS_LEAST ? max_parallel / 4 : RENEWALS_LEAST;
  *out = w;
  return CB_OK;
}

void cb_watch_close(struct cb_watch *w)
{
  struct cb_io *io = w->io;
  w->closing = true;
  w->polls.limit = w->troubled.limit = w->renewals.limit = 0; /* nobody is let in on the way out */
  while (w->jobs)
    end_early(w->jobs, CB_CLOSED);
  cb_free(w);
  cb_io_drop(io);
}

static void close_now(struct cb_io *io, void *arg)
{
  (void)io;
  cb_watch_close(arg);
}

void cb_watch_free(struct cb_watch *w)
{
  struct cb_err err;
  if (w && cb_io_post(w->io, close_now, w, &err))
    cb_watch_close(w); /* the I/O thread has ended */
}

/* ---- what is known of providers ----------------------------------------------------------- */

static struct cb_watch_seen *seen_of(struct cb_watch *w, const struct cb_provider *p)
{
  struct cb_watch_seen *oldest = &w->seen[0];
  for (size_t i = 0; i < CB_WATCH_PROVIDERS; i++) {
    struct cb_watch_seen *s = &w->seen[i];
    if (s->p == p)
      return s;
    if (s->box_at + s->control_at < oldest->box_at + oldest->control_at)
      oldest = s;
  }
  memset(oldest, 0, sizeof *oldest);
  oldest->p = p;
  return oldest;
}

void cb_watch_note(struct cb_watch *w, const struct cb_provider *p, const char *box)
{
  struct cb_watch_seen *s = seen_of(w, p);
  if (!box) {
    s->control_at = cb_boot_ms();
    return;
  }
  if (s->box_at > 0 && strcmp(s->box, box) != 0)
    s->other_at = s->box_at;
  snprintf(s->box, sizeof s->box, "%s", box);
  s->box_at = cb_boot_ms();
}

void cb_watch_answers(const struct cb_watch *w, const struct cb_provider *p, const char *box,
                      int64_t *other, int64_t *control)
{
  *other = *control = 0;
  for (size_t i = 0; i < CB_WATCH_PROVIDERS; i++) {
    const struct cb_watch_seen *s = &w->seen[i];
    if (s->p != p)
      continue;
    *control = s->control_at;
    *other = strcmp(s->box, box) == 0 ? s->other_at : s->box_at;
  }
}

int64_t cb_watch_lease_end(const struct cb_watch *w, const struct cb_provider *p, const char *box)
{
  int64_t end = 0;
  for (const struct cb_watch_job *j = w->jobs; j; j = j->next)
    if (j->p == p && j->lease_end > end && strcmp(j->box_id, box) == 0)
      end = j->lease_end;
  return end;
}

int64_t cb_watch_jitter(int64_t ms)
{
  uint32_t r;
  if (ms < 10)
    return ms;
  cb_random(&r, sizeof r);
  return ms - ms / 10 + (int64_t)(r % (uint32_t)(ms / 5 + 1));
}
