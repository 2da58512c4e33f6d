/* SPDX-License-Identifier: MIT
 * envd_filesystem.c: filesystem.Filesystem of envd. All of it is done by the box's init, from
 * inside the box's view; here are the messages. */
#include <stdio.h>
#include <string.h>
#include "boxd/boxd.h"
#include "boxd/envd.h"
#include "boxd/json.h"
#include "boxd/envd_rpc.h"

enum { DEPTH_MAX = 64 };

static void permissions(const struct cb_box_entry *e, char out[11])
{
  static const char bits[] = "rwxrwxrwx";
  out[0] = e->type == 'd' ? 'd' : e->type == 'l' ? 'L' : '-';
  for (int i = 0; i < 9; i++)
    out[i + 1] = e->mode >> (8 - i) & 1 ? bits[i] : '-';
  out[10] = '\0';
}

/* Zero values are left out, as protobuf's JSON does. */
static json_t *entry_json(const struct cb_box_entry *e)
{
  char perms[11], size[24];
  json_t *j = json_object();
  if (!j)
    return NULL;
  permissions(e, perms);
  json_object_set_new(j, "name", cb_json_text(e->name, strlen(e->name)));
  if (e->type != 'o')
    json_object_set_new(j, "type",
                        json_string(e->type == 'd'   ? "FILE_TYPE_DIRECTORY"
                                    : e->type == 'l' ? "FILE_TYPE_SYMLINK"
                                                     : "FILE_TYPE_FILE"));
  json_object_set_new(j, "path", cb_json_text(e->path, strlen(e->path)));
  if (e->size) {
    snprintf(size, sizeof size, "%lld", (long long)e->size);
    json_object_set_new(j, "size", json_string(size));
  }
  if (e->mode)
    json_object_set_new(j, "mode", json_integer(e->mode));
  json_object_set_new(j, "permissions", json_string(perms));
  if (e->owner)
    json_object_set_new(j, "owner", cb_json_text(e->owner, strlen(e->owner)));
  if (e->group)
    json_object_set_new(j, "group", cb_json_text(e->group, strlen(e->group)));
  json_object_set_new(j, "modifiedTime", cb_json_time(e->modified_ms));
  if (e->link)
    json_object_set_new(j, "symlinkTarget", cb_json_text(e->link, strlen(e->link)));
  return j;
}

static void on_entry(void *arg, struct cb_box_answer *answer)
{
  struct cb_request *req = arg;
  if (answer->err)
    cb_envd_rpc_fail_err(req, answer->err);
  else if (answer->entry_count == 0)
    cb_envd_rpc_fail(req, "internal", "the box told nothing about the path");
  else
    cb_answer_json(req, 200, json_pack("{s:o}", "entry", entry_json(&answer->entries[0])));
}

static void on_entries(void *arg, struct cb_box_answer *answer)
{
  struct cb_request *req = arg;
  if (answer->err) {
    cb_envd_rpc_fail_err(req, answer->err);
    return;
  }
  json_t *out = json_object(), *list = json_array();
  for (size_t i = 0; i < answer->entry_count; i++)
    json_array_append_new(list, entry_json(&answer->entries[i]));
  if (answer->entry_count)
    json_object_set(out, "entries", list);
  json_decref(list);
  cb_answer_json(req, 200, out);
}

static void on_done(void *arg, struct cb_box_answer *answer)
{
  struct cb_request *req = arg;
  if (answer->err)
    cb_envd_rpc_fail_err(req, answer->err);
  else
    cb_answer_json(req, 200, json_object());
}

/* What the calls have in common: the message, a path in it, the user. */
struct call {
  json_t *message;
  const char *path;
  char user_name[CB_AUTH_USER_MAX + 1];
  const char *user; /* NULL: the default one */
};

/* False with the request answered and nothing to free. */
static bool call_read(struct call *c, struct cb_request *req, const char *field)
{
  struct cb_err err = CB_ERR_INIT;
  c->message = cb_envd_rpc_unary(req);
  if (!c->message)
    return false;
  int rc = cb_envd_rpc_user(req, c->user_name, &err);
  c->user = c->user_name[0] ? c->user_name : NULL;
  json_t *path = json_object_get(c->message, field);
  if (!rc && path && !json_is_null(path) && !json_is_string(path))
    rc = cb_err_set(&err, CB_INVALID, "%s must be a string", field);
  c->path = json_string_value(path); /* absent: "", which is the home folder */
  if (!c->path)
    c->path = "";
  if (!rc)
    return true;
  cb_envd_rpc_fail_err(req, &err);
  json_decref(c->message);
  return false;
}

static void call_end(struct call *c, struct cb_request *req, int rc, const struct cb_err *err)
{
  if (rc)
    cb_envd_rpc_fail_err(req, err);
  json_decref(c->message);
}

void cb_envd_stat(struct cb_request *req)
{
  struct cb_err err = CB_ERR_INIT;
  struct call c;
  if (!call_read(&c, req, "path"))
    return;
  int rc = cb_box_stat(cb_row_of(req)->box, c.path, c.user, on_entry, req, NULL, &err);
  call_end(&c, req, rc, &err);
}

void cb_envd_make_dir(struct cb_request *req)
{
  struct cb_err err = CB_ERR_INIT;
  struct call c;
  if (!call_read(&c, req, "path"))
    return;
  int rc = cb_box_mkdir(cb_row_of(req)->box, c.path, c.user, on_entry, req, NULL, &err);
  call_end(&c, req, rc, &err);
}

void cb_envd_move(struct cb_request *req)
{
  struct cb_err err = CB_ERR_INIT;
  struct call c;
  if (!call_read(&c, req, "source"))
    return;
  const char *to = json_string_value(json_object_get(c.message, "destination"));
  int rc = !to || !*to || !*c.path
               ? cb_err_set(&err, CB_INVALID, "source and destination must be paths")
               : cb_box_move(cb_row_of(req)->box, c.path, to, c.user, on_entry, req, NULL, &err);
  call_end(&c, req, rc, &err);
}

void cb_envd_list_dir(struct cb_request *req)
{
  struct cb_err err = CB_ERR_INIT;
  struct call c;
  if (!call_read(&c, req, "path"))
    return;
  json_t *v = json_object_get(c.message, "depth");
  json_int_t depth = json_is_integer(v) ? json_integer_value(v) : 0;
  int rc = CB_OK;
  if ((v && !json_is_null(v) && !json_is_integer(v)) || depth < 0)
    rc = cb_err_set(&err, CB_INVALID, "depth must be a number");
  if (!rc)
    rc = cb_box_list_dir(cb_row_of(req)->box, c.path, c.user,
                         depth < 1 ? 1 : depth > DEPTH_MAX ? DEPTH_MAX : (int)depth, on_entries,
                         req, NULL, &err);
  call_end(&c, req, rc, &err);
}

void cb_envd_remove(struct cb_request *req)
{
  struct cb_err err = CB_ERR_INIT;
  struct call c;
  if (!call_read(&c, req, "path"))
    return;
  int rc = !*c.path
               ? cb_err_set(&err, CB_INVALID, "path is missing")
               : cb_box_remove(cb_row_of(req)->box, c.path, c.user, on_done, req, NULL, &err);
  call_end(&c, req, rc, &err);
}
