/* SPDX-License-Identifier: MIT
 * template.h: what a new box starts from: STATE/templates/NAME.json, read at every create.
 *     {"mounts": [{"source": "/abs", "target": "/abs"}], "path": ["/abs"], "env": {"K": "V"}}
 * All three may be left out; anything else in the file is an error. "base" exists without a
 * file and is empty. Mounts are read-only in the box. */
#ifndef CB_BOXD_TEMPLATE_H
#define CB_BOXD_TEMPLATE_H
#include <jansson.h>
#include <stddef.h>
#include "base/err.h"
#include "boxd/box_client.h"

enum { CB_TEMPLATE_NAME_MAX = 64, CB_TEMPLATE_MOUNTS_MAX = 64, CB_TEMPLATE_PATHS_MAX = 32 };

struct cb_template {
  char name[CB_TEMPLATE_NAME_MAX + 1]; /* in lower case */
  json_t *json; /* owns every string below */
  struct cb_box_mount mounts[CB_TEMPLATE_MOUNTS_MAX];
  size_t mount_count;
  const char *path[CB_TEMPLATE_PATHS_MAX];
  size_t path_count;
  json_t *env; /* borrowed from json; an object of strings or NULL */
};

/* name as the client gave it; upper case counts as lower case. state_dir is the descriptor of
 * the state folder. CB_NOT_FOUND naming it; CB_INVALID naming file and mistake. */
int cb_template_load(struct cb_template *t, int state_dir, const char *name, struct cb_err *err);
void cb_template_clear(struct cb_template *t); /* of a zeroed one, too */
#endif
