/* SPDX-License-Identifier: MIT
 * envd_rpc.h: the Connect protocol of envd's calls, JSON only: how requests are read and errors are
 * told. Unary calls fail by HTTP status and a JSON body, streaming ones by their trailer. */
#ifndef CB_BOXD_ENVD_RPC_H
#define CB_BOXD_ENVD_RPC_H
#include <jansson.h>
#include "base/err.h"
#include "boxd/auth.h"
#include "boxd/stream.h"
#include "boxd/web.h"

/* "not_found" for CB_NOT_FOUND and so on; never NULL. */
const char *cb_envd_rpc_code(enum cb_code code);
void cb_envd_rpc_fail(struct cb_request *req, const char *code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void cb_envd_rpc_fail_err(struct cb_request *req, const struct cb_err *err);

/* The message of a unary request, or NULL with the request answered. */
json_t *cb_envd_rpc_unary(struct cb_request *req);
/* The one message of a streaming request. CB_INVALID with a text for the trailer. NULL and
 * CB_UNSUPPORTED with the request answered when it is not a streaming request at all. */
int cb_envd_rpc_streaming(struct cb_request *req, json_t **message, struct cb_err *err);
bool cb_envd_rpc_is_streaming(struct cb_request *req); /* by its Content-Type */

/* The user a request names: "", "user" or "root". CB_UNAUTHORIZED. */
int cb_envd_rpc_user(struct cb_request *req, char out[CB_AUTH_USER_MAX + 1], struct cb_err *err);
#endif
