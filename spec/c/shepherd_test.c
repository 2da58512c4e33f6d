/* SPDX-License-Identifier: MIT
 * shepherd_test.c: children whose end is told in a process that reaps whatever it can, as nginx does. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "c/check.h"
#include "c/io_help.h"
#include "net/host_proc.h"
#include "net/shepherd.h"

static void reap_everybody(int sig)
{
  int before = errno;
  (void)sig;
  while (waitpid(-1, NULL, WNOHANG) > 0) {
  }
  errno = before;
}

static bool readable(int fd)
{
  struct pollfd p = { .fd = fd, .events = POLLIN };
  int n;
  do
    n = poll(&p, 1, HELP_BOUND_S * 1000);
  while (n < 0 && errno == EINTR);
  return n == 1;
}

static int start(struct cb_shepherd *s, const char *script, struct cb_err *err)
{
  char *argv[] = { (char[]){ "sh" }, (char[]){ "-c" }, (char *)(uintptr_t)script, NULL };
  char *env[] = { (char[]){ "PATH=/usr/bin:/bin" }, NULL };
  int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  CHECK(cb_lift_fd(&null, err) == CB_OK);
  struct cb_program p = { "/bin/sh", argv, env, "/tmp", null, null, null };
  int rc = cb_shepherd_start(s, &p, err);
  cb_close(&null);
  return rc;
}

static void test_nobody_else_gets_the_status(void)
{
  struct sigaction sa = { .sa_handler = reap_everybody, .sa_flags = SA_RESTART }, before;
  sigaction(SIGCHLD, &sa, &before);
  for (int i = 0; i < 50; i++) {
    struct cb_shepherd s = CB_SHEPHERD_INIT;
    struct cb_err err = CB_ERR_INIT;
    int code = 0, status = 0;
    CHECK(start(&s, "exit 7", &err) == CB_OK);
    CHECK(readable(s.sock));
    raise(SIGCHLD);
    CHECK(cb_shepherd_ended(&s, &code, &status, &err) == CB_OK);
    CHECK(code == CLD_EXITED && status == 7);
    CHECK(cb_proc_start(s.pid, &(int64_t){ 0 }, NULL) == CB_OK); /* the pid is kept */
    pid_t pid = s.pid;
    cb_shepherd_release(&s);
    CHECK(kill(pid, 0) < 0 && errno == ESRCH);
  }
  sigaction(SIGCHLD, &before, NULL);
}

static void test_signal_and_refusal(void)
{
  struct cb_shepherd s = CB_SHEPHERD_INIT;
  struct cb_err err = CB_ERR_INIT;
  int code = 0, status = 0;
  CHECK(start(&s, "kill -KILL $$", &err) == CB_OK);
  CHECK(readable(s.sock));
  CHECK(cb_shepherd_ended(&s, &code, &status, &err) == CB_OK);
  CHECK(code == CLD_KILLED && status == SIGKILL);
  cb_shepherd_release(&s);

  char *argv[] = { (char[]){ "none" }, NULL };
  struct cb_program p = { "/nowhere/none", argv, argv + 1, NULL, 10, 11, 12 };
  int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  CHECK(cb_lift_fd(&null, &err) == CB_OK);
  p.in = p.out = p.err = null;
  CHECK(cb_shepherd_start(&s, &p, &err) == CB_NOT_FOUND);
  CHECK(s.self == 0 && s.sock == -1);
  cb_close(&null);
  CHECK(waitpid(-1, NULL, __WALL) < 0 && errno == ECHILD); /* nothing is left behind */
}

/* Who started the program is killed: the program goes too. */
static void test_dies_with_us(void)
{
  int ends[2];
  pid_t program = 0;
  CHECK(pipe2(ends, O_CLOEXEC) == 0);
  pid_t child = fork();
  if (child == 0) {
    struct cb_shepherd s = CB_SHEPHERD_INIT;
    struct cb_err err = CB_ERR_INIT;
    if (start(&s, "sleep 600 & wait", &err) || write(ends[1], &s.pid, sizeof s.pid) < 0)
      _exit(1);
    pause();
    _exit(1);
  }
  CHECK(read(ends[0], &program, sizeof program) == (ssize_t)sizeof program);
  CHECK(program > 0 && kill(-program, 0) == 0);
  CHECK(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
  bool gone = false;
  for (int i = 0; i < HELP_BOUND_S * 100 && !gone; i++) {
    gone = !cb_proc_alive(program, 0);
    usleep(10000);
  }
  CHECK(gone);
  close(ends[0]);
  close(ends[1]);
}

int main(void)
{
  int before = help_fds();
  test_nobody_else_gets_the_status();
  test_signal_and_refusal();
  test_dies_with_us();
  CHECK(help_fds() == before);
  return check_done();
}
