/* SPDX-License-Identifier: MIT
 * check.c: see check.h. */
#include "box/check.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/keyctl.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/drop_user.h"
#include "base/fd.h"
#include "box/protocol.h"

struct probe {
  const struct cb_box_config *config;
  pid_t outer;
};

static bool opens(const char *path, int flags)
{
  int fd = open(path, flags | O_CLOEXEC | O_NONBLOCK, 0600);
  bool ok = fd >= 0;
  cb_close(&fd);
  return ok;
}

/* Each probe is true when the layer holds. */
static bool is_user(const struct probe *p)
{
  (void)p;
  return getuid() == CB_BOX_USER_UID && geteuid() == CB_BOX_USER_UID &&
         getgid() == CB_BOX_USER_UID && setuid(0) < 0;
}

/* CapEff and CapBnd are zero, NoNewPrivs is one, Seccomp is 2. */
static bool has_nothing(const struct probe *p)
{
  char line[256];
  unsigned long long v;
  int good = 0;
  FILE *f = fopen("/proc/self/status", "re");
  (void)p;
  while (f && fgets(line, sizeof line, f)) {
    if (sscanf(line, "CapEff: %llx", &v) == 1 || sscanf(line, "CapPrm: %llx", &v) == 1 ||
        sscanf(line, "CapBnd: %llx", &v) == 1)
      good += v == 0;
    else if (sscanf(line, "NoNewPrivs: %llu", &v) == 1)
      good += v == 1;
    else if (sscanf(line, "Seccomp: %llu", &v) == 1)
      good += v == 2;
  }
  if (f)
    fclose(f);
  return good == 5;
}

static bool host_processes_hidden(const struct probe *p)
{
  char path[32];
  snprintf(path, sizeof path, "/proc/%d", p->outer);
  return access(path, F_OK) < 0 && kill(p->outer, 0) < 0 && errno == ESRCH;
}

static bool pid1_closed(const struct probe *p)
{
  char text[8];
  (void)p;
  return !opens("/proc/1/mem", O_RDWR) && !opens("/proc/1/environ", O_RDONLY) &&
         !opens("/proc/1/root/etc/passwd", O_RDONLY) &&
         readlink("/proc/1/exe", text, sizeof text) < 0;
}

static bool host_files_hidden(const struct probe *p)
{
  return access(p->config->dir, F_OK) < 0 && access(p->config->base, F_OK) < 0 &&
         !opens("/dev/kmsg", O_RDONLY) && !opens("/proc/kcore", O_RDONLY) &&
         access("/sys/kernel", F_OK) < 0;
}

static bool outside_read_only(const struct probe *p)
{
  (void)p;
  return mkdir("/crewbox-probe", 0700) < 0 && mkdir("/opt/crewbox-probe", 0700) < 0 &&
         mkdir("/dev/crewbox-probe", 0700) < 0 &&
         !opens("/run/crewbox/crewbox-probe", O_WRONLY | O_CREAT) &&
         !opens("/proc/sys/kernel/hostname", O_WRONLY) &&
         !opens("/proc/sysrq-trigger", O_WRONLY);
}

static bool own_files_writable(const struct probe *p)
{
  static const char *const files[] = { "/usr/local/bin/crewbox-probe", "/etc/crewbox-probe",
                                       "/usr/crewbox-probe", "/home/user/crewbox-probe",
                                       "/tmp/crewbox-probe" };
  (void)p;
  for (size_t i = 0; i < sizeof files / sizeof *files; i++)
    if (!opens(files[i], O_WRONLY | O_CREAT) || unlink(files[i]) < 0)
      return false;
  return true;
}

static bool filter_holds(const struct probe *p)
{
  (void)p;
  return unshare(CLONE_NEWUSER) < 0 && errno == EPERM &&
         mount("none", "/tmp", "tmpfs", 0, NULL) < 0 && errno == EPERM &&
         syscall(SYS_keyctl, KEYCTL_GET_KEYRING_ID, -3, 0) < 0 && errno == EPERM &&
         syscall(SYS_clone3, NULL, 0) < 0 && errno == ENOSYS &&
         socket(AF_VSOCK, SOCK_STREAM, 0) < 0 && errno == EAFNOSUPPORT;
}

static bool network_closed(const struct probe *p)
{
  struct sockaddr_in far = { .sin_family = AF_INET, .sin_port = htons(443) };
  bool closed;
  (void)p;
  inet_pton(AF_INET, "192.0.2.1", &far.sin_addr);
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  closed = fd >= 0 && connect(fd, (struct sockaddr *)&far, sizeof far) < 0 && errno == ENETUNREACH;
  cb_close(&fd);
  struct if_nameindex *list = if_nameindex();
  closed = closed && list && list[0].if_index != 0 && list[1].if_index == 0;
  if (list)
    if_freenameindex(list);
  return closed;
}

static const struct {
  const char *what;
  bool (*holds)(const struct probe *p);
} probes[] = {
  { "a user of the box is not itself", is_user },
  { "a user of the box holds privileges", has_nothing },
  { "processes of the host can be seen or signalled", host_processes_hidden },
  { "pid 1 of the box can be looked into", pid1_closed },
  { "files of the host can be seen", host_files_hidden },
  { "places outside of the box can be written", outside_read_only },
  { "the box's own /usr, /etc or home cannot be written", own_files_writable },
  { "the system call filter does not hold", filter_holds },
  { "the network of the host can be reached", network_closed },
};
enum { PROBES = sizeof probes / sizeof *probes, DROP_FAILED = 100 };

/* Exit status: 0, or 1 + index of the probe that failed. */
static _Noreturn void try_all(const struct probe *p)
{
  struct cb_drop_user to = { CB_BOX_USER_UID, CB_BOX_USER_UID, -1 };
  struct cb_drop_failure why;
  if (cb_drop_user(&to, &why) < 0)
    _exit(DROP_FAILED);
  for (int i = 0; i < PROBES; i++)
    if (!probes[i].holds(p))
      _exit(i + 1);
  _exit(0);
}

int cb_check_run(const struct cb_box_config *config, pid_t outer, struct cb_step *s)
{
  struct probe p = { config, outer };
  int status = 0;
  _Static_assert(PROBES < DROP_FAILED, "one exit status a probe");

  pid_t pid = fork();
  if (pid == 0)
    try_all(&p);
  if (pid < 0)
    return cb_step_host(s, errno, "fork", "");
  while (waitpid(pid, &status, 0) < 0)
    if (errno != EINTR)
      return cb_step_host(s, errno, "wait", "");
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
    return 0;
  int which = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
  if (which == DROP_FAILED)
    return cb_step_set(s, CB_ISOLATION, 0, "prove the isolation",
                       "this host cannot isolate a box: the inner user namespace of a box's "
                       "user is refused (sysctl user.max_user_namespaces?)");
  return cb_step_set(s, CB_ISOLATION, 0, "prove the isolation",
                     "this host cannot isolate a box: %s",
                     which > 0 && which <= PROBES ? probes[which - 1].what
                                                  : "the probing process was killed");
}
