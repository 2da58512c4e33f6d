/* SPDX-License-Identifier: MIT
 * control.c: the control plane but for creating and listing. */
#include "boxd/control.h"
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/clock.h"
#include "boxd/auth.h"
#include "boxd/boxd.h"
#include "boxd/create_spec.h"
#include "boxd/json.h"

enum { REFRESH_MIN_S = 15, REFRESH_MAX_S = 3600 };

void cb_control_fail(struct cb_request *req, const struct cb_err *err)
{
  switch ((int)err->code) {
  case CB_INVALID:
    cb_answer_error(req, 400, NULL, "%s", err->text);
    return;
  case CB_NOT_FOUND:
    cb_answer_error(req, 404, NULL, "%s", err->text);
    return;
  case CB_QUOTA:
    cb_answer_error(req, 429, NULL, "%s", err->text);
    return;
  case CB_ISOLATION:
    cb_answer_error(req, 503, "isolation_unavailable", "%s", err->text);
    return;
  case CB_DISK_FULL:
    cb_answer_error(req, 507, "disk_full", "%s", err->text);
    return;
  case CB_NO_MEMORY:
    cb_answer_error(req, 503, "sandbox_capacity_unavailable", "%s", err->text);
    return;
  default:
    cb_answer_error(req, 500, "internal_server_error", "%s", err->text);
    return;
  }
}

void cb_control_no_box(struct cb_request *req, const char *id)
{
  cb_answer_error(req, 404, NULL, "Sandbox \"%s\" doesn't exist or you don't have access to it",
                  id);
}

/* --- objects --- */

json_t *cb_sandbox_json(struct cb_request *req, const struct cb_row *row)
{
  char token[CB_AUTH_TOKEN_LEN + 1];
  const struct cb_state *state = &cb_boxd_of(req)->state;
  cb_auth_token(state->seed, sizeof state->seed, row->id, token);
  return json_pack("{s:s,s:s,s:s,s:s,s:s,s:s,s:n,s:n}", "templateID", row->template, "sandboxID",
                   row->id, "alias", row->template, "clientID", CB_CLIENT_ID, "envdVersion",
                   CB_ENVD_VERSION, "envdAccessToken", token, "trafficAccessToken", "domain");
}

json_t *cb_listed_json(struct cb_request *req, const struct cb_row *row)
{
  struct statvfs fs;
  json_int_t disk_mb = 0;
  if (fstatvfs(cb_boxd_of(req)->state.dir, &fs) == 0)
    disk_mb = (json_int_t)((unsigned long long)fs.f_blocks * fs.f_frsize >> 20);
  json_int_t memory_mb =
      (json_int_t)((unsigned long long)sysconf(_SC_PHYS_PAGES) *
                   (unsigned long long)sysconf(_SC_PAGESIZE) >> 20);
  return json_pack("{s:s,s:s,s:s,s:s,s:o,s:o,s:s,s:I,s:I,s:I,s:O,s:s}", "templateID",
                   row->template, "alias", row->template, "sandboxID", row->id, "clientID",
                   CB_CLIENT_ID, "startedAt", cb_json_time(row->started_at_ms), "endAt",
                   cb_json_time(cb_row_end_wall_ms(row)), "envdVersion", CB_ENVD_VERSION,
                   "cpuCount", (json_int_t)sysconf(_SC_NPROCESSORS_ONLN), "memoryMB", memory_mb,
                   "diskSizeMB", disk_mb, "metadata", row->metadata, "state", "running");
}

void cb_control_info(struct cb_request *req)
{
  const struct cb_row *row = cb_row_of(req);
  json_t *j = cb_listed_json(req, row), *more = cb_sandbox_json(req, row);
  if (j && more) {
    json_object_set(j, "envdAccessToken", json_object_get(more, "envdAccessToken"));
    json_object_set_new(j, "domain", json_null());
    json_object_set_new(j, "allowInternetAccess", json_boolean(json_array_size(row->allow) > 0));
    json_object_set_new(j, "lifecycle",
                        json_pack("{s:b,s:s}", "autoResume", 0, "onTimeout", "kill"));
    json_object_set_new(j, "crewbox",
                        json_pack("{s:{s:s,s:O,s:O}}", "network", "mode",
                                  json_array_size(row->allow) ? "allowlist" : "none", "allow",
                                  row->allow, "forward", row->forward));
  }
  json_decref(more);
  cb_answer_json(req, 200, j);
}

/* --- time --- */

/* The body, or NULL with the request answered. */
static json_t *body_of(struct cb_request *req)
{
  struct cb_err err = CB_ERR_INIT;
  json_t *body;
  if (cb_json_body(req->body.p ? req->body.p : "", req->body.len, &body, &err) == CB_OK)
    return body;
  cb_control_fail(req, &err);
  return NULL;
}

/* Seconds of field, or fallback; false with the request answered. Without a fallback (-1) the
 * field is required. */
