/* SPDX-License-Identifier: MIT
 * io_test.c: the I/O thread: order, timers, polls, work, ops, children, and its end. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "c/check.h"
#include "c/io_help.h"
#include "net/local_server.h"
#include "net/process.h"

static char folder[64];

static struct cb_io *new_io(void)
{
  struct cb_io *io = NULL;
  struct cb_err err = CB_ERR_INIT;
  CHECK(cb_io_new(&io, &err) == CB_OK);
  return io;
}

/* Runs fn on the I/O thread and waits until it has run. */
struct call {
  void (*fn)(struct cb_io *io, void *arg);
  void *arg;
  sem_t done;
};

static void call_there(struct cb_io *io, void *arg)
{
  struct call *c = arg;
  c->fn(io, c->arg);
  sem_post(&c->done);
}

static void call(struct cb_io *io, void (*fn)(struct cb_io *, void *), void *arg)
{
  struct call c = { fn, arg, { { 0 } } };
  sem_init(&c.done, 0, 0);
  CHECK(cb_io_post(io, call_there, &c, NULL) == CB_OK);
  CHECK(help_wait(&c.done));
  sem_destroy(&c.done);
}

/* ---- posts ------------------------------------------------------------------------------- */

enum { POSTERS = 4, POSTS = 2000 };

struct poster {
  struct cb_io *io;
  int next; /* the I/O thread's */
  bool in_order;
};

struct numbered {
  struct poster *from;
  int number;
};

static void take_number(struct cb_io *io, void *arg)
{
  struct numbered *n = arg;
  (void)io;
  n->from->in_order = n->from->in_order && n->number == n->from->next;
  n->from->next++;
  cb_free(n);
}

static void *post_many(void *arg)
{
  struct poster *p = arg;
  for (int i = 0; i < POSTS; i++) {
    struct numbered *n = cb_malloc(sizeof *n);
    *n = (struct numbered){ p, i };
    if (cb_io_post(p->io, take_number, n, NULL))
      cb_free(n);
  }
  return NULL;
}

static void posts_run_in_order_and_all_before_the_end(void)
{
  struct cb_io *io = new_io();
  struct poster posters[POSTERS];
  pthread_t threads[POSTERS];
  for (int i = 0; i < POSTERS; i++) {
    posters[i] = (struct poster){ io, 0, true };
    pthread_create(&threads[i], NULL, post_many, &posters[i]);
  }
  for (int i = 0; i < POSTERS; i++)
    pthread_join(threads[i], NULL);
  cb_io_free(io);
  for (int i = 0; i < POSTERS; i++)
    CHECK(posters[i].in_order && posters[i].next == POSTS);
}

/* ---- timers and polls -------------------------------------------------------------------- */

struct timing {
  struct cb_io *io;
  char order[16];
  int64_t began;
  bool early;
  struct cb_timer *victim;
  sem_t done;
};

static void mark(struct timing *t, char c)
{
  t->order[strlen(t->order)] = c;
}

static void fire_a(void *arg)
{
  mark(arg, 'a');
}

static void fire_b(void *arg)
{
  struct timing *t = arg;
  mark(t, 'b');
  cb_timer_stop(t->victim); /* due at the same moment, not fired yet */
}

static void fire_victim(void *arg)
{
  mark(arg, 'X');
}

static void fire_last(void *arg)
{
  struct timing *t = arg;
  mark(t, 'c');
  t->early = cb_now_ms() - t->began < 30;
  sem_post(&t->done);
}

static void start_timers(struct cb_io *io, void *arg)
{
  struct timing *t = arg;
  t->began = cb_now_ms();
  cb_timer_start(io, 0, fire_a, t);
  cb_timer_start(io, 10, fire_b, t);
  t->victim = cb_timer_start(io, 10, fire_victim, t);
  cb_timer_stop(cb_timer_start(io, 5, fire_victim, t));
  cb_timer_stop(NULL);
  cb_timer_start(io, 30, fire_last, t);
}

