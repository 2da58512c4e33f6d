/* SPDX-License-Identifier: MIT */
#include "net/host_proc.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/close_range.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/signals.h"

enum { LOG_TAIL = 2048, LOG_WORDS = 300 };

/* ---- facts ------------------------------------------------------------------------------- */

/* State and start time out of /proc/PID/stat. The name in parentheses may hold anything, so
 * fields are counted from the last parenthesis. */
static int read_stat(pid_t pid, char *state, int64_t *start, struct cb_err *err)
{
  char path[48], text[1024];
  unsigned long long ticks = 0;
  snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    return errno == ENOENT ? cb_err_set(err, CB_NOT_FOUND, "no process %d", (int)pid)
                           : cb_err_errno(err, errno, "read %s", path);
  ssize_t n = read(fd, text, sizeof text - 1);
  int sys = errno;
  cb_close(&fd);
  if (n < 0)
    return sys == ESRCH ? cb_err_set(err, CB_NOT_FOUND, "no process %d", (int)pid)
                        : cb_err_errno(err, sys, "read %s", path);
  text[n] = '\0';
  const char *p = strrchr(text, ')');
  if (!p || sscanf(p + 1, " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d "
                          "%*d %*d %llu", state, &ticks) != 2)
    return cb_err_set(err, CB_PROTOCOL, "read %s: not what it should be", path);
  *start = (int64_t)ticks;
  return CB_OK;
}

int cb_proc_start(pid_t pid, int64_t *start, struct cb_err *err)
{
  char state;
  return read_stat(pid, &state, start, err);
}

bool cb_proc_alive(pid_t pid, int64_t start)
{
  char state = '?';
  int64_t now = 0;
  if (pid <= 0)
    return false;
  int rc = read_stat(pid, &state, &now, NULL);
  if (rc == CB_NOT_FOUND)
    /* A /proc that hides other users' processes looks the same as one without it. */
    return start == 0 && kill(pid, 0) < 0 && errno == EPERM;
  if (rc)
    return true; /* not known to be dead */
  return state != 'Z' && state != 'X' && (start == 0 || start == now);
}

int cb_proc_kill(pid_t pid, int64_t start, int sig, struct cb_err *err)
{
  int rc = CB_OK;
  int fd = (int)syscall(SYS_pidfd_open, pid, 0); /* close-on-exec by itself */
  if (fd < 0)
    rc = errno;
  else if (start != 0 && !cb_proc_alive(pid, start))
    rc = ESRCH; /* whoever has the pid now is not who was meant */
  else if (syscall(SYS_pidfd_send_signal, fd, sig, NULL, 0) < 0)
    rc = errno;
  cb_close(&fd);
  if (rc == ESRCH)
    return cb_err_set(err, CB_NOT_FOUND, "no process %d", (int)pid);
  return rc ? cb_err_errno(err, rc, "signal process %d", (int)pid) : CB_OK;
}

/* ---- programs ---------------------------------------------------------------------------- */

static bool is_program(const char *path)
{
  struct stat st;
  return stat(path, &st) == 0 && S_ISREG(st.st_mode) && access(path, X_OK) == 0;
}

int cb_find_program(const char *name, char *const *env, char **out, struct cb_err *err)
{
  char path[PATH_MAX];
  const char *dirs = "/usr/local/bin:/usr/bin:/bin";
  if (strchr(name, '/')) {
    *out = cb_strdup(name);
    return *out ? CB_OK : cb_err_no_memory(err);
  }
  for (; env && *env; env++) {
    if (strncmp(*env, "PATH=", 5) == 0)
      dirs = *env + 5;
  }
  while (*name && *dirs) {
    size_t n = strcspn(dirs, ":");
    int len = snprintf(path, sizeof path, "%.*s/%s", (int)n, n ? dirs : ".", name);
    if (n > 0 && len > 0 && (size_t)len < sizeof path && is_program(path)) {
      *out = cb_strdup(path);
      return *out ? CB_OK : cb_err_no_memory(err);
    }
    dirs += n + (dirs[n] == ':');
  }
  return cb_err_set(err, CB_NOT_FOUND, "the program %.100s is not in PATH", name);
}

