/* SPDX-License-Identifier: MIT
 * json.c: see json.h. */
#include "boxd/json.h"
#include <stdio.h>
#include <string.h>
#include <time.h>
#include "base/alloc.h"
#include "base/buf.h"
#include "base/encode.h"

/* Length of the valid character at p, 0 when there is none. */
static size_t character(const char *p, size_t n)
{
  for (size_t len = 1; len <= 4 && len <= n; len++)
    if (cb_utf8_valid(p, len))
      return len;
  return 0;
}

json_t *cb_json_text(const char *p, size_t n)
{
  json_t *out = json_stringn(p, n);
  if (out)
    return out;
  struct cb_buf b;
  cb_buf_init(&b, n * 3 + 1);
  for (size_t i = 0; i < n;) {
    size_t len = character(p + i, n - i);
    if (len)
      cb_buf_add(&b, p + i, len);
    else
      cb_buf_addz(&b, "\xef\xbf\xbd");
    i += len ? len : 1;
  }
  out = json_stringn(b.p ? b.p : "", b.len);
  cb_buf_clear(&b);
  return out;
}

json_t *cb_json_time(int64_t unix_ms)
{
  char text[64];
  struct tm tm;
  time_t s = (time_t)(unix_ms / 1000);
  if (!gmtime_r(&s, &tm))
    return json_string("1970-01-01T00:00:00.000Z");
  size_t k = strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &tm);
  snprintf(text + k, sizeof text - k, ".%03dZ", (int)(unix_ms % 1000));
  return json_string(text);
}

int cb_json_body(const char *p, size_t n, json_t **out, struct cb_err *err)
{
  json_error_t why;
  *out = NULL;
  bool blank = true;
  for (size_t i = 0; i < n && blank; i++)
    blank = strchr(" \t\r\n", p[i]) != NULL && p[i];
  if (blank) {
    *out = json_object();
    return *out ? CB_OK : cb_err_no_memory(err);
  }
  *out = json_loadb(p, n, JSON_REJECT_DUPLICATES, &why);
  if (!*out)
    return cb_err_set(err, CB_INVALID, "request body has an error: %s", why.text);
  if (!json_is_object(*out)) {
    json_decref(*out);
    *out = NULL;
    return cb_err_set(err, CB_INVALID, "request body has an error: it is not a JSON object");
  }
  return CB_OK;
}

int cb_json_string_map(json_t *from, const char *field, json_t **out, struct cb_err *err)
{
  const char *key;
  json_t *value;
  *out = json_object();
  if (!*out)
    return cb_err_no_memory(err);
  if (!from || json_is_null(from))
    return CB_OK;
  int rc = CB_OK;
  if (!json_is_object(from))
    rc = cb_err_set(err, CB_INVALID, "%s must be an object of strings", field);
  json_object_foreach(from, key, value)
  {
    if (rc)
      break;
    if (!json_is_string(value))
      rc = cb_err_set(err, CB_INVALID, "%s.%.100s must be a string", field, key);
    else if (json_object_set(*out, key, value))
      rc = cb_err_no_memory(err);
  }
  if (rc) {
    json_decref(*out);
    *out = NULL;
  }
  return rc;
}
