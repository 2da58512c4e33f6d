/* SPDX-License-Identifier: MIT
 * dns.h: as much of DNS (RFC 1035) as a resolver needs that only knows A records. Pure; what it
 * reads comes from inside the box. */
#ifndef CB_BOX_DNS_H
#define CB_BOX_DNS_H
#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
  CB_DNS_MAX = 512, /* of a message over UDP */
  CB_DNS_HEADER = 12,
  CB_DNS_NAME_MAX = 253,
  CB_DNS_TYPE_A = 1,
  CB_DNS_CLASS_IN = 1,
  CB_DNS_OK = 0,
  CB_DNS_FORMAT_ERROR = 1,
  CB_DNS_SERVER_FAILURE = 2,
  CB_DNS_NO_SUCH_NAME = 3,
  CB_DNS_NOT_IMPLEMENTED = 4,
  CB_DNS_REFUSED = 5,
  CB_DNS_TTL_S = 60,
};

struct cb_dns_query {
  char name[CB_DNS_NAME_MAX + 1]; /* lower case, no trailing dot */
  uint16_t type, class;
  size_t question_end; /* header and question */
};

/* CB_DNS_OK, or the rcode to answer with (question_end is then CB_DNS_HEADER); -1: no answer
 * is due (shorter than a header, or itself an answer). */
int cb_dns_parse(struct cb_dns_query *q, const uint8_t *p, size_t n);
/* Builds the answer into out (CB_DNS_MAX bytes). address: NULL for none. Returns its length. */
size_t cb_dns_answer(const uint8_t *query, size_t question_end, int rcode,
                     const struct in_addr *address, uint8_t out[CB_DNS_MAX]);
#endif
