/* SPDX-License-Identifier: MIT
 * control.h: the endpoints of the control plane (E2B's REST API), one function each. */
#ifndef CB_BOXD_CONTROL_H
#define CB_BOXD_CONTROL_H
#include <jansson.h>
#include "boxd/table.h"
#include "boxd/web.h"

/* envd's version whose behaviour the box dialect has; clients choose their calls by it. */
#define CB_ENVD_VERSION "0.6.1"
#define CB_CLIENT_ID "6532622b"

void cb_control_create_v1(struct cb_request *req);
void cb_control_create_v2(struct cb_request *req);
void cb_control_connect_v1(struct cb_request *req); /* req->box below: a running box */
void cb_control_connect_v2(struct cb_request *req);
void cb_control_info(struct cb_request *req);
void cb_control_timeout(struct cb_request *req);
void cb_control_refresh(struct cb_request *req);
void cb_control_kill(struct cb_request *req); /* req->box: any box, maybe ending */
void cb_control_list_v1(struct cb_request *req);
void cb_control_list_v2(struct cb_request *req);
void cb_control_health(struct cb_request *req);

/* The object Sandbox of a create or connect answer; NULL: no memory. */
json_t *cb_sandbox_json(struct cb_request *req, const struct cb_row *row);
/* ListedSandbox. */
json_t *cb_listed_json(struct cb_request *req, const struct cb_row *row);
/* A failure of a box or of the host as the control plane tells it. */
void cb_control_fail(struct cb_request *req, const struct cb_err *err);
void cb_control_no_box(struct cb_request *req, const char *id);
#endif