static bool seconds_of(struct cb_request *req, json_t *body, const char *field, int64_t fallback,
                       int64_t *out)
{
  struct cb_err err = CB_ERR_INIT;
  int rc = cb_seconds(body, field, out, &err);
  if (rc == CB_NOT_FOUND && fallback >= 0) {
    *out = fallback;
    return true;
  }
  if (!rc && *out > CB_TIMEOUT_MAX_S)
    rc = cb_err_set(&err, CB_INVALID, "Timeout cannot be greater than %d hours",
                    CB_TIMEOUT_MAX_S / 3600);
  if (rc)
    cb_answer_error(req, 400, NULL, "validation error: %s", err.text);
  return rc == CB_OK;
}

/* Moves the end to seconds from now, but never nearer. */
static int extend(struct cb_row *row, int64_t seconds, struct cb_err *err)
{
  int64_t end = cb_boot_ms() + seconds * 1000;
  return end > row->end_boot_ms ? cb_row_set_end(row, end, err) : CB_OK;
}

static void connect_box(struct cb_request *req, int64_t fallback)
{
  struct cb_err err = CB_ERR_INIT;
  int64_t seconds;
  json_t *body = body_of(req);
  if (!body)
    return;
  if (seconds_of(req, body, "timeout", fallback, &seconds)) {
    if (extend(cb_row_of(req), seconds, &err))
      cb_control_fail(req, &err);
    else
      cb_answer_json(req, 200, cb_sandbox_json(req, cb_row_of(req)));
  }
  json_decref(body);
}

void cb_control_connect_v1(struct cb_request *req)
{
  connect_box(req, -1);
}

void cb_control_connect_v2(struct cb_request *req)
{
  connect_box(req, CB_CREATE_TIMEOUT_V2_S);
}

void cb_control_timeout(struct cb_request *req)
{
  struct cb_err err = CB_ERR_INIT;
  int64_t seconds;
  json_t *body = body_of(req);
  if (!body)
    return;
  if (seconds_of(req, body, "timeout", -1, &seconds)) {
    if (seconds < 0)
      seconds = 0;
    if (cb_row_set_end(cb_row_of(req), cb_boot_ms() + seconds * 1000, &err))
      cb_control_fail(req, &err);
    else
      cb_answer_empty(req, 204);
  }
  json_decref(body);
}

void cb_control_refresh(struct cb_request *req)
{
  struct cb_err err = CB_ERR_INIT;
  int64_t seconds;
  json_t *body = body_of(req);
  if (!body)
    return;
  if (seconds_of(req, body, "duration", REFRESH_MIN_S, &seconds)) {
    if (seconds < 0 || seconds > REFRESH_MAX_S)
      cb_answer_error(req, 400, NULL, "validation error: duration must be 0 to %d", REFRESH_MAX_S);
    else if (extend(cb_row_of(req), seconds < REFRESH_MIN_S ? REFRESH_MIN_S : seconds, &err))
      cb_control_fail(req, &err);
    else
      cb_answer_empty(req, 204);
  }
  json_decref(body);
}

/* --- the end --- */

struct kill_op {
  struct cb_row_waiter waiter; /* first member */
  struct cb_request *req;
};

static void on_gone(struct cb_row_waiter *w, const struct cb_err *err)
{
  struct kill_op *op = (struct kill_op *)w;
  if (err)
    cb_answer_error(op->req, 500, "internal_server_error",
                    "the sandbox is dead, but its files could not be removed: %s", err->text);
  else
    cb_answer_empty(op->req, 204);
  cb_free(op);
}

void cb_control_kill(struct cb_request *req)
{
  struct kill_op *op = cb_calloc(1, sizeof *op);
  if (!op) {
    cb_answer_error(req, 503, NULL, "out of memory");
    return;
  }
  op->req = req;
  op->waiter.gone = on_gone;
  cb_row_kill(cb_row_of(req), &op->waiter);
}

/* --- health --- */

/* "namespaces (user, mount), overlay view; a remark" as a list: what is in brackets stays
 * together, the remark is none. */
static json_t *layers_of(const char *summary)
{
  json_t *list = json_array();
  while (list && *summary && *summary != ';') {
    size_t n = 0;
    for (int depth = 0; summary[n] && (depth > 0 || (summary[n] != ',' && summary[n] != ';')); n++)
      depth += summary[n] == '(' ? 1 : summary[n] == ')' ? -1 : 0;
    json_array_append_new(list, json_stringn(summary, n));
    summary += n;
    summary += strspn(summary, ", ");
  }
  return list;
}

void cb_control_health(struct cb_request *req)
{
  const struct cb_isolation *iso = cb_isolation_last(cb_boxd_of(req)->boxes);
  json_t *isolation = json_pack("{s:s,s:o}", "state",
                                !iso->known ? "unknown" : iso->ok ? "ok" : "unavailable",
                                "layers", layers_of(iso->ok ? iso->summary : ""));
  if (isolation && iso->known && !iso->ok)
    json_object_set_new(isolation, "reason",
                        cb_json_text(iso->err.text, strlen(iso->err.text)));
  cb_answer_json(req, 200,
                 json_pack("{s:s,s:s,s:o}", "server", "crewboxd", "version", CB_VERSION,
                           "isolation", isolation));
}
