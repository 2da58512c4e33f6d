/* SPDX-License-Identifier: MIT
 * e2b_args.c: the arguments that name a box, checked before anything is sent. */
#include <string.h>

#include "providers/e2b_call.h"

static int take_id(struct cb_e2b_call *c, const char *id, struct cb_err *err)
{
  if (!cb_box_id_ok(id))
    return cb_err_set(err, CB_INVALID, "the id of a box is 1 to %d of a-z, 0-9 and -",
                      (int)CB_BOX_ID_MAX);
  strcpy(c->id, id);
  return CB_OK;
}

int cb_e2b_arg_id(struct cb_e2b_call *c, struct cb_err *err)
{
  const char *id;
  int rc = cb_arg_text(c->args, "id", true, &id, err);
  return rc ? rc : take_id(c, id, err);
}

int cb_e2b_arg_box(struct cb_e2b_call *c, struct cb_err *err)
{
  const json_t *box = json_object_get(c->args, "box");
  const char *id;
  if (!json_is_object(box))
    return cb_err_set(err, CB_INVALID, "box is not the {id, token, domain} that create gave");
  int rc = cb_arg_text(box, "id", true, &id, err);
  if (!rc)
    rc = take_id(c, id, err);
  if (!rc)
    rc = cb_arg_text(box, "token", false, &c->token, err);
  if (!rc)
    rc = cb_arg_text(box, "domain", false, &c->box_domain, err);
  if (!rc && c->token && !cb_e2b_token_ok(c->token))
    rc = cb_err_set(err, CB_INVALID, "the token of the box is not one");
  if (!rc && c->box_domain && !*c->box_domain)
    c->box_domain = NULL;
  if (!rc && c->box_domain && !cb_e2b_domain_ok(c->box_domain))
    rc = cb_err_set(err, CB_INVALID, "the domain of the box is not a host name");
  return rc;
}
