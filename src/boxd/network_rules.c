/* SPDX-License-Identifier: MIT
 * network_rules.c: see network_rules.h. */
#include "boxd/network_rules.h"
#include <string.h>
#include "base/alloc.h"

int cb_network_rules_read(struct cb_network_rules *r, json_t *allow, json_t *forward,
                          struct cb_err *err)
{
  size_t i;
  json_t *v;
  memset(r, 0, sizeof *r);
  if (json_array_size(allow) > CB_EGRESS_RULES_MAX ||
      json_array_size(forward) > CB_EGRESS_RULES_MAX)
    return cb_err_set(err, CB_INVALID, "more than %d network rules", CB_EGRESS_RULES_MAX);
  r->allow = cb_calloc(json_array_size(allow) + 1, sizeof *r->allow);
  r->forward = cb_calloc(json_array_size(forward) + 1, sizeof *r->forward);
  if (!r->allow || !r->forward)
    return cb_err_no_memory(err);
  json_array_foreach(allow, i, v)
  {
    r->allow[r->allow_count++] = json_string_value(v);
  }
  json_array_foreach(forward, i, v)
  {
    r->forward[r->forward_count].port = (uint16_t)json_integer_value(json_object_get(v, "port"));
    r->forward[r->forward_count++].to = json_string_value(json_object_get(v, "to"));
  }
  return CB_OK;
}

void cb_network_rules_clear(struct cb_network_rules *r)
{
  cb_free(r->allow);
  cb_free(r->forward);
  memset(r, 0, sizeof *r);
}
