/* SPDX-License-Identifier: MIT
 * store.h: a database behind one asynchronous interface. SQLite now; a driver is one file and
 * one line in store.c. Every request is an op of the io (net/io.h): its completion carries the
 * answer. Requests of a store are carried out one after the other, in order.
 *
 * A statement is {"sql": text, "params"?: [...] or {name: value}, "changes"?: n}. Parameters:
 * numbers, text, true/false (1/0), null, {"bytes": text} for a blob; text that is not UTF-8 or
 * holds a zero is bound as a blob by itself. Rows are objects; a NULL column is absent.
 *
 *   query         -> {"rows": [{column: value}], "changes": n}
 *   batch         -> one transaction: {"results": [as query]}, or {"failed": index from 1} with
 *                    nothing changed when a statement's "changes" is not what it changed
 *   data_version  -> number that changes when another connection has written
 *
 * Errors: CB_BUSY (locked for 10 s), CB_CONFLICT (a constraint or trigger refuses), CB_INVALID
 * (bad SQL or parameters), CB_DISK_FULL, CB_CORRUPT, CB_DENIED, CB_TOO_LARGE (over 64 MiB of
 * rows), CB_CLOSED, CB_SYSTEM. Texts name no parameter values. */
#ifndef CB_STORE_STORE_H
#define CB_STORE_STORE_H
#include <jansson.h>
#include <stdint.h>

#include "base/err.h"
#include "net/io.h"

enum { CB_STORE_RESULT_MAX = 64 << 20, CB_STORE_BUSY_MS = 10000 };

enum cb_store_verb { CB_STORE_QUERY, CB_STORE_BATCH, CB_STORE_DATA_VERSION };

struct cb_store;

struct cb_store_ops {
  const char *kind;
  int (*open)(struct cb_store **out, struct cb_io *io, const char *target, struct cb_err *err);
  /* Carries out a request for op and completes it. Takes args; after an error it does not
   * complete. Any thread. */
  int (*submit)(struct cb_store *s, uint64_t op, enum cb_store_verb verb, json_t *args,
                struct cb_err *err);
  /* Requests that wait end with CB_CLOSED; the one under way ends as it ends. Frees. */
  void (*close)(struct cb_store *s);
};

struct cb_store { /* first member of every implementation */
  const struct cb_store_ops *ops;
  struct cb_io *io; /* with a reference */
};

/* Opens the database at target (a file path: SQLite). Cheap: the driver connects on its own
 * thread, so what is wrong with an existing file is told by the first request. */
int cb_store_open(struct cb_store **out, struct cb_io *io, const char *target,
                  struct cb_err *err);
/* [any] Gives the number of the op. Takes args. */
int cb_store_submit(struct cb_store *s, enum cb_store_verb verb, json_t *args, uint64_t *op,
                    struct cb_err *err);
/* Not on the I/O thread. NULL is fine. */
void cb_store_close(struct cb_store *s);

extern const struct cb_store_ops cb_store_sqlite;
#endif
