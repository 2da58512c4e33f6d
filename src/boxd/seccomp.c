/* SPDX-License-Identifier: MIT
 * seccomp.c: see seccomp.h. Arguments are compared by their low 32 bits wherever the kernel
 * takes an int: a plain 64-bit comparison is passed by with rubbish in the upper half. */
#include "boxd/seccomp.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <seccomp.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "base/fd.h"

#define LOW32 0xffffffffu

/* Names, so that a call this libseccomp or this machine does not have is no error. */
static const char *const denied[] = {
  /* mounts and roots */
  "mount", "umount", "umount2", "pivot_root", "chroot", "open_tree", "open_tree_attr", "move_mount",
  "fsopen", "fsconfig", "fsmount", "fspick", "mount_setattr", "quotactl", "quotactl_fd",
  "swapon", "swapoff", "fanotify_init",
  /* handles pass by path permissions */
  "name_to_handle_at", "open_by_handle_at",
  /* other namespaces */
  "setns",
  /* the user's keyrings are shared by every process of a host id */
  "keyctl", "add_key", "request_key",
  /* large kernel interfaces with a history */
  "bpf", "perf_event_open", "userfaultfd", "io_uring_setup", "io_uring_enter",
  "io_uring_register", "lookup_dcookie", "nfsservctl", "uselib", "sysfs", "_sysctl", "ustat",
  /* other processes' memory and descriptors (ptrace is left to debuggers; pid 1 is out of its
   * reach by not being dumpable) */
  "process_vm_readv", "process_vm_writev", "process_madvise", "pidfd_getfd", "kcmp",
  "move_pages", "migrate_pages",
  /* the machine */
  "kexec_load", "kexec_file_load", "init_module", "finit_module", "delete_module", "reboot",
  "acct", "iopl", "ioperm", "syslog", "settimeofday", "clock_settime", "stime", "vhangup",
};

/* Newer than this libseccomp may be: numbers are the same on every machine from 403 on. */
static const int denied_numbers[] = { 467 /* open_tree_attr */ };

static const unsigned long namespaces[] = { CLONE_NEWNS,  CLONE_NEWPID, CLONE_NEWNET,
                                            CLONE_NEWIPC, CLONE_NEWUTS, CLONE_NEWCGROUP };
enum { NEWTIME = 0x80 }; /* CLONE_NEWTIME: only unshare takes it, in clone it is a signal bit */

static int deny_flag(scmp_filter_ctx f, int call, unsigned long flag)
{
  return seccomp_rule_add(f, SCMP_ACT_ERRNO(EPERM), call, 1,
                          SCMP_A0(SCMP_CMP_MASKED_EQ, flag, flag));
}

static int deny_namespaces(scmp_filter_ctx f, enum cb_seccomp_kind kind)
{
  int rc = 0;
  for (size_t i = 0; i < sizeof namespaces / sizeof *namespaces && rc == 0; i++) {
    rc = deny_flag(f, SCMP_SYS(clone), namespaces[i]);
    if (rc == 0)
      rc = deny_flag(f, SCMP_SYS(unshare), namespaces[i]);
  }
  if (rc == 0)
    rc = deny_flag(f, SCMP_SYS(unshare), NEWTIME);
  if (rc == 0)
    rc = deny_flag(f, SCMP_SYS(clone), CLONE_NEWUSER);
  /* Box root may unshare exactly a user namespace: that is how a user is made (drop_user.h). */
  if (rc == 0 && kind == CB_SECCOMP_USER)
    rc = deny_flag(f, SCMP_SYS(unshare), CLONE_NEWUSER);
  if (rc == 0)
    rc = seccomp_rule_add(f, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0);
  return rc;
}

