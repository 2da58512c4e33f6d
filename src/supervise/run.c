/* SPDX-License-Identifier: MIT */
#include "supervise/run.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fd.h"
#include "supervise/intake.h"
#include "supervise/oom.h"
#include "supervise/run_private.h"

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

static int listen_to_signals(struct cb_sup_run *r, struct cb_err *err)
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

static void forget_orders(struct cb_sup_run *r)
{
  cb_orders_clear(&r->orders);
  cb_free_wiped(r->bytes, r->len);
  r->bytes = NULL;
  r->len = 0;
}

static int finish(struct cb_sup_run *r)
{
  struct cb_err err = CB_ERR_INIT;
  cb_sup_stream_finish(&r->out);
  if (r->err.redact)
    cb_sup_stream_finish(&r->err);
  if (cb_sup_findings_collect(&r->findings, &r->dir, r->redactor, &r->state, &err))
    cb_sup_state_note(r, &err);
  int64_t kills = cb_sup_oom_kills();
  if (kills >= 0 && r->oom_before >= 0)
    r->state.oom = r->state.why == CB_WHY_EXITED && r->state.signal == SIGKILL &&
                   kills > r->oom_before;
  r->state.phase = CB_PHASE_FINISHED;
  r->state.beat++;
  return cb_sup_state_write_last(r);
}

static int supervise(struct cb_sup_run *r, struct cb_err *err)
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
  cb_sup_state_write(r, true);

  int rc = cb_sup_start(r, &why);
  forget_orders(r);
  if (rc) {
    r->state.phase = CB_PHASE_FINISHED;
    r->state.why = CB_WHY_SPAWN_FAILED;
    cb_sup_state_note(r, &why);
    rc = cb_sup_state_write_last(r);
  } else {
    r->state.phase = CB_PHASE_RUNNING;
    cb_sup_state_write(r, true);
    cb_sup_watch(r);
    rc = finish(r);
  }
  return rc ? cb_err_set(err, (enum cb_code)rc, "write the last state") : CB_OK;
}

int cb_sup_run(const char *orders_path, struct cb_err *err)
{
  struct cb_sup_run r = { .dir = CB_SUP_DIR_INIT, .out = { .fd = -1 }, .err = { .fd = -1 },
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
  /* What the agent leaves behind is ours to end; as pid 1 it is without asking. */
  if (!rc && getpid() != 1 && prctl(PR_SET_CHILD_SUBREAPER, 1) < 0)
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
