/* SPDX-License-Identifier: MIT
 * place.h: changes a checkout in one go: everything new is written to a private folder in the
 * checkout first, then targets are moved one by one, and moved back when one of them fails.
 * Used by apply.c, which has decided that each target may be touched. */
#ifndef CB_TREE_PLACE_H
#define CB_TREE_PLACE_H
#include "tree/changes.h"
#include "tree/file.h"

enum cb_tree_action { CB_TREE_KEEP, CB_TREE_CREATE, CB_TREE_REPLACE, CB_TREE_DELETE };

struct cb_tree_target {
  struct cb_tree_change *change;
  struct cb_tree_look look; /* what was there when it was checked */
  enum cb_tree_action action;
  bool over_folder; /* CREATE where a folder stands that will be empty by then */
  bool staged;      /* its new content is ready */
  bool done;        /* moved; to be moved back on failure */
};

struct cb_tree_place {
  int root;
  struct cb_tree_target *targets;
  size_t count;
  const atomic_bool *stop;
  int staging;       /* the private folder, -1: none */
  char name[40];     /* its name in the root */
  char **folders;    /* made by us, for the way back */
  size_t folder_count;
  mode_t mask;       /* of the process */
  bool stuck;        /* something could not be moved back */
};

/* Makes the private folder. */
int cb_tree_place_begin(struct cb_tree_place *p, struct cb_err *err);
/* The new content of target i: from a pack's current content, or (reader NULL) the bytes that
 * are there already, for a change of mode alone. */
int cb_tree_place_stage(struct cb_tree_place *p, size_t i, struct cb_pack_reader *r,
                        struct cb_err *err);
/* Moves all targets. On failure they are moved back; those that could not be are still `done`. */
int cb_tree_place_commit(struct cb_tree_place *p, struct cb_err *err);
/* Removes the private folder, unless it holds what could not be moved back. */
void cb_tree_place_end(struct cb_tree_place *p);
#endif
