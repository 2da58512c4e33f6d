/* SPDX-License-Identifier: MIT
 * template.c: see template.h. The file is the operator's, so every mistake in it is named. */
#include "boxd/template.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include "base/path.h"
#include "boxd/env_name.h"

enum { FILE_MAX = 256 * 1024 };

/* Mounting over one of these as a whole would hide what the box is made of. */
static const char *const kept[] = {
  "/",     "/usr",     "/etc",     "/proc",     "/dev",  "/sys",   "/run",  "/tmp",
  "/var",  "/home",    "/bin",     "/sbin",     "/lib",  "/lib64", "/root", "/home/user",
  "/var/tmp", "/usr/bin", "/usr/sbin", "/usr/lib", "/usr/local", "/usr/local/bin",
};
/* Nor anything below these: the box makes them itself. */
static const char *const closed[] = { "/proc/", "/dev/", "/sys/", "/run/" };

/* "/a/b": absolute, ordinary components, no slash at the end. */
static bool is_absolute(const char *p)
{
  return p[0] == '/' && (p[1] == '\0' || cb_path_is_plain(p + 1, strlen(p + 1)));
}

static int check_target(const char *target, struct cb_err *err)
{
  if (!is_absolute(target))
    return cb_err_set(err, CB_INVALID, "mount target \"%.200s\" is not a plain absolute path",
                      target);
  for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
    if (strcmp(target, kept[i]) == 0)
      return cb_err_set(err, CB_INVALID, "mount target %s is refused: choose a folder below it",
                        target);
  for (size_t i = 0; i < sizeof closed / sizeof *closed; i++)
    if (strncmp(target, closed[i], strlen(closed[i])) == 0)
      return cb_err_set(err, CB_INVALID, "mount target %.200s is refused: %s is the box's own",
                        target, closed[i]);
  return CB_OK;
}

static int read_mount(struct cb_template *t, json_t *from, struct cb_err *err)
{
  const char *key, *source = NULL, *target = NULL;
  json_t *value;
  struct stat st;
  if (!json_is_object(from))
    return cb_err_set(err, CB_INVALID, "a mount must be an object of source and target");
  json_object_foreach(from, key, value)
  {
    if (strcmp(key, "source") == 0)
      source = json_string_value(value);
    else if (strcmp(key, "target") == 0)
      target = json_string_value(value);
    else
      return cb_err_set(err, CB_INVALID, "unknown key \"%.100s\" in a mount", key);
  }
  if (!source || !target)
    return cb_err_set(err, CB_INVALID, "a mount needs the strings source and target");
  if (!is_absolute(source))
    return cb_err_set(err, CB_INVALID, "mount source \"%.200s\" is not a plain absolute path",
                      source);
  int rc = check_target(target, err);
  if (rc)
    return rc;
  if (stat(source, &st) < 0)
    return cb_err_errno(err, errno, "mount source %.200s", source);
  if (!S_ISDIR(st.st_mode) && !S_ISREG(st.st_mode))
    return cb_err_set(err, CB_INVALID, "mount source %.200s is neither a folder nor a file",
                      source);
  for (size_t i = 0; i < t->mount_count; i++)
    if (strcmp(t->mounts[i].target, target) == 0)
      return cb_err_set(err, CB_INVALID, "mount target %.200s is there twice", target);
  if (t->mount_count == CB_TEMPLATE_MOUNTS_MAX)
    return cb_err_set(err, CB_INVALID, "more than %d mounts", CB_TEMPLATE_MOUNTS_MAX);
  t->mounts[t->mount_count++] = (struct cb_box_mount){ source, target };
  return CB_OK;
}

static int read_path(struct cb_template *t, json_t *from, struct cb_err *err)
{
  const char *p = json_string_value(from);
  if (!p || !is_absolute(p) || strchr(p, ':'))
    return cb_err_set(err, CB_INVALID, "path must be a list of plain absolute folders");
  if (t->path_count == CB_TEMPLATE_PATHS_MAX)
    return cb_err_set(err, CB_INVALID, "more than %d folders in path", CB_TEMPLATE_PATHS_MAX);
  t->path[t->path_count++] = p;
  return CB_OK;
}