static int deny_sockets(scmp_filter_ctx f)
{
  int rc = 0;
  /* One rule a family, beyond the last the kernel knows: an inequality cannot mask. */
  for (unsigned family = 0; family < 64 && rc == 0; family++) {
    if (family == AF_UNSPEC || family == AF_UNIX || family == AF_INET || family == AF_INET6 ||
        family == AF_NETLINK)
      continue;
    rc = seccomp_rule_add(f, SCMP_ACT_ERRNO(EAFNOSUPPORT), SCMP_SYS(socket), 1,
                          SCMP_A0(SCMP_CMP_MASKED_EQ, LOW32, family));
  }
  /* Of netlink only NETLINK_ROUTE (0), which getifaddrs and friends use. */
  for (unsigned protocol = 1; protocol < 32 && rc == 0; protocol++)
    rc = seccomp_rule_add(f, SCMP_ACT_ERRNO(EPROTONOSUPPORT), SCMP_SYS(socket), 2,
                          SCMP_A0(SCMP_CMP_MASKED_EQ, LOW32, AF_NETLINK),
                          SCMP_A2(SCMP_CMP_MASKED_EQ, LOW32, protocol));
  return rc;
}

static int deny_rest(scmp_filter_ctx f)
{
  static const unsigned ioctls[] = { TIOCSTI, 0x541C /* TIOCLINUX */, TIOCSETD };
  int rc = 0;
  for (size_t i = 0; i < sizeof ioctls / sizeof *ioctls && rc == 0; i++)
    rc = seccomp_rule_add(f, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(ioctl), 1,
                          SCMP_A1(SCMP_CMP_MASKED_EQ, LOW32, ioctls[i]));
  /* pid 1 has the host id of everybody in the box, so its limits would be theirs to lower. */
  if (rc == 0)
    rc = seccomp_rule_add(f, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(prlimit64), 1,
                          SCMP_A0(SCMP_CMP_MASKED_EQ, LOW32, 1));
  if (rc == 0)
    rc = seccomp_rule_add(f, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(ptrace), 1,
                          SCMP_A1(SCMP_CMP_MASKED_EQ, LOW32, 1));
  return rc;
}

static int fill(scmp_filter_ctx f, enum cb_seccomp_kind kind)
{
  int rc = seccomp_attr_set(f, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);
  for (size_t i = 0; i < sizeof denied / sizeof *denied && rc == 0; i++) {
    int nr = seccomp_syscall_resolve_name(denied[i]);
    if (nr >= 0) /* negative: unknown here, or not a call of this machine */
      rc = seccomp_rule_add(f, SCMP_ACT_ERRNO(EPERM), nr, 0);
  }
  for (size_t i = 0; i < sizeof denied_numbers / sizeof *denied_numbers && rc == 0; i++) {
    rc = seccomp_rule_add(f, SCMP_ACT_ERRNO(EPERM), denied_numbers[i], 0);
    if (rc == -EEXIST)
      rc = 0;
  }
  if (rc == 0)
    rc = deny_namespaces(f, kind);
  if (rc == 0)
    rc = deny_sockets(f);
  if (rc == 0)
    rc = deny_rest(f);
  if (rc == 0)
    rc = seccomp_attr_set(f, SCMP_FLTATR_CTL_OPTIMIZE, 2); /* a tree, not a list */
  return rc;
}

int cb_seccomp_compile(enum cb_seccomp_kind kind, int *out, struct cb_err *err)
{
  int fd = -1, rc = CB_OK;
  scmp_filter_ctx f = seccomp_init(SCMP_ACT_ALLOW);

  if (!f)
    return cb_err_no_memory(err);
  int bad = fill(f, kind);
  if (bad) {
    rc = cb_err_errno(err, -bad, "compile the system call filter");
    goto out;
  }
  fd = memfd_create("crewbox-filter", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) {
    rc = cb_err_errno(err, errno, "make a memory file");
    goto out;
  }
  bad = seccomp_export_bpf(f, fd);
  if (bad) {
    rc = cb_err_errno(err, -bad, "export the system call filter");
    goto out;
  }
  if (fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) < 0) {
    rc = cb_err_errno(err, errno, "seal the system call filter");
    goto out;
  }
  *out = fd;
  fd = -1;
out:
  cb_close(&fd);
  seccomp_release(f);
  return rc;
}
