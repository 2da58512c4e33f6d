/* SPDX-License-Identifier: MIT
 * box_request.c: requests to an init and their answers. */
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/alloc.h"
#include "base/fd.h"
#include "box/protocol.h"
#include "boxd/box_answer.h"
#include "boxd/box_internal.h"
#include "wire/record.h"

enum {
  PENDING_MAX = 4096,           /* requests in flight to one box */
  ANSWER_MAX = 16 * 1024 * 1024 /* of one request, over all its messages */
};

/* --- answers --- */

static void finish(struct cb_box_pending *p, struct cb_box_answer *a)
{
  if (p->fn)
    p->fn(p->arg, a);
  for (int i = 0; i < 3; i++)
    cb_close(&a->fds[i]);
}

static void fail_one(struct cb_box_pending *p, const struct cb_err *err)
{
  struct cb_box_answer a = { .err = err, .fds = { -1, -1, -1 } };
  finish(p, &a);
  cb_buf_clear_wiped(&p->bytes);
  cb_free(p);
}

void cb_box_fail_pending(struct cb_box *box)
{
  struct cb_err err = CB_ERR_INIT;
  cb_err_set(&err, CB_CLOSED, "the connection to box %s broke", box->id);
  while (box->pending && !box->freed) {
    struct cb_box_pending *p = box->pending;
    box->pending = p->next;
    fail_one(p, &err);
  }
}

static void remember_live(struct cb_box *box, int64_t pid)
{
  for (const struct cb_box_live *o = box->live; o; o = o->next)
    if (o->pid == pid) /* attached to a second time */
      return;
  struct cb_box_live *l = cb_calloc(1, sizeof *l);
  if (!l)
    return;
  l->pid = pid;
  l->next = box->live;
  box->live = l;
}

static struct cb_box_pending *take_pending(struct cb_box *box, int64_t n)
{
  for (struct cb_box_pending **p = &box->pending; *p; p = &(*p)->next)
    if ((*p)->n == n) {
      struct cb_box_pending *found = *p;
      *p = found->next;
      return found;
    }
  return NULL;
}

void cb_box_take_answer(struct cb_box *box, int64_t n, bool failed, char *bytes, size_t len,
                        int *fds, size_t nfds)
{
  struct cb_box_parsed parsed;
  struct cb_err err = CB_ERR_INIT;
  struct cb_record more;
  struct cb_box_pending *p = take_pending(box, n);
  if (!p)
    return;
  if (cb_buf_add(&p->bytes, bytes, len)) {
    cb_err_set(&err, CB_TOO_LARGE, "the answer of box %s is too large", box->id);
    fail_one(p, &err); /* what still comes of it finds no request */
    return;
  }
  if (!failed && cb_record_find(bytes, len, "more", &more)) {
    p->next = box->pending;
    box->pending = p;
    return;
  }
  int rc = cb_box_answer_parse(&parsed, p->bytes.p ? p->bytes.p : bytes, p->bytes.len, failed);
  if (rc) {
    cb_box_parsed_clear(&parsed);
    cb_err_set(&err, (enum cb_code)rc, "box %s gave a broken answer", box->id);
    fail_one(p, &err);
    return;
  }
  struct cb_box_answer *a = &parsed.answer;
  bool placed = false;
  for (int i = 0; i < 3; i++) {
    if (parsed.stdio[i] < 0 || (size_t)parsed.stdio[i] >= nfds)
      continue;
    a->fds[i] = fds[parsed.stdio[i]];
    fds[parsed.stdio[i]] = -1;
    placed = true;
  }
  if (!placed && nfds == 1) { /* open, connect */
    a->fds[0] = fds[0];
    fds[0] = -1;
  }
  if (p->starts && !a->err)
    remember_live(box, a->pid);
  finish(p, a);
  cb_box_parsed_clear(&parsed);
  cb_buf_clear_wiped(&p->bytes);
  cb_free(p);
}

/* --- after a broken connection: which of the processes we know have ended? --- */

static void on_exits_listed(void *arg, struct cb_box_answer *a)
{
  struct cb_box *box = arg;
  if (a->err)
    return;
  struct cb_box_live **at = &box->live;
  while (*at && !box->freed) {
    struct cb_box_live *l = *at;
    const struct cb_box_proc *found = NULL;
    for (size_t i = 0; i < a->proc_count && !found; i++)
      if (a->procs[i].pid == l->pid)
        found = &a->procs[i];
    if (found && !found->exited) {
      at = &l->next;
      continue;
    }
    *at = l->next;
    int64_t pid = l->pid;
    cb_free(l);
    /* Gone without a trace means that it ended over 30 s ago; how is not known: killed. */
    if (box->events.exit)
      box->events.exit(box->arg, box, pid, found ? found->status : 9, found && found->deadline);
  }
}

