/* SPDX-License-Identifier: MIT
 * head_guard.h: refuses request heads that two readers could understand differently. The
 * library's parser is lenient (it takes two lengths, or a length beside an encoding); anybody
 * who puts a proxy in front of the daemon must not be harmed by that. */
#ifndef CB_BOXD_HEAD_GUARD_H
#define CB_BOXD_HEAD_GUARD_H
#include <microhttpd.h>
#include <stdbool.h>
#include <stdint.h>

struct cb_head_facts {
  uint64_t length; /* of Content-Length, 0 without */
  bool expects;    /* the client waits for 100 before it sends the body */
};

/* NULL when the head is fine, else why it is refused (a constant). */
const char *cb_head_guard(struct MHD_Connection *conn, struct cb_head_facts *facts);
#endif
