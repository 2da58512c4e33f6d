/* SPDX-License-Identifier: MIT */
#include "supervise/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/path.h"
#include "base/signals.h"

static const char default_path[] = "/usr/local/bin:/usr/bin:/bin";

/* What the child tells before it gives up. */
struct failure {
  char step[32];
  int sys;
};

/* ---- in the child: async-signal-safe calls only -------------------------------------------- */

static void fail(int report, const char *step, int sys)
{
  struct failure f;
  memset(&f, 0, sizeof f);
  strncpy(f.step, step, sizeof f.step - 1);
  f.sys = sys;
  ssize_t n = write(report, &f, sizeof f); /* less than PIPE_BUF: all or nothing */
  _exit(n == sizeof f ? 127 : 126);
}

/* Everything above stderr goes at exec; the report pipe must live until then. */
static void close_at_exec(void)
{
  if (syscall(SYS_close_range, 3u, ~0u, CLOSE_RANGE_CLOEXEC) == 0)
    return;
  long most = sysconf(_SC_OPEN_MAX);
  for (int fd = 3; fd < (most > 0 && most < 65536 ? most : 65536); fd++)
    fcntl(fd, F_SETFD, FD_CLOEXEC);
}

/* The three come from anywhere, maybe from among the three numbers they must get: first all up
 * and out of the way, then down to their places. */
static bool place_stdio(const int from[3])
{
  int high[3];
  for (int i = 0; i < 3; i++) {
    high[i] = fcntl(from[i], F_DUPFD_CLOEXEC, 10);
    if (high[i] < 0)
      return false;
  }
  for (int i = 0; i < 3; i++) {
    if (dup2(high[i], i) < 0)
      return false;
  }
  return true;
}

static const char *path_of(char *const *env)
{
  for (; *env; env++) {
    if (strncmp(*env, "PATH=", 5) == 0)
      return *env + 5;
  }
  return default_path;
}

/* execve, over PATH when the name has no slash. Returns errno; EACCES only if nothing better was
 * found, as execvp has it. */
static int run_program(char *const *argv, char *const *env)
{
  char file[CB_PATH_MAX_BYTES + 256];
  size_t name_len = strlen(argv[0]);
  int worst = ENOENT;
  if (strchr(argv[0], '/')) {
    execve(argv[0], argv, env);
    return errno;
  }
  for (const char *at = path_of(env), *end; at; at = *end ? end + 1 : NULL) {
    end = strchrnul(at, ':');
    size_t n = (size_t)(end - at);
    if (n + name_len + 3 > sizeof file)
      continue;
    if (n == 0)
      file[n++] = '.'; /* an empty part means the working directory */
    else
      memcpy(file, at, n);
    file[n] = '/';
    memcpy(file + n + 1, argv[0], name_len + 1);
    execve(file, argv, env);
    if (errno == EACCES)
      worst = EACCES;
    else if (errno != ENOENT && errno != ENOTDIR)
      return errno;
  }
  return worst;
}

static void child(const struct cb_sup_spawn *s, int report, pid_t parent)
{
  struct rlimit no_core = { 0, 0 };
  struct cb_drop_failure why = { "", 0 };

  if (s->own_session ? setsid() < 0 : setpgid(0, 0) < 0)
    fail(report, "session", errno);
  if (!place_stdio(s->stdio))
    fail(report, "stdio", errno);
  close_at_exec();
  if (setrlimit(RLIMIT_CORE, &no_core) < 0)
    fail(report, "rlimit", errno);
  umask(022);
  if (s->to && cb_drop_user(s->to, &why) < 0)
    fail(report, why.step, why.sys);
  if (s->cwd && chdir(s->cwd) < 0)
    fail(report, "chdir", errno);
  /* Behind the change of user, which would clear it. Without a supervisor nothing reads the
   * agent's output or ends it, so it must not go on alone. */
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
    fail(report, "pdeathsig", errno);
  if (getppid() != parent)
    _exit(126);
  cb_signals_default();
  fail(report, "exec", run_program(s->argv, s->env));
}

/* ---- in the parent -------------------------------------------------------------------------- */

static void say(const struct cb_sup_spawn *s, const struct failure *f, struct cb_err *err)
{
  if (strcmp(f->step, "exec") == 0)
    cb_err_errno(err, f->sys, "exec %.128s", s->argv[0]);
  else if (strcmp(f->step, "chdir") == 0)
    cb_err_errno(err, f->sys, "chdir %.128s", s->cwd);
  else
    cb_err_errno(err, f->sys, "%s", f->step);
}

int cb_sup_spawn(const struct cb_sup_spawn *s, pid_t *pid, int *sys, struct cb_err *err)
{
  int report[2] = { -1, -1 };
  struct failure f;
  sigset_t all, before;
  pid_t parent = getpid(), got = -1;

  *pid = 0;
  *sys = 0;
  int rc = cb_pipe(report, err);
  if (rc)
    return rc;
  /* The child begins with our signals blocked, or one could find a half-made process. */
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, &before);
  got = fork();
  if (got == 0)
    child(s, report[1], parent);
  *sys = errno;
  sigprocmask(SIG_SETMASK, &before, NULL);
  cb_close(&report[1]);
  if (got < 0) {
    rc = cb_err_errno(err, *sys, "fork");
    goto out;
  }
  *sys = 0;
  ssize_t n;
  do
    n = read(report[0], &f, sizeof f);
  while (n < 0 && errno == EINTR);
  if (n == 0) { /* closed by exec */
    *pid = got;
    goto out;
  }
  kill(got, SIGKILL);
  while (waitpid(got, NULL, 0) < 0 && errno == EINTR)
    ;
  if (n != sizeof f) {
    rc = cb_err_set(err, CB_SYSTEM, "spawn: the child ended without a word");
    goto out;
  }
  f.step[sizeof f.step - 1] = '\0';
  *sys = f.sys;
  say(s, &f, err);
  rc = err ? (int)err->code : CB_SYSTEM;
out:
  cb_close(&report[0]);
  return rc;
}