void cb_box_find_exits(struct cb_box *box)
{
  struct cb_err err = CB_ERR_INIT;
  if (box->live && cb_box_list(box, on_exits_listed, box, NULL, &err))
    cb_log(box->boxes->log, CB_LOG_ERROR, "box", "%s: %s", box->id, err.text);
}

/* --- asking --- */

struct asking {
  struct cb_buf m;
  int64_t n;
  int rc; /* of the buffer: the first failure */
};

static void begin(struct asking *q, struct cb_box *box, const char *verb)
{
  cb_buf_init(&q->m, CB_BOX_FRAME_MAX);
  q->n = box->next_n++;
  q->rc = cb_record_addz(&q->m, "f", verb);
  if (!q->rc)
    q->rc = cb_record_addi(&q->m, "n", q->n);
}

static void add_text(struct asking *q, const char *name, const char *value)
{
  if (!q->rc && value)
    q->rc = cb_record_addz(&q->m, name, value);
}

static void add_number(struct asking *q, const char *name, int64_t value)
{
  if (!q->rc)
    q->rc = cb_record_addi(&q->m, name, value);
}

static int ask(struct asking *q, struct cb_box *box, bool starts, cb_box_answer_fn *fn, void *arg,
               uint64_t *ticket, struct cb_err *err)
{
  struct cb_box_pending *p = NULL;
  size_t count = 0;
  int rc = q->rc;
  if (rc == CB_TOO_LARGE)
    rc = cb_err_set(err, rc, "the request is too large: at most %d bytes", CB_BOX_FRAME_MAX);
  else if (rc)
    rc = cb_err_no_memory(err);
  else if (box->stage != CB_BOX_UP)
    rc = cb_err_set(err, CB_CLOSED, "box %s cannot be reached now", box->id);
  for (const struct cb_box_pending *o = box->pending; o && !rc; o = o->next)
    if (++count >= PENDING_MAX)
      rc = cb_err_set(err, CB_BUSY, "box %s has %d requests in flight", box->id, PENDING_MAX);
  if (!rc) {
    p = cb_calloc(1, sizeof *p);
    rc = p ? CB_OK : cb_err_no_memory(err);
  }
  if (!rc)
    rc = cb_box_send(box, &q->m, err);
  cb_buf_clear_wiped(&q->m);
  if (rc) {
    cb_free(p);
    return rc;
  }
  p->n = q->n;
  p->fn = fn;
  p->arg = arg;
  p->starts = starts;
  cb_buf_init(&p->bytes, ANSWER_MAX);
  p->next = box->pending;
  box->pending = p;
  if (ticket)
    *ticket = (uint64_t)q->n;
  return CB_OK;
}

void cb_box_forget(struct cb_box *box, uint64_t ticket)
{
  for (struct cb_box_pending *p = box->pending; p; p = p->next)
    if ((uint64_t)p->n == ticket)
      p->fn = NULL;
}

int cb_box_start_process(struct cb_box *box, const struct cb_box_command *c, cb_box_answer_fn *fn,
                         void *arg, uint64_t *ticket, struct cb_err *err)
{
  struct asking q;
  begin(&q, box, "start");
  add_text(&q, "cmd", c->cmd);
  for (size_t i = 0; i < c->arg_count; i++)
    add_text(&q, "arg", c->args[i]);
  for (size_t i = 0; i < c->env_count; i++)
    add_text(&q, "env", c->env[i]);
  add_text(&q, "cwd", c->cwd);
  add_text(&q, "user", c->user);
  add_text(&q, "tag", c->tag);
  add_number(&q, "stdin", c->stdin_open);
  if (c->deadline_ms > 0)
    add_number(&q, "deadline_ms", c->deadline_ms);
  return ask(&q, box, true, fn, arg, ticket, err);
}

/* Requests that carry a pid and at most one number more. */
static int ask_pid(struct cb_box *box, const char *verb, int64_t pid, const char *name,
                   int64_t value, bool starts, cb_box_answer_fn *fn, void *arg, uint64_t *ticket,
                   struct cb_err *err)
{
  struct asking q;
  begin(&q, box, verb);
  add_number(&q, "pid", pid);
  if (name)
    add_number(&q, name, value);
  return ask(&q, box, starts, fn, arg, ticket, err);
}