static void timers_fire_in_order_and_never_early(void)
{
  struct timing t = { 0 };
  sem_init(&t.done, 0, 0);
  t.io = new_io();
  call(t.io, start_timers, &t);
  CHECK(help_wait(&t.done));
  cb_io_free(t.io);
  CHECK_STR(t.order, "abc");
  CHECK(!t.early);
  sem_destroy(&t.done);
}

struct pair {
  struct cb_poll *polls[2];
  int fds[2][2];
  int calls;
  sem_t done;
};

static void stop_both(void *arg, uint32_t events)
{
  struct pair *p = arg;
  (void)events;
  p->calls++;
  cb_poll_stop(p->polls[0]); /* one of them is running, the other has an event in this batch */
  cb_poll_stop(p->polls[1]);
  sem_post(&p->done);
}

static void watch_both(struct cb_io *io, void *arg)
{
  struct pair *p = arg;
  for (int i = 0; i < 2; i++)
    p->polls[i] = cb_poll_start(io, p->fds[i][0], EPOLLIN, stop_both, p);
}

static void a_poll_may_be_stopped_by_another(void)
{
  struct cb_io *io = new_io();
  struct pair p = { .calls = 0 };
  sem_init(&p.done, 0, 0);
  for (int i = 0; i < 2; i++) {
    CHECK(cb_pipe(p.fds[i], NULL) == CB_OK);
    CHECK(write(p.fds[i][1], "x", 1) == 1);
  }
  call(io, watch_both, &p);
  CHECK(help_wait(&p.done));
  cb_io_free(io);
  CHECK(p.calls == 1);
  for (int i = 0; i < 2; i++) {
    cb_close(&p.fds[i][0]);
    cb_close(&p.fds[i][1]);
  }
  sem_destroy(&p.done);
}

/* ---- work -------------------------------------------------------------------------------- */

struct job {
  pthread_t worked, finished;
  int *last, number;
  bool in_order;
};

static void do_work(void *arg)
{
  struct job *j = arg;
  j->worked = pthread_self();
}

static void work_done(struct cb_io *io, void *arg)
{
  struct job *j = arg;
  (void)io;
  j->finished = pthread_self();
  j->in_order = *j->last + 1 == j->number;
  *j->last = j->number;
}

static void work_leaves_the_thread_and_comes_back_in_order(void)
{
  struct cb_io *io = new_io();
  struct job jobs[20];
  int last = -1;
  for (int i = 0; i < 20; i++) {
    jobs[i] = (struct job){ .last = &last, .number = i };
    CHECK(cb_io_work(io, do_work, work_done, &jobs[i], NULL) == CB_OK);
  }
  cb_io_close(io); /* what was accepted is done first */
  CHECK(cb_io_work(io, do_work, work_done, &jobs[0], NULL) == CB_CLOSED);
  for (int i = 0; i < 20; i++) {
    CHECK(jobs[i].in_order);
    CHECK(!pthread_equal(jobs[i].worked, jobs[i].finished));
  }
  cb_io_free(io);
}

/* ---- ops --------------------------------------------------------------------------------- */

static void an_op_tells_more_and_then_its_end(void)
{
  struct cb_io *io = new_io();
  struct cb_completion *more = NULL, *c;
  struct cb_err err = CB_ERR_INIT;
  struct pollfd p = { .fd = cb_io_fd(io), .events = POLLIN };
  uint64_t op = cb_io_op(io, NULL, NULL);
  CHECK(op > 0 && cb_io_ops(io) == 1);
  CHECK(poll(&p, 1, 0) == 0);
  cb_io_complete(io, op, json_integer(1), NULL, true);
  cb_io_complete(io, op, json_integer(2), NULL, true);
  CHECK(poll(&p, 1, 0) == 1);
  cb_err_set(&err, CB_TIMEOUT, "late");
  cb_io_complete(io, op, NULL, &err, false);
  cb_io_complete(io, op, json_integer(3), NULL, false); /* after the end: ignored */
  for (int i = 1; i <= 3; i++) {
    c = help_next(io, &more);
    CHECK(c && c->op == op && c->more == (i < 3));
    CHECK(c && (i == 3 ? c->err.code == CB_TIMEOUT : json_integer_value(c->value) == i));
    cb_completion_free(c);
  }
  CHECK(cb_io_wait(io, 0) == 0 && cb_io_drain(io) == NULL);
  CHECK(poll(&p, 1, 0) == 0);
  CHECK(cb_io_ops(io) == 0);
  op = cb_io_op(io, NULL, NULL);
  cb_io_forget(io, op);
  CHECK(cb_io_ops(io) == 0);
  cb_io_complete(io, op, json_true(), NULL, false);
  CHECK(cb_io_drain(io) == NULL);
  cb_io_free(io);
}

