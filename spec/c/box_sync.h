/* SPDX-License-Identifier: MIT
 * box_sync.h: box_client.h for a test that reads from top to bottom. The loop runs on a thread
 * of its own; every call here is carried over to it and waits, for 60 s at most, for the answer. */
#ifndef CB_SPEC_BOX_SYNC_H
#define CB_SPEC_BOX_SYNC_H
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/fd.h"
#include "boxd/box_client.h"
#include "boxd/loop.h"
#include "c/check.h"

enum { SYNC_WAIT_MS = 60000, SYNC_OUTPUT_MAX = 4 << 20 };

struct sync_loop {
  struct cb_loop *loop;
  pthread_t thread;
};

static void *sync_run(void *arg)
{
  struct cb_err err = CB_ERR_INIT;
  if (cb_loop_run(((struct sync_loop *)arg)->loop, &err))
    fprintf(stderr, "loop: %s\n", err.text);
  return NULL;
}

static void sync_start(struct sync_loop *s)
{
  struct cb_err err = CB_ERR_INIT;
  if (cb_loop_new(&s->loop, &err) || pthread_create(&s->thread, NULL, sync_run, s)) {
    fprintf(stderr, "no loop: %s\n", err.text);
    exit(1);
  }
}

/* Waits in bounded steps: a test that hangs says so. */
static void sync_wait(sem_t *sem)
{
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += SYNC_WAIT_MS / 1000;
  while (sem_timedwait(sem, &until) < 0) {
    if (errno == EINTR)
      continue;
    fprintf(stderr, "box_test: no answer in %d ms\n", SYNC_WAIT_MS);
    abort();
  }
}

struct sync_call {
  struct cb_call call; /* first */
  void (*fn)(void *arg);
  void *arg;
  sem_t done;
};

static void sync_call_run(struct cb_call *c)
{
  struct sync_call *s = (struct sync_call *)c;
  s->fn(s->arg);
  sem_post(&s->done);
}

/* Runs fn(arg) on the loop's thread and waits for its return. */
static void on_loop(struct sync_loop *s, void (*fn)(void *arg), void *arg)
{
  struct sync_call c = { .call.run = sync_call_run, .fn = fn, .arg = arg };
  sem_init(&c.done, 0, 0);
  cb_loop_post(s->loop, &c.call);
  sync_wait(&c.done);
}

static void sync_stop_loop(void *arg)
{
  cb_loop_stop(arg);
}

static void sync_stop(struct sync_loop *s)
{
  on_loop(s, sync_stop_loop, s->loop);
  pthread_join(s->thread, NULL);
  cb_loop_free(s->loop);
}

/* --- a box --- */

struct sync_exit {
  int64_t pid;
  int status;
  bool deadline;
};

struct sync_box {
  struct sync_loop *loop;
  struct cb_boxes *boxes;
  struct cb_box *box;
  const struct cb_box_spec *spec;
  sem_t ready, exited, gone;
  struct cb_err err; /* of ready */
  struct sync_exit exits[64];
  int exit_count; /* written on the loop's thread, read after exited */
  bool reattach;
  int rc;
};

static void sync_on_ready(void *arg, struct cb_box *box, const struct cb_err *err)
{
  struct sync_box *b = arg;
  (void)box;
  memset(&b->err, 0, sizeof b->err);
  if (err)
    b->err = *err;
  sem_post(&b->ready);
}

static void sync_on_exit(void *arg, struct cb_box *box, int64_t pid, int status, bool deadline)
{
  struct sync_box *b = arg;
  (void)box;
  b->exits[b->exit_count++ % 64] = (struct sync_exit){ pid, status, deadline };
  sem_post(&b->exited);
}

static void sync_on_gone(void *arg, struct cb_box *box)
{
  (void)box;
  sem_post(&((struct sync_box *)arg)->gone);
}

static void sync_do_start(void *arg)
{
  static const struct cb_box_events events = { sync_on_ready, sync_on_exit, sync_on_gone };
  struct sync_box *b = arg;
  b->rc = b->reattach
              ? cb_box_reattach(&b->box, b->boxes, b->spec, &events, b, &b->err)
              : cb_box_start(&b->box, b->boxes, b->spec, &events, b, &b->err);
  if (b->rc)
    b->box = NULL;
}

