/* SPDX-License-Identifier: MIT
 * table.h: the boxes of this daemon: one row a box, mirrored in STATE/boxes/ID/box.json so that
 * the next daemon finds them. The table knows the life of a row (starting, running, ending,
 * gone) and its expiry; it knows nothing of HTTP. Loop thread only.
 *
 * What is on disk: id, boot id, template, times, metadata, network rules. Never the box-wide
 * environment, which may hold secrets: the box's init has it in its memory, and gives it to
 * every process it starts, also for the next daemon. */
#ifndef CB_BOXD_TABLE_H
#define CB_BOXD_TABLE_H
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include "base/err.h"
#include "base/log.h"
#include "boxd/box_client.h"
#include "boxd/create_spec.h"
#include "boxd/loop.h"
#include "boxd/process.h"

struct cb_table; /* opaque */

enum { CB_ROW_ID_MAX = 64, CB_BOXES_MAX = 200 };

enum cb_row_state {
  CB_ROW_STARTING, /* not up yet: nobody can name it */
  CB_ROW_RUNNING,
  CB_ROW_ENDING    /* killed, expired or died; its processes, mounts or files may still be there */
};

struct cb_row {
  struct cb_row *next, *prev;
  struct cb_table *table;
  unsigned refs; /* the table's and those of requests */
  char id[CB_ROW_ID_MAX + 1];
  enum cb_row_state state;
  char template[CB_TEMPLATE_NAME_MAX + 1];
  int64_t started_at_ms;  /* unix, to show and to sort by */
  int64_t end_boot_ms;    /* cb_boot_ms: wall clock steps move no end */
  json_t *metadata, *allow, *forward;
  json_t *env;            /* box-wide environment as created; NULL after a restart of the daemon */
  struct cb_box *box;     /* NULL once it is gone */
  struct cb_envd_procs procs;
  struct cb_loop_timer expiry;
  struct cb_row_waiter *waiters; /* who wants to know that it is gone */
  void (*started)(void *arg, struct cb_row *row, const struct cb_err *err);
  void *started_arg;
  int64_t timeout_s; /* while starting */
  bool recovering;   /* found on disk; its init was not heard of yet */
  bool unknown;      /* ... without a readable box.json: it is ended */
  int64_t cpu_ms, cpu_at_ms; /* of the last measurement */
};

struct cb_row_waiter {
  struct cb_row_waiter *next;
  void (*gone)(struct cb_row_waiter *w, const struct cb_err *err); /* NULL: nothing is left */
  void *owner;
};

struct cb_table_config {
  struct cb_loop *loop;
  const struct cb_log *log;
  struct cb_boxes *boxes;
  int state_dir;     /* descriptor; borrowed */
  size_t max;        /* running and starting boxes */
};

int cb_table_new(struct cb_table **out, const struct cb_table_config *config,
                 struct cb_err *err);
/* Takes up every box of STATE/boxes that lives, removes what is left of those that do not.
 * ready is called once every row has settled. */
int cb_table_recover(struct cb_table *t, void (*ready)(void *arg), void *arg,
                     struct cb_err *err);

/* Makes a box. started is called once, later, with the row, or with the reason and a row that
 * is on its way out. CB_QUOTA when there are too many. */
int cb_table_create(struct cb_table *t, const struct cb_create_spec *spec,
                    void (*started)(void *arg, struct cb_row *row, const struct cb_err *err),
                    void *arg, struct cb_err *err);
void cb_row_ref(struct cb_row *row);
void cb_row_unref(void *row);
/* Running boxes only; NULL for any other. */
struct cb_row *cb_table_find(struct cb_table *t, const char *id);
/* Also one that is ending. */
struct cb_row *cb_table_find_any(struct cb_table *t, const char *id);
struct cb_row *cb_table_first(struct cb_table *t); /* all rows, whatever their state ... */
struct cb_row *cb_table_next(struct cb_row *row);  /* ... NULL at the end */
size_t cb_table_busy(const struct cb_table *t);    /* rows that are starting or ending */

/* Moves the end. In the past: the box ends now. Keeps it on disk and tells the init. */
int cb_row_set_end(struct cb_row *row, int64_t end_boot_ms, struct cb_err *err);
int64_t cb_row_end_wall_ms(const struct cb_row *row);
/* Ends the box; w (may be NULL) is called when processes, mounts and folder are gone. */
void cb_row_kill(struct cb_row *row, struct cb_row_waiter *w);
#endif
