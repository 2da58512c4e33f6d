/* SPDX-License-Identifier: MIT
 * files_auth.h: what /files has of its own: the user of a request may be in the query, and its
 * sender may show a signature instead of the token. */
#ifndef CB_BOXD_FILES_AUTH_H
#define CB_BOXD_FILES_AUTH_H
#include <stdbool.h>
#include "boxd/auth.h"
#include "boxd/web.h"

/* token: the box's right one. CB_UNAUTHORIZED with the text for a 401. */
int cb_files_authorize(struct cb_request *req, const char *token, bool writing,
                       struct cb_err *err);
/* "" for the default user. */
int cb_files_user(struct cb_request *req, char out[CB_AUTH_USER_MAX + 1], struct cb_err *err);
/* A failure of the box as /files tells it. */
void cb_files_fail(struct cb_request *req, const struct cb_err *err);
#endif