/* CB_OK when the box is up; else its error, which is in b->err. */
static int sync_box_start(struct sync_box *b, struct sync_loop *loop, struct cb_boxes *boxes,
                          const struct cb_box_spec *spec, bool reattach)
{
  memset(b, 0, sizeof *b);
  b->loop = loop;
  b->boxes = boxes;
  b->spec = spec;
  b->reattach = reattach;
  sem_init(&b->ready, 0, 0);
  sem_init(&b->exited, 0, 0);
  sem_init(&b->gone, 0, 0);
  on_loop(loop, sync_do_start, b);
  if (b->rc)
    return b->rc;
  sync_wait(&b->ready);
  return b->err.code;
}

static void sync_do_free(void *arg)
{
  struct sync_box *b = arg;
  cb_box_free(b->box);
  b->box = NULL;
}

static void sync_box_free(struct sync_box *b)
{
  on_loop(b->loop, sync_do_free, b);
}

static void sync_do_kill(void *arg)
{
  cb_box_kill(((struct sync_box *)arg)->box);
}

struct sync_removal {
  struct sync_box *b;
  const char *id;
  sem_t done;
  struct cb_err err;
};

static void sync_on_removed(void *arg, const struct cb_err *err)
{
  struct sync_removal *r = arg;
  if (err)
    r->err = *err;
  sem_post(&r->done);
}

static void sync_do_remove(void *arg)
{
  struct sync_removal *r = arg;
  cb_boxes_remove(r->b->boxes, r->id, sync_on_removed, r);
}

static int sync_box_remove(struct sync_box *b, const char *id)
{
  struct sync_removal r = { .b = b, .id = id };
  sem_init(&r.done, 0, 0);
  on_loop(b->loop, sync_do_remove, &r);
  sync_wait(&r.done);
  if (r.err.code)
    fprintf(stderr, "remove %s: %s\n", id, r.err.text);
  return r.err.code;
}

/* Kills, waits for the end, frees, removes. */
static int sync_box_end(struct sync_box *b)
{
  on_loop(b->loop, sync_do_kill, b);
  sync_wait(&b->gone);
  sync_box_free(b);
  return sync_box_remove(b, b->spec->id);
}

/* --- requests --- */

struct sync_request {
  struct sync_box *b;
  int (*ask)(struct sync_request *r, struct cb_err *err); /* calls a request function */
  void (*look)(struct sync_request *r, const struct cb_box_answer *a); /* may be NULL */
  /* for ask and look */
  const struct cb_box_command *command;
  const char *path, *to, *user;
  bool writing;
  int number;
  int64_t pid;
  int64_t count;
  char text[512];
  /* the answer */
  int rc;
  struct cb_err err;
  int64_t size;
  int fds[3];
  sem_t done;
};

static void sync_on_answer(void *arg, struct cb_box_answer *a)
{
  struct sync_request *r = arg;
  if (a->err)
    r->err = *a->err;
  r->rc = r->err.code;
  if (a->pid)
    r->pid = a->pid;
  r->size = a->size;
  for (int i = 0; i < 3; i++) {
    r->fds[i] = a->fds[i];
    a->fds[i] = -1;
  }
  if (r->look && !a->err)
    r->look(r, a);
  sem_post(&r->done);
}

static void sync_do_ask(void *arg)
{
  struct sync_request *r = arg;
  r->rc = r->ask(r, &r->err);
}

static int sync_ask(struct sync_request *r)
{
  r->rc = 0;
  memset(&r->err, 0, sizeof r->err);
  r->fds[0] = r->fds[1] = r->fds[2] = -1;
  sem_init(&r->done, 0, 0);
  on_loop(r->b->loop, sync_do_ask, r);
  if (r->rc == CB_OK)
    sync_wait(&r->done);
  return r->rc;
}

#define SYNC_ASK(name, call)                                            \
  static int name(struct sync_request *r, struct cb_err *err)           \
  {                                                                     \
    return call;                                                        \
  }