static void the_end_is_heard_without_memory(void)
{
  struct cb_io *io = new_io();
  uint64_t op = cb_io_op(io, NULL, NULL);
  cb_alloc_fail_at(1);
  CHECK(cb_io_op(io, NULL, NULL) == 0);
  cb_alloc_fail_at(1);
  cb_io_complete(io, op, json_true(), NULL, true);
  cb_alloc_fail_at(0);
  struct cb_completion *c = cb_io_drain(io);
  CHECK(c && !c->more && c->err.code == CB_NO_MEMORY);
  cb_completion_free(c);
  cb_io_free(io);
}

struct cancellable {
  struct cb_io *io;
  uint64_t op;
  int cancels;
};

static void cancel_it(void *arg)
{
  struct cancellable *k = arg;
  struct cb_err err = CB_ERR_INIT;
  k->cancels++;
  cb_err_set(&err, CB_CANCELLED, "cancelled");
  cb_io_complete(k->io, k->op, NULL, &err, false);
}

static void cancel_comes_once_and_only_before_the_end(void)
{
  struct cb_io *io = new_io();
  struct cb_completion *more = NULL, *c;
  struct cancellable a = { io, 0, 0 }, b = { io, 0, 0 };
  a.op = cb_io_op(io, cancel_it, &a);
  b.op = cb_io_op(io, cancel_it, &b);
  cb_io_cancel(io, a.op);
  cb_io_cancel(io, a.op);
  cb_io_cancel(io, 4711); /* unknown: ignored */
  c = help_next(io, &more);
  CHECK(c && c->op == a.op && c->err.code == CB_CANCELLED);
  cb_completion_free(c);
  cb_io_close(io); /* cancels what is left */
  CHECK(a.cancels == 1 && b.cancels == 1);
  cb_io_free(io);
}

static void many_ops_are_kept_apart(void)
{
  struct cb_io *io = new_io();
  enum { MANY = 3000 };
  uint64_t *ops = cb_calloc(MANY, sizeof *ops);
  for (int i = 0; i < MANY; i++)
    ops[i] = cb_io_op(io, NULL, NULL);
  CHECK(cb_io_ops(io) == MANY);
  for (int i = MANY - 1; i >= 0; i--)
    cb_io_complete(io, ops[i], NULL, NULL, false);
  CHECK(cb_io_ops(io) == 0);
  int n = 0;
  struct cb_completion *c = cb_io_drain(io);
  while (c) {
    struct cb_completion *next = (struct cb_completion *)c->link.next;
    n += c->op == ops[MANY - 1 - n];
    cb_completion_free(c);
    c = next;
  }
  CHECK(n == MANY);
  cb_free(ops);
  cb_io_free(io);
}

/* ---- closing and forking ----------------------------------------------------------------- */

static void hook_counts(void *arg)
{
  ++*(int *)arg;
}

struct hooks {
  struct cb_io_hook a, b;
  int calls;
};

static void add_hooks(struct cb_io *io, void *arg)
{
  struct hooks *h = arg;
  cb_io_hook_add(io, &h->a, hook_counts, &h->calls);
  cb_io_hook_add(io, &h->b, hook_counts, &h->calls);
  cb_io_hook_remove(&h->b);
  cb_io_hook_remove(&h->b);
}

