/* SPDX-License-Identifier: MIT
 * e2b_args.c: arguments of the verbs, checked before anything is sent. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "providers/e2b_call.h"

int cb_e2b_arg_text(const json_t *args, const char *name, bool required, const char **out,
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

int cb_e2b_arg_int(const json_t *args, const char *name, int64_t least, int64_t most,
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

int cb_e2b_arg_list(const json_t *args, const char *name, const json_t **out, struct cb_err *err)
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

int cb_e2b_arg_map(const json_t *args, const char *name, const json_t **out, struct cb_err *err)
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

static int take_id(struct cb_e2b_call *c, const char *id, struct cb_err *err)
{
  if (!cb_e2b_id_ok(id))
    return cb_err_set(err, CB_INVALID, "the id of a box is 1 to %d of a-z, 0-9 and -",
                      (int)CB_E2B_ID_MAX);
  strcpy(c->id, id);
  return CB_OK;
}

int cb_e2b_arg_id(struct cb_e2b_call *c, struct cb_err *err)
{
  const char *id;
  int rc = cb_e2b_arg_text(c->args, "id", true, &id, err);
  return rc ? rc : take_id(c, id, err);
}

int cb_e2b_arg_box(struct cb_e2b_call *c, struct cb_err *err)
{
  const json_t *box = json_object_get(c->args, "box");
  const char *id;
  if (!json_is_object(box))
    return cb_err_set(err, CB_INVALID, "box is not the {id, token, domain} that create gave");
  int rc = cb_e2b_arg_text(box, "id", true, &id, err);
  if (!rc)
    rc = take_id(c, id, err);
  if (!rc)
    rc = cb_e2b_arg_text(box, "token", false, &c->token, err);
  if (!rc)
    rc = cb_e2b_arg_text(box, "domain", false, &c->box_domain, err);
  if (!rc && c->token && !cb_e2b_token_ok(c->token))
    rc = cb_err_set(err, CB_INVALID, "the token of the box is not one");
  if (!rc && c->box_domain && !*c->box_domain)
    c->box_domain = NULL;
  if (!rc && c->box_domain && !cb_e2b_domain_ok(c->box_domain))
    rc = cb_err_set(err, CB_INVALID, "the domain of the box is not a host name");
  return rc;
}