SYNC_ASK(ask_start, cb_box_start_process(r->b->box, r->command, sync_on_answer, r, NULL, err))
SYNC_ASK(ask_attach, cb_box_attach(r->b->box, r->pid, sync_on_answer, r, NULL, err))
SYNC_ASK(ask_list, cb_box_list(r->b->box, sync_on_answer, r, NULL, err))
SYNC_ASK(ask_signal, cb_box_signal(r->b->box, r->pid, r->number, sync_on_answer, r, NULL, err))
SYNC_ASK(ask_close_stdin, cb_box_close_stdin(r->b->box, r->pid, sync_on_answer, r, NULL, err))
SYNC_ASK(ask_open, cb_box_open(r->b->box, r->path, r->user, r->writing, sync_on_answer, r, NULL, err))
SYNC_ASK(ask_stat, cb_box_stat(r->b->box, r->path, r->user, sync_on_answer, r, NULL, err))
SYNC_ASK(ask_mkdir, cb_box_mkdir(r->b->box, r->path, r->user, sync_on_answer, r, NULL, err))
SYNC_ASK(ask_remove, cb_box_remove(r->b->box, r->path, r->user, sync_on_answer, r, NULL, err))
SYNC_ASK(ask_move, cb_box_move(r->b->box, r->path, r->to, r->user, sync_on_answer, r, NULL, err))
SYNC_ASK(ask_list_dir, cb_box_list_dir(r->b->box, r->path, r->user, r->number, sync_on_answer, r, NULL, err))
SYNC_ASK(ask_measure, cb_box_measure(r->b->box, sync_on_answer, r, NULL, err))
SYNC_ASK(ask_expire, cb_box_expire(r->b->box, r->pid, sync_on_answer, r, NULL, err))
SYNC_ASK(ask_dial, cb_box_dial(r->b->box, (uint16_t)r->number, sync_on_answer, r, NULL, err))

/* Reads both ends to their end, into one buffer. */
static void sync_read_all(int a, int b, struct cb_buf *into)
{
  struct pollfd p[2] = { { a, POLLIN, 0 }, { b, POLLIN, 0 } };
  char bytes[65536];
  while (p[0].fd >= 0 || p[1].fd >= 0) {
    if (poll(p, 2, SYNC_WAIT_MS) <= 0) {
      fprintf(stderr, "box_test: no output in %d ms\n", SYNC_WAIT_MS);
      abort();
    }
    for (int i = 0; i < 2; i++) {
      if (p[i].fd < 0 || !p[i].revents)
        continue;
      ssize_t k = read(p[i].fd, bytes, sizeof bytes);
      if (k > 0)
        cb_buf_add(into, bytes, (size_t)k);
      else if (k == 0 || (errno != EAGAIN && errno != EINTR))
        cb_close(&p[i].fd);
    }
  }
}

/* Waits for the exit event of pid; its status. */
static struct sync_exit sync_await_exit(struct sync_box *b, int64_t pid)
{
  for (;;) {
    sync_wait(&b->exited);
    for (int i = b->exit_count - 1; i >= 0 && i > b->exit_count - 64; i--)
      if (b->exits[i % 64].pid == pid)
        return b->exits[i % 64];
  }
}

/* Runs `bash -c script`; output of both streams into out (may be NULL); the exit status, 128 +
 * signal, or -code of a refused start (its text then in out). */
static int sync_sh(struct sync_box *b, const char *user, const char *script, struct cb_buf *out)
{
  const char *args[] = { "-c", script };
  struct cb_box_command c = { .cmd = "/bin/bash", .args = args, .arg_count = 2, .user = user };
  struct sync_request r = { .b = b, .ask = ask_start, .command = &c };
  struct cb_buf mine;
  cb_buf_init(&mine, SYNC_OUTPUT_MAX);
  if (!out)
    out = &mine;
  cb_buf_reset(out);
  if (sync_ask(&r)) {
    cb_buf_addz(out, r.err.text);
    cb_buf_clear(&mine);
    return -(int)r.rc;
  }
  sync_read_all(r.fds[1], r.fds[2], out);
  int status = sync_await_exit(b, r.pid).status;
  cb_buf_clear(&mine);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
#endif
