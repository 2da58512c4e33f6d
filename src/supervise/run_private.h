/* SPDX-License-Identifier: MIT
 * run_private.h: what the files of one run share: run.c (the order of things), start.c (up to the
 * agent), watch.c (while it runs and ends) and state_file.c. One thread, one run a process. */
#ifndef CB_SUPERVISE_RUN_PRIVATE_H
#define CB_SUPERVISE_RUN_PRIVATE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/buf.h"
#include "base/err.h"
#include "supervise/findings.h"
#include "supervise/proc.h"
#include "supervise/rundir.h"
#include "supervise/stream.h"
#include "wire/orders.h"
#include "wire/state.h"

/* Where the process tree is on its way out. */
enum cb_sup_stage {
  RUNNING,
  LINGERING,   /* the agent ended, what it left may end too */
  TERMINATING, /* SIGTERM was sent */
  KILLING,
  GONE
};

struct cb_sup_run {
  char *bytes; /* the orders, with every secret; wiped once the agent runs */
  size_t len;
  struct cb_orders orders;
  struct cb_sup_dir dir;
  struct cb_redactor *redactor;
  struct cb_sup_stream out, err;
  struct cb_sup_findings findings;
  struct cb_sup_tree tree;
  struct cb_state state;
  struct cb_buf text; /* the state's bytes; its memory is kept */
  int signals;

  int64_t beat_ms, grace_ms, guard_ms, start_deadline_ms;
  enum cb_sup_stage stage;
  int64_t stage_ms; /* time spent in the stage */
  int64_t term_ms;  /* patience between SIGTERM and SIGKILL */
  int64_t last_ms;  /* clock at the last step */
  int64_t since_beat_ms;
  int64_t oom_before;
  bool heard;     /* any byte of output */
  bool main_gone; /* reaped */
  bool alone;     /* no child is left, so nothing below us is: see reap */
};

/* start.c: everything up to the running agent, from r->orders. On a failure *err says which step
 * it was; the caller tells it as spawn_failed. */
int cb_sup_start(struct cb_sup_run *r, struct cb_err *err);

/* watch.c: until nothing of the tree is left, beating. Leaves phase, why, exit or signal. */
void cb_sup_watch(struct cb_sup_run *r);

/* state_file.c */

/* Replaces the state file. Failing is no reason to stop: the next beat tries again. */
int cb_sup_state_write(struct cb_sup_run *r, bool durable);
/* The one write that must not be lost: whoever reads would wait for ever. */
int cb_sup_state_write_last(struct cb_sup_run *r);
/* Takes room for a state while there is some. */
void cb_sup_state_keep_spare(struct cb_sup_run *r);
/* Keeps the first thing that went wrong. */
void cb_sup_state_note(struct cb_sup_run *r, const struct cb_err *err);
#endif
