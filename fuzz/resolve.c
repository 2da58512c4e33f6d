/* SPDX-License-Identifier: MIT
 * ${VAR} in a text, beside a second reading of the grammar: the same references are found, the
 * result has the length that follows from them, and a value that was put in is not looked at. */
#include <assert.h>
#include <stdbool.h>
#include <string.h>

#include "fuzz/fuzz.h"
#include "secrets/resolve.h"

static const char value[] = "${A}"; /* would be replaced again by a second look */

struct seen {
  size_t found, missing;
};

/* Names that begin with a letter up to M have a value. */
static const char *lookup(void *arg, const char *name, size_t n, size_t *len)
{
  struct seen *s = arg;
  s->found++;
  assert(n > 0 && cb_env_name_ok(name, n <= 255 ? n : 255));
  if (name[0] > 'M')
    return NULL;
  *len = sizeof value - 1;
  return value;
}

static void missing(void *arg, const char *name, size_t n)
{
  struct seen *s = arg;
  (void)name;
  (void)n;
  s->missing++;
}

static bool letter(uint8_t c)
{
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

/* Length of the reference that begins here, 0 when none does. */
static size_t reference(const uint8_t *p, size_t n)
{
  size_t at = 3;
  if (n < 4 || p[0] != '$' || p[1] != '{' || !letter(p[2]))
    return 0;
  while (at < n && (letter(p[at]) || (p[at] >= '0' && p[at] <= '9')))
    at++;
  return at < n && p[at] == '}' ? at + 1 : 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
  struct seen s = { 0, 0 };
  struct cb_buf out;
  size_t want = 0, found = 0, absent = 0;
  cb_buf_init(&out, 1 << 20);
  assert(cb_resolve((const char *)p, n, lookup, missing, &s, &out, NULL) == CB_OK);
  for (size_t at = 0, len; at < n; at += len ? len : 1) {
    len = reference(p + at, n - at);
    if (!len) {
      assert(want < out.len && (uint8_t)out.p[want] == p[at]);
      want++;
      continue;
    }
    found++;
    if (p[at + 2] > 'M') {
      absent++;
    } else {
      assert(memcmp(out.p + want, value, sizeof value - 1) == 0);
      want += sizeof value - 1;
    }
  }
  assert(out.len == want && s.found == found && s.missing == absent);
  cb_buf_clear(&out);

  /* The judgements about values read any bytes. */
  const char *v = (const char *)p;
  size_t len = n;
  cb_secret_is(v, len);
  if (cb_header_value("it", &v, &len, NULL) == CB_OK)
    for (size_t i = 0; i < len; i++)
      assert(v[i] != '\n' && v[i] != '\r' && v[i] != '\0');
  return 0;
}
