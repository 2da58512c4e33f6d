/* SPDX-License-Identifier: MIT
 * outer.c: see outer.h. */
#include "box/outer.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "box/config.h"
#include "box/inner.h"
#include "box/protocol.h"
#include "box/step.h"
#include "box/view.h"
#include "wire/record.h"

enum { NAMESPACES = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS |
                    CLONE_NEWNET | CLONE_NEWCGROUP };

static int put_file(const char *path, const char *text)
{
  int fd = open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0)
    return -1;
  ssize_t k = write(fd, text, strlen(text));
  int sys = errno;
  cb_close(&fd);
  errno = sys;
  return k == (ssize_t)strlen(text) ? 0 : -1;
}

/* Descriptors 0 to 2 exist and lead nowhere; ours are close-on-exec; others do not exist. */
static int tidy_descriptors(struct cb_step *s)
{
  int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (null < 0)
    return cb_step_host(s, errno, "open /dev/null", "");
  for (int fd = 0; fd <= 2; fd++)
    if (dup2(null, fd) < 0)
      return cb_step_host(s, errno, "dup", "");
  if (null > 2)
    cb_close(&null);
  for (int fd = CB_BOX_FD_CONFIG; fd <= CB_BOX_FD_BASE_LOCK; fd++)
    if (fcntl(fd, F_SETFD, FD_CLOEXEC) < 0)
      return cb_step_set(s, CB_INVALID, errno, "descriptors", "descriptor %d is missing", fd);
  if (syscall(SYS_close_range, CB_BOX_FD_BASE_LOCK + 1, ~0u, 0) < 0)
    return cb_step_host(s, errno, "close descriptors", "Linux 5.9 is needed");
  return 0;
}

/* Held for as long as pid 1 lives, which inherits it: two boxes of one folder would ruin each
 * other, and asking the socket would take the control of a running one away. */
static int take_folder(struct cb_step *s)
{
  int fd = open("init.lock", O_RDONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (fd < 0)
    return cb_step_host(s, errno, "open init.lock", "");
  if (flock(fd, LOCK_EX | LOCK_NB) < 0)
    return cb_step_set(s, CB_EXISTS, errno, "lock init.lock", "a box of this id is running already");
  return 0; /* left open on purpose */
}

/* The socket is bound here, under the box's folder as the cwd, so that no path is too long for
 * it, and where the box cannot see it. pid 1 listens: the kernel then tells peers its pid. */
static int bind_listener(struct cb_step *s)
{
  struct sockaddr_un a = { .sun_family = AF_UNIX, .sun_path = "init.sock" };
  if (unlink(a.sun_path) < 0 && errno != ENOENT)
    return cb_step_host(s, errno, "replace init.sock", "");
  int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0 || fchmod(fd, 0600) < 0 || bind(fd, (struct sockaddr *)&a, sizeof a) < 0 ||
      chmod(a.sun_path, 0600) < 0) {
    cb_step_host(s, errno, "bind init.sock", "");
    cb_close(&fd);
    return -1;
  }
  return fd;
}

static pid_t clone_box(int *pidfd)
{
  struct clone_args args = { .flags = NAMESPACES | CLONE_PIDFD,
                             .pidfd = (uint64_t)(uintptr_t)pidfd,
                             .exit_signal = SIGCHLD };
  long pid = syscall(SYS_clone3, &args, sizeof args);
  if (pid < 0 && (errno == ENOSYS || errno == EPERM)) /* a container's filter may refuse clone3 */
    pid = syscall(SYS_clone, NAMESPACES | CLONE_PIDFD | SIGCHLD, NULL, pidfd, NULL, NULL);
  return (pid_t)pid;
}

static int write_maps(pid_t pid, const struct cb_box_config *c, struct cb_step *s)
{
  char path[64], text[64];
  if (geteuid() != 0) { /* without this an unprivileged gid_map is refused */
    snprintf(path, sizeof path, "/proc/%d/setgroups", pid);
    if (put_file(path, "deny") < 0)
      return cb_step_host(s, errno, "write setgroups", "");
  }
  snprintf(path, sizeof path, "/proc/%d/gid_map", pid);
  snprintf(text, sizeof text, "0 %lu 1", (unsigned long)c->gid);
  if (put_file(path, text) < 0)
    return cb_step_host(s, errno, "write gid_map", "is this a container without CAP_SETGID?");
  snprintf(path, sizeof path, "/proc/%d/uid_map", pid);
  snprintf(text, sizeof text, "0 %lu 1", (unsigned long)c->uid);
  if (put_file(path, text) < 0)
    return cb_step_host(s, errno, "write uid_map", "is this a container without CAP_SETUID?");
  return 0;
}

static void report_ready(pid_t pid, int pidfd)
{
  struct cb_buf m;
  cb_buf_init(&m, 4096);
  if (!cb_record_addz(&m, "f", "ready") && !cb_record_addi(&m, "pid", pid))
    (void)cb_send_fds(CB_BOX_FD_REPORT, m.p, m.len, &pidfd, pidfd < 0 ? 0 : 1, NULL);
  cb_buf_clear(&m);
}

