/* SPDX-License-Identifier: MIT
 * route.h: which endpoint a request is for, and whether its sender may have it. The first look
 * at a request, when only its head is in. */
#ifndef CB_BOXD_ROUTE_H
#define CB_BOXD_ROUTE_H
#include "boxd/web.h"

/* A cb_web_dispatch; the owner is the struct cb_boxd. Sets req->box (and a reference to it) for
 * requests about a box. */
const struct cb_endpoint *cb_route(struct cb_request *req);
#endif
