/* SPDX-License-Identifier: MIT
 * boxd.h: what the handlers of crewboxd share: the daemon's parts, made by main.c and given to
 * every request as req->owner. */
#ifndef CB_BOXD_BOXD_H
#define CB_BOXD_BOXD_H
#include <stdbool.h>
#include "base/log.h"
#include "boxd/box_client.h"
#include "boxd/loop.h"
#include "boxd/state.h"
#include "boxd/table.h"
#include "boxd/web.h"

struct cb_boxd {
  struct cb_loop *loop;
  struct cb_log log;
  struct cb_state state;
  struct cb_boxes *boxes;
  struct cb_table *table;
  struct cb_web *web;
  bool stopping; /* no new work */
};

static inline struct cb_boxd *cb_boxd_of(struct cb_request *req)
{
  return req->owner;
}

static inline struct cb_row *cb_row_of(struct cb_request *req)
{
  return req->box;
}
#endif
