/* SPDX-License-Identifier: MIT
 * check.h: the isolation proves itself. In a box made for nothing else, a process that became
 * `user` as every agent does tries what must not work, and what must. */
#ifndef CB_BOX_CHECK_H
#define CB_BOX_CHECK_H
#include <sys/types.h>
#include "box/config.h"
#include "box/step.h"

/* In pid 1, everything set up. outer: a process of the host that is alive. 0, or -1 with the
 * first layer that does not hold. */
int cb_check_run(const struct cb_box_config *config, pid_t outer, struct cb_step *s);
#endif
