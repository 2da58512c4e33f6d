/* SPDX-License-Identifier: MIT
 * resolve.h: ${VAR} references, environment layers, and what counts as a secret. Pure.
 *
 * The one grammar: \$\{[A-Za-z_][A-Za-z0-9_]*\}. Everything else that has a dollar sign in it
 * stays as it is ($VAR, ${VAR:-x}, $$, ${}, an unfinished ${VAR), so that shell scripts in a
 * configuration survive. A value that was put in is never looked at again. */
#ifndef CB_SECRETS_RESOLVE_H
#define CB_SECRETS_RESOLVE_H
#include <stdbool.h>
#include <stddef.h>
#include "base/buf.h"
#include "base/err.h"

struct cb_reference {
  size_t start, end; /* of the whole ${NAME} in the text */
  const char *name;  /* points into the text */
  size_t name_len;
};

/* Finds the first reference at or behind `at`; false when there is none. */
bool cb_reference_next(const char *text, size_t len, size_t at, struct cb_reference *out);

/* Value of a name, *len its length; NULL: there is none. */
typedef const char *cb_resolve_lookup(void *arg, const char *name, size_t name_len, size_t *len);
/* Hears of a name without a value or with an empty one, once for each reference. May be NULL. */
typedef void cb_resolve_missing(void *arg, const char *name, size_t name_len);

/* Appends text with every reference replaced; a missing one by nothing. CB_TOO_LARGE and
 * CB_NO_MEMORY as the buffer says; the names of *err are never values. */
int cb_resolve(const char *text, size_t len, cb_resolve_lookup *lookup, cb_resolve_missing *missing,
               void *arg, struct cb_buf *out, struct cb_err *err);

/* [A-Za-z_][A-Za-z0-9_]*, at most 255 bytes. */
bool cb_env_name_ok(const char *name, size_t len);

struct cb_env_var {
  const char *name;
  size_t name_len;
  const char *value;
  size_t value_len;
};
/* Takes the variables of all layers, first layer first, and leaves one a name: the last one.
 * They stand in vars[0 .. result) in order of their names. Returns how many. */
size_t cb_env_merge(struct cb_env_var *vars, size_t count);

/* Whether a value that came from a reference or was named as secret is masked. It is, unless
 *  - it has fewer than 8 bytes: masking those would eat ordinary text;
 *  - it is a plain path: begins with "/", "./", "../" or "~/" and has only letters, digits and
 *    . _ - ~ @ + , in its parts;
 *  - it is a URL without user-info, query or fragment;
 *  - it is a handle ("@name" of lower-case letters, digits, - and _) or a mail address.
 * A path or URL with a part that looks random (16 bytes or more with upper case, lower case
 * and digits) is masked all the same: AWS secrets begin with a slash, web hooks are URLs. */
bool cb_secret_is(const char *value, size_t len);

/* Prepares a value for an HTTP header: *value and *len lose blanks and line ends around them.
 * CB_INVALID when a control character is inside; the text names `what`, never the value. */
int cb_header_value(const char *what, const char **value, size_t *len, struct cb_err *err);
#endif
