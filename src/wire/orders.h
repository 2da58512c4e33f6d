/* SPDX-License-Identifier: MIT
 * orders.h: what a supervisor is told to do (docs/reference/interfaces.md section 5). Pure.
 * Orders hold secrets: the bytes and the struct belong to one place that wipes them. */
#ifndef CB_WIRE_ORDERS_H
#define CB_WIRE_ORDERS_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/err.h"

enum {
  CB_ORDERS_MAX_BYTES = 4 << 20, /* of the whole file */
  CB_ORDERS_MAX_LIST = 8192,     /* entries of argv, of env, of secret */
  CB_ID_MAX = 63
};

struct cb_order_secret {
  char *name;   /* NUL-terminated */
  char *value;  /* NUL-terminated; may hold NULs of its own */
  size_t len;
};

struct cb_orders {
  char *run; /* [a-z0-9]{1,63} */
  int64_t launch_seq;
  char *kind;    /* agent, command, server: for people; the supervisor treats all alike */
  char *run_dir; /* absolute */
  char *cwd;     /* absolute */
  char *user;    /* name or number; "" stays who it is */
  char **argv;   /* NULL-terminated, at least one */
  char **env;    /* NULL-terminated; the whole environment */
  struct cb_order_secret *secrets;
  size_t argc, env_count, secret_count;
  char *stdin_path; /* absolute, or plain and then below run_dir; "" = /dev/null */
  bool merged;
  int64_t log_max, segment;
  int64_t grace_ms, start_deadline_ms, guard_ms, beat_ms; /* 0 of the middle two: none */
  char *findings; /* absolute; "" = none */
};

/* Reads orders in place: every string of *o points into p, whose line feeds behind values become
 * NULs. p must outlive *o. Broken bytes are CB_PROTOCOL, a rule that is broken CB_INVALID naming
 * the record (never a value: it may be secret). Absent records get the defaults of section 5. */
int cb_orders_parse(struct cb_orders *o, char *p, size_t len, struct cb_err *err);
void cb_orders_clear(struct cb_orders *o); /* frees the lists; wiping p is the owner's */
#endif
