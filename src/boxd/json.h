/* SPDX-License-Identifier: MIT
 * json.h: small helpers over jansson for bodies that come from clients and texts that come
 * from boxes. Pure. */
#ifndef CB_BOXD_JSON_H
#define CB_BOXD_JSON_H
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/err.h"

/* A string of bytes that may not be UTF-8: each wrong byte becomes U+FFFD. NULL: no memory. */
json_t *cb_json_text(const char *p, size_t n);
/* RFC 3339 in UTC with milliseconds of a unix time. */
json_t *cb_json_time(int64_t unix_ms);
/* The body of a request as an object; no body at all is an empty one. CB_INVALID with a text
 * for the client when it is not an object, or holds a NUL in a string or a key twice. */
int cb_json_body(const char *p, size_t n, json_t **out, struct cb_err *err);
/* An object whose values are all strings (copied into a new one); absent or null is an empty
 * one. CB_INVALID naming `field`. */
int cb_json_string_map(json_t *from, const char *field, json_t **out, struct cb_err *err);
#endif