static void report_failed(const struct cb_step *s)
{
  struct cb_buf m;
  cb_buf_init(&m, 4096);
  if (!cb_record_addz(&m, "f", "failed") && !cb_step_put(&m, s))
    (void)cb_send_fds(CB_BOX_FD_REPORT, m.p, m.len, NULL, 0, NULL);
  cb_buf_clear(&m);
}

/* What pid 1 says of itself: 0 for ready. */
static int await(int report, struct cb_step *s)
{
  char m[2048];
  ssize_t k;
  do
    k = recv(report, m, sizeof m, 0);
  while (k < 0 && errno == EINTR);
  struct cb_record rec;
  if (k <= 0)
    return cb_step_set(s, CB_ISOLATION, 0, "start pid 1",
                       "this host cannot isolate a box: pid 1 of the box died while starting");
  if (cb_record_find(m, (size_t)k, "f", &rec) && rec.len == 5 &&
      memcmp(rec.value, "ready", 5) == 0)
    return 0;
  cb_step_get(s, m, (size_t)k);
  return -1;
}

static const char *clone_hint(int sys)
{
  if (sys == EPERM || sys == EACCES)
    return "unprivileged user namespaces are switched off: allow them (sysctl "
           "kernel.unprivileged_userns_clone=1, kernel.apparmor_restrict_unprivileged_userns=0), "
           "or run crewboxd as root";
  if (sys == ENOSPC)
    return "raise the sysctls below user.max_*_namespaces";
  if (sys == EINVAL || sys == ENOSYS)
    return "the kernel lacks a namespace, or a container's filter hides it";
  return "";
}

static int make_box(struct cb_box_config *c, struct cb_view_trees *trees, struct cb_step *s)
{
  int go[2] = { -1, -1 }, ready[2] = { -1, -1 }, pidfd = -1, rc = -1;
  struct cb_inner in = { .config = c, .trees = trees, .switch_ids = geteuid() == 0,
                         .listener = -1, .outer = getpid() };

  if (chdir(c->dir) < 0)
    return cb_step_set(s, CB_NOT_FOUND, errno, "enter the box's folder", "%.300s: %s", c->dir,
                       strerror(errno));
  if (take_folder(s) < 0)
    return -1;
  in.listener = bind_listener(s);
  if (in.listener < 0)
    return -1;
  if (in.switch_ids && cb_view_trees_open(trees, c, s) < 0)
    goto out;
  in.have_trees = in.switch_ids;
  if (pipe2(go, O_CLOEXEC) < 0 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ready) < 0) {
    cb_step_host(s, errno, "make a pipe", "");
    goto out;
  }
  pid_t pid = clone_box(&pidfd);
  if (pid == 0) {
    cb_close(&go[1]);
    cb_close(&ready[0]);
    in.go = go[0];
    in.report = ready[1];
    cb_inner_run(&in);
  }
  int sys = errno;
  cb_close(&go[0]);
  cb_close(&ready[1]);
  if (pid < 0) {
    cb_step_host(s, sys, "make the namespaces", clone_hint(sys));
    goto out;
  }
  rc = write_maps(pid, c, s);
  if (rc == 0 && cb_write_full(go[1], "g", 1, NULL))
    rc = cb_step_set(s, CB_SYSTEM, EPIPE, "start pid 1", "pid 1 of the box died at once");
  if (rc == 0)
    rc = await(ready[0], s);
  if (rc == 0)
    report_ready(pid, pidfd);
  else
    kill(pid, SIGKILL);
  if (rc != 0 || c->check) { /* nothing may be left when the report says so */
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
      continue;
  }
out:
  if (rc != 0)
    (void)unlink("init.sock");
  cb_close(&pidfd);
  cb_close(&go[0]);
  cb_close(&go[1]);
  cb_close(&ready[0]);
  cb_close(&ready[1]);
  cb_close(&in.listener);
  return rc;
}

int cb_outer_run(void)
{
  struct cb_box_config config = { 0 };
  struct cb_view_trees trees;
  struct cb_step step = { 0 };
  struct cb_err err = CB_ERR_INIT;
  struct rlimit none = { 0, 0 };
  int rc;

  cb_view_trees_init(&trees);
  umask(022);
  setrlimit(RLIMIT_CORE, &none);
  /* Where memory runs out, a box goes before the daemon and before the person's own programs.
   * Everything in the box inherits it. */
  (void)put_file("/proc/self/oom_score_adj", "300");
  rc = tidy_descriptors(&step);
  if (rc == 0 && cb_box_config_read(&config, CB_BOX_FD_CONFIG, &err))
    rc = cb_step_set(&step, err.code, err.sys, "read the configuration", "%s", err.text);
  if (rc == 0) {
    close(CB_BOX_FD_CONFIG);
    rc = make_box(&config, &trees, &step);
  }
  if (rc != 0)
    report_failed(&step);
  cb_view_trees_close(&trees);
  cb_box_config_clear(&config);
  return rc == 0 ? 0 : 1;
}
