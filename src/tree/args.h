/* SPDX-License-Identifier: MIT
 * args.h: reading arguments and making answers of the tree verbs. The binding has checked names
 * and types before: what is asked for here is there and of its kind. */
#ifndef CB_TREE_ARGS_H
#define CB_TREE_ARGS_H
#include <jansson.h>
#include <stdint.h>

static inline const char *cb_tree_text(const json_t *args, const char *name)
{
  const char *p = json_string_value(json_object_get(args, name));
  return p ? p : "";
}

static inline uint64_t cb_tree_number(const json_t *args, const char *name, uint64_t otherwise)
{
  const json_t *v = json_object_get(args, name);
  double d = json_number_value(v);
  if (json_is_integer(v) && json_integer_value(v) >= 0)
    return (uint64_t)json_integer_value(v);
  return json_is_real(v) && d >= 0 && d < 9e18 ? (uint64_t)d : otherwise;
}

/* {path, name = value}; name NULL: the path alone. NULL when memory runs out. */
static inline json_t *cb_tree_path_and(const char *path, size_t len, const char *name,
                                       const char *value)
{
  json_t *o = json_object();
  if (json_object_set_new(o, "path", json_stringn_nocheck(path, len)) ||
      (name && json_object_set_new(o, name, json_string(value)))) {
    json_decref(o);
    return NULL;
  }
  return o;
}
#endif
