/* SPDX-License-Identifier: MIT
 * watch_private.h: what the files of src/watch share: the watch itself, its gates, and a job's
 * common part. I/O thread only. */
#ifndef CB_WATCH_PRIVATE_H
#define CB_WATCH_PRIVATE_H
#include "providers/args.h"
#include "watch/watch.h"

enum { CB_WATCH_PROVIDERS = 16, CB_WATCH_LARGE_FLEET = 200 };

struct cb_gate { /* how many may be at it at once; the others wait in line */
  int limit, used;
  struct cb_watch_job *first, *last;
  bool serving;
};

struct cb_watch_seen { /* when a provider last answered */
  const struct cb_provider *p;
  char box[CB_BOX_ID_MAX + 1]; /* the box that answered last */
  int64_t box_at;
  int64_t other_at;              /* the last answer of a box that is not `box` */
  int64_t control_at;
};

struct cb_watch {
  struct cb_io *io;
  struct cb_gate polls, renewals;
  struct cb_gate troubled; /* polls of boxes that did not answer last time: places of their own,
                            * so that many that hang hold up none that answer */
  struct cb_watch_job *jobs;
  size_t leases;
  struct cb_watch_seen seen[CB_WATCH_PROVIDERS];
  bool closing;
};

struct cb_watch_job { /* first member of a lease and of a run */
  struct cb_watch *w;
  struct cb_provider *p; /* held */
  json_t *args;          /* held */
  cb_watch_event *on_event;
  void *arg;
  const char *box_id;    /* into args */
  void (*turn)(struct cb_watch_job *job);    /* a place is free: go */
  void (*free_own)(struct cb_watch_job *job);
  struct cb_gate *gate;
  uint64_t tag;          /* the caller's */
  int64_t lease_end;     /* boot clock, at the latest; 0: not known */
  struct cb_watch_job *prev, *next;
  struct cb_watch_job *behind; /* in the line of the gate */
  struct cb_timer *timer;
  cb_done *call;         /* the verb in flight was started with this and the job */
  bool is_lease, waiting, holding, poked, ending;
  bool troubled; /* set by a run job; counts from its next turn */
};

/* Fills in the common part and adds the job to the watch; its first turn comes after ms. */
int cb_watch_job_init(struct cb_watch_job *job, struct cb_watch *w, struct cb_provider *p,
                      const json_t *args, cb_watch_event *on_event, void *arg, int64_t ms,
                      struct cb_err *err);
/* An event in between; takes it (NULL: nothing happens). */
void cb_watch_tell(struct cb_watch_job *job, json_t *event);
/* The last event; the job is gone. */
void cb_watch_end(struct cb_watch_job *job, json_t *event, const struct cb_err *err);
/* The turn is over: gives the place back and comes again after ms (at once when poked). */
void cb_watch_sleep(struct cb_watch_job *job, int64_t ms);
/* Starts a verb. done gets the job as its arg and opens with cb_watch_back. Takes args (NULL: out
 * of memory, which done is told). */
void cb_watch_call(struct cb_watch_job *job, cb_verb *verb, json_t *args, cb_done *done);
/* False when the job is ending and done must leave it alone. */
bool cb_watch_back(struct cb_watch_job *job);

/* Notes that the provider answered: for a box, or its own plane (box NULL). */
void cb_watch_note(struct cb_watch *w, const struct cb_provider *p, const char *box);
/* When another box than this one answered, and the plane. */
void cb_watch_answers(const struct cb_watch *w, const struct cb_provider *p, const char *box,
                      int64_t *other, int64_t *control);
/* The latest end of a lease that any job knows for this box. */
int64_t cb_watch_lease_end(const struct cb_watch *w, const struct cb_provider *p, const char *box);
int64_t cb_watch_jitter(int64_t ms); /* within a tenth of ms around it */
#endif
