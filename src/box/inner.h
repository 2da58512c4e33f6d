/* SPDX-License-Identifier: MIT
 * inner.h: what becomes pid 1 of the box, from the first instruction in the new namespaces to
 * the loop that serves it. */
#ifndef CB_BOX_INNER_H
#define CB_BOX_INNER_H
#include <sys/types.h>
#include "box/config.h"
#include "box/view.h"

struct cb_inner {
  struct cb_box_config *config;
  struct cb_view_trees *trees; /* opened by the outer process when it is root, else empty */
  bool have_trees;
  bool switch_ids;  /* the outer process is root: become box uid 0 */
  int listener;     /* init.sock, bound, not listening yet */
  int go;           /* readable once the id maps are written; end-of-file: give up */
  int report;       /* one message to the outer process: nothing but f=ready, or f=failed */
  pid_t outer;      /* as the host sees it; only the isolation check uses it */
};

/* Never returns. */
_Noreturn void cb_inner_run(struct cb_inner *in);
#endif
