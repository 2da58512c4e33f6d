/* SPDX-License-Identifier: MIT
 * outer.h: the process that makes a box and leaves: namespaces, id maps, waiting for pid 1 to
 * be ready, the report to crewboxd (protocol.h). It runs with the daemon's ids and none of its
 * secrets: it is exec'd afresh with an empty environment. */
#ifndef CB_BOX_OUTER_H
#define CB_BOX_OUTER_H
/* The whole of `crewbox-init box`; returns the exit status. */
int cb_outer_run(void);
#endif