static int read_env(struct cb_template *t, json_t *from, struct cb_err *err)
{
  const char *key;
  json_t *value;
  if (!json_is_object(from))
    return cb_err_set(err, CB_INVALID, "env must be an object of strings");
  json_object_foreach(from, key, value)
  {
    if (!cb_env_name_ok(key))
      return cb_err_set(err, CB_INVALID, "env name \"%.100s\" is not a variable's name", key);
    if (!json_is_string(value))
      return cb_err_set(err, CB_INVALID, "env.%.100s must be a string", key);
  }
  t->env = from;
  return CB_OK;
}

static int read_list(struct cb_template *t, json_t *list, const char *key,
                     int (*one)(struct cb_template *, json_t *, struct cb_err *),
                     struct cb_err *err)
{
  size_t i;
  json_t *value;
  if (!json_is_array(list))
    return cb_err_set(err, CB_INVALID, "%s must be a list", key);
  json_array_foreach(list, i, value)
  {
    int rc = one(t, value, err);
    if (rc)
      return rc;
  }
  return CB_OK;
}

static int read_all(struct cb_template *t, struct cb_err *err)
{
  const char *key;
  json_t *value;
  int rc = CB_OK;
  if (!json_is_object(t->json))
    return cb_err_set(err, CB_INVALID, "it is not a JSON object");
  json_object_foreach(t->json, key, value)
  {
    if (strcmp(key, "mounts") == 0)
      rc = read_list(t, value, key, read_mount, err);
    else if (strcmp(key, "path") == 0)
      rc = read_list(t, value, key, read_path, err);
    else if (strcmp(key, "env") == 0)
      rc = read_env(t, value, err);
    else
      rc = cb_err_set(err, CB_INVALID, "unknown key \"%.100s\": known are mounts, path and env",
                      key);
    if (rc)
      return rc;
  }
  return CB_OK;
}

/* A name that can be a file's: [a-z0-9] first, then those and "._-". */
static bool fold_name(const char *name, char out[CB_TEMPLATE_NAME_MAX + 1])
{
  size_t n = strlen(name);
  if (n == 0 || n > CB_TEMPLATE_NAME_MAX)
    return false;
  for (size_t i = 0; i < n; i++) {
    char c = name[i];
    if (c >= 'A' && c <= 'Z')
      c = (char)(c - 'A' + 'a');
    bool alnum = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
    if (!alnum && (i == 0 || (c != '.' && c != '_' && c != '-')))
      return false;
    out[i] = c;
  }
  out[n] = '\0';
  return true;
}

int cb_template_load(struct cb_template *t, int state_dir, const char *name, struct cb_err *err)
{
  char file[CB_TEMPLATE_NAME_MAX + 32];
  struct cb_buf b;
  json_error_t why;
  memset(t, 0, sizeof *t);
  char *folded = t->name;
  if (!fold_name(name, folded))
    return cb_err_set(err, CB_NOT_FOUND, "template '%.100s' not found", name);
  snprintf(file, sizeof file, "templates/%s.json", folded);
  cb_buf_init(&b, FILE_MAX);
  struct cb_err inner = CB_ERR_INIT;
  int rc = cb_read_file_beneath(state_dir, file, &b, &inner);
  if (rc == CB_NOT_FOUND && strcmp(folded, "base") == 0) {
    rc = CB_OK; /* nothing in it, and nothing needs to be freed */
  } else if (rc == CB_NOT_FOUND) {
    rc = cb_err_set(err, CB_NOT_FOUND,
                    "template '%s' not found: there is no %s in the state folder", folded, file);
  } else if (rc) {
    rc = cb_err_set(err, CB_INVALID, "template '%s': %s", folded, inner.text);
  } else {
    t->json = json_loadb(b.p ? b.p : "", b.len, JSON_REJECT_DUPLICATES, &why);
    if (!t->json)
      rc = cb_err_set(err, CB_INVALID, "%s line %d: %s", file, why.line, why.text);
    else if (read_all(t, &inner))
      rc = cb_err_set(err, CB_INVALID, "%s: %s", file, inner.text);
  }
  cb_buf_clear(&b);
  if (rc)
    cb_template_clear(t);
  return rc;
}

void cb_template_clear(struct cb_template *t)
{
  json_decref(t->json);
  memset(t, 0, sizeof *t);
}