static void run_nothing(struct cb_io *io, void *arg)
{
  (void)io;
  (void)arg;
}

static void closing_runs_hooks_and_refuses_the_rest(void)
{
  struct cb_io *io = cb_io_keep(new_io());
  struct hooks h;
  struct cb_err err = CB_ERR_INIT;
  memset(&h, 0, sizeof h);
  call(io, add_hooks, &h);
  CHECK(cb_io_alive(io));
  cb_io_close(io);
  cb_io_close(io);
  CHECK(h.calls == 1 && !cb_io_alive(io));
  CHECK(cb_io_post(io, run_nothing, NULL, &err) == CB_CLOSED);
  cb_io_cancel(io, 1);
  cb_io_free(io); /* the maker's reference */
  CHECK(cb_io_post(io, run_nothing, NULL, &err) == CB_CLOSED); /* ours still holds */
  cb_io_drop(io);
  cb_io_free(NULL);
}

static void bug_q3_a_handle_from_before_a_fork_is_refused(void)
{
  int threads = help_threads();
  struct cb_io *idle = new_io(), *busy = new_io();
  call(busy, run_nothing, NULL);
  CHECK(help_threads_are(threads + 1)); /* idle has started none */
  pid_t pid = fork();
  if (pid == 0) {
    struct cb_err err = CB_ERR_INIT;
    bool ok = cb_io_post(idle, run_nothing, NULL, &err) == CB_CLOSED &&
              cb_io_post(busy, run_nothing, NULL, &err) == CB_CLOSED &&
              strstr(err.text, "fork") && cb_io_op(busy, NULL, NULL) == 0 &&
              !cb_io_alive(busy);
    cb_io_free(idle); /* frees memory, joins nobody */
    cb_io_free(busy);
    struct cb_io *fresh = NULL;
    ok = ok && cb_io_new(&fresh, NULL) == CB_OK;
#ifndef __SANITIZE_THREAD__ /* it cannot follow threads that a forked child starts */
    call(fresh, run_nothing, NULL);
#endif
    cb_io_free(fresh);
    _exit(ok && check_failed == 0 ? 0 : 1);
  }
  int status = -1;
  CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
  call(busy, run_nothing, NULL); /* the parent's is unharmed */
  cb_io_free(busy);
  cb_io_free(idle);
}

/* ---- children ---------------------------------------------------------------------------- */

struct child {
  char *argv[4];
  int64_t timeout_ms;
  const char *input;
  uint64_t op;
  struct cb_process *p;
  struct cb_io *io;
};

static void cancel_child(void *arg)
{
  cb_process_cancel(((struct child *)arg)->p);
}

static void start_child(struct cb_io *io, void *arg)
{
  struct child *c = arg;
  char *env[] = { (char *)(uintptr_t) "PATH=/usr/bin:/bin", NULL };
  struct cb_op_ref *ref = cb_malloc(sizeof *ref);
  struct cb_err err = CB_ERR_INIT;
  struct cb_process_req req = { .argv = c->argv, .env = env, .timeout_ms = c->timeout_ms,
                                .input = c->input, .input_len = c->input ? strlen(c->input) : 0 };
  *ref = (struct cb_op_ref){ io, c->op };
  c->p = cb_process_start(io, &req, cb_done_op, ref, &err);
  if (!c->p)
    cb_done_op(ref, NULL, &err);
}

static struct cb_completion *run_child(struct cb_io *io, struct child *c)
{
  struct cb_completion *more = NULL;
  c->op = cb_io_op(io, cancel_child, c);
  CHECK(cb_io_post(io, start_child, c, NULL) == CB_OK);
  return help_next(io, &more);
}

#define SHELL(text) { (char *)(uintptr_t) "sh", (char *)(uintptr_t) "-c", \
                      (char *)(uintptr_t) text, NULL }