int cb_box_attach(struct cb_box *box, int64_t pid, cb_box_answer_fn *fn, void *arg,
                  uint64_t *ticket, struct cb_err *err)
{
  return ask_pid(box, "attach", pid, NULL, 0, true, fn, arg, ticket, err);
}

int cb_box_signal(struct cb_box *box, int64_t pid, int sig, cb_box_answer_fn *fn, void *arg,
                  uint64_t *ticket, struct cb_err *err)
{
  return ask_pid(box, "signal", pid, "sig", sig, false, fn, arg, ticket, err);
}

int cb_box_close_stdin(struct cb_box *box, int64_t pid, cb_box_answer_fn *fn, void *arg,
                       uint64_t *ticket, struct cb_err *err)
{
  return ask_pid(box, "close_stdin", pid, NULL, 0, false, fn, arg, ticket, err);
}

/* Requests about a path. */
static int ask_path(struct cb_box *box, const char *verb, const char *path, const char *user,
                    const char *name, const char *value, cb_box_answer_fn *fn, void *arg,
                    uint64_t *ticket, struct cb_err *err)
{
  struct asking q;
  begin(&q, box, verb);
  add_text(&q, "path", path);
  add_text(&q, "user", user);
  if (name)
    add_text(&q, name, value);
  return ask(&q, box, false, fn, arg, ticket, err);
}

int cb_box_open(struct cb_box *box, const char *path, const char *user, bool for_writing,
                cb_box_answer_fn *fn, void *arg, uint64_t *ticket, struct cb_err *err)
{
  return ask_path(box, "open", path, user, "mode", for_writing ? "write" : "read", fn, arg, ticket,
                  err);
}

int cb_box_stat(struct cb_box *box, const char *path, const char *user, cb_box_answer_fn *fn,
                void *arg, uint64_t *ticket, struct cb_err *err)
{
  return ask_path(box, "stat", path, user, NULL, NULL, fn, arg, ticket, err);
}

int cb_box_mkdir(struct cb_box *box, const char *path, const char *user, cb_box_answer_fn *fn,
                 void *arg, uint64_t *ticket, struct cb_err *err)
{
  return ask_path(box, "mkdir", path, user, NULL, NULL, fn, arg, ticket, err);
}

int cb_box_remove(struct cb_box *box, const char *path, const char *user, cb_box_answer_fn *fn,
                  void *arg, uint64_t *ticket, struct cb_err *err)
{
  return ask_path(box, "remove", path, user, NULL, NULL, fn, arg, ticket, err);
}

int cb_box_move(struct cb_box *box, const char *from, const char *to, const char *user,
                cb_box_answer_fn *fn, void *arg, uint64_t *ticket, struct cb_err *err)
{
  return ask_path(box, "move", from, user, "to", to, fn, arg, ticket, err);
}

int cb_box_list_dir(struct cb_box *box, const char *path, const char *user, int depth,
                    cb_box_answer_fn *fn, void *arg, uint64_t *ticket, struct cb_err *err)
{
  struct asking q;
  begin(&q, box, "list_dir");
  add_text(&q, "path", path);
  add_text(&q, "user", user);
  add_number(&q, "depth", depth);
  return ask(&q, box, false, fn, arg, ticket, err);
}

int cb_box_list(struct cb_box *box, cb_box_answer_fn *fn, void *arg, uint64_t *ticket,
                struct cb_err *err)
{
  struct asking q;
  begin(&q, box, "list");
  return ask(&q, box, false, fn, arg, ticket, err);
}

int cb_box_expire(struct cb_box *box, int64_t at_boot_ms, cb_box_answer_fn *fn, void *arg,
                  uint64_t *ticket, struct cb_err *err)
{
  struct asking q;
  begin(&q, box, "expire");
  add_number(&q, "at_boot_ms", at_boot_ms);
  return ask(&q, box, false, fn, arg, ticket, err);
}

int cb_box_measure(struct cb_box *box, cb_box_answer_fn *fn, void *arg, uint64_t *ticket,
                   struct cb_err *err)
{
  struct asking q;
  begin(&q, box, "metrics");
  return ask(&q, box, false, fn, arg, ticket, err);
}

int cb_box_dial(struct cb_box *box, uint16_t port, cb_box_answer_fn *fn, void *arg,
                uint64_t *ticket, struct cb_err *err)
{
  struct asking q;
  begin(&q, box, "connect");
  add_number(&q, "port", port);
  return ask(&q, box, false, fn, arg, ticket, err);
}
