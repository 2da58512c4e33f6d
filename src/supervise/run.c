/* SPDX-License-Identifier: MIT */
#include "supervise/run.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/path.h"
#include "supervise/findings.h"
#include "supervise/intake.h"
#include "supervise/oom.h"
#include "supervise/proc.h"
#include "supervise/rundir.h"
#include "supervise/spawn.h"
#include "supervise/stream.h"
#include "supervise/user.h"
#include "wire/orders.h"
#include "wire/state.h"

enum {
  PUMP_BYTES = 1 << 20,     /* of one stream before the other things get their turn */
  LOOK_MS = 250,            /* how often the stop file is looked for */
  ENDING_LOOK_MS = 20,      /* while the tree ends by itself: patience is short then */
  KILLING_LOOK_MS = 2,      /* between two rounds of SIGKILL */
  KILLING_MS = 10000,       /* then what is left cannot be ended from here */
  LINGER_MS = 500,          /* what the agent left behind may end by itself for so long ... */
  LINGER_GRACE_MS = 1000,   /* ... and has so long after SIGTERM */
  LAST_STATE_TRIES = 30
};

/* Where the process tree is on its way out. */
enum stage {
  RUNNING,
  LINGERING,   /* the agent ended, what it left may end too */
  TERMINATING, /* SIGTERM was sent */
  KILLING,
  GONE
};

struct run {
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
  enum stage stage;
  int64_t stage_ms; /* time spent in the stage */
  int64_t term_ms;  /* patience between SIGTERM and SIGKILL */
  int64_t last_ms;  /* clock at the last step */
  int64_t since_beat_ms;
  int64_t oom_before;
  bool heard;     /* any byte of output */
  bool main_gone; /* reaped */
  bool alone;     /* no child is left, so nothing below us is: see reap */
};

/* ---- the state file ------------------------------------------------------------------------- */

static int write_state(struct run *r, bool durable)
{
  cb_buf_reset(&r->text);
  int rc = cb_state_write(&r->state, &r->text, NULL);
  if (rc)
    return rc;
  rc = cb_sup_dir_put(&r->dir, "state", r->text.p, r->text.len, durable, NULL);
  if (rc == CB_DISK_FULL)
    rc = cb_sup_dir_swap(&r->dir, "state", "spare", r->text.p, r->text.len, durable, NULL);
  return rc;
}

/* The one write that must not be lost: whoever reads would wait for ever. */
static int write_last_state(struct run *r)
{
  int rc = write_state(r, true);
  for (int i = 0; rc != CB_OK && i < LAST_STATE_TRIES; i++) {
    poll(NULL, 0, 1000);
    rc = write_state(r, true);
  }
  cb_sup_dir_remove(&r->dir, "spare");
  return rc;
}

/* Room for a state, taken while there is some. */
static void keep_spare(struct run *r)
{
  char zeros[CB_STATE_MAX_BYTES] = { 0 };
  int fd = -1;
  if (cb_sup_dir_create(&r->dir, "spare", &fd, NULL) == CB_OK)
    cb_write_full(fd, zeros, sizeof zeros, NULL); /* without it a full disk is only less kind */
  cb_close(&fd);
}

static void note_error(struct run *r, const struct cb_err *err)
{
  if (r->state.error[0] == '\0') {
    strncpy(r->state.error, err->text, sizeof r->state.error - 1);
    r->state.error[sizeof r->state.error - 1] = '\0';
  }
}

/* ---- before the agent ----------------------------------------------------------------------- */

/* The process that starts us goes away with its terminal, pipes and session. setsid fails only
 * for the leader of a group, which then has no terminal worth leaving. */
static int detach(struct cb_err *err)
{
  int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (null < 0)
    return cb_err_errno(err, errno, "open /dev/null");
  setsid();
  for (int fd = 0; fd < 3; fd++) {
    if (dup2(null, fd) < 0)
      return cb_err_errno(err, errno, "dup2");
  }
  if (null > 2)
    close(null);
  return chdir("/") < 0 ? cb_err_errno(err, errno, "chdir /") : CB_OK;
}

static int listen_to_signals(struct run *r, struct cb_err *err)
{
  sigset_t set;
  signal(SIGHUP, SIG_IGN);
  signal(SIGPIPE, SIG_IGN);
  sigemptyset(&set);
  sigaddset(&set, SIGCHLD);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
    return cb_err_errno(err, errno, "sigprocmask");
  r->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  return r->signals < 0 ? cb_err_errno(err, errno, "signalfd") : CB_OK;
}

