/* SPDX-License-Identifier: MIT
 * inner.c: see inner.h. The order matters: everything that needs capabilities, then they go,
 * then the filter, then the first word to the outside. */
#include "box/inner.h"

#include <errno.h>
#include <linux/capability.h>
#include <linux/keyctl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/drop_user.h"
#include "base/fd.h"
#include "box/check.h"
#include "box/init.h"
#include "box/net.h"
#include "box/protocol.h"
#include "wire/record.h"

#define CAP(x) (1ull << (x))

/* What box uid 0 keeps: ordinary work on files and ids of its own single-id namespace, low
 * ports, and SETFCAP, without which Linux 5.12 refuses the map of the users' inner namespace
 * (file capabilities themselves are void here: nosuid, no_new_privs). */
#define BOX_CAPS                                                                          \
  (CAP(CAP_CHOWN) | CAP(CAP_DAC_OVERRIDE) | CAP(CAP_FOWNER) | CAP(CAP_FSETID) |           \
   CAP(CAP_KILL) | CAP(CAP_SETGID) | CAP(CAP_SETUID) | CAP(CAP_NET_BIND_SERVICE) |        \
   CAP(CAP_SETFCAP))

static void tell(int report, const struct cb_step *failed)
{
  struct cb_buf m;
  cb_buf_init(&m, 4096);
  int rc = cb_record_addz(&m, "f", failed ? "failed" : "ready");
  if (!rc && failed)
    rc = cb_step_put(&m, failed);
  if (!rc)
    (void)cb_send_fds(report, m.p, m.len, NULL, 0, NULL);
  cb_buf_clear(&m);
}

static int become_box_root(const struct cb_inner *in, struct cb_step *s)
{
  if (in->switch_ids &&
      (syscall(SYS_setgroups, 0, NULL) < 0 || syscall(SYS_setresgid, 0, 0, 0) < 0 ||
       syscall(SYS_setresuid, 0, 0, 0) < 0))
    return cb_step_host(s, errno, "become box uid 0", "");
  if (getuid() != 0 || geteuid() != 0)
    return cb_step_host(s, EPERM, "become box uid 0", "the id map did not take effect");
  /* From here on nobody of the same host id can look into this process. Changing ids has
   * switched off the death signal, which ends a half-made box with its maker. */
  if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 || prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
    return cb_step_host(s, errno, "protect pid 1", "");
  return 0;
}

static int limits(struct cb_step *s)
{
  static const struct {
    int what;
    rlim_t soft, hard;
  } most[] = { { RLIMIT_CORE, 0, 0 }, { RLIMIT_NOFILE, 8192, 65536 },
               { RLIMIT_NPROC, 8192, 8192 }, { RLIMIT_MEMLOCK, 64 << 20, 64 << 20 } };
  for (size_t i = 0; i < sizeof most / sizeof *most; i++) {
    struct rlimit now;
    if (getrlimit(most[i].what, &now) < 0)
      return cb_step_host(s, errno, "read a limit", "");
    struct rlimit then = { most[i].soft, most[i].hard };
    if (then.rlim_max > now.rlim_max)
      then.rlim_max = now.rlim_max;
    if (then.rlim_cur > then.rlim_max)
      then.rlim_cur = then.rlim_max;
    if (setrlimit(most[i].what, &then) < 0)
      return cb_step_host(s, errno, "set a limit", "");
  }
  return 0;
}

static int set_up(struct cb_inner *in, struct cb_init **init, struct cb_step *s)
{
  char go;
  if (read(in->go, &go, 1) != 1) /* the outer process could not write the maps, and says so */
    _exit(1);
  cb_close(&in->go);
  setsid();
  if (become_box_root(in, s) < 0)
    return -1;
  if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
    return cb_step_host(s, errno, "make mounts private", "");
  if (!in->have_trees && cb_view_trees_open(in->trees, in->config, s) < 0)
    return -1;
  if (cb_view_build(in->config, in->trees, CB_BOX_FD_USER_FILTER, s) < 0)
    return -1;
  if (sethostname("box", 3) < 0)
    return cb_step_host(s, errno, "set the host name", "");
  /* The daemon's session keyring stays with the daemon. Kernels without keys have none. */
  (void)syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL);
  if (cb_net_loopback_up(s) < 0 || limits(s) < 0)
    return -1;
  if (cb_init_new(init, in->config, in->listener, s) < 0)
    return -1;
  if (cb_view_seal(s) < 0)
    return -1;
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || cb_caps_keep(BOX_CAPS) < 0)
    return cb_step_host(s, errno, "drop capabilities", "");
  if (cb_seccomp_load(CB_BOX_FD_ROOT_FILTER) < 0)
    return cb_step_host(s, errno, "load the system call filter",
                        "the kernel must have CONFIG_SECCOMP_FILTER");
  return 0;
}

void cb_inner_run(struct cb_inner *in)
{
  struct cb_step step = { 0 };
  struct cb_init *init = NULL;

  prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
  prctl(PR_SET_NAME, "crewbox-init", 0, 0, 0);
  int rc = set_up(in, &init, &step);
  if (rc == 0 && in->config->check)
    rc = cb_check_run(in->config, in->outer, &step);
  if (rc != 0 || in->config->check) {
    tell(in->report, rc ? &step : NULL);
    _exit(rc ? 1 : 0);
  }
  if (listen(in->listener, 16) < 0) {
    cb_step_host(&step, errno, "listen on init.sock", "");
    tell(in->report, &step);
    _exit(1);
  }
  close(CB_BOX_FD_REPORT);
  close(CB_BOX_FD_ROOT_FILTER);
  close(CB_BOX_FD_USER_FILTER);
  prctl(PR_SET_PDEATHSIG, 0, 0, 0, 0);
  tell(in->report, NULL);
  cb_close(&in->report);
  cb_init_run(init);
}
