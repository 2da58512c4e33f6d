/* SPDX-License-Identifier: MIT
 * ops.c: the tree verbs as ops: the work on the worker thread, its end on the I/O thread. */
#include "tree/tree.h"

#include "base/alloc.h"
#include "net/io.h"

struct tree_op {
  struct cb_io *io;
  uint64_t id;
  cb_tree_work *work;
  json_t *args;
  json_t *value;
  struct cb_err err;
  atomic_bool stop;
};

static cb_tree_work *const verbs[] = {
  [CB_TREE_FREEZE] = cb_tree_freeze,
  [CB_TREE_UNPACK] = cb_tree_unpack,
  [CB_TREE_COMPARE] = cb_tree_compare,
  [CB_TREE_APPLY] = cb_tree_apply,
};

static void work(void *arg)
{
  struct tree_op *op = arg;
  if (op->work(op->args, &op->stop, &op->value, &op->err) == CB_OK)
    op->err.code = CB_OK; /* whatever was overcome on the way */
}

static void done(struct cb_io *io, void *arg)
{
  struct tree_op *op = arg;
  cb_io_complete(io, op->id, op->value, op->err.code ? &op->err : NULL, false);
  json_decref(op->args);
  cb_free(op);
}

static void cancel(void *arg)
{
  struct tree_op *op = arg;
  atomic_store_explicit(&op->stop, true, memory_order_relaxed);
}

int cb_tree_submit(struct cb_io *io, enum cb_tree_verb verb, json_t *args, uint64_t *id,
                   struct cb_err *err)
{
  struct tree_op *op = cb_calloc(1, sizeof *op);
  if (!op) {
    json_decref(args);
    return cb_err_no_memory(err);
  }
  op->io = io;
  op->work = verbs[verb];
  op->args = args;
  op->id = *id = cb_io_op(io, cancel, op);
  if (op->id == 0) {
    json_decref(args);
    cb_free(op);
    return cb_err_set(err, CB_CLOSED, "the I/O handle is closed or memory ran out");
  }
  int rc = cb_io_work(io, work, done, op, err);
  if (rc) {
    /* It was announced: it ends like any other. */
    cb_io_complete(io, op->id, NULL, err, false);
    json_decref(args);
    cb_free(op);
  }
  return CB_OK;
}
