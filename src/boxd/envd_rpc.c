/* SPDX-License-Identifier: MIT
 * rpc.c: see rpc.h. */
#include "boxd/envd_rpc.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include "boxd/json.h"
#include "wire/frames.h"

static const struct {
  const char *code;
  int status;
} statuses[] = {
  { "canceled", 499 },          { "invalid_argument", 400 },  { "not_found", 404 },
  { "permission_denied", 403 }, { "failed_precondition", 400 }, { "out_of_range", 400 },
  { "internal", 500 },          { "data_loss", 500 },         { "unknown", 500 },
  { "deadline_exceeded", 504 }, { "already_exists", 409 },    { "resource_exhausted", 429 },
  { "aborted", 409 },           { "unimplemented", 501 },     { "unavailable", 503 },
  { "unauthenticated", 401 },
};

const char *cb_envd_rpc_code(enum cb_code code)
{
  switch ((int)code) {
  case CB_NOT_FOUND:
    return "not_found";
  case CB_INVALID:
    return "invalid_argument";
  case CB_EXISTS:
    return "already_exists";
  case CB_UNAUTHORIZED:
    return "unauthenticated";
  case CB_DENIED:
    return "permission_denied";
  case CB_TOO_LARGE:
  case CB_DISK_FULL:
  case CB_NO_MEMORY:
  case CB_QUOTA:
    return "resource_exhausted";
  case CB_CONFLICT:
    return "failed_precondition";
  case CB_UNSUPPORTED:
    return "unimplemented";
  case CB_CLOSED:
  case CB_UNREACHABLE:
  case CB_BUSY:
    return "unavailable";
  case CB_TIMEOUT:
    return "deadline_exceeded";
  default:
    return "internal";
  }
}

static void fail(struct cb_request *req, const char *code, const char *text)
{
  int status = 500;
  for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++)
    if (strcmp(code, statuses[i].code) == 0)
      status = statuses[i].status;
  cb_answer_json(req, status,
                 json_pack("{s:s,s:o}", "code", code, "message",
                           cb_json_text(text, strlen(text))));
}

void cb_envd_rpc_fail(struct cb_request *req, const char *code, const char *fmt, ...)
{
  char text[1024];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  fail(req, code, text);
}

void cb_envd_rpc_fail_err(struct cb_request *req, const struct cb_err *err)
{
  fail(req, cb_envd_rpc_code(err->code), err->text);
}

static bool type_is(struct cb_request *req, const char *want)
{
  const char *type = cb_request_header(req, "Content-Type");
  size_t n = strlen(want);
  return type && strncasecmp(type, want, n) == 0 &&
         (type[n] == '\0' || type[n] == ';' || type[n] == ' ');
}

bool cb_envd_rpc_is_streaming(struct cb_request *req)
{
  return type_is(req, "application/connect+json");
}

static void refuse_type(struct cb_request *req, const char *want)
{
  cb_answer_header(req, "Accept-Post", want);
  cb_answer_text(req, 415, "text/plain; charset=utf-8", "unsupported media type\n");
}

json_t *cb_envd_rpc_unary(struct cb_request *req)
{
  struct cb_err err = CB_ERR_INIT;
  json_t *message;
  if (!type_is(req, "application/json")) {
    refuse_type(req, "application/json");
    return NULL;
  }
  if (cb_json_body(req->body.p ? req->body.p : "", req->body.len, &message, &err)) {
    cb_envd_rpc_fail_err(req, &err);
    return NULL;
  }
  return message;
}

int cb_envd_rpc_streaming(struct cb_request *req, json_t **message, struct cb_err *err)
{
  struct cb_frame_decoder d;
  struct cb_frame frame;
  const char *p = req->body.p ? req->body.p : "";
  size_t n = req->body.len;
  *message = NULL;
  if (!cb_envd_rpc_is_streaming(req)) {
    refuse_type(req, "application/connect+json");
    return CB_UNSUPPORTED;
  }
  cb_frame_decoder_init(&d, CB_WEB_BODY_MAX);
  int got = cb_frame_next(&d, &p, &n, &frame, err);
  int rc = CB_OK;
  if (got < 0)
    rc = cb_err_set(err, CB_INVALID, "protocol error: the envelope is broken");
  else if (got == 0)
    rc = cb_err_set(err, CB_INVALID, "protocol error: the request has no whole envelope");
  else if (frame.flags & CB_FRAME_END)
    rc = cb_err_set(err, CB_INVALID, "protocol error: the first envelope ends the stream");
  else
    rc = cb_json_body(frame.p, frame.n, message, err);
  if (!rc && n > 0) {
    json_decref(*message);
    *message = NULL;
    rc = cb_err_set(err, CB_INVALID, "protocol error: more than one envelope");
  }
  cb_frame_decoder_clear(&d);
  return rc;
}

int cb_envd_rpc_user(struct cb_request *req, char out[CB_AUTH_USER_MAX + 1], struct cb_err *err)
{
  int rc = cb_auth_basic_user(cb_request_header(req, "Authorization"), out, err);
  if (!rc && *out && strcmp(out, "user") != 0 && strcmp(out, "root") != 0)
    rc = cb_err_set(err, CB_UNAUTHORIZED, "invalid username: '%s'", out);
  return rc;
}
