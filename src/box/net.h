/* SPDX-License-Identifier: MIT
 * net.h: the network of a box, seen from inside its own network namespace: a loopback and
 * addresses that lead back to it. Needs CAP_NET_ADMIN of that namespace, so before it is
 * given up. */
#ifndef CB_BOX_NET_H
#define CB_BOX_NET_H
#include <netinet/in.h>
#include "box/step.h"

int cb_net_loopback_up(struct cb_step *s);
/* Makes every address of network/bits one of this machine ("ip route add local ... dev lo"). */
int cb_net_local_route(struct in_addr network, unsigned bits, struct cb_step *s);
/* Gives the loopback a further address. A machine with nothing but 127.0.0.1 counts as one
 * without IPv4: getaddrinfo with AI_ADDRCONFIG would not even ask for names. */
int cb_net_address(struct in_addr address, struct cb_step *s);
#endif
