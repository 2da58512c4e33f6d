/* SPDX-License-Identifier: MIT
 * start.c: brings a run from its orders to its running agent: user, redactor, brief, pipes,
 * process. */
#include "supervise/run_private.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fd.h"
#include "base/path.h"
#include "supervise/oom.h"
#include "supervise/spawn.h"
#include "supervise/user.h"

/* Who the agent is to be; *drop says whether we must change to get there. */
static int choose_user(struct cb_sup_run *r, struct cb_drop_user *to, bool *drop,
                       struct cb_err *err)
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
static int open_stdin(struct cb_sup_run *r, int *fd, struct cb_err *err)
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

static int make_redactor(struct cb_sup_run *r, struct cb_err *err)
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
static int open_stream(struct cb_sup_run *r, struct cb_sup_stream *s, const char *prefix,
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

int cb_sup_start(struct cb_sup_run *r, struct cb_err *err)
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
  cb_sup_state_keep_spare(r);
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