/* What the child tells before the exec: who it is, or why it failed. */
struct report {
  pid_t pid;
  int sys; /* errno of what failed; 0: exec is next */
};

struct plan { /* all made before the fork: only system calls after it */
  const char *path;
  char *const *argv, *const *env;
  int in, out, log, report;
};

static void tell(const struct plan *p, int sys)
{
  struct report r = { getpid(), sys };
  if (write(p->report, &r, sizeof r) < 0)
    _exit(127);
}

static void close_on_exec_above(int least)
{
  /* Marked, not closed: the report pipe must live until the exec. */
  if (close_range((unsigned)least, ~0u, CLOSE_RANGE_CLOEXEC) == 0)
    return;
  for (int fd = least; fd < 65536; fd++) /* kernels before 5.11 */
    fcntl(fd, F_SETFD, FD_CLOEXEC);
}

/* In the grandchild. */
__attribute__((noreturn)) static void become(const struct plan *p)
{
  if (setsid() < 0 || dup2(p->in, 0) < 0 || dup2(p->out, 1) < 0 || dup2(p->log, 2) < 0) {
    tell(p, errno);
    _exit(127);
  }
  cb_signals_default();
  close_on_exec_above(3);
  tell(p, 0);
  execve(p->path, p->argv, p->env);
  tell(p, errno);
  _exit(127);
}

/* Forks twice, so that the program is init's child and not ours. _Fork runs no handlers of
 * libraries: the child of a threaded process may not. */
static int fork_twice(const struct plan *p, struct cb_err *err)
{
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before); /* no handler of ours runs in the child */
  pid_t child = _Fork();
  if (child == 0) {
    pid_t grandchild = _Fork();
    if (grandchild == 0)
      become(p);
    if (grandchild < 0)
      tell(p, errno);
    _exit(0);
  }
  int sys = errno;
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (child < 0)
    return cb_err_errno(err, sys, "fork");
  while (waitpid(child, NULL, 0) < 0 && errno == EINTR) {
    /* ECHILD: the host ignores SIGCHLD or reaps by itself */
  }
  return CB_OK;
}

