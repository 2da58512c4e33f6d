/* SPDX-License-Identifier: MIT */
#include "net/shepherd.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/signals.h"

/* Descriptors in the shepherd; 0 to 2 are the program's. */
enum { SOCK = 3, REPORT = 4, REPORT_WRITE = 5 };

struct word { /* what it tells: first who runs (or the errno), then how it ended */
  int a, b;
};

/* ---- in the shepherd and the program: a copy of a process with threads, so nothing but system
 * calls -------------------------------------------------------------------------------------- */

static void close_from(unsigned least)
{
  if (syscall(SYS_close_range, least, ~0u, 0) == 0)
    return;
  for (unsigned fd = least; fd < 65536; fd++) /* kernels before 5.9 */
    close((int)fd);
}

__attribute__((noreturn)) static void become(const struct cb_program *p)
{
  setpgid(0, 0);
  cb_signals_default();
  close(SOCK);
  if (!p->cwd || chdir(p->cwd) == 0)
    execve(p->path, p->argv, p->env);
  int sys = errno;
  (void)!write(REPORT_WRITE, &sys, sizeof sys);
  _exit(127);
}

static void say(int a, int b)
{
  struct word w = { a, b };
  (void)!send(SOCK, &w, sizeof w, MSG_NOSIGNAL);
}

/* Starts the program; 0, or the errno of what failed. */
static int run(const struct cb_program *p, pid_t *pid)
{
  int report[2], sys = 0;
  if (pipe2(report, O_CLOEXEC) < 0)
    return errno;
  assert(report[0] == REPORT && report[1] == REPORT_WRITE); /* all above SOCK is closed */
  *pid = _Fork();
  if (*pid == 0)
    become(p);
  if (*pid < 0)
    return errno;
  close(report[1]);
  for (int fd = 0; fd < 3; fd++)
    close(fd);
  if (read(report[0], &sys, sizeof sys) != (ssize_t)sizeof sys)
    sys = 0; /* closed by the exec */
  close(report[0]);
  return sys;
}

__attribute__((noreturn)) static void herd(const struct cb_program *p, int sock)
{
  pid_t pid = 0;
  siginfo_t info;
  char none;
  if (dup2(p->in, 0) < 0 || dup2(p->out, 1) < 0 || dup2(p->err, 2) < 0 || dup2(sock, SOCK) < 0)
    _exit(1);
  close_from(REPORT);
  prctl(PR_SET_NAME, "crewbox-herd");
  int sys = run(p, &pid);
  int end = sys ? -1 : (int)syscall(SYS_pidfd_open, pid, 0);
  if (!sys && end < 0) {
    sys = errno;
    kill(-pid, SIGKILL);
  }
  if (sys && pid > 0)
    waitpid(pid, NULL, 0);
  say(sys ? 0 : pid, sys);
  if (sys)
    _exit(0);
  struct pollfd fds[2] = { { .fd = end, .events = POLLIN }, { .fd = SOCK, .events = POLLIN } };
  while (poll(fds, 2, -1) < 0) {
  }
  memset(&info, 0, sizeof info);
  if ((fds[0].revents & POLLIN) && waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT) == 0) {
    say(info.si_code, info.si_status);
    while (read(SOCK, &none, 1) < 0) {
    }
  } else {
    kill(-pid, SIGKILL);
  }
  while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) {
  }
  _exit(0);
}

/* ---- in our process ------------------------------------------------------------------------ */

static int hear(int sock, struct word *w, int flags)
{
  ssize_t n;
  do
    n = recv(sock, w, sizeof *w, flags);
  while (n < 0 && errno == EINTR);
  return n == (ssize_t)sizeof *w ? CB_OK : CB_SYSTEM;
}

int cb_shepherd_start(struct cb_shepherd *s, const struct cb_program *p, struct cb_err *err)
{
  int ends[2];
  sigset_t all, before;
  struct word w = { 0, 0 };
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
    return cb_err_errno(err, errno, "run %.200s", p->argv[0]);
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before); /* no handler of ours runs in the copy */
  /* No exit signal. Not fork(): that runs handlers of libraries, which the copy of a threaded
   * process may not. */
  s->self = (pid_t)syscall(SYS_clone, 0L, NULL, NULL, NULL, NULL);
  int sys = errno;
  if (s->self == 0)
    herd(p, ends[1]);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  s->sock = ends[0];
  cb_close(&ends[1]);
  if (s->self > 0)
    sys = hear(s->sock, &w, 0) ? ECHILD : w.b;
  if (sys && s->self <= 0)
    s->self = 0;
  s->pid = w.a;
  if (s->self > 0 && sys == 0)
    return CB_OK;
  cb_shepherd_release(s);
  return cb_err_errno(err, sys, "run %.200s", p->argv[0]);
}

int cb_shepherd_ended(struct cb_shepherd *s, int *code, int *status, struct cb_err *err)
{
  struct word w;
  if (hear(s->sock, &w, MSG_DONTWAIT))
    return cb_err_set(err, CB_SYSTEM, "who waited for process %d was killed", (int)s->pid);
  *code = w.a;
  *status = w.b;
  return CB_OK;
}

void cb_shepherd_release(struct cb_shepherd *s)
{
  cb_close(&s->sock);
  while (s->self > 0 && waitpid(s->self, NULL, __WALL) < 0 && errno == EINTR) {
  }
  s->self = s->pid = 0;
}
