/* SPDX-License-Identifier: MIT
 * e2b_call.h: inside of the E2B provider: its settings, and a call, which is one verb on its
 * way. A call owns its arguments, the request in flight and the time that is left, repeats what
 * may be repeated, and ends exactly once. I/O thread only. */
#ifndef CB_PROVIDERS_E2B_CALL_H
#define CB_PROVIDERS_E2B_CALL_H
#include <stdbool.h>
#include "base/buf.h"
#include "net/http.h"
#include "net/rpc.h"
#include "providers/args.h"
#include "providers/e2b_answer.h"
#include "providers/provider.h"

enum {
  CB_E2B_ENVD_PORT = 49983,
  CB_E2B_RECENT = 32,            /* boxes remembered as just connected */
  CB_E2B_SETTLE_MS = 2500,       /* how long after a connect a 502 may still be the routing's lag */
  CB_E2B_RETRY_AFTER_MAX_MS = 60000,
  CB_E2B_TRIES = 3
};

struct cb_e2b {
  struct cb_provider base;
  char *api_key, *domain, *api_url, *sandbox_url, *socket; /* NULL: not given */
  int64_t connect_timeout_ms, timeout_ms;
  int keepalive_s;
  enum { CB_E2B_ASK, CB_E2B_YES, CB_E2B_NO } crewboxd; /* what health said */
  bool v1_create, v1_connect, v1_list; /* the plane has no v2 route: remembered */
  bool closed;
  struct cb_e2b_call *calls;
  struct {
    char id[CB_BOX_ID_MAX + 1];
    int64_t until;
    bool resumed; /* connections from before the pause are dead */
  } recent[CB_E2B_RECENT];
  size_t next_recent;
};

struct cb_e2b_call {
  struct cb_e2b *p;
  struct cb_e2b_call *prev, *next;
  const char *verb;
  json_t *args; /* held */
  cb_done *done;
  void *arg;
  int64_t deadline;               /* by cb_now_ms */
  char id[CB_BOX_ID_MAX + 1];     /* the box this is about; "" none */
  const char *token, *box_domain; /* into args */

  /* The step in flight. go issues it (again); the rest is its description. */
  void (*go)(struct cb_e2b_call *c);
  void (*then)(struct cb_e2b_call *c, struct cb_http_res *res, const struct cb_err *err);
  void (*then_rpc)(struct cb_e2b_call *c, json_t *value, const struct cb_err *err);
  const char *method;
  char *path;          /* control plane path with query, or the method of an rpc */
  json_t *body;        /* control plane or rpc body */
  bool envd;           /* to the box instead of the control plane */
  bool repeatable;     /* the step may be done twice */
  const char *user;    /* of an envd call; NULL: the template's */
  int64_t step_ms;     /* most this step may take; 0: what is left of the call */
  const char *range;   /* "Range: bytes=..." or NULL */
  bool (*on_data)(void *arg, const char *p, size_t n);
  void (*on_head)(void *arg, int status, const char *content_type);
  const struct cb_http_part *parts;
  size_t part_count;
  size_t max_bytes;
  int tries;
  bool sent; /* the last try may have reached the server */

  struct cb_http *http;
  struct cb_rpc *rpc;
  struct cb_timer *timer;
  struct cb_err ending; /* not CB_OK: cancelled or closed, nothing more is started */

  void *own; /* the verb's own state, freed by free_own */
  void (*free_own)(void *own);
};

/* ---- life -------------------------------------------------------------------------------- */

/* Makes a call with budget_ms (0: the provider's timeout), shortened by an argument wait_ms.
 * names: the arguments the verb takes, NULL-terminated; another one is CB_INVALID. Returns NULL
 * when done has been called already. */
struct cb_e2b_call *cb_e2b_begin(struct cb_provider *p, const char *verb, const json_t *args,
                                 const char *const *names, int64_t budget_ms, cb_done *done,
                                 void *arg);
/* End the call: the first with a value (taken; NULL is out of memory), the second with an error
 * from which everything secret the call knows is taken out. */
void cb_e2b_finish(struct cb_e2b_call *c, json_t *value);
void cb_e2b_fail(struct cb_e2b_call *c, const struct cb_err *err);
/* Ends it from outside with this code. */
void cb_e2b_stop(struct cb_e2b_call *c, enum cb_code code);

