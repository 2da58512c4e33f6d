/* SPDX-License-Identifier: MIT */
#include "providers/provider.h"

#include <string.h>

#include "base/alloc.h"

extern const struct cb_provider_ops cb_e2b_ops;

static const struct {
  const char *kind;
  const struct cb_provider_ops *ops;
  bool needs_socket;
} kinds[] = {
  {"e2b", &cb_e2b_ops, false},
  {"local", &cb_e2b_ops, true},
};

int cb_provider_open(struct cb_provider **out, struct cb_io *io, const char *kind,
                     const json_t *settings, struct cb_err *err)
{
  *out = NULL;
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    if (strcmp(kinds[i].kind, kind) != 0)
      continue;
    if (kinds[i].needs_socket && !json_is_string(json_object_get(settings, "socket")))
      return cb_err_set(err, CB_INVALID, "provider local needs the socket of a crewboxd");
    int rc = kinds[i].ops->open(out, io, settings, err);
    if (rc)
      return rc;
    (*out)->ops = kinds[i].ops;
    (*out)->io = cb_io_keep(io);
    (*out)->holds = 1; /* the opener's, given back by close */
    (*out)->closed = false;
    return CB_OK;
  }
  return cb_err_set(err, CB_INVALID, "there is no provider \"%.40s\"; use local or e2b", kind);
}

void cb_provider_hold(struct cb_provider *p)
{
  p->holds++;
}

static void free_now(struct cb_provider *p)
{
  struct cb_io *io = p->io;
  p->ops->free(p);
  cb_io_drop(io);
}

void cb_provider_drop(struct cb_provider *p)
{
  if (--p->holds == 0)
    free_now(p);
}

static void close_now(struct cb_io *io, void *arg)
{
  struct cb_provider *p = arg;
  (void)io;
  p->closed = true;
  p->ops->close(p);
  cb_provider_drop(p);
}

void cb_provider_close(struct cb_provider *p)
{
  struct cb_err err;
  if (p && cb_io_post(p->io, close_now, p, &err))
    free_now(p); /* the I/O thread has ended, and with it all calls */
}

void cb_provider_call(struct cb_provider *p, cb_verb *verb, const json_t *args, cb_done *done,
                      void *arg)
{
  if (p->closed) {
    struct cb_err err = CB_ERR_INIT;
    cb_err_set(&err, CB_CLOSED, "the provider is closed");
    done(arg, NULL, &err);
    return;
  }
  verb(p, args, done, arg);
}

void cb_provider_cancel(struct cb_provider *p, cb_done *done, void *arg)
{
  p->ops->cancel(p, done, arg);
}

cb_verb *cb_provider_verb(struct cb_provider *p, const char *name)
{
#define CB_X(verb)              \
  if (strcmp(name, #verb) == 0) \
    return p->ops->verb;
  CB_VERBS(CB_X)
#undef CB_X
  return NULL;
}
