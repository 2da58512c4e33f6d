/* SPDX-License-Identifier: MIT
 * interrupt.h: SIGINT and SIGTERM as facts that a program asks for. Process-wide, as signals
 * are. Only programs of our own call catch (the command line, the engine); a host keeps its
 * handlers. Any thread. */
#ifndef CB_NET_INTERRUPT_H
#define CB_NET_INTERRUPT_H
#include "base/err.h"

/* Installs the handlers, once; a signal that is ignored stays so (nohup). */
int cb_interrupt_catch(struct cb_err *err);
/* The last signal that came, 0 if none; *count: how many came in all. */
int cb_interrupted(int *count);
/* Readable while a signal came that cb_interrupt_seen has not seen; -1 before catch. */
int cb_interrupt_fd(void);
void cb_interrupt_seen(void);
#endif
