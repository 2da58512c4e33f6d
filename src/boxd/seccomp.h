/* SPDX-License-Identifier: MIT
 * seccomp.h: the two system call filters of a box, compiled here with libseccomp (pid 1 of a
 * box is libc only) and handed to crewbox-init as raw BPF. Deny lists by effect: what reaches
 * kernel parts a box never needs, or what would undo another layer.
 * Both: no mount API, keyrings, bpf, io_uring, perf, userfaultfd, modules, kexec, handles,
 * terminal injection, odd address families, other processes' memory, 32-bit and x32 calls;
 * clone3 answers ENOSYS (its flags cannot be filtered; libc then uses clone).
 * ROOT (init's processes that are box uid 0, supervisor included): may make a user namespace,
 * nothing else new. USER: not even that. */
#ifndef CB_BOXD_SECCOMP_H
#define CB_BOXD_SECCOMP_H
#include "base/err.h"

enum cb_seccomp_kind { CB_SECCOMP_ROOT, CB_SECCOMP_USER };

/* *out is a sealed memfd with the raw array of struct sock_filter. Any thread. */
int cb_seccomp_compile(enum cb_seccomp_kind kind, int *out, struct cb_err *err);
#endif
