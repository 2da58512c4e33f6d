/* SPDX-License-Identifier: MIT
 * relay.h: the listeners behind which the outside seems to be. A connection to one is accepted
 * and handed to the daemon as it is, with the name (or forward) it stands for; not a byte of
 * it is read here. Without a daemon it is reset. */
#ifndef CB_BOX_RELAY_H
#define CB_BOX_RELAY_H
#include <netinet/in.h>
#include "box/init.h"

/* Opens the listeners of forwards, of names and of addresses listed as such. */
int cb_relays_new(struct cb_init *init, struct cb_step *s);
/* The address of an allowed name, made up at its first use when a "*." rule allows it. False
 * when it is not allowed (*full false) or the table is full (*full true). */
bool cb_relays_resolve(struct cb_init *init, const char *name, struct in_addr *out, bool *full);
#endif
