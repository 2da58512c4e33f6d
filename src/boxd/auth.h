/* SPDX-License-Identifier: MIT
 * auth.h: who may do what: access tokens of boxes, signed file URLs, the user of a request.
 * Pure. A token is made from the box id and the daemon's seed, so none is stored anywhere. */
#ifndef CB_BOXD_AUTH_H
#define CB_BOXD_AUTH_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/err.h"

enum { CB_AUTH_TOKEN_LEN = 64, CB_AUTH_USER_MAX = 64 };

void cb_auth_token(const void *seed, size_t seed_len, const char *box_id,
                   char out[CB_AUTH_TOKEN_LEN + 1]);
/* given may be NULL. Takes the same time for every wrong one. */
bool cb_auth_equal(const char *given, const char *right);

/* The user of an `Authorization: Basic` header, "" when there is no header. CB_UNAUTHORIZED for
 * a header that is not of that form. */
int cb_auth_basic_user(const char *header, char out[CB_AUTH_USER_MAX + 1], struct cb_err *err);

/* A signed URL of /files (query `signature`, `signature_expiration`): path and user as they are
 * in the query, user "" when absent, expiration NULL when absent. CB_UNAUTHORIZED with the
 * text envd uses. */
int cb_auth_signature(const char *signature, const char *path, bool writing, const char *user,
                      const char *token, const char *expiration, int64_t now_s,
                      struct cb_err *err);
#endif
