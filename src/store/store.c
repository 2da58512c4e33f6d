/* SPDX-License-Identifier: MIT */
#include "store/store.h"

int cb_store_open(struct cb_store **out, struct cb_io *io, const char *target,
                  struct cb_err *err)
{
  return cb_store_sqlite.open(out, io, target, err);
}

int cb_store_submit(struct cb_store *s, enum cb_store_verb verb, json_t *args, uint64_t *op,
                    struct cb_err *err)
{
  int rc;
  if (!cb_io_alive(s->io)) {
    json_decref(args);
    return cb_err_set(err, CB_CLOSED, "the I/O handle is closed or belongs to another process");
  }
  *op = cb_io_op(s->io, NULL, NULL);
  if (*op == 0) {
    json_decref(args);
    return cb_err_no_memory(err);
  }
  rc = s->ops->submit(s, *op, verb, args, err);
  if (rc)
    cb_io_forget(s->io, *op);
  return rc;
}

void cb_store_close(struct cb_store *s)
{
  if (s)
    s->ops->close(s);
}
