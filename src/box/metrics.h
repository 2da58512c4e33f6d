/* SPDX-License-Identifier: MIT
 * metrics.h: what a box uses, read from its own /proc. */
#ifndef CB_BOX_METRICS_H
#define CB_BOX_METRICS_H
#include "base/buf.h"
#include "box/init.h"

/* Adds the records of an answer to `metrics`; the names are those of struct cb_box_metrics. */
int cb_metrics_put(const struct cb_init *init, struct cb_buf *into);
#endif
