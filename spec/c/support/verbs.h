/* SPDX-License-Identifier: MIT
 * verbs.h: calls verbs of a provider from a C test and waits for them, with a bound. */
#ifndef CB_SPEC_VERBS_H
#define CB_SPEC_VERBS_H
#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "net/io.h"
#include "providers/provider.h"

enum { VERB_WAIT_MS = 30000 };

struct verb_post {
  struct cb_provider *p;
  cb_verb *verb;
  json_t *args;
  struct cb_op_ref *ref;
};

static inline void verb_now(struct cb_io *io, void *arg)
{
  struct verb_post *v = arg;
  (void)io;
  cb_provider_call(v->p, v->verb, v->args, cb_done_op, v->ref);
  json_decref(v->args);
  free(v);
}

/* Starts a verb; takes args. */
static inline uint64_t verb_start(struct cb_provider *p, const char *name, json_t *args)
{
  struct cb_err err = CB_ERR_INIT;
  struct verb_post *v = malloc(sizeof *v);
  v->p = p;
  v->verb = cb_provider_verb(p, name);
  v->args = args;
  v->ref = cb_malloc(sizeof *v->ref);
  v->ref->io = p->io;
  uint64_t op = v->ref->op = cb_io_op(p->io, NULL, NULL);
  if (cb_io_post(p->io, verb_now, v, &err)) {
    fprintf(stderr, "post: %s\n", err.text);
    exit(1);
  }
  return op;
}

/* Waits for the only op in flight. The value (owned by the caller), or NULL with *err. */
static inline json_t *verb_end(struct cb_io *io, uint64_t op, struct cb_err *err)
{
  while (cb_io_wait(io, VERB_WAIT_MS) > 0) {
    json_t *value = NULL;
    bool found = false;
    for (struct cb_completion *c = cb_io_drain(io), *next; c; c = next) {
      next = (struct cb_completion *)c->link.next;
      if (c->op == op) {
        found = true;
        value = json_incref(c->value);
        *err = c->err;
      }
      cb_completion_free(c);
    }
    if (found)
      return value;
  }
  fprintf(stderr, "a verb did not end\n");
  exit(1);
}

static inline json_t *verb(struct cb_provider *p, const char *name, json_t *args,
                           struct cb_err *err)
{
  return verb_end(p->io, verb_start(p, name, args), err);
}

static inline const char *str(const json_t *o, const char *name)
{
  const char *s = json_string_value(json_object_get(o, name));
  return s ? s : "(none)";
}

static inline json_int_t num(const json_t *o, const char *name)
{
  const json_t *v = json_object_get(o, name);
  return v ? (json_int_t)json_number_value(v) : -999;
}
#endif