static void harden(void)
{
  struct rlimit none = { 0, 0 };
  setrlimit(RLIMIT_CORE, &none);
  prctl(PR_SET_DUMPABLE, 0); /* no core, no ptrace, no /proc/PID/mem: secrets are in memory */
}

/* Who the agent is to be; *drop says whether we must change to get there. */
static int choose_user(struct run *r, struct cb_drop_user *to, bool *drop, struct cb_err *err)
{
  *drop = false;
  if (r->orders.user[0] == '\0')
    return CB_OK;
  to->filter_fd = -1;
  int rc = cb_sup_user_find(r->orders.user, &to->uid, &to->gid, err);
  if (rc || to->uid == geteuid())
    return rc;
  if (geteuid() != 0)
    return cb_err_set(err, CB_DENIED, "user %.64s: only root can become another user",
                      r->orders.user);
  r->dir.give = *drop = true;
  r->dir.uid = to->uid;
  r->dir.gid = to->gid;
  return CB_OK;
}

/* The part of an absolute path below the run folder, NULL when it lies elsewhere. */
static const char *below_run_dir(const struct cb_orders *o, const char *path)
{
  size_t n = strlen(o->run_dir);
  while (n > 0 && o->run_dir[n - 1] == '/')
    n--;
  return strncmp(path, o->run_dir, n) == 0 && path[n] == '/' ? path + n + 1 : NULL;
}

/* The brief itself becomes stdin: byte-exact, and it ends. */
static int open_stdin(struct run *r, int *fd, struct cb_err *err)
{
  const char *path = r->orders.stdin_path;
  struct stat st;
  int rc = CB_OK;
  if (*path == '\0') {
    *fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    return *fd < 0 ? cb_err_errno(err, errno, "stdin: open /dev/null") : CB_OK;
  }
  const char *below = *path == '/' ? below_run_dir(&r->orders, path) : path;
  if (below)
    rc = cb_open_beneath(r->dir.fd, below, O_RDONLY | O_NONBLOCK, 0, fd, err);
  else if ((*fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)) < 0)
    rc = cb_err_errno(err, errno, "open %s", path);
  if (rc) {
    cb_err_wrap(err, "stdin");
    return rc;
  }
  if (fstat(*fd, &st) < 0 || !S_ISREG(st.st_mode))
    return cb_err_set(err, CB_DENIED, "stdin %s: not a regular file", path);
  cb_sup_dir_give(&r->dir, *fd); /* programs open /dev/stdin by name, too */
  return cb_nonblock(*fd, false, err);
}

static int make_redactor(struct run *r, struct cb_err *err)
{
  const struct cb_orders *o = &r->orders;
  struct cb_secret *secrets = cb_calloc(o->secret_count, sizeof *secrets);
  if (!secrets)
    return cb_err_no_memory(err);
  for (size_t i = 0; i < o->secret_count; i++)
    secrets[i] = (struct cb_secret){ o->secrets[i].name, o->secrets[i].value, o->secrets[i].len };
  int rc = cb_redactor_new(&r->redactor, secrets, o->secret_count, err);
  cb_free_wiped(secrets, o->secret_count * sizeof *secrets); /* addresses of values */
  return rc;
}

/* A pipe whose read end feeds the stream; *write_end goes to the agent. */
static int open_stream(struct run *r, struct cb_sup_stream *s, const char *prefix,
                       struct cb_state_stream *figures, int *write_end, struct cb_err *err)
{
  int ends[2];
  int rc = cb_pipe(ends, err);
  if (rc)
    return rc;
  *write_end = ends[1];
  cb_sup_segments_init(&s->log, &r->dir, prefix, r->orders.segment, r->orders.log_max, figures);
  rc = cb_sup_stream_start(s, ends[0], r->redactor, err);
  return rc ? rc : cb_nonblock(ends[0], true, err);
}

