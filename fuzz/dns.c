/* SPDX-License-Identifier: MIT
 * The resolver of a box: what it parses it can answer, within the bounds of a message. */
#include <assert.h>
#include <string.h>

#include "fuzz/fuzz.h"
/* The room `box` is not linked into fuzz targets; this part of it is pure. */
#include "src/box/dns.c"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
  struct cb_dns_query q;
  struct in_addr address = { 0x020012c6 };
  uint8_t out[CB_DNS_MAX];
  int rcode = cb_dns_parse(&q, p, n);
  if (rcode < 0)
    return 0;
  assert(q.question_end >= CB_DNS_HEADER && q.question_end <= n);
  assert(strlen(q.name) <= CB_DNS_NAME_MAX);
  size_t len = cb_dns_answer(p, q.question_end, rcode, rcode ? NULL : &address, out);
  assert(len >= q.question_end && len <= CB_DNS_MAX);
  assert(cb_dns_parse(&q, out, len) == -1); /* an answer is never a question */
  return 0;
}
