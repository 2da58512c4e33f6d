/* SPDX-License-Identifier: MIT
 * tree.h: the host side of trees: a checkout frozen into a pack, packs unpacked, compared, and
 * applied to a checkout (docs/reference/interfaces.md section 6, core.md "tree").
 *
 * The four functions block; cb_tree_submit runs them on the worker thread of an I/O handle. They
 * take and give JSON, since their answers go to Lua and nowhere else; strings in it are bytes.
 * A checkout and a result may hold anything: nothing is followed through a link, no size is
 * believed, names are checked before they are used. */
#ifndef CB_TREE_TREE_H
#define CB_TREE_TREE_H
#include <jansson.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "base/err.h"
#include "wire/manifest.h"

struct cb_io;

/* Each gives *out a new reference on success. On failure *out is NULL or holds fields for the
 * error (`largest`, `refused`, ...). stop (may be NULL): becoming true ends the work soon with
 * CB_CANCELLED. */
typedef int cb_tree_work(const json_t *args, const atomic_bool *stop, json_t **out,
                         struct cb_err *err);

/* {root, paths, pack, max_bytes?, max_files?, exclude?} -> {digest, count, bytes, excluded}.
 * Reads each path once, keeps what is fit, writes the pack whole or not at all (0600).
 * CB_TOO_LARGE with `largest` = [{path, size}]; CB_CONFLICT (`reason` changed_while_reading,
 * `path`) when a file does not hold still for three tries. */
cb_tree_work cb_tree_freeze;

/* {pack, dir, max_bytes?, max_files?} -> {digest, count}. dir is made, or must be empty. */
cb_tree_work cb_tree_unpack;

/* {base, result, dir, max_bytes?, max_files?} -> {changed, base_digest, digest}. base is a full
 * pack, result may hold only what differs. Writes dir/a and dir/b. */
cb_tree_work cb_tree_compare;

/* {root, base, result, dry_run?, max_bytes?, max_files?} -> {written, deleted} (paths).
 * All targets are checked first: CB_CONFLICT with `refused` = [{path, reason}] and nothing
 * written. A failure while writing is undone; what could not be undone is in `written` and
 * `deleted` of the error, and in its text. */
cb_tree_work cb_tree_apply;

enum cb_tree_verb { CB_TREE_FREEZE, CB_TREE_UNPACK, CB_TREE_COMPARE, CB_TREE_APPLY };

/* [any thread] Takes args. The completion has the answer; with an error, its fields. */
int cb_tree_submit(struct cb_io *io, enum cb_tree_verb verb, json_t *args, uint64_t *op,
                   struct cb_err *err);
#endif