static int start_agent(struct run *r, struct cb_err *err)
{
  struct cb_drop_user to;
  struct cb_sup_spawn spawn = { .stdio = { -1, -1, -1 }, .own_session = true };
  struct cb_sup_proc proc;
  bool drop, merged = r->orders.merged;
  pid_t pid = 0;
  int sys = 0;

  int rc = choose_user(r, &to, &drop, err);
  if (rc)
    goto out;
  keep_spare(r);
  rc = make_redactor(r, err);
  if (!rc)
    rc = cb_sup_findings_prepare(&r->findings, r->orders.findings, err);
  if (!rc)
    rc = open_stdin(r, &spawn.stdio[0], err);
  if (!rc)
    rc = open_stream(r, &r->out, "out", &r->state.out, &spawn.stdio[1], err);
  if (!rc && !merged)
    rc = open_stream(r, &r->err, "err", &r->state.err, &spawn.stdio[2], err);
  if (rc)
    goto out;
  if (merged)
    spawn.stdio[2] = spawn.stdio[1];
  spawn.argv = r->orders.argv;
  spawn.env = r->orders.env;
  spawn.cwd = r->orders.cwd;
  spawn.to = drop ? &to : NULL;
  r->oom_before = cb_sup_oom_kills();
  rc = cb_sup_spawn(&spawn, &pid, &sys, err);
  if (rc)
    goto out;
  r->state.pid = pid;
  r->state.pid_start = cb_sup_proc_read(pid, &proc) ? (int64_t)proc.start : 0;
out:
  if (merged)
    spawn.stdio[2] = -1;
  for (int i = 0; i < 3; i++)
    cb_close(&spawn.stdio[i]);
  return rc;
}

static void forget_orders(struct run *r)
{
  cb_orders_clear(&r->orders);
  cb_free_wiped(r->bytes, r->len);
  r->bytes = NULL;
  r->len = 0;
}

/* ---- while it runs -------------------------------------------------------------------------- */

/* Time since the last step, at most two beats of it: a box that slept or was frozen must not find
 * every deadline passed when it wakes. */
static int64_t clock_step(struct run *r)
{
  int64_t now = cb_now_ms(), step = now - r->last_ms;
  r->last_ms = now;
  if (step < 0)
    return 0;
  return step < 2 * r->beat_ms ? step : 2 * r->beat_ms;
}

static int patience(const struct run *r)
{
  int64_t ms = r->beat_ms - r->since_beat_ms;
  int64_t most = r->stage == RUNNING   ? LOOK_MS
                 : r->stage == KILLING ? KILLING_LOOK_MS
                                       : ENDING_LOOK_MS;
  return (int)(ms < 0 ? 0 : ms < most ? ms : most);
}

/* True when SIGTERM or SIGINT came. */
static bool take_signals(struct run *r)
{
  struct signalfd_siginfo info;
  bool stop = false;
  while (read(r->signals, &info, sizeof info) == sizeof info)
    stop = stop || info.ssi_signo != SIGCHLD;
  return stop;
}

static void wait_and_take_output(struct run *r)
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
static int signal_tree(struct run *r, int sig)
{
  int living = cb_sup_tree_signal(&r->tree, sig);
  if (living < 0 && !r->main_gone)
    kill(-(pid_t)r->state.pid, sig);
  return living;
}

static void enter(struct run *r, enum stage stage)
{
  r->stage = stage;
  r->stage_ms = 0;
  if (stage == TERMINATING) {
    signal_tree(r, SIGTERM);
    signal_tree(r, SIGCONT); /* a stopped process cannot heed the first */
  }
}

static void stop(struct run *r, enum cb_why why)
{
  if (r->stage != RUNNING)
    return;
  r->state.why = why;
  r->state.phase = CB_PHASE_STOPPING;
  r->term_ms = r->grace_ms;
  enter(r, TERMINATING);
  write_state(r, true);
}

static void main_ended(struct run *r, int status)
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
static void reap(struct run *r)
{
  int status;
  pid_t pid;
  while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
    if (pid == (pid_t)r->state.pid && !r->main_gone)
      main_ended(r, status);
  }
  r->alone = pid < 0 && errno == ECHILD;
}

static void give_up_on(struct run *r, int living)
{
  struct cb_err err;
  cb_err_set(&err, CB_SYSTEM, "%d or more processes of the run could not be ended",
             living > 0 ? living : 1);
  note_error(r, &err);
  if (!r->main_gone) { /* a finished state says how it ended: by our SIGKILL, some day */
    r->main_gone = true;
    r->state.signal = SIGKILL;
  }
  enter(r, GONE);
}