static const char *out_of(struct cb_completion *c, const char *key)
{
  return c ? json_string_value(json_object_get(c->value, key)) : NULL;
}

static void a_child_is_fed_heard_and_reaped(void)
{
  struct cb_io *io = new_io();
  struct child a = { .argv = SHELL("cat; echo oops >&2; exit 7"), .input = "in" };
  struct cb_completion *c = run_child(io, &a);
  CHECK(c && json_integer_value(json_object_get(c->value, "exit")) == 7);
  CHECK_STR(out_of(c, "stdout"), "in");
  CHECK_STR(out_of(c, "stderr"), "oops\n");
  cb_completion_free(c);
  CHECK(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD); /* none of ours is left */
  struct child b = { .argv = SHELL("ls /proc/self/fd; kill -TERM $$") };
  c = run_child(io, &b);
  CHECK(c && json_integer_value(json_object_get(c->value, "signal")) == SIGTERM);
  CHECK_STR(out_of(c, "stdout"), "0\n1\n2\n3\n"); /* 3 is ls's own */
  cb_completion_free(c);
  struct child none = { .argv = { (char *)(uintptr_t) "no-such-program", NULL } };
  c = run_child(io, &none);
  CHECK(c && c->err.code == CB_NOT_FOUND);
  cb_completion_free(c);
  cb_io_free(io);
}

/* Its own child holds the pipe too: without the kill of the group this would wait for both. */
static void a_child_dies_with_its_group(void)
{
  struct cb_io *io = new_io();
  struct child a = { .argv = SHELL("sleep 600 & sleep 600"), .timeout_ms = 50 };
  struct cb_completion *c = run_child(io, &a);
  CHECK(c && json_is_true(json_object_get(c->value, "timed_out")));
  CHECK(c && json_integer_value(json_object_get(c->value, "signal")) == SIGKILL);
  cb_completion_free(c);
  struct cb_completion *more = NULL;
  struct child b = { .argv = SHELL("sleep 600") };
  b.op = cb_io_op(io, cancel_child, &b);
  CHECK(cb_io_post(io, start_child, &b, NULL) == CB_OK);
  cb_io_cancel(io, b.op);
  c = help_next(io, &more);
  CHECK(c && c->err.code == CB_CANCELLED);
  cb_completion_free(c);
  struct child d = { .argv = SHELL("sleep 600") };
  d.op = cb_io_op(io, cancel_child, &d);
  CHECK(cb_io_post(io, start_child, &d, NULL) == CB_OK);
  cb_io_free(io); /* with the child running */
  CHECK(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD);
}

/* ---- lines ------------------------------------------------------------------------------- */

struct lines {
  struct cb_line_server *server;
  struct cb_io *io;
  const char *path;
  atomic_int lines, closed, answered_gone;
  uint64_t op;
  struct cb_err err;
};

static void on_line(void *arg, uint64_t conn, const char *p, size_t n)
{
  struct lines *l = arg;
  l->lines++;
  if (n == 4 && memcmp(p, "quit", 4) == 0)
    cb_line_answer(l->io, conn, NULL, 0, true);
  else
    cb_line_answer(l->io, conn, p, n, false);
}

static void on_closed(void *arg, uint64_t conn)
{
  struct lines *l = arg;
  l->closed++;
  l->answered_gone += cb_line_answer(l->io, conn, "x", 1, false);
}

static void start_lines(struct cb_io *io, void *arg)
{
  static const struct cb_line_handler handler = { on_line, on_closed };
  struct lines *l = arg;
  l->io = io;
  l->server = cb_line_server_start(io, l->path, &handler, l, &l->err);
}

static void stop_lines(struct cb_io *io, void *arg)
{
  struct lines *l = arg;
  (void)io;
  cb_line_server_stop(l->server);
}

struct question {
  const char *path, *text;
  size_t len;
  uint64_t op;
};

