/* SPDX-License-Identifier: MIT
 * head_guard.c: see head_guard.h. RFC 9110 5.1 (names are tokens), RFC 9112 6.3 (lengths). */
#include "boxd/head_guard.h"
#include <string.h>
#include <strings.h>

/* Headers that decide where a request goes or how long it is: given twice, they are refused. */
static const char *const once[] = {
  "Content-Length", "Transfer-Encoding", "Host",           "E2b-Sandbox-Id",
  "E2b-Sandbox-Port", "X-Access-Token",  "X-API-Key",      "Authorization",
  "Content-Type",   "Content-Encoding",  "Connect-Timeout-Ms", "Range",
};
enum { ONCE_COUNT = sizeof once / sizeof *once, LENGTH = 0, ENCODING = 1 };

struct scan {
  unsigned seen[ONCE_COUNT];
  const char *value[2]; /* of LENGTH and ENCODING */
  bool bad_name;
  bool expects;
};

static bool is_token(const char *s)
{
  static const char extra[] = "!#$%&'*+-.^_`|~";
  if (!*s)
    return false;
  for (; *s; s++)
    if (!((*s >= '0' && *s <= '9') || (*s >= 'a' && *s <= 'z') || (*s >= 'A' && *s <= 'Z') ||
          strchr(extra, *s)))
      return false;
  return true;
}

static enum MHD_Result scan_one(void *cls, enum MHD_ValueKind kind, const char *name,
                                const char *value)
{
  struct scan *s = cls;
  (void)kind;
  if (!is_token(name))
    s->bad_name = true;
  for (unsigned i = 0; i < ONCE_COUNT; i++)
    if (strcasecmp(name, once[i]) == 0) {
      s->seen[i]++;
      if (i <= ENCODING)
        s->value[i] = value ? value : "";
    }
  if (strcasecmp(name, "Expect") == 0)
    s->expects = true;
  return MHD_YES;
}

const char *cb_head_guard(struct MHD_Connection *conn, struct cb_head_facts *facts)
{
  struct scan s;
  memset(&s, 0, sizeof s);
  MHD_get_connection_values(conn, MHD_HEADER_KIND, scan_one, &s);
  facts->length = 0;
  facts->expects = s.expects;
  if (s.bad_name)
    return "a header name is not a token";
  for (unsigned i = 0; i < ONCE_COUNT; i++)
    if (s.seen[i] > 1)
      return "a header that may be there once is there twice";
  if (s.seen[LENGTH] && s.seen[ENCODING])
    return "both Content-Length and Transfer-Encoding are given";
  if (s.seen[ENCODING] && strcasecmp(s.value[ENCODING], "chunked") != 0)
    return "Transfer-Encoding must be chunked";
  if (s.seen[LENGTH]) {
    const char *p = s.value[LENGTH];
    if (!*p || strspn(p, "0123456789") != strlen(p) || strlen(p) > 18)
      return "Content-Length is not a number";
    for (; *p; p++)
      facts->length = facts->length * 10 + (uint64_t)(*p - '0');
  }
  return NULL;
}
