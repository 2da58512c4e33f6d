/* SPDX-License-Identifier: MIT */
#include "providers/args.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

bool cb_box_id_ok(const char *id)
{
  size_t n = id ? strlen(id) : 0;
  if (n == 0 || n > CB_BOX_ID_MAX)
    return false;
  return strspn(id, "abcdefghijklmnopqrstuvwxyz0123456789-") == n;
}

int cb_arg_text(const json_t *args, const char *name, bool required, const char **out,
                    struct cb_err *err)
{
  const json_t *v = json_object_get(args, name);
  *out = NULL;
  if (!v || json_is_null(v))
    return required ? cb_err_set(err, CB_INVALID, "%s is missing", name) : CB_OK;
  if (!json_is_string(v))
    return cb_err_set(err, CB_INVALID, "%s is not text", name);
  if (strlen(json_string_value(v)) != json_string_length(v))
    return cb_err_set(err, CB_INVALID, "%s holds a NUL byte", name);
  if (required && json_string_length(v) == 0)
    return cb_err_set(err, CB_INVALID, "%s is empty", name);
  *out = json_string_value(v);
  return CB_OK;
}

int cb_arg_int(const json_t *args, const char *name, int64_t least, int64_t most,
                   int64_t otherwise, int64_t *out, struct cb_err *err)
{
  const json_t *v = json_object_get(args, name);
  *out = otherwise;
  if (!v || json_is_null(v))
    return otherwise < least && otherwise != 0
               ? cb_err_set(err, CB_INVALID, "%s is missing", name)
               : CB_OK;
  double d = json_number_value(v);
  if (!json_is_number(v) || d != floor(d) || d < (double)least || d > (double)most)
    return cb_err_set(err, CB_INVALID, "%s is not a whole number from %" PRId64 " to %" PRId64,
                      name, least, most);
  *out = json_is_integer(v) ? json_integer_value(v) : (int64_t)d;
  return CB_OK;
}

int cb_arg_list(const json_t *args, const char *name, const json_t **out, struct cb_err *err)
{
  const json_t *v = json_object_get(args, name);
  *out = NULL;
  if (!v || json_is_null(v))
    return CB_OK;
  if (!json_is_array(v) && !(json_is_object(v) && json_object_size(v) == 0))
    return cb_err_set(err, CB_INVALID, "%s is not a list", name);
  *out = v;
  return CB_OK;
}

int cb_arg_map(const json_t *args, const char *name, const json_t **out, struct cb_err *err)
{
  json_t *v = json_object_get(args, name);
  const char *key;
  json_t *item;
  *out = NULL;
  if (!v || json_is_null(v) || (json_is_array(v) && json_array_size(v) == 0))
    return CB_OK;
  if (!json_is_object(v))
    return cb_err_set(err, CB_INVALID, "%s is not a table of names and texts", name);
  json_object_foreach(v, key, item)
  {
    if (!*key || strchr(key, '='))
      return cb_err_set(err, CB_INVALID, "%s has a bad name", name);
    if (!json_is_string(item) || strlen(json_string_value(item)) != json_string_length(item))
      return cb_err_set(err, CB_INVALID, "%s: the value of %.64s is not text", name, key);
  }
  *out = v;
  return CB_OK;
}
