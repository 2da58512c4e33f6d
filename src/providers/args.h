/* SPDX-License-Identifier: MIT
 * args.h: reading the tables that verbs and jobs take. Pure. Each function gives CB_OK, or
 * CB_INVALID naming the argument (never its value: it may be secret). Results point into args. */
#ifndef CB_PROVIDERS_ARGS_H
#define CB_PROVIDERS_ARGS_H
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include "base/err.h"

enum { CB_BOX_ID_MAX = 64 };

/* ^[a-z0-9-]{1,64}$: what may enter a URL. NULL is not. */
bool cb_box_id_ok(const char *id);

/* Absent: *out NULL, or CB_INVALID when required. No NUL inside. */
int cb_arg_text(const json_t *args, const char *name, bool required, const char **out,
                struct cb_err *err);
/* Absent: `otherwise`; a number below `least` that is not 0 means that it is required. */
int cb_arg_int(const json_t *args, const char *name, int64_t least, int64_t most,
               int64_t otherwise, int64_t *out, struct cb_err *err);
/* A list; an empty table from Lua counts as one. Absent: *out NULL. */
int cb_arg_list(const json_t *args, const char *name, const json_t **out, struct cb_err *err);
/* An object of texts. Absent: *out NULL. */
int cb_arg_map(const json_t *args, const char *name, const json_t **out, struct cb_err *err);
#endif
