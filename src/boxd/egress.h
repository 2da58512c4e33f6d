/* SPDX-License-Identifier: MIT
 * egress.h: the way out of a box. The init of a box accepts a connection to an allowed name or
 * forwarded port and hands it over (event `relay`); here it is checked against the rules the
 * daemon itself keeps, resolved, connected and spliced. No byte of it is parsed.
 *
 * A name never leads to an address of this machine or its neighbourhood: loopback, private,
 * link-local (cloud metadata), carrier NAT, multicast, reserved, unique-local, and every IPv6
 * form that embeds one of these are refused after resolution, and the address that was checked
 * is the one connected to. A private address can be listed as such ("10.0.0.5:443"); the
 * host's loopback only by a forward rule.
 *
 * All on the loop's thread; getaddrinfo runs on a few threads of its own. */
#ifndef CB_BOXD_EGRESS_H
#define CB_BOXD_EGRESS_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include "base/err.h"
#include "base/log.h"

struct cb_loop;

enum {
  CB_EGRESS_RULES_MAX = 1024,  /* allow and forward rules of one box, each */
  CB_EGRESS_CONNS_MAX = 512,   /* open connections of one box; more are closed at once */
  CB_EGRESS_NAME_MAX = 253,
  CB_EGRESS_CONNECT_MS = 15000, /* over all addresses of a name, resolution included */
  CB_EGRESS_IDLE_MS = 900000,  /* no byte either way */
  CB_EGRESS_HALF_MS = 60000    /* the same once one side has ended */
};

/* --- rules: pure --- */

struct cb_egress_forward {
  uint16_t port;  /* on the box's 127.0.0.1 */
  const char *to; /* "host:port" outside, resolved by the daemon; "127.0.0.1:8080" */
};

struct cb_egress_rules; /* immutable */

/* allow: "name:port", "*.name:port" (any depth below name, not name itself), or
 * "1.2.3.4:port". Letters in any case, no trailing dot. Anything else is CB_INVALID naming
 * the rule. Copies everything. */
int cb_egress_rules_new(struct cb_egress_rules **out, const char *const *allow,
                        size_t allow_count, const struct cb_egress_forward *forward,
                        size_t forward_count, struct cb_err *err);
void cb_egress_rules_free(struct cb_egress_rules *rules); /* NULL is fine */
bool cb_egress_allows(const struct cb_egress_rules *rules, const char *name, uint16_t port);
/* "host:port" of a forward, or NULL. */
const char *cb_egress_forward_to(const struct cb_egress_rules *rules, uint16_t port);
/* Whether a name may lead to this address. literal: it was listed as this very address. */
bool cb_egress_address_ok(const struct sockaddr *address, bool literal);

/* --- relaying --- */

struct cb_egress;      /* one a daemon */
struct cb_egress_box;  /* one a box: rules and open connections */

int cb_egress_new(struct cb_egress **out, struct cb_loop *loop, const struct cb_log *log,
                  struct cb_err *err);
void cb_egress_free(struct cb_egress *egress); /* every box must be gone; waits for its threads */

/* Takes the rules over. id is for the log. */
int cb_egress_box_new(struct cb_egress_box **out, struct cb_egress *egress, const char *id,
                      struct cb_egress_rules *rules, struct cb_err *err);
/* Closes all its connections. */
void cb_egress_box_free(struct cb_egress_box *box);

/* Both take fd over and report nothing: a refusal is a closed connection and a line in the
 * log. Rules are checked here again, whatever the box's init said. */
void cb_egress_relay(struct cb_egress_box *box, int fd, const char *name, uint16_t port);
void cb_egress_relay_forward(struct cb_egress_box *box, int fd, uint16_t port);
#endif
