/* SPDX-License-Identifier: MIT
 * drop_user.h: become the unprivileged user of a box, in the child between fork and exec.
 * Shared by crewbox-init and crewbox-supervise. libc and kernel only: no allocation, no stdio,
 * no locks; what it needs is on the stack, so it may run after a fork of a threaded program.
 *
 * Two worlds, told apart by /proc/self/uid_map:
 * - uid is mapped here (a virtual machine, or a box with a range of ids): setgroups, setresgid,
 *   setresuid.
 * - only one id is mapped (a local box: box uid 0): a further user namespace is made in which
 *   the same host id is called uid, all capabilities are given up there, and it has no way
 *   back. The process then sees itself as uid; files of box root appear to be its own.
 * In a local box (the second world, or wherever there is a filter) no capability is left in any
 * set, no_new_privs is set, and the filter is loaded. In a machine of the agent's own none of
 * this is done: its users have sudo, which no_new_privs would take away.
 *
 * This guards against accident, not against malice: locally both ids are one host id. */
#ifndef CB_BASE_DROP_USER_H
#define CB_BASE_DROP_USER_H
#include <sys/types.h>

/* Where the init of a local box puts the compiled filter for its users: a raw array of struct
 * sock_filter, read-only in the view. It forbids new user namespaces, so it comes last. */
#define CB_DROP_FILTER_FILE "/run/crewbox/user.bpf"

struct cb_drop_user {
  uid_t uid;     /* E2B and local boxes: 1000 */
  gid_t gid;
  int filter_fd; /* descriptor of a raw sock_filter array, read from its beginning; -1: the
                    file CB_DROP_FILTER_FILE, and none where that file does not exist */
};

struct cb_drop_failure {
  const char *step; /* a constant: "unshare", "uid_map", "setresuid", "seccomp", ... */
  int sys;          /* errno */
};

/* 0, or -1 with *why filled. After a failure the process is in an unknown half-dropped state:
 * report and _exit. The caller must be single-threaded (a fresh fork is) and sets HOME, USER,
 * cwd and the environment itself. When the ids are already those, only the confinement of a
 * local box is left to do, and that is done. */
int cb_drop_user(const struct cb_drop_user *to, struct cb_drop_failure *why);

/* Parts that crewbox-init also needs for itself. Same rules. */

/* Keeps the capabilities of the bit mask `keep` (effective and permitted), clears inheritable
 * and ambient, takes everything else out of the bounding set. 0, or -1 with errno. */
int cb_caps_keep(unsigned long long keep);
/* Loads a raw sock_filter array from fd (at most 4096 instructions). Needs no_new_privs. */
int cb_seccomp_load(int fd);
#endif
