/* SPDX-License-Identifier: MIT
 * escape_probes.h: ways out of a box, tried from inside by box_test itself, which the test
 * uploads. One line a probe, "BLOCKED name" or "ALLOWED name"; the exit status is the number of
 * ALLOWED ones. */
#ifndef CB_SPEC_ESCAPE_PROBES_H
#define CB_SPEC_ESCAPE_PROBES_H
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/keyctl.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

/* Set from the command line: facts of the host. */
struct probe_host {
  pid_t pid;            /* of a process that lives */
  const char *file;     /* that exists there */
  int port;             /* somebody listens on its loopback */
  const char *abstract; /* name of an abstract socket somebody listens on */
};

static long probe_open(const char *path, int flags)
{
  return open(path, flags | O_NONBLOCK, 0600);
}

static long probe_connect(const char *address, int port)
{
  struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
  inet_pton(AF_INET, address, &a.sin_addr);
  return connect(socket(AF_INET, SOCK_STREAM, 0), (struct sockaddr *)&a, sizeof a);
}

static long probe_abstract(const char *name)
{
  struct sockaddr_un a = { .sun_family = AF_UNIX };
  memcpy(a.sun_path + 1, name, strlen(name));
  return connect(socket(AF_UNIX, SOCK_STREAM, 0), (struct sockaddr *)&a,
                 (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name)));
}

static long probe_clone(unsigned long flags)
{
  long p = syscall(SYS_clone, flags | SIGCHLD, 0, 0, 0, 0);
  if (p == 0)
    _exit(0);
  return p;
}

static long probe_readlink(const char *path)
{
  char text[64];
  return readlink(path, text, sizeof text);
}

static long probe_pidfd_getfd(void)
{
  int p = (int)syscall(SYS_pidfd_open, 1, 0);
  return syscall(SYS_pidfd_getfd, p, 0, 0);
}

static long probe_write(const char *path, const char *text)
{
  int fd = open(path, O_WRONLY);
  return fd < 0 ? -1 : write(fd, text, strlen(text));
}

static long probe_link_write(const char *target)
{
  char link[] = "/tmp/probe-link";
  unlink(link);
  if (symlink(target, link) < 0)
    return -1;
  return probe_open(link, O_WRONLY);
}

