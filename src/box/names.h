/* SPDX-License-Identifier: MIT
 * names.h: the resolver of a box with a network: 127.0.0.1:53 over UDP and TCP. An allowed name
 * gets an address of 198.18.0.0/15 (set aside for tests by RFC 2544, so nobody's) that leads to
 * a listener of relay.h; other types of it are empty, every other name does not exist. */
#ifndef CB_BOX_NAMES_H
#define CB_BOX_NAMES_H
#include "box/init.h"

int cb_names_new(struct cb_init *init, struct cb_step *s);
#endif
