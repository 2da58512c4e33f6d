/* SPDX-License-Identifier: MIT
 * drop_user.c: see drop_user.h. Everything here is a bare system call on stack memory. */
#include "base/drop_user.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { FILTER_MAX = 4096, MAP_TEXT_MAX = 4096 };

int cb_caps_keep(unsigned long long keep)
{
  struct __user_cap_header_struct head = { _LINUX_CAPABILITY_VERSION_3, 0 };
  struct __user_cap_data_struct now[2] = { { 0 } }, then[2] = { { 0 } };

  /* The bounding set first: dropping from it needs CAP_SETPCAP, which may go below. Without
   * that capability there is none to gain through it either, given no_new_privs. */
  for (int cap = 0; cap < 64; cap++) {
    if (keep >> cap & 1)
      continue;
    if (prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) == 0)
      continue;
    if (errno == EINVAL) /* the kernel knows no more */
      break;
    if (errno != EPERM)
      return -1;
  }
  if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0 && errno != EINVAL)
    return -1;
  if (syscall(SYS_capget, &head, now) < 0)
    return -1;
  for (int i = 0; i < 2; i++) {
    then[i].permitted = now[i].permitted & (uint32_t)(keep >> (32 * i));
    then[i].effective = then[i].permitted;
  }
  return syscall(SYS_capset, &head, then) < 0 ? -1 : 0;
}

int cb_seccomp_load(int fd)
{
  struct sock_filter code[FILTER_MAX];
  size_t have = 0;

  for (;;) {
    ssize_t k = pread(fd, (char *)code + have, sizeof code - have, (off_t)have);
    if (k < 0 && errno == EINTR)
      continue;
    if (k < 0)
      return -1;
    if (k == 0)
      break;
    have += (size_t)k;
    if (have == sizeof code)
      break;
  }
  if (have == 0 || have % sizeof code[0] != 0) {
    errno = EINVAL;
    return -1;
  }
  struct sock_fprog prog = { (unsigned short)(have / sizeof code[0]), code };
  return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog, 0, 0) < 0 ? -1 : 0;
}

/* Is id one of this user namespace? -1 when the map cannot be read. */
static int is_mapped(const char *map_file, unsigned long id)
{
  char text[MAP_TEXT_MAX];
  int fd = open(map_file, O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    return -1;
  ssize_t n = read(fd, text, sizeof text);
  int sys = errno;
  close(fd);
  errno = sys;
  if (n < 0)
    return -1;
  unsigned long field[3] = { 0 };
  int at = 0;
  bool digits = false;
  for (ssize_t i = 0; i < n; i++) {
    char c = text[i];
    if (c >= '0' && c <= '9') {
      field[at] = field[at] * 10 + (unsigned long)(c - '0');
      digits = true;
      continue;
    }
    if (digits && at < 2)
      at++;
    digits = false;
    if (c == '\n') { /* inner first, outer first, count */
      if (id >= field[0] && id - field[0] < field[2])
        return 1;
      field[0] = field[1] = field[2] = 0;
      at = 0;
    }
  }
  return 0;
}

static int put(const char *file, const char *text, size_t n)
{
  int fd = open(file, O_WRONLY | O_CLOEXEC);
  if (fd < 0)
    return -1;
  ssize_t k = write(fd, text, n);
  int sys = errno;
  close(fd);
  errno = k < 0 ? sys : EIO;
  return k == (ssize_t)n ? 0 : -1;
}

static size_t digits(char *out, unsigned long v)
{
  char back[24];
  size_t n = 0, len = 0;
  do
    back[n++] = (char)('0' + v % 10);
  while ((v /= 10) > 0);
  while (n > 0)
    out[len++] = back[--n];
  return len;
}

/* "INNER OUTER 1": one id, the only map an unprivileged process may write. */
static int put_map(const char *file, unsigned long inner, unsigned long outer)
{
  char text[64];
  size_t n = digits(text, inner);
  text[n++] = ' ';
  n += digits(text + n, outer);
  text[n++] = ' ';
  text[n++] = '1';
  return put(file, text, n);
}

#define STEP(name, call)      \
  do {                        \
    if ((call) < 0) {         \
      why->step = name;       \
      why->sys = errno;       \
      return -1;              \
    }                         \
  } while (0)

static int enter_inner_namespace(const struct cb_drop_user *to, struct cb_drop_failure *why)
{
  unsigned long uid = geteuid(), gid = getegid();

  STEP("unshare a user namespace", unshare(CLONE_NEWUSER));
  /* A process that is not dumpable has its /proc files owned by real root, and could not write
   * its own maps. The exec that follows makes it dumpable in any case. */
  STEP("dumpable", prctl(PR_SET_DUMPABLE, 1, 0, 0, 0));
  STEP("write /proc/self/setgroups", put("/proc/self/setgroups", "deny", 4));
  STEP("write /proc/self/gid_map", put_map("/proc/self/gid_map", to->gid, gid));
  STEP("write /proc/self/uid_map", put_map("/proc/self/uid_map", to->uid, uid));
  return 0;
}

static bool is_already(const struct cb_drop_user *to)
{
  uid_t r, e, s;
  gid_t gr, ge, gs;
  return getresuid(&r, &e, &s) == 0 && getresgid(&gr, &ge, &gs) == 0 && r == to->uid &&
         e == to->uid && s == to->uid && gr == to->gid && ge == to->gid && gs == to->gid;
}

int cb_drop_user(const struct cb_drop_user *to, struct cb_drop_failure *why)
{
  int filter = to->filter_fd;
  bool confined; /* a local box; else the machine itself is the boundary */

  /* Opened before anything is given up; the file is world-readable, but order costs nothing. */
  if (filter < 0) {
    filter = open(CB_DROP_FILTER_FILE, O_RDONLY | O_CLOEXEC);
    if (filter < 0 && errno != ENOENT && errno != ENOTDIR)
      STEP("open the system call filter", filter);
  }
  confined = filter >= 0;
  if (!is_already(to)) {
    int uid_here = is_mapped("/proc/self/uid_map", to->uid);
    int gid_here = is_mapped("/proc/self/gid_map", to->gid);
    STEP("read /proc/self/uid_map", uid_here);
    STEP("read /proc/self/gid_map", gid_here);
    if (uid_here && gid_here) {
      /* Raw calls: those of libc signal every thread it believes to exist. */
      STEP("setgroups", syscall(SYS_setgroups, 0, NULL));
      STEP("setresgid", syscall(SYS_setresgid, to->gid, to->gid, to->gid));
      STEP("setresuid", syscall(SYS_setresuid, to->uid, to->uid, to->uid));
    } else {
      confined = true;
      if (enter_inner_namespace(to, why) < 0)
        return -1;
    }
    if (!is_already(to)) {
      why->step = "check the ids after the change";
      why->sys = EPERM;
      return -1;
    }
  }
  if (!confined)
    return 0;
  STEP("no_new_privs", prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
  STEP("drop capabilities", cb_caps_keep(0));
  if (filter >= 0)
    STEP("load the system call filter", cb_seccomp_load(filter));
  if (filter >= 0 && to->filter_fd < 0)
    close(filter);
  return 0;
}
