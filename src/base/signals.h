/* SPDX-License-Identifier: MIT
 * signals.h: what a child gets between fork and exec. Async-signal-safe. */
#ifndef CB_BASE_SIGNALS_H
#define CB_BASE_SIGNALS_H

/* Default action for every signal, none blocked. Also for the two that libc keeps for itself
 * (32 and 33): its sigaction refuses them, and a parent that ignores them would hand that on. */
void cb_signals_default(void);
#endif