/* Calls of the 32-bit table, where numbers mean other things than the filter thinks. */
static long probe_int80(void)
{
#if defined __x86_64__
  int status;
  pid_t p = fork();
  if (p == 0) {
    long r;
    __asm__ volatile("int $0x80" : "=a"(r) : "a"(20) : "memory", "r8", "r9", "r10", "r11");
    _exit(r > 0 ? 0 : 1);
  }
  waitpid(p, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -1;
#else
  return -1;
#endif
}

static long probe_x32(void)
{
#if defined __x86_64__
  int status;
  pid_t p = fork();
  if (p == 0)
    _exit(syscall(0x40000000 + SYS_getpid) > 0 ? 0 : 1);
  waitpid(p, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -1;
#else
  return -1;
#endif
}

static long probe_kill_pid1(void)
{
  kill(1, SIGKILL);
  kill(1, SIGSTOP);
  usleep(50000); /* it would be over by now */
  return kill(1, 0) == 0 ? -1 : 0;
}

/* Is a process outside of the box's own few to be seen? */
static long probe_many_processes(pid_t host)
{
  char path[32];
  snprintf(path, sizeof path, "/proc/%d", host);
  return access(path, F_OK);
}

static long probe_setns(const char *path)
{
  int fd = open(path, O_RDONLY);
  return fd < 0 ? -1 : setns(fd, 0);
}

/* With rubbish in the upper half of an int argument, which a careless filter compares. */
static long probe_socket_upper(void)
{
  return syscall(SYS_socket, 0x100000000L | 40, SOCK_STREAM, 0);
}

static long probe_tiocsti_upper(void)
{
  return syscall(SYS_ioctl, 0, 0x100000000L | TIOCSTI, "x");
}

#define PROBE(name, attempt)                                            \
  do {                                                                  \
    errno = 0;                                                          \
    long got_ = (long)(attempt);                                        \
    printf("%s %s%s%s\n", got_ < 0 ? "BLOCKED" : "ALLOWED", name,       \
           got_ < 0 && errno ? ": " : "", got_ < 0 && errno ? strerror(errno) : ""); \
    allowed += got_ >= 0;                                               \
  } while (0)

/* root: run as box uid 0, which may do a little more. */
static int escape_probes(const struct probe_host *h, int root)
{
  struct rlimit limit = { 1, 1 };
  int allowed = 0;
  setvbuf(stdout, NULL, _IOLBF, 0); /* children must not print what is buffered again */

  PROBE("pid 1: root", probe_open("/proc/1/root/etc/passwd", O_RDONLY));
  PROBE("pid 1: exe", probe_readlink("/proc/1/exe"));
  PROBE("pid 1: cwd", probe_readlink("/proc/1/cwd"));
  PROBE("pid 1: mem", probe_open("/proc/1/mem", O_RDWR));
  PROBE("pid 1: environ", probe_open("/proc/1/environ", O_RDONLY));
  PROBE("pid 1: maps", probe_open("/proc/1/maps", O_RDONLY) >= 0 &&
                               read(open("/proc/1/maps", O_RDONLY), (char[8]){ 0 }, 8) > 0 ? 0 : -1);
  PROBE("pid 1: fd", probe_open("/proc/1/fd", O_RDONLY));
  PROBE("pid 1: ns", probe_open("/proc/1/ns/mnt", O_RDONLY));
  PROBE("pid 1: oom_score_adj", probe_write("/proc/1/oom_score_adj", "1000"));
  PROBE("pid 1: ptrace", ptrace(PTRACE_SEIZE, 1, 0, 0));
  PROBE("pid 1: pidfd_getfd", probe_pidfd_getfd());
  PROBE("pid 1: process_vm_readv", syscall(SYS_process_vm_readv, 1, 0, 0, 0, 0, 0));
  PROBE("pid 1: prlimit", prlimit(1, RLIMIT_NOFILE, &limit, NULL));
  PROBE("pid 1: kill", probe_kill_pid1());
  PROBE("host process: see", probe_many_processes(h->pid));
  PROBE("host process: signal", kill(h->pid, 0));
  PROBE("host file", probe_open(h->file, O_RDONLY));
  PROBE("host home", probe_open("/root/.bashrc", O_RDONLY));
  PROBE("host docker socket", probe_open("/var/run/docker.sock", O_RDONLY));
  PROBE("host loopback", probe_connect("127.0.0.1", h->port));
  PROBE("host abstract socket", probe_abstract(h->abstract));
  PROBE("network: an address", probe_connect("1.1.1.1", 443));
  PROBE("network: metadata", probe_connect("169.254.169.254", 80));
  PROBE("mount", mount("none", "/tmp", "tmpfs", 0, NULL));
  PROBE("remount", mount("none", "/", NULL, MS_REMOUNT | MS_BIND, NULL));
  PROBE("umount", umount2("/proc/sys", MNT_DETACH));
  PROBE("fsopen", syscall(SYS_fsopen, "tmpfs", 0));
  PROBE("open_tree", syscall(SYS_open_tree, AT_FDCWD, "/", 1));
  PROBE("move_mount", syscall(SYS_move_mount, AT_FDCWD, "/tmp", AT_FDCWD, "/mnt", 0));
  PROBE("mount_setattr", syscall(SYS_mount_setattr, AT_FDCWD, "/", 0, 0, 0));
  PROBE("pivot_root", syscall(SYS_pivot_root, "/tmp", "/tmp"));
  PROBE("chroot", chroot("/tmp"));
  PROBE("setns", probe_setns("/proc/self/ns/mnt"));
  if (!root)
    PROBE("unshare a user namespace", unshare(CLONE_NEWUSER));
  PROBE("unshare a mount namespace", unshare(CLONE_NEWNS));
  PROBE("unshare user and net", unshare(CLONE_NEWUSER | CLONE_NEWNET));
  PROBE("unshare a time namespace", unshare(0x80));
  PROBE("clone a user namespace", probe_clone(CLONE_NEWUSER));
  PROBE("clone a net namespace", probe_clone(CLONE_NEWNET));
  PROBE("clone3", syscall(SYS_clone3, 0, 0));
  PROBE("create in /", probe_open("/x", O_WRONLY | O_CREAT));
  PROBE("create in /opt", probe_open("/opt/x", O_WRONLY | O_CREAT));
  PROBE("create in /dev", probe_open("/dev/x", O_WRONLY | O_CREAT));
  PROBE("create in /run/crewbox", probe_open("/run/crewbox/x", O_WRONLY | O_CREAT));
  PROBE("change the users' filter", probe_open("/run/crewbox/user.bpf", O_WRONLY));
  PROBE("write a host file in place", probe_open("/usr/bin/env", O_WRONLY));
  PROBE("through a link to pid 1", probe_link_write("/proc/1/root/etc/passwd"));
  PROBE("core_pattern", probe_open("/proc/sys/kernel/core_pattern", O_WRONLY));
  PROBE("ip_forward", probe_open("/proc/sys/net/ipv4/ip_forward", O_WRONLY));
  PROBE("sysrq", probe_open("/proc/sysrq-trigger", O_WRONLY));
  PROBE("kcore", probe_open("/proc/kcore", O_RDONLY));
  PROBE("kallsyms", probe_open("/proc/kallsyms", O_RDONLY));
  PROBE("sysfs", probe_open("/sys/kernel", O_RDONLY));
  PROBE("disk", probe_open("/dev/vda", O_RDONLY));
  PROBE("/dev/mem", probe_open("/dev/mem", O_RDONLY));
  PROBE("/dev/kmsg", probe_open("/dev/kmsg", O_RDONLY));
  PROBE("/dev/fuse", probe_open("/dev/fuse", O_RDWR));
  PROBE("mknod", mknod("/tmp/d", S_IFBLK | 0600, 254 << 8));
  PROBE("keyctl", syscall(SYS_keyctl, KEYCTL_GET_KEYRING_ID, -3, 0));
  PROBE("bpf", syscall(SYS_bpf, 0, 0, 0));
  PROBE("io_uring_setup", syscall(SYS_io_uring_setup, 8, 0));
  PROBE("perf_event_open", syscall(SYS_perf_event_open, 0, 0, 0, 0, 0));
  PROBE("userfaultfd", syscall(SYS_userfaultfd, 0));
  PROBE("open_by_handle_at", syscall(SYS_open_by_handle_at, -1, 0, 0));
  PROBE("name_to_handle_at", syscall(SYS_name_to_handle_at, AT_FDCWD, "/", 0, 0, 0));
  PROBE("kexec_load", syscall(SYS_kexec_load, 0, 0, 0, 0));
  PROBE("init_module", syscall(SYS_init_module, 0, 0, 0));
  PROBE("syslog", syscall(SYS_syslog, 3, 0, 0));
  PROBE("reboot", syscall(SYS_reboot, 0, 0, 0, 0));
  PROBE("TIOCSTI", ioctl(0, TIOCSTI, "x"));
  PROBE("TIOCSTI with rubbish", probe_tiocsti_upper());
  PROBE("AF_VSOCK", socket(40, SOCK_STREAM, 0));
  PROBE("AF_VSOCK with rubbish", probe_socket_upper());
  PROBE("AF_PACKET", socket(17, SOCK_RAW, 0));
  PROBE("AF_ALG", socket(38, SOCK_SEQPACKET, 0));
  PROBE("raw ICMP", socket(AF_INET, SOCK_RAW, 1));
  PROBE("netfilter netlink", socket(AF_NETLINK, SOCK_RAW, 12));
  PROBE("set the clock", syscall(SYS_clock_settime, 0, 0));
  PROBE("set the host name", sethostname("x", 1));
  PROBE("nice", setpriority(PRIO_PROCESS, 0, -5));
  if (!root) {
    PROBE("setuid 0", setuid(0));
    PROBE("setgroups", syscall(SYS_setgroups, 1, (gid_t[]){ 0 }));
  }
  PROBE("32-bit calls", probe_int80());
  PROBE("x32 calls", probe_x32());
  return allowed;
}
#endif
