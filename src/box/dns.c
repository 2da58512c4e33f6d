/* SPDX-License-Identifier: MIT
 * dns.c: see dns.h. */
#include "box/dns.h"

#include <ctype.h>
#include <string.h>

enum { LABEL_MAX = 63, QR = 0x80, OPCODE = 0x78, RD = 0x01, RA = 0x80 };

static uint16_t get16(const uint8_t *p)
{
  return (uint16_t)(p[0] << 8 | p[1]);
}

static void put16(uint8_t *p, unsigned v)
{
  p[0] = (uint8_t)(v >> 8);
  p[1] = (uint8_t)v;
}

/* Reads labels at *at into name. No compression: a question is the first name there is. */
static bool get_name(char name[CB_DNS_NAME_MAX + 1], const uint8_t *p, size_t n, size_t *at)
{
  size_t used = 0;
  for (;;) {
    if (*at >= n)
      return false;
    size_t len = p[(*at)++];
    if (len == 0)
      break;
    if (len > LABEL_MAX || len > n - *at || used + len + (used > 0) > CB_DNS_NAME_MAX)
      return false;
    if (used > 0)
      name[used++] = '.';
    for (size_t i = 0; i < len; i++) {
      uint8_t c = p[*at + i];
      if (c <= ' ' || c >= 0x7f || c == '.') /* nothing that a rule could mean */
        return false;
      name[used++] = (char)tolower(c);
    }
    *at += len;
  }
  name[used] = '\0';
  return true;
}

int cb_dns_parse(struct cb_dns_query *q, const uint8_t *p, size_t n)
{
  memset(q, 0, sizeof *q);
  q->question_end = CB_DNS_HEADER;
  if (n < CB_DNS_HEADER || n > CB_DNS_MAX || (p[2] & QR))
    return -1;
  if (p[2] & OPCODE)
    return CB_DNS_NOT_IMPLEMENTED;
  size_t at = CB_DNS_HEADER;
  if (get16(p + 4) != 1 || !get_name(q->name, p, n, &at) || n - at < 4)
    return CB_DNS_FORMAT_ERROR;
  q->type = get16(p + at);
  q->class = get16(p + at + 2);
  q->question_end = at + 4;
  return q->class == CB_DNS_CLASS_IN ? CB_DNS_OK : CB_DNS_REFUSED;
}

size_t cb_dns_answer(const uint8_t *query, size_t question_end, int rcode,
                     const struct in_addr *address, uint8_t out[CB_DNS_MAX])
{
  enum { RECORD = 16 };
  size_t n = question_end;
  memcpy(out, query, n);
  out[2] = (uint8_t)(QR | (query[2] & (OPCODE | RD)));
  out[3] = (uint8_t)(RA | rcode);
  memset(out + 4, 0, 8);
  out[5] = question_end > CB_DNS_HEADER;
  if (!address || n + RECORD > CB_DNS_MAX)
    return n;
  out[7] = 1;
  put16(out + n, 0xc000 | CB_DNS_HEADER); /* the name of the question */
  put16(out + n + 2, CB_DNS_TYPE_A);
  put16(out + n + 4, CB_DNS_CLASS_IN);
  put16(out + n + 6, 0);
  put16(out + n + 8, CB_DNS_TTL_S);
  put16(out + n + 10, 4);
  memcpy(out + n + 12, address, 4);
  return n + RECORD;
}
