/* SPDX-License-Identifier: MIT
 * create.c: POST /sandboxes and POST /v2/sandboxes: read, check, make, answer when the box is
 * up. A client that leaves meanwhile changes nothing: the box is made and lives until its end,
 * where whoever asked can find it by its metadata. */
#include "boxd/boxd.h"
#include "boxd/control.h"
#include "boxd/create_spec.h"
#include "boxd/json.h"

static void on_started(void *arg, struct cb_row *row, const struct cb_err *err)
{
  struct cb_request *req = arg;
  if (err)
    cb_control_fail(req, err);
  else
    cb_answer_json(req, 201, cb_sandbox_json(req, row));
}

static void create(struct cb_request *req, bool v2)
{
  struct cb_boxd *d = cb_boxd_of(req);
  struct cb_err err = CB_ERR_INIT;
  struct cb_create_spec spec;
  json_t *body = NULL;
  int rc = cb_json_body(req->body.p ? req->body.p : "", req->body.len, &body, &err);
  if (!rc)
    rc = cb_create_spec_read(&spec, body, v2, d->state.dir, &err);
  if (!rc) {
    rc = cb_table_create(d->table, &spec, on_started, req, &err);
    cb_create_spec_clear(&spec);
  }
  json_decref(body);
  if (rc)
    cb_control_fail(req, &err);
}

void cb_control_create_v1(struct cb_request *req)
{
  create(req, false);
}

void cb_control_create_v2(struct cb_request *req)
{
  create(req, true);
}
