/* SPDX-License-Identifier: MIT
 * egress_rules.c: which names a box may reach, and to which addresses they may lead. Pure. */
#include <arpa/inet.h>
#include <ctype.h>
#include <netinet/in.h>
#include <string.h>

#include "base/alloc.h"
#include "boxd/egress.h"

struct allow {
  char *name; /* lower case; of "*.x" only ".x" */
  bool below; /* "*." */
  uint16_t port;
};

struct forward {
  char *to;
  uint16_t port;
};

struct cb_egress_rules {
  struct allow *allow;
  size_t allow_count;
  struct forward *forward;
  size_t forward_count;
};

/* --- reading --- */

static bool port_of(const char *p, uint16_t *out)
{
  unsigned long v = 0;
  size_t n = strlen(p);
  if (n == 0 || n > 5)
    return false;
  for (size_t i = 0; i < n; i++) {
    if (p[i] < '0' || p[i] > '9')
      return false;
    v = v * 10 + (unsigned long)(p[i] - '0');
  }
  *out = (uint16_t)v;
  return v >= 1 && v <= 65535;
}

static bool is_name(const char *p, size_t n)
{
  size_t label = 0;
  if (n == 0 || n > CB_EGRESS_NAME_MAX)
    return false;
  for (size_t i = 0; i < n; i++) {
    if (p[i] == '.') {
      if (label == 0)
        return false;
      label = 0;
    } else if (isalnum((unsigned char)p[i]) || p[i] == '-' || p[i] == '_') {
      if (++label > 63)
        return false;
    } else {
      return false;
    }
  }
  return label > 0;
}

/* All of digits and dots is an address or a mistake, never a name. */
static bool looks_numeric(const char *p, size_t n)
{
  for (size_t i = 0; i < n; i++)
    if (p[i] != '.' && !isdigit((unsigned char)p[i]))
      return false;
  return true;
}

static int read_allow(struct allow *a, const char *rule, struct cb_err *err)
{
  char text[INET_ADDRSTRLEN];
  struct in_addr address;
  const char *colon = strrchr(rule, ':');
  size_t n = colon ? (size_t)(colon - rule) : 0;
  const char *name = rule;

  if (!colon || !port_of(colon + 1, &a->port))
    goto bad;
  if (n > 2 && strncmp(name, "*.", 2) == 0) {
    a->below = true;
    name += 2;
    n -= 2;
  }
  if (!is_name(name, n))
    goto bad;
  if (looks_numeric(name, n)) {
    if (a->below || n >= sizeof text)
      goto bad;
    memcpy(text, name, n);
    text[n] = '\0';
    if (inet_pton(AF_INET, text, &address) != 1)
      goto bad;
  }
  if (a->below) { /* with its dot, for comparing ends */
    name--;
    n++;
  }
  a->name = cb_memdup(name, n);
  if (!a->name)
    return cb_err_no_memory(err);
  for (char *p = a->name; *p; p++)
    *p = (char)tolower((unsigned char)*p);
  return CB_OK;
bad:
  return cb_err_set(err, CB_INVALID,
                    "network rule \"%.120s\": give name:port, *.name:port or 1.2.3.4:port", rule);
}

static int read_forward(struct forward *f, const struct cb_egress_forward *from,
                        struct cb_err *err)
{
  const char *colon = from->to ? strrchr(from->to, ':') : NULL;
  uint16_t port;
  if (from->port == 0 || !colon || colon == from->to || !port_of(colon + 1, &port) ||
      strlen(from->to) > CB_EGRESS_NAME_MAX + 8 || strchr(from->to, ' '))
    return cb_err_set(err, CB_INVALID, "forward of port %u to \"%.120s\": give host:port",
                      (unsigned)from->port, from->to ? from->to : "");
  f->port = from->port;
  f->to = cb_strdup(from->to);
  return f->to ? CB_OK : cb_err_no_memory(err);
}

int cb_egress_rules_new(struct cb_egress_rules **out, const char *const *allow,
                        size_t allow_count, const struct cb_egress_forward *forward,
                        size_t forward_count, struct cb_err *err)
{
  int rc = CB_OK;
  if (allow_count > CB_EGRESS_RULES_MAX || forward_count > CB_EGRESS_RULES_MAX)
    return cb_err_set(err, CB_INVALID, "over %d network rules", CB_EGRESS_RULES_MAX);
  struct cb_egress_rules *r = cb_calloc(1, sizeof *r);
  if (r && allow_count)
    r->allow = cb_calloc(allow_count, sizeof *r->allow);
  if (r && forward_count)
    r->forward = cb_calloc(forward_count, sizeof *r->forward);
  if (!r || (allow_count && !r->allow) || (forward_count && !r->forward))
    rc = cb_err_no_memory(err);
  for (size_t i = 0; i < allow_count && !rc; i++)
    rc = read_allow(&r->allow[r->allow_count++], allow[i], err);
  for (size_t i = 0; i < forward_count && !rc; i++) {
    rc = read_forward(&r->forward[r->forward_count++], &forward[i], err);
    for (size_t k = 0; k < i && !rc; k++)
      if (r->forward[k].port == forward[i].port)
        rc = cb_err_set(err, CB_INVALID, "port %u is forwarded twice",
                        (unsigned)forward[i].port);
  }
  if (rc) {
    cb_egress_rules_free(r);
    return rc;
  }
  *out = r;
  return CB_OK;
}