/* Puts the last line of the log, from offset on, behind the text of err. */
static void add_log_words(const char *log, off_t from, struct cb_err *err)
{
  char tail[LOG_TAIL + 1];
  int fd = open(log, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  struct stat st;
  if (fd < 0 || fstat(fd, &st) < 0 || st.st_size <= from) {
    cb_close(&fd);
    return;
  }
  if (st.st_size - from > LOG_TAIL)
    from = st.st_size - LOG_TAIL;
  ssize_t n = pread(fd, tail, LOG_TAIL, from);
  cb_close(&fd);
  while (n > 0 && (tail[n - 1] == '\n' || tail[n - 1] == '\r' || tail[n - 1] == ' '))
    n--;
  if (n <= 0)
    return;
  tail[n] = '\0';
  const char *line = strrchr(tail, '\n');
  line = line ? line + 1 : tail;
  size_t used = strlen(err->text);
  snprintf(err->text + used, sizeof err->text - used, ": %.*s", LOG_WORDS, line);
  for (char *c = err->text + used; *c; c++) {
    if ((unsigned char)*c < ' ')
      *c = ' ';
  }
}

/* The first line the program prints; 1 found, 0 it closed its output, -1 too late. */
static int first_line(int fd, int64_t until, char line[CB_DAEMON_LINE_MAX])
{
  size_t used = 0;
  for (;;) {
    struct pollfd p = { .fd = fd, .events = POLLIN };
    int64_t left = until - cb_now_ms();
    if (left <= 0)
      return -1;
    int n = poll(&p, 1, left > INT_MAX ? INT_MAX : (int)left);
    if (n <= 0)
      continue; /* time is looked at above; so is EINTR */
    ssize_t k = read(fd, line + used, CB_DAEMON_LINE_MAX - 1 - used);
    if (k < 0 && errno == EINTR)
      continue;
    if (k <= 0)
      return 0;
    line[used + (size_t)k] = '\0';
    char *eol = strchr(line + used, '\n');
    used += (size_t)k;
    if (eol)
      *eol = '\0';
    if (eol || used == CB_DAEMON_LINE_MAX - 1)
      return 1;
  }
}

/* Who was started: reads the reports until the exec closes the pipe. */
static int read_reports(int fd, pid_t *pid, struct cb_err *err)
{
  struct report r;
  int sys = -1;
  for (;;) {
    ssize_t n = read(fd, &r, sizeof r);
    if (n < 0 && errno == EINTR)
      continue;
    if (n != (ssize_t)sizeof r)
      break;
    *pid = r.pid;
    sys = r.sys;
  }
  if (sys < 0)
    return cb_err_set(err, CB_SYSTEM, "it died before it ran");
  return sys > 0 ? cb_err_errno(err, sys, "run it") : CB_OK;
}

int cb_lift_fd(int *fd, struct cb_err *err)
{
  if (*fd > 2)
    return CB_OK;
  int up = fcntl(*fd, F_DUPFD_CLOEXEC, 3);
  if (up < 0)
    return cb_err_errno(err, errno, "dup");
  cb_close(fd);
  *fd = up;
  return CB_OK;
}

static void kill_session(pid_t pid, int64_t start)
{
  if (start > 0 && cb_proc_alive(pid, start))
    kill(-pid, SIGKILL);
}

int cb_daemon_start(const struct cb_daemon *d, pid_t *pid, char line[CB_DAEMON_LINE_MAX],
                    struct cb_err *err)
{
  int out[2] = { -1, -1 }, report[2] = { -1, -1 }, in = -1, log = -1;
  char *path = NULL;
  struct stat st = { .st_size = 0 };
  struct cb_err mine = CB_ERR_INIT;
  int64_t start = 0;
  *pid = 0;
  int rc = cb_find_program(d->argv[0], d->env, &path, &mine);
  if (rc)
    goto out;
  log = open(d->log, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY, 0600);
  in = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (log < 0 || in < 0 || fstat(log, &st) < 0) {
    rc = cb_err_errno(&mine, errno, "open its log %s", d->log);
    goto out;
  }
  rc = cb_pipe(out, &mine);
  if (rc == CB_OK)
    rc = cb_pipe(report, &mine);
  int *const ends[] = { &in, &log, &out[1], &report[1] };
  for (size_t i = 0; rc == CB_OK && i < sizeof ends / sizeof *ends; i++)
    rc = cb_lift_fd(ends[i], &mine);
  if (rc)
    goto out;
  struct plan p = { path, d->argv, d->env, in, out[1], log, report[1] };
  rc = fork_twice(&p, &mine);
  cb_close(&out[1]);
  cb_close(&report[1]);
  if (rc == CB_OK)
    rc = read_reports(report[0], pid, &mine);
  if (rc)
    goto out;
  cb_proc_start(*pid, &start, NULL);
  int got = first_line(out[0], cb_now_ms() + d->ready_timeout_ms, line);
  if (got == 1)
    goto out;
  kill_session(*pid, start);
  if (got == 0)
    rc = cb_err_set(&mine, CB_SYSTEM, "it ended before it was ready");
  else
    rc = cb_err_set(&mine, CB_TIMEOUT, "it was not ready within %lld ms",
                    (long long)d->ready_timeout_ms);
  add_log_words(d->log, st.st_size, &mine);
out:
  cb_close(&in);
  cb_close(&log);
  cb_close(&out[0]);
  cb_close(&out[1]);
  cb_close(&report[0]);
  cb_close(&report[1]);
  cb_free(path);
  if (rc && err) {
    *err = mine;
    cb_err_wrap(err, "start %.100s", d->argv[0]);
  }
  return rc;
}