static void move_on(struct run *r)
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

static void beat(struct run *r)
{
  struct cb_sup_proc proc;
  r->since_beat_ms = 0;
  r->state.beat++;
  r->state.stopped = !r->main_gone && cb_sup_proc_read((pid_t)r->state.pid, &proc) &&
                     (proc.state == 'T' || proc.state == 't');
  write_state(r, false);
}

static void watch(struct run *r)
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

/* ---- after it ------------------------------------------------------------------------------- */

static int finish(struct run *r)
{
  struct cb_err err = CB_ERR_INIT;
  cb_sup_stream_finish(&r->out);
  if (r->err.redact)
    cb_sup_stream_finish(&r->err);
  if (cb_sup_findings_collect(&r->findings, &r->dir, r->redactor, &r->state, &err))
    note_error(r, &err);
  int64_t kills = cb_sup_oom_kills();
  if (kills >= 0 && r->oom_before >= 0)
    r->state.oom = r->state.why == CB_WHY_EXITED && r->state.signal == SIGKILL &&
                   kills > r->oom_before;
  r->state.phase = CB_PHASE_FINISHED;
  r->state.beat++;
  return write_last_state(r);
}

static int supervise(struct run *r, struct cb_err *err)
{
  struct cb_sup_proc me;
  struct cb_err why = CB_ERR_INIT;

  memcpy(r->state.run, r->orders.run, strlen(r->orders.run) + 1);
  r->state.launch_seq = r->orders.launch_seq;
  r->state.segment = r->orders.segment;
  r->state.sup_pid = getpid();
  r->state.sup_start = cb_sup_proc_read(getpid(), &me) ? (int64_t)me.start : 0;
  r->beat_ms = r->orders.beat_ms;
  r->grace_ms = r->orders.grace_ms;
  r->guard_ms = r->orders.guard_ms;
  r->start_deadline_ms = r->orders.start_deadline_ms;
  write_state(r, true);

  int rc = start_agent(r, &why);
  forget_orders(r);
  if (rc) {
    r->state.phase = CB_PHASE_FINISHED;
    r->state.why = CB_WHY_SPAWN_FAILED;
    note_error(r, &why);
    rc = write_last_state(r);
  } else {
    r->state.phase = CB_PHASE_RUNNING;
    write_state(r, true);
    watch(r);
    rc = finish(r);
  }
  return rc ? cb_err_set(err, (enum cb_code)rc, "write the last state") : CB_OK;
}

int cb_sup_run(const char *orders_path, struct cb_err *err)
{
  struct run r = { .dir = CB_SUP_DIR_INIT, .out = { .fd = -1 }, .err = { .fd = -1 },
                   .findings = CB_SUP_FINDINGS_INIT, .signals = -1, .stage = RUNNING };
  bool first;

  _Static_assert(sizeof r.state.run == CB_ID_MAX + 1, "orders bound what the state must hold");
  cb_state_init(&r.state);
  cb_buf_init(&r.text, CB_STATE_MAX_BYTES);
  harden();
  int rc = cb_sup_intake(orders_path, &r.bytes, &r.len, err);
  if (!rc)
    rc = cb_orders_parse(&r.orders, r.bytes, r.len, err);
  if (!rc)
    rc = cb_sup_dir_open(&r.dir, r.orders.run_dir, err);
  if (!rc)
    rc = cb_sup_dir_lock(&r.dir, r.orders.launch_seq, &first, err);
  if (rc)
    goto out;
  if (!first)
    cb_sup_dir_sweep(&r.dir);
  rc = listen_to_signals(&r, err);
  if (!rc && prctl(PR_SET_CHILD_SUBREAPER, 1) < 0)
    rc = cb_err_errno(err, errno, "become a subreaper");
  if (!rc)
    rc = detach(err);
  if (!rc)
    rc = supervise(&r, err);
out:
  forget_orders(&r);
  cb_sup_stream_clear(&r.out);
  cb_sup_stream_clear(&r.err);
  cb_redactor_free(r.redactor);
  cb_sup_findings_clear(&r.findings);
  cb_sup_tree_clear(&r.tree);
  cb_buf_clear(&r.text);
  cb_close(&r.signals);
  cb_sup_dir_close(&r.dir);
  return rc;
}
