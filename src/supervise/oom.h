/* SPDX-License-Identifier: MIT
 * oom.h: whether the kernel killed for want of memory here. Told from the counter of our memory
 * cgroup, where the box shows it. */
#ifndef CB_SUPERVISE_OOM_H
#define CB_SUPERVISE_OOM_H
#include <stdint.h>

/* Kills for want of memory in our cgroup so far; -1 when that cannot be read. */
int64_t cb_sup_oom_kills(void);
#endif