/* ---- steps ------------------------------------------------------------------------------- */

/* All steps reset the description of the step before. A step ends in its `then`, unless the call
 * was ended from outside. An answer that is no success (2xx) comes as err with err->status, and
 * res beside it; trouble on the way comes as err alone. */
typedef void cb_e2b_then(struct cb_e2b_call *c, struct cb_http_res *res, const struct cb_err *err);
typedef void cb_e2b_then_rpc(struct cb_e2b_call *c, json_t *value, const struct cb_err *err);

void cb_e2b_new_step(struct cb_e2b_call *c);
/* Control plane. path is copied, body (or NULL) taken. */
void cb_e2b_control(struct cb_e2b_call *c, const char *method, const char *path, json_t *body,
                    bool repeatable, cb_e2b_then *then);
/* HTTP to envd; c->user, range, on_data, parts and so on are set between cb_e2b_new_step and this.
 * path with query, copied. */
void cb_e2b_envd(struct cb_e2b_call *c, const char *method, const char *path, bool repeatable,
                 cb_e2b_then *then);
/* Unary rpc to envd. body is taken. value in `then` is borrowed. */
void cb_e2b_unary(struct cb_e2b_call *c, const char *method, json_t *body, bool repeatable,
                  cb_e2b_then_rpc *then);
/* Calls c->go(c) after ms, within the deadline: false (and nothing arranged) when the time is up. */
bool cb_e2b_wait(struct cb_e2b_call *c, int64_t ms, void (*go)(struct cb_e2b_call *c));
/* After a failed try: arranges another (true) when that is harmless and there is time. */
bool cb_e2b_again(struct cb_e2b_call *c, const struct cb_err *err);

/* The body of a 2xx answer as JSON. */
json_t *cb_e2b_json(const struct cb_http_res *res, struct cb_err *err);
/* True when an error says that the plane has no such route (never from the status alone). */
bool cb_e2b_no_route(const struct cb_err *err);

/* ---- targets ----------------------------------------------------------------------------- */

int64_t cb_e2b_left(const struct cb_e2b_call *c); /* ms until the deadline, 0 and up */
/* Base URL without a slash at the end. */
int cb_e2b_control_url(const struct cb_e2b *p, struct cb_buf *out);
int cb_e2b_envd_url(const struct cb_e2b *p, const char *id, const char *box_domain,
                    struct cb_buf *out);
int cb_e2b_port_url(const struct cb_e2b *p, const char *id, const char *box_domain, int port,
                    struct cb_buf *out);
/* Lines for the head of an envd request, NULL-terminated. The memory is one block: cb_free. */
char **cb_e2b_envd_headers(const struct cb_e2b_call *c, bool stream);
/* Remembers that the box was just made or resumed. */
void cb_e2b_settling(struct cb_e2b *p, const char *id, bool resumed);
bool cb_e2b_is_settling(const struct cb_e2b *p, const char *id, bool *resumed);

/* ---- arguments --------------------------------------------------------------------------- */

/* Each: CB_OK, or CB_INVALID naming the argument. */
int cb_e2b_arg_id(struct cb_e2b_call *c, struct cb_err *err);  /* "id" -> c->id */
int cb_e2b_arg_box(struct cb_e2b_call *c, struct cb_err *err); /* "box" -> c->id, token, domain */

/* ---- verbs, by file ---------------------------------------------------------------------- */

cb_verb cb_e2b_v_health, cb_e2b_v_url;                                     /* e2b.c */
cb_verb cb_e2b_v_create;                                                   /* e2b_create.c */
cb_verb cb_e2b_v_connect, cb_e2b_v_info, cb_e2b_v_timeout, cb_e2b_v_pause,
    cb_e2b_v_kill;                                                         /* e2b_control.c */
cb_verb cb_e2b_v_list;                                                     /* e2b_list.c */
cb_verb cb_e2b_v_exec, cb_e2b_v_start, cb_e2b_v_signal;                    /* e2b_process.c */
cb_verb cb_e2b_v_upload, cb_e2b_v_read, cb_e2b_v_ls, cb_e2b_v_remove;      /* e2b_files.c */
/* Asks health once, in front of another step, and goes on with `next` (e2b.c). */
void cb_e2b_learn(struct cb_e2b_call *c, void (*next)(struct cb_e2b_call *c));
#endif
