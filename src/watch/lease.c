/* SPDX-License-Identifier: MIT
 * lease.c: keeps one box alive. Renews every quarter of the lease (two thirds of it in a large
 * fleet, for the sake of rate limits), never beyond the deadline, and looks at the end that the
 * provider then shows: a plan's cap is told before it costs the box. */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "providers/args.h"
#include "watch/watch_private.h"

enum { AGAIN_MS = 1000, WAIT_MS = 30000, GONE = 2, LEASE_S_MAX = 30 * 24 * 3600 };

struct lease {
  struct cb_watch_job job; /* first */
  int64_t lease_s;
  double deadline_at;      /* unix seconds; 0: none */
  int64_t asked_s;         /* by the request in flight */
  int64_t renewed_at;      /* boot clock of the last success; 0: none yet */
  double end_at;           /* as read back then */
  int64_t failing_since;   /* boot clock; 0: not failing */
  int gone;
  bool paused;
};

static double wall_s(void)
{
  return (double)cb_wall_ms() / 1000;
}

/* Until the next renewal when all is well. */
static int64_t pause_ms(const struct lease *l)
{
  int64_t part = l->job.w->leases > CB_WATCH_LARGE_FLEET ? l->asked_s * 1000 / 3 * 2
                                                         : l->asked_s * 1000 / 4;
  return cb_watch_jitter(part > AGAIN_MS ? part : AGAIN_MS);
}

/* Sooner after a failure, but a long outage must not be hammered. */
static int64_t retry_ms(const struct lease *l)
{
  int64_t ms = l->lease_s * 1000 / 20;
  return cb_watch_jitter(ms < AGAIN_MS ? AGAIN_MS : ms > 15000 ? 15000 : ms);
}

/* The end that is shown is well before what was asked, and the renewal did not move it as far as
 * time moved: this is no clock that differs from ours, the provider gives no more. */
static bool is_capped(const struct lease *l, double end_at, int64_t now)
{
  double slack = l->lease_s / 10.0 > 5 ? l->lease_s / 10.0 : 5;
  if (end_at + slack >= wall_s() + (double)l->asked_s)
    return false;
  double elapsed = (double)(now - l->renewed_at) / 1000;
  return l->renewed_at == 0 || end_at - l->end_at < elapsed / 2;
}

static void renewed(struct lease *l, double end_at)
{
  int64_t now = cb_boot_ms();
  bool capped = is_capped(l, end_at, now);
  cb_watch_note(l->job.w, l->job.p, NULL);
  /* Counted from the answer: the provider began to count before it, so this is the latest. */
  l->job.lease_end = now + l->asked_s * 1000;
  l->renewed_at = now;
  l->end_at = end_at;
  l->failing_since = 0;
  l->gone = 0;
  l->paused = false;
  cb_watch_tell(&l->job, json_pack("{s:s, s:f}", "event", capped ? "capped" : "renewed", "end_at",
                                   end_at));
  cb_watch_sleep(&l->job, pause_ms(l));
}

static json_t *err_value(const struct cb_err *err)
{
  json_t *v = json_pack("{s:s, s:o}", "code", cb_code_name(err->code), "message",
                        json_stringn_nocheck(err->text, strlen(err->text)));
  if (v && err->status)
    json_object_set_new(v, "status", json_integer(err->status));
  return v;
}

static void failed(struct lease *l, const struct cb_err *err)
{
  int64_t now = cb_boot_ms();
  if (err->status != 0)
    cb_watch_note(l->job.w, l->job.p, NULL); /* it answers, if only to refuse */
  if (err->code == CB_NOT_FOUND) {
    if (++l->gone >= GONE) {
      cb_watch_end(&l->job, json_pack("{s:s}", "event", "gone"), NULL);
      return;
    }
    cb_watch_sleep(&l->job, AGAIN_MS);
    return;
  }
  l->gone = 0;
  if (err->code == CB_CONFLICT) { /* a paused box has no lease to keep */
    if (!l->paused)
      cb_watch_tell(&l->job, json_pack("{s:s}", "event", "paused"));
    l->paused = true;
    cb_watch_sleep(&l->job, pause_ms(l));
    return;
  }
  if (l->failing_since == 0)
    l->failing_since = now;
  cb_watch_tell(&l->job, json_pack("{s:s, s:I, s:o}", "event", "unreachable", "since_ms",
                                   (json_int_t)(now - l->failing_since), "err", err_value(err)));
  int64_t again = err->retry_after_ms > 0 ? err->retry_after_ms : retry_ms(l);
  cb_watch_sleep(&l->job, again < pause_ms(l) ? again : pause_ms(l));
}

static void lease_back(void *arg, json_t *value, const struct cb_err *err)
{
  struct lease *l = arg;
  if (cb_watch_back(&l->job)) {
    if (err)
      failed(l, err);
    else
      renewed(l, json_number_value(json_object_get(value, "end_at")));
  }
  json_decref(value);
}

static void lease_turn(struct cb_watch_job *job)
{
  struct lease *l = (struct lease *)job;
  l->asked_s = l->lease_s;
  if (l->deadline_at > 0) {
    double left = floor(l->deadline_at - wall_s());
    if (left < 1) { /* the box ends now by its own timer; nothing moves a deadline */
      cb_watch_end(job, json_pack("{s:s}", "event", "deadline"), NULL);
      return;
    }
    if (left < (double)l->asked_s)
      l->asked_s = (int64_t)left;
  }
  cb_watch_call(job, job->p->ops->timeout,
                json_pack("{s:s, s:I, s:i}", "id", job->box_id, "timeout_s",
                          (json_int_t)l->asked_s, "wait_ms", (int)WAIT_MS),
                lease_back);
}

struct cb_watch_job *cb_watch_lease(struct cb_watch *w, struct cb_provider *p, const json_t *args,
                                    cb_watch_event *on_event, void *arg, struct cb_err *err)
{
  const json_t *deadline = json_object_get(args, "deadline_at");
  struct lease *l = cb_calloc(1, sizeof *l);
  if (!l) {
    cb_err_no_memory(err);
    return NULL;
  }
  l->job.is_lease = true;
  l->job.turn = lease_turn;
  l->deadline_at = json_is_number(deadline) ? json_number_value(deadline) : 0;
  int rc = cb_arg_int(args, "lease_s", 1, LEASE_S_MAX, -1, &l->lease_s, err);
  if (!rc)
    rc = cb_watch_job_init(&l->job, w, p, args, on_event, arg, 0, err);
  if (rc) {
    cb_free(l);
    return NULL;
  }
  return &l->job;
}
