/* SPDX-License-Identifier: MIT
 * files_auth.c: see files_auth.h. */
#include "boxd/files_auth.h"
#include <stdio.h>
#include <string.h>
#include "base/clock.h"
#include "boxd/envd_rpc.h"

int cb_files_authorize(struct cb_request *req, const char *token, bool writing,
                       struct cb_err *err)
{
  const char *given = cb_request_header(req, "X-Access-Token");
  const char *path = cb_request_query(req, "path"), *user = cb_request_query(req, "username");
  if (given)
    return cb_auth_equal(given, token)
               ? CB_OK
               : cb_err_set(err, CB_UNAUTHORIZED,
                            "unauthorized access, please provide a valid access token or method "
                            "signing if supported");
  return cb_auth_signature(cb_request_query(req, "signature"), path ? path : "", writing,
                           user ? user : "", token,
                           cb_request_query(req, "signature_expiration"), cb_wall_ms() / 1000,
                           err);
}

int cb_files_user(struct cb_request *req, char out[CB_AUTH_USER_MAX + 1], struct cb_err *err)
{
  const char *name = cb_request_query(req, "username");
  if (!name || !*name)
    return cb_envd_rpc_user(req, out, err);
  if (strcmp(name, "user") != 0 && strcmp(name, "root") != 0)
    return cb_err_set(err, CB_UNAUTHORIZED, "invalid username: '%.100s'", name);
  snprintf(out, CB_AUTH_USER_MAX + 1, "%s", name);
  return CB_OK;
}

void cb_files_fail(struct cb_request *req, const struct cb_err *err)
{
  switch ((int)err->code) {
  case CB_INVALID:
  case CB_TOO_LARGE:
    cb_answer_error(req, 400, NULL, "%s", err->text);
    return;
  case CB_UNAUTHORIZED:
    cb_answer_error(req, 401, NULL, "%s", err->text);
    return;
  case CB_NOT_FOUND:
    cb_answer_error(req, 404, NULL, "%s", err->text);
    return;
  case CB_DISK_FULL:
    cb_answer_error(req, 507, NULL, "%s", err->text);
    return;
  case CB_CLOSED:
    cb_answer_error(req, 502, NULL, "The sandbox was not found");
    return;
  default: /* a permission among them, as envd does */
    cb_answer_error(req, 500, NULL, "%s", err->text);
    return;
  }
}
