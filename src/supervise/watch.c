/* SPDX-License-Identifier: MIT
 * watch.c: the time between the start of an agent and the end of its process tree: output,
 * beats, deadlines, being asked to stop, and ending whatever does not end by itself. */
#include "supervise/run_private.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"

enum {
  PUMP_BYTES = 1 << 20,  /* of one stream before the other things get their turn */
  LOOK_MS = 250,         /* how often the stop file is looked for */
  ENDING_LOOK_MS = 20,   /* while the tree ends by itself: patience is short then */
  KILLING_LOOK_MS = 2,   /* between two rounds of SIGKILL */
  KILLING_MS = 10000,    /* then what is left cannot be ended from here */
  LINGER_MS = 500,       /* what the agent left behind may end by itself for so long ... */
  LINGER_GRACE_MS = 1000 /* ... and has so long after SIGTERM */
};

/* Time since the last step, at most two beats of it: a box that slept or was frozen must not find
 * every deadline passed when it wakes. */
static int64_t clock_step(struct cb_sup_run *r)
{
  int64_t now = cb_now_ms(), step = now - r->last_ms;
  r->last_ms = now;
  if (step < 0)
    return 0;
  return step < 2 * r->beat_ms ? step : 2 * r->beat_ms;
}

static int patience(const struct cb_sup_run *r)
{
  int64_t ms = r->beat_ms - r->since_beat_ms;
  int64_t most = r->stage == RUNNING   ? LOOK_MS
                 : r->stage == KILLING ? KILLING_LOOK_MS
                                       : ENDING_LOOK_MS;
  return (int)(ms < 0 ? 0 : ms < most ? ms : most);
}

/* True when SIGTERM or SIGINT came. */
static bool take_signals(struct cb_sup_run *r)
{
  struct signalfd_siginfo info;
  bool stop = false;
  while (read(r->signals, &info, sizeof info) == sizeof info)
    stop = stop || info.ssi_signo != SIGCHLD;
  return stop;
}

static void wait_and_take_output(struct cb_sup_run *r)
{
  struct pollfd fds[3] = { { .fd = r->signals, .events = POLLIN },
                           { .fd = r->out.fd, .events = POLLIN },
                           { .fd = r->err.fd, .events = POLLIN } };
  poll(fds, 3, patience(r));
  bool some = cb_sup_stream_pump(&r->out, PUMP_BYTES);
  some |= cb_sup_stream_pump(&r->err, PUMP_BYTES);
  if (some) {
    r->heard = true;
    r->state.quiet_ms = 0;
  }
}

/* Sends sig to what is left of the tree; how much of it was seen. Without /proc only the agent's
 * own group can be reached. */
static int signal_tree(struct cb_sup_run *r, int sig)
{
  int living = cb_sup_tree_signal(&r->tree, sig);
  if (living < 0 && !r->main_gone)
    kill(-(pid_t)r->state.pid, sig);
  return living;
}

static void enter(struct cb_sup_run *r, enum cb_sup_stage stage)
{
  r->stage = stage;
  r->stage_ms = 0;
  if (stage == TERMINATING) {
    signal_tree(r, SIGTERM);
    signal_tree(r, SIGCONT); /* a stopped process cannot heed the first */
  }
}

static void stop(struct cb_sup_run *r, enum cb_why why)
{
  if (r->stage != RUNNING)
    return;
  r->state.why = why;
  r->state.phase = CB_PHASE_STOPPING;
  r->term_ms = r->grace_ms;
  enter(r, TERMINATING);
  cb_sup_state_write(r, true);
}

static void main_ended(struct cb_sup_run *r, int status)
{
  r->main_gone = true;
  r->state.stopped = false;
  if (WIFSIGNALED(status))
    r->state.signal = WTERMSIG(status);
  else
    r->state.exit_status = WEXITSTATUS(status);
  if (r->stage != RUNNING)
    return;
  r->state.why = CB_WHY_EXITED;
  r->state.phase = CB_PHASE_STOPPING;
  r->term_ms = r->grace_ms < LINGER_GRACE_MS ? r->grace_ms : LINGER_GRACE_MS;
  enter(r, LINGERING);
}

/* Every child that ended: the agent, and whatever was left to us when its parent went. A process
 * below us has a parent below us or is our child, so having no child at all proves that the tree
 * is gone; a look at /proc that finds nothing does not, for it can miss one that forks and ends
 * just then. */
static void reap(struct cb_sup_run *r)
{
  int status;
  pid_t pid;
  while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
    if (pid == (pid_t)r->state.pid && !r->main_gone)
      main_ended(r, status);
  }
  r->alone = pid < 0 && errno == ECHILD;
}

static void give_up_on(struct cb_sup_run *r, int living)
{
  struct cb_err err;
  cb_err_set(&err, CB_SYSTEM, "%d or more processes of the run could not be ended",
             living > 0 ? living : 1);
  cb_sup_state_note(r, &err);
  if (!r->main_gone) { /* a finished state says how it ended: by our SIGKILL, some day */
    r->main_gone = true;
    r->state.signal = SIGKILL;
  }
  enter(r, GONE);
}

static void move_on(struct cb_sup_run *r)
{
  if (r->alone && r->stage != GONE) {
    enter(r, GONE);
    return;
  }
  switch (r->stage) {
  case RUNNING:
    if (r->guard_ms > 0 && r->state.age_ms >= r->guard_ms)
      stop(r, CB_WHY_GUARD);
    else if (r->start_deadline_ms > 0 && !r->heard && r->state.age_ms >= r->start_deadline_ms)
      stop(r, CB_WHY_START_DEADLINE);
    break;
  case LINGERING:
    if (r->stage_ms >= (r->grace_ms < LINGER_MS ? r->grace_ms : LINGER_MS))
      enter(r, TERMINATING);
    break;
  case TERMINATING:
    if (r->stage_ms >= r->term_ms)
      enter(r, KILLING);
    break;
  case KILLING:
    if (r->stage_ms >= KILLING_MS)
      give_up_on(r, signal_tree(r, SIGKILL));
    else
      signal_tree(r, SIGKILL);
    break;
  case GONE:
    break;
  }
}

static void beat(struct cb_sup_run *r)
{
  struct cb_sup_proc proc;
  r->since_beat_ms = 0;
  r->state.beat++;
  r->state.stopped = !r->main_gone && cb_sup_proc_read((pid_t)r->state.pid, &proc) &&
                     (proc.state == 'T' || proc.state == 't');
  cb_sup_state_write(r, false);
}

void cb_sup_watch(struct cb_sup_run *r)
{
  r->last_ms = cb_now_ms();
  while (r->stage != GONE) {
    wait_and_take_output(r);
    int64_t step = clock_step(r);
    r->state.age_ms += step;
    r->state.quiet_ms += step;
    r->stage_ms += step;
    r->since_beat_ms += step;
    bool asked = take_signals(r);
    reap(r); /* before the stop: an agent that has ended was not stopped */
    if (asked || cb_sup_dir_has(&r->dir, "stop"))
      stop(r, CB_WHY_STOPPED);
    move_on(r);
    if (r->since_beat_ms >= r->beat_ms)
      beat(r);
  }
}
