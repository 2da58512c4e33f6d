/* SPDX-License-Identifier: MIT
 * view.h: the files a box sees. A small tmpfs becomes the root; on it /usr and /etc are
 * overlays over the cached base layer, the home and /var are folders of the box on disk, the
 * rest is made fresh. The host's tree is detached at the end and cannot be named any more.
 *
 * Trees are detached copies of host mounts, taken while their paths can still be walked: by the
 * outer process where it is root (its folders may lie below some 0700 that the box's id could
 * not pass), else by pid 1 itself, which then has the same host id as the outer process. */
#ifndef CB_BOX_VIEW_H
#define CB_BOX_VIEW_H
#include "box/config.h"
#include "box/step.h"

enum { CB_VIEW_SUBMOUNTS_MAX = 32 };

struct cb_view_trees {
  int box, base, usr;
  int *binds; /* one for each of config->binds */
  size_t bind_count;
  struct {
    int tree;
    char *path; /* relative to the root: "usr/lib/extra" */
  } below_usr[CB_VIEW_SUBMOUNTS_MAX]; /* an overlay shows only one file system of its lower layer */
  size_t below_usr_count;
};

void cb_view_trees_init(struct cb_view_trees *t);
void cb_view_trees_close(struct cb_view_trees *t);
/* The cwd is the box's folder. 0, or -1 with *s. */
int cb_view_trees_open(struct cb_view_trees *t, const struct cb_box_config *config,
                       struct cb_step *s);

/* In the new namespaces, as box uid 0, the cwd being the box's folder: builds everything and
 * makes it the root. Takes the trees (closes them). user_filter is copied into the view. */
int cb_view_build(const struct cb_box_config *config, struct cb_view_trees *t, int user_filter,
                  struct cb_step *s);
/* Last: what is still writable and should not be (the root itself, /run/crewbox) becomes
 * read-only. After it no mount can be changed, since the capability goes. */
int cb_view_seal(struct cb_step *s);
#endif
