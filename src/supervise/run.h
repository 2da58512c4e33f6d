/* SPDX-License-Identifier: MIT
 * run.h: the life of one run, from its orders to its finished state. */
#ifndef CB_SUPERVISE_RUN_H
#define CB_SUPERVISE_RUN_H
#include "base/err.h"

/* Takes the orders and the lock, leaves the session it was started in, starts the agent and stays
 * until nothing of it is left. CB_OK: a finished state was written, whatever became of the agent.
 * CB_EXISTS or CB_BUSY: this launch was started before; nothing was done. Every failure before
 * the lock is told here, every one behind it in the state. */
int cb_sup_run(const char *orders_path, struct cb_err *err);
#endif
