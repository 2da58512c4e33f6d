/* SPDX-License-Identifier: MIT
 * watch.h: many boxes and runs on one cadence. A lease job renews a box until it is cancelled; a
 * run job reads the state file of a run and the new bytes of its log, and judges (judge.h) what
 * it sees. Requests are bounded over all jobs, first come first served, one a job: a slow box
 * holds up nobody but itself, and boxes that did not answer last time share a quarter of the
 * places. Leases have places of their own, so that hanging polls never cost
 * a box. Arguments and events are the tables of docs/reference/core.md.
 *
 * All functions but cb_watch_new run on the I/O thread. */
#ifndef CB_WATCH_WATCH_H
#define CB_WATCH_WATCH_H
#include <jansson.h>
#include <stdbool.h>
#include "net/io.h"
#include "providers/provider.h"

struct cb_watch;
struct cb_watch_job;

/* Takes event. more: others follow; without it this is the last, the job is gone, and err may
 * say why there is no event. Must not cancel or poke a job from inside. */
typedef void cb_watch_event(void *arg, json_t *event, const struct cb_err *err, bool more);

/* [any] max_parallel: requests in flight over all runs, 1 to 1024. */
int cb_watch_new(struct cb_watch **out, struct cb_io *io, int max_parallel, struct cb_err *err);
/* Ends every job with CB_CLOSED and frees. */
void cb_watch_close(struct cb_watch *w);
/* [any] Posts the close, or frees at once when io is closed. NULL is fine. */
void cb_watch_free(struct cb_watch *w);

/* Starts a job; NULL with *err for bad arguments. args are borrowed for the call. The first
 * event never comes before this returns. */
struct cb_watch_job *cb_watch_lease(struct cb_watch *w, struct cb_provider *p, const json_t *args,
                                    cb_watch_event *on_event, void *arg, struct cb_err *err);
struct cb_watch_job *cb_watch_run(struct cb_watch *w, struct cb_provider *p, const json_t *args,
                                  cb_watch_event *on_event, void *arg, struct cb_err *err);
/* A number of the caller's by which a job can be found again; NULL when there is none. */
void cb_watch_set_tag(struct cb_watch_job *job, uint64_t tag);
struct cb_watch_job *cb_watch_by_tag(const struct cb_watch *w, uint64_t tag);
/* Does now what the job would do at its next turn. */
void cb_watch_poke(struct cb_watch_job *job);
/* Ends it: the last event, CB_CANCELLED, comes before this returns. */
void cb_watch_cancel(struct cb_watch_job *job);
#endif
