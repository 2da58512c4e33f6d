/* SPDX-License-Identifier: MIT
 * network_rules.h: a box's network rules from JSON (a create's or box.json's) to the arrays
 * that box_client and egress take. Pure. */
#ifndef CB_BOXD_NETWORK_RULES_H
#define CB_BOXD_NETWORK_RULES_H
#include <jansson.h>
#include "base/err.h"
#include "boxd/egress.h"

struct cb_network_rules {
  const char **allow; /* the strings are those of the JSON */
  size_t allow_count;
  struct cb_egress_forward *forward;
  size_t forward_count;
};

/* allow: list of strings, forward: list of {"port","to"}, both checked for that already; NULL
 * is an empty one. Borrows their strings. Clear it also after a failure. */
int cb_network_rules_read(struct cb_network_rules *r, json_t *allow, json_t *forward,
                          struct cb_err *err);
void cb_network_rules_clear(struct cb_network_rules *r);
#endif