static void ask(struct cb_io *io, void *arg)
{
  struct question *q = arg;
  struct cb_op_ref *ref = cb_malloc(sizeof *ref);
  struct cb_err err = CB_ERR_INIT;
  *ref = (struct cb_op_ref){ io, q->op };
  if (!cb_line_ask_start(io, q->path, q->text, q->len, 0, cb_done_op, ref, &err))
    cb_done_op(ref, NULL, &err);
}

static struct cb_completion *ask_for(struct cb_io *io, const char *path, const char *text,
                                     size_t len)
{
  struct cb_completion *more = NULL;
  struct question q = { path, text, len, cb_io_op(io, NULL, NULL) };
  call(io, ask, &q);
  return help_next(io, &more);
}

static void lines_go_both_ways_whatever_their_size(void)
{
  char path[96];
  struct cb_io *io = new_io();
  struct lines l = { .path = path };
  struct stat st;
  snprintf(path, sizeof path, "%s/lines", folder);
  struct cb_completion *c = ask_for(io, path, "anybody", 7);
  CHECK(c && c->err.code == CB_UNREACHABLE);
  cb_completion_free(c);
  call(io, start_lines, &l);
  CHECK(l.server && stat(path, &st) == 0 && (st.st_mode & 0777) == 0600);

  struct lines second = { .path = path };
  call(io, start_lines, &second);
  CHECK(!second.server && second.err.code == CB_EXISTS);

  c = ask_for(io, path, "a\0b", 3);
  CHECK(c && json_string_length(json_object_get(c->value, "line")) == 3);
  cb_completion_free(c);
  char *big = cb_calloc(1, CB_LINE_MAX + 1);
  memset(big, 'x', CB_LINE_MAX);
  c = ask_for(io, path, big, CB_LINE_MAX);
  CHECK(c && json_string_length(json_object_get(c->value, "line")) == CB_LINE_MAX);
  cb_completion_free(c);
  c = ask_for(io, path, big, CB_LINE_MAX + 1);
  CHECK(c && c->err.code == CB_TOO_LARGE);
  cb_completion_free(c);
  c = ask_for(io, path, "two\nlines", 9);
  CHECK(c && c->err.code == CB_INVALID);
  cb_completion_free(c);
  c = ask_for(io, path, "quit", 4);
  CHECK(c && c->err.code == CB_CLOSED);
  cb_completion_free(c);

  int raw = -1; /* a peer that never ends its line is cut off */
  CHECK(cb_unix_connect(path, SOCK_STREAM, &raw, NULL) == CB_OK);
  bool cut = false;
  for (int i = 0; i < 20 && !cut; i++)
    cut = send(raw, big, CB_LINE_MAX / 4, MSG_NOSIGNAL) < 0;
  CHECK(cut);
  cb_close(&raw);
  cb_free(big);
  call(io, stop_lines, &l);
  CHECK(stat(path, &st) < 0);
  CHECK(l.lines == 3 && l.closed >= 1 && l.answered_gone == 0);
  cb_io_free(io);
}

int main(void)
{
  char command[96];
  strcpy(folder, "/tmp/crewbox-io-XXXXXX");
  if (!mkdtemp(folder))
    return 1;
  int fds = help_fds(), threads = help_threads();
  posts_run_in_order_and_all_before_the_end();
  timers_fire_in_order_and_never_early();
  a_poll_may_be_stopped_by_another();
  work_leaves_the_thread_and_comes_back_in_order();
  an_op_tells_more_and_then_its_end();
  the_end_is_heard_without_memory();
  cancel_comes_once_and_only_before_the_end();
  many_ops_are_kept_apart();
  closing_runs_hooks_and_refuses_the_rest();
  bug_q3_a_handle_from_before_a_fork_is_refused();
  a_child_is_fed_heard_and_reaped();
  a_child_dies_with_its_group();
  lines_go_both_ways_whatever_their_size();
  CHECK(help_fds() == fds);
  CHECK(help_threads_are(threads));
  snprintf(command, sizeof command, "rm -rf %s", folder);
  CHECK(system(command) == 0);
  return check_done();
}
