/* SPDX-License-Identifier: MIT
 * provider.h: what every provider of boxes can do. One vtable, one file an implementation, one
 * list (provider.c). The verbs, what they take and give, are the table in
 * docs/reference/interfaces.md section 3. All verbs run on the I/O thread, never block, never
 * throw an answer away, and call done exactly once (possibly before returning). Arguments are
 * borrowed for the call; implementations copy what they keep. Secrets (keys, tokens, env
 * values) never enter an error text. */
#ifndef CB_PROVIDERS_PROVIDER_H
#define CB_PROVIDERS_PROVIDER_H
#include <jansson.h>
#include <stdbool.h>
#include "net/io.h"

struct cb_provider;

typedef void cb_verb(struct cb_provider *p, const json_t *args, cb_done *done, void *arg);

#define CB_VERBS(X) \
  X(health) X(create) X(connect) X(info) X(list) X(timeout) X(pause) X(kill) X(exec) X(start) \
  X(signal) X(upload) X(read) X(ls) X(remove) X(url)

struct cb_provider_ops {
  const char *kind; /* "e2b" */
  /* settings: {api_key, domain, api_url, sandbox_url, socket, connect_timeout_ms, timeout_ms};
   * unknown keys are CB_INVALID. [any thread] */
  int (*open)(struct cb_provider **out, struct cb_io *io, const json_t *settings,
              struct cb_err *err);
  void (*close)(struct cb_provider *p); /* [I/O thread] verbs in flight end with CB_CLOSED */
  void (*free)(struct cb_provider *p);  /* after close, and after the last hold */
  /* [I/O thread] Ends the verb that was started with this pair; done comes with CB_CANCELLED
   * before this returns. No such verb: nothing happens. */
  void (*cancel)(struct cb_provider *p, cb_done *done, void *arg);
#define CB_X(verb) cb_verb *verb;
  CB_VERBS(CB_X)
#undef CB_X
};

struct cb_provider {               /* first member of every implementation */
  const struct cb_provider_ops *ops;
  struct cb_io *io;
  int holds;   /* of provider.c: whoever still means to call verbs; I/O thread */
  bool closed; /* of provider.c: verbs are CB_CLOSED from here on */
};

/* [any] kind "local" is "e2b" with a socket. */
int cb_provider_open(struct cb_provider **out, struct cb_io *io, const char *kind,
                     const json_t *settings, struct cb_err *err);
/* [any] Posts the close (or frees at once when io is closed); p must not be used afterwards. NULL
 * is fine. */
void cb_provider_close(struct cb_provider *p);
/* [I/O thread] Between the two p may be closed, but its memory stays and cb_provider_call works. */
void cb_provider_hold(struct cb_provider *p);
void cb_provider_drop(struct cb_provider *p);
/* [I/O thread] Runs a verb; CB_CLOSED once p is closed. */
void cb_provider_call(struct cb_provider *p, cb_verb *verb, const json_t *args, cb_done *done,
                      void *arg);
/* [I/O thread] Ends that call early: done comes with CB_CANCELLED before this returns. */
void cb_provider_cancel(struct cb_provider *p, cb_done *done, void *arg);
/* The verb of that name, NULL when there is none. */
cb_verb *cb_provider_verb(struct cb_provider *p, const char *name);
#endif
