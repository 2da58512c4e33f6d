/* SPDX-License-Identifier: MIT
 * create_spec.h: the body of a create, read and checked, before anything is made. What E2B
 * would do and this server cannot is refused by name; what E2B ignores is ignored; our own
 * extension object `crewbox` is strict. Pure but for reading the template's file. */
#ifndef CB_BOXD_CREATE_SPEC_H
#define CB_BOXD_CREATE_SPEC_H
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include "base/err.h"
#include "boxd/template.h"

enum {
  CB_CREATE_TIMEOUT_V1_S = 15,
  CB_CREATE_TIMEOUT_V2_S = 300,
  CB_TIMEOUT_MAX_S = 30 * 24 * 3600,
  CB_METADATA_MAX = 256 * 1024, /* as JSON text */
};

struct cb_create_spec {
  struct cb_template template;
  int64_t timeout_s;
  json_t *metadata; /* object of strings */
  json_t *env;      /* object of strings: the template's, then envVars over it */
  json_t *allow;    /* list of "name:port" */
  json_t *forward;  /* list of {"port", "to"} */
};

/* Takes nothing. CB_INVALID (400), CB_NOT_FOUND (the template, 404), CB_NO_MEMORY. */
int cb_create_spec_read(struct cb_create_spec *s, json_t *body, bool v2, int state_dir,
                        struct cb_err *err);
void cb_create_spec_clear(struct cb_create_spec *s);

/* A number of seconds in `field` of a body: CB_NOT_FOUND when absent (or null). */
int cb_seconds(json_t *body, const char *field, int64_t *out, struct cb_err *err);
#endif
