/* SPDX-License-Identifier: MIT
 * base_layer.h: the cached layer that lets a box with one id write in /usr and /etc.
 *
 * STATE/base/KEY/ holds `usr` (every folder of the host's /usr, empty, owned by the box's id),
 * `etc` (the world-readable small files of the host's /etc, and crewbox's own passwd, group,
 * hosts, resolv.conf, ...), and `lock`. A box mounts overlays over it; in a merged folder the
 * owner of the top layer counts, so creating, replacing and deleting need no copy-up.
 *
 * KEY is a digest of everything that went in: package database and folders of the host, box id,
 * the init program (it is also the `sudo` of the box). Building takes seconds the first time,
 * nothing afterwards. A layer in use is held by a shared flock on KEY/lock: its boxes keep
 * that descriptor open for as long as they live. */
#ifndef CB_BOXD_BASE_LAYER_H
#define CB_BOXD_BASE_LAYER_H
#include <sys/types.h>
#include "base/err.h"

enum { CB_BASE_KEY_LEN = 24 };

struct cb_base_layer {
  char key[CB_BASE_KEY_LEN + 1];
  int lock; /* shared flock; hand it to the box, then cb_base_layer_release */
};

struct cb_base_layer_source {
  const char *state_dir; /* absolute */
  const char *init_path; /* copied into the layer as /usr/local/bin/sudo */
  uid_t uid;             /* host id of the boxes */
  gid_t gid;
};

/* Finds or builds the layer for the host as it is now. Blocks (call it off the loop); safe
 * against other threads and other daemons doing the same. Half-built layers have other names
 * and are removed by the next build. */
int cb_base_layer_get(const struct cb_base_layer_source *from, struct cb_base_layer *out,
                      struct cb_err *err);
void cb_base_layer_release(struct cb_base_layer *layer);

/* Removes layers that nobody holds and that are not the one of `keep_key` (NULL: none is
 * kept). Blocks. Failures are left for the next time. */
void cb_base_layer_collect(const char *state_dir, const char *keep_key);
#endif
