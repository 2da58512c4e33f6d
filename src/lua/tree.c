/* SPDX-License-Identifier: MIT
 * tree.c: core.tree_freeze, tree_unpack, tree_compare, tree_apply: ops on the worker thread. */
#include "tree/tree.h"

#include <string.h>

#include "lua/lib.h"

enum kind { TEXT, NUMBER, FLAG, PATHS };

struct option {
  const char *name;
  enum kind kind;
  bool required;
};

static bool is_text(const json_t *v)
{
  return json_is_string(v) && json_string_length(v) > 0 &&
         strlen(json_string_value(v)) == json_string_length(v);
}

static bool fits(const json_t *v, const struct option *o)
{
  switch (o->kind) {
  case TEXT: return is_text(v);
  case NUMBER: return json_is_number(v) && json_number_value(v) >= 0;
  case FLAG: return json_is_boolean(v);
  case PATHS: break;
  }
  if (!json_is_array(v)) /* {} has no type of its own */
    return json_is_object(v) && json_object_size(v) == 0;
  for (size_t i = 0; i < json_array_size(v); i++) {
    if (!json_is_string(json_array_get(v, i)))
      return false;
  }
  return true;
}

/* The options at argument 2; raises, naming the option, for anything that is not right. */
static json_t *check_options(lua_State *L, const struct option *list)
{
  static const char *const words[] = { "a string", "a number of 0 or more", "a boolean",
                                       "a list of strings" };
  struct cb_err err = CB_ERR_INIT;
  const char *key;
  json_t *item;
  luaL_checktype(L, 2, LUA_TTABLE);
  json_t *o = cb_lua_to_json(L, 2, &err);
  if (o && !json_is_object(o))
    cb_err_set(&err, CB_INVALID, "a table of named options expected");
  json_object_foreach(o, key, item) {
    const struct option *known = list;
    while (known->name && strcmp(known->name, key) != 0)
      known++;
    if (!known->name)
      cb_err_set(&err, CB_INVALID, "unknown option '%.40s'", key);
    else if (!fits(item, known))
      cb_err_set(&err, CB_INVALID, "option '%s' must be %s", key, words[known->kind]);
  }
  for (; !err.code && list->name; list++) {
    if (list->required && !json_object_get(o, list->name))
      cb_err_set(&err, CB_INVALID, "option '%s' is missing", list->name);
  }
  if (err.code) {
    json_decref(o);
    luaL_argerror(L, 2, err.text);
  }
  return o;
}

static int submit(lua_State *L, enum cb_tree_verb verb, const struct option *list)
{
  struct cb_err err = CB_ERR_INIT;
  uint64_t op = 0;
  struct cb_io *io = cb_lua_check_io(L, 1);
  json_t *args = check_options(L, list);
  if (!io) {
    json_decref(args);
    cb_err_set(&err, CB_CLOSED, "the I/O handle is closed or belongs to another process");
    return cb_lua_fail(L, &err);
  }
  if (cb_tree_submit(io, verb, args, &op, &err))
    return cb_lua_fail(L, &err);
  cb_lua_push_int(L, (int64_t)op);
  return 1;
}

#define LIMITS { "max_bytes", NUMBER, false }, { "max_files", NUMBER, false }, { NULL, TEXT, false }

static int tree_freeze(lua_State *L)
{
  static const struct option options[] = { { "root", TEXT, true },  { "paths", PATHS, true },
                                           { "pack", TEXT, true },  { "exclude", PATHS, false },
                                           LIMITS };
  return submit(L, CB_TREE_FREEZE, options);
}

static int tree_unpack(lua_State *L)
{
  static const struct option options[] = { { "pack", TEXT, true }, { "dir", TEXT, true }, LIMITS };
  return submit(L, CB_TREE_UNPACK, options);
}

static int tree_compare(lua_State *L)
{
  static const struct option options[] = {
    { "base", TEXT, true }, { "result", TEXT, true }, { "dir", TEXT, true }, LIMITS
  };
  return submit(L, CB_TREE_COMPARE, options);
}

static int tree_apply(lua_State *L)
{
  static const struct option options[] = { { "root", TEXT, true },
                                           { "base", TEXT, true },
                                           { "result", TEXT, true },
                                           { "dry_run", FLAG, false },
                                           LIMITS };
  return submit(L, CB_TREE_APPLY, options);
}

static const luaL_Reg functions[] = {
  { "tree_freeze", tree_freeze },   { "tree_unpack", tree_unpack },
  { "tree_compare", tree_compare }, { "tree_apply", tree_apply },
  { NULL, NULL },
};

void cb_lua_open_tree(lua_State *L)
{
  luaL_setfuncs(L, functions, 0);
}