void cb_egress_rules_free(struct cb_egress_rules *r)
{
  if (!r)
    return;
  for (size_t i = 0; i < r->allow_count; i++)
    cb_free(r->allow[i].name);
  for (size_t i = 0; i < r->forward_count; i++)
    cb_free(r->forward[i].to);
  cb_free(r->allow);
  cb_free(r->forward);
  cb_free(r);
}

bool cb_egress_allows(const struct cb_egress_rules *r, const char *name, uint16_t port)
{
  size_t n = strlen(name);
  for (size_t i = 0; i < r->allow_count; i++) {
    const struct allow *a = &r->allow[i];
    size_t len = strlen(a->name);
    if (a->port != port)
      continue;
    if (a->below ? n > len && strcasecmp(name + n - len, a->name) == 0
                 : strcasecmp(name, a->name) == 0)
      return true;
  }
  return false;
}

const char *cb_egress_forward_to(const struct cb_egress_rules *r, uint16_t port)
{
  for (size_t i = 0; i < r->forward_count; i++)
    if (r->forward[i].port == port)
      return r->forward[i].to;
  return NULL;
}

/* --- addresses (IANA's registries of special-purpose addresses) --- */

enum kind { REFUSED, PRIVATE };

static const struct {
  uint32_t network;
  unsigned bits;
  enum kind kind;
} special4[] = {
  { 0x00000000, 8, REFUSED },  /* this network */
  { 0x0a000000, 8, PRIVATE },  { 0x64400000, 10, PRIVATE }, /* carrier NAT */
  { 0x7f000000, 8, REFUSED },  { 0xa9fe0000, 16, REFUSED }, /* link-local: cloud metadata */
  { 0xac100000, 12, PRIVATE }, { 0xc0000000, 24, REFUSED },
  { 0xc0000200, 24, REFUSED }, { 0xc0586300, 24, REFUSED }, /* 6to4 relays */
  { 0xc0a80000, 16, PRIVATE }, { 0xc6120000, 15, REFUSED }, /* the boxes' own made-up ones */
  { 0xc6336400, 24, REFUSED }, { 0xcb007100, 24, REFUSED },
  { 0xa83f8110, 32, REFUSED },                              /* a cloud's wire server */
  { 0xe0000000, 3, REFUSED },                               /* multicast and above */
};

static bool ok4(uint32_t a, bool literal)
{
  for (size_t i = 0; i < sizeof special4 / sizeof *special4; i++) {
    uint32_t mask = special4[i].bits == 0 ? 0 : ~0u << (32 - special4[i].bits);
    if ((a & mask) == special4[i].network)
      return literal && special4[i].kind == PRIVATE;
  }
  return true;
}

static uint32_t get32(const uint8_t *p)
{
  return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static bool ok6(const uint8_t *a)
{
  static const uint8_t nat64[12] = { 0x00, 0x64, 0xff, 0x9b };
  if (memcmp(a, nat64, sizeof nat64) == 0) /* a way to IPv4: what counts is where it leads */
    return ok4(get32(a + 12), false);
  if ((a[0] & 0xe0) != 0x20) /* beyond 2000::/3 there is nothing global: ::, ::1, mapped, fc, fe */
    return false;
  if (a[0] == 0x20 && a[1] == 0x01 && (a[2] & 0xfe) == 0) /* 2001::/23: Teredo, ORCHID */
    return false;
  if (get32(a) == 0x20010db8 || (a[0] == 0x3f && a[1] == 0xff && (a[2] & 0xf0) == 0))
    return false; /* documentation */
  if (a[0] == 0x20 && a[1] == 0x02) /* 6to4 */
    return ok4(get32(a + 2), false);
  return true;
}

bool cb_egress_address_ok(const struct sockaddr *address, bool literal)
{
  if (address->sa_family == AF_INET)
    return ok4(ntohl(((const struct sockaddr_in *)(const void *)address)->sin_addr.s_addr),
               literal);
  if (address->sa_family == AF_INET6)
    return ok6(((const struct sockaddr_in6 *)(const void *)address)->sin6_addr.s6_addr);
  return false;
}
