/* SPDX-License-Identifier: MIT
 * box_client.c: the handle of a box: its life and its connection. */
#include "boxd/box_client.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fd.h"
#include "box/protocol.h"
#include "boxd/box_internal.h"
#include "wire/record.h"

enum {
  HELLO_MS = 30000,      /* a machine that swaps is slow; one that is dead is dead */
  RECONNECT_MS = 100,
  RECONNECT_TRIES = 100,
};

const char *cb_box_id(const struct cb_box *box)
{
  return box->id;
}

bool cb_box_up(const struct cb_box *box)
{
  return box->stage == CB_BOX_UP || box->stage == CB_BOX_LOST;
}

pid_t cb_box_pid(const struct cb_box *box)
{
  return cb_box_up(box) ? box->pid : 0;
}

/* --- making and freeing --- */

static bool id_ok(const char *id)
{
  if (strncmp(id, CB_BOX_CHECK_PREFIX, strlen(CB_BOX_CHECK_PREFIX)) == 0)
    id += strlen(CB_BOX_CHECK_PREFIX);
  size_t n = strlen(id);
  return n > 0 && n <= CB_BOX_ID_MAX && strspn(id, "abcdefghijklmnopqrstuvwxyz0123456789") == n;
}

int cb_box_make(struct cb_box **out, struct cb_boxes *boxes, const struct cb_box_spec *spec,
                const struct cb_box_events *events, void *arg, struct cb_err *err)
{
  struct cb_egress_rules *rules = NULL;
  if (!id_ok(spec->id))
    return cb_err_set(err, CB_INVALID, "box id '%.64s': 1 to 64 of [a-z0-9]", spec->id);
  if (!spec->network && (spec->allow_count || spec->forward_count))
    return cb_err_set(err, CB_INVALID, "network mode none and network rules contradict: "
                                       "choose allowlist or drop the rules");
  struct cb_box *box = cb_calloc(1, sizeof *box);
  if (!box)
    return cb_err_no_memory(err);
  box->boxes = boxes;
  snprintf(box->id, sizeof box->id, "%s", spec->id);
  box->events = *events;
  box->arg = arg;
  box->report = box->pidfd = box->conn = -1;
  box->report_watch.fd = box->pid_watch.fd = box->conn_watch.fd = -1;
  box->out_last = &box->out;
  box->next_n = 1;
  cb_buf_init(&box->config, CB_BOX_CONFIG_MAX - 8192);
  box->frame = cb_malloc(CB_BOX_FRAME_MAX);
  int rc = box->frame ? CB_OK : cb_err_no_memory(err);
  if (!rc)
    rc = cb_egress_rules_new(&rules, spec->allow, spec->allow_count, spec->forward,
                             spec->forward_count, err);
  if (!rc)
    rc = cb_egress_box_new(&box->egress, boxes->egress, box->id, rules, err);
  if (rc) {
    cb_box_free(box);
    return rc;
  }
  *out = box;
  return CB_OK;
}

static void drop_connection(struct cb_box *box)
{
  cb_loop_del(box->boxes->loop, &box->conn_watch);
  cb_close(&box->conn);
  while (box->out) {
    struct cb_box_message *m = box->out;
    box->out = m->next;
    cb_free_wiped(m->bytes, m->len);
    cb_free(m);
  }
  box->out_last = &box->out;
}

static void really_free(struct cb_box *box)
{
  while (box->pending) {
    struct cb_box_pending *p = box->pending;
    box->pending = p->next;
    cb_buf_clear(&p->bytes);
    cb_free(p);
  }
  while (box->live) {
    struct cb_box_live *l = box->live;
    box->live = l->next;
    cb_free(l);
  }
  cb_free(box->frame);
  cb_free(box);
}

static void on_check_over(void *arg, const struct cb_isolation *result);

/* The check may answer a box that is gone: it is then no waiter any more. */
static void stop_waiting(struct cb_box *box)
{
  for (struct cb_check_waiter *w = box->boxes->waiters; w; w = w->next)
    if (w->arg == box && w->done == on_check_over)
      w->arg = NULL;
}

void cb_box_free(struct cb_box *box)
{
  if (!box || box->freed)
    return;
  box->freed = true;
  cb_box_start_abort(box);
  stop_waiting(box);
  cb_loop_timer_stop(box->boxes->loop, &box->timer);
  drop_connection(box);
  cb_loop_del(box->boxes->loop, &box->pid_watch);
  cb_close(&box->pidfd);
  cb_egress_box_free(box->egress);
  box->egress = NULL;
  cb_buf_clear_wiped(&box->config);
  if (!box->busy)
    really_free(box);
}

/* Around callbacks that may free the box. enter gives whether we are the outermost. */
static bool enter(struct cb_box *box)
{
  bool outermost = !box->busy;
  box->busy = true;
  return outermost;
}

/* False when the box is gone. */
static bool leave(struct cb_box *box, bool outermost)
{
  bool freed = box->freed;
  if (!outermost)
    return !freed;
  box->busy = false;
  if (freed)
    really_free(box);
  return !freed;
}

/* --- failures --- */

void cb_box_fail(struct cb_box *box, const struct cb_err *err)
{
  struct cb_err copy = *err;
  bool outermost = enter(box);
  cb_loop_timer_stop(box->boxes->loop, &box->timer);
  cb_loop_del(box->boxes->loop, &box->pid_watch);
  cb_close(&box->pidfd);
  drop_connection(box);
  box->stage = CB_BOX_DEAD;
  box->events.ready(box->arg, box, &copy);
  leave(box, outermost);
}

static void on_fail_soon(struct cb_loop_timer *t)
{
  struct cb_box *box = t->owner;
  cb_box_fail(box, &box->failure);
}

void cb_box_fail_soon(struct cb_box *box)
{
  cb_loop_timer_start(box->boxes->loop, &box->timer, 0, on_fail_soon, box);
}

/* --- the end of pid 1 --- */

static void on_pid(struct cb_watch *w, uint32_t events)
{
  struct cb_box *box = w->owner;
  struct cb_err err = CB_ERR_INIT;
  (void)events;
  if (!cb_box_up(box)) {
    cb_err_set(&err, box->cancelled ? CB_CANCELLED : CB_NOT_FOUND,
               "the box ended while it was being reached");
    cb_box_fail(box, &err);
    return;
  }
  bool outermost = enter(box);
  cb_loop_timer_stop(box->boxes->loop, &box->timer);
  cb_loop_del(box->boxes->loop, &box->pid_watch);
  drop_connection(box);
  box->stage = CB_BOX_DEAD;
  cb_box_fail_pending(box);
  if (!box->freed)
    box->events.gone(box->arg, box);
  leave(box, outermost);
}

void cb_box_watch_pid(struct cb_box *box)
{
  struct cb_err err = CB_ERR_INIT;
  if (cb_loop_add(box->boxes->loop, &box->pid_watch, box->pidfd, EPOLLIN, on_pid, box, &err))
    cb_log(box->boxes->log, CB_LOG_ERROR, "box", "%s: %s", box->id, err.text);
}

/* --- the connection --- */

/* Start time of a process, field 22 of its stat; 0 when there is none. */
static int64_t start_of(pid_t pid)
{
  char path[40], text[1024];
  unsigned long long start = 0;
  snprintf(path, sizeof path, "/proc/%d/stat", pid);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  ssize_t k = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
  cb_close(&fd);
  if (k <= 0)
    return 0;
  text[k] = '\0';
  const char *after = strrchr(text, ')');
  if (after)
    (void)sscanf(after + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d"
                            " %*d %*d %llu", &start);
  return (int64_t)start;
}

static void on_lost(struct cb_loop_timer *t);

/* The connection broke while pid 1 lives (a full queue on its side, bytes that made no sense):
 * a new one finds the same box. What was asked is answered with CB_CLOSED. */
static void lose(struct cb_box *box)
{
  struct cb_err err = CB_ERR_INIT;
  drop_connection(box);
  if (!cb_box_up(box)) {
    cb_err_set(&err, CB_NOT_FOUND, "the box's init closed the connection");
    cb_box_fail(box, &err);
    return;
  }
  box->stage = CB_BOX_LOST;
  box->tries = 0;
  bool outermost = enter(box);
  cb_box_fail_pending(box);
  if (leave(box, outermost))
    cb_loop_timer_start(box->boxes->loop, &box->timer, RECONNECT_MS, on_lost, box);
}

static void on_lost(struct cb_loop_timer *t)
{
  struct cb_box *box = t->owner;
  struct cb_err err = CB_ERR_INIT;
  if (cb_box_connect(box, &err) == CB_OK)
    return;
  if (++box->tries < RECONNECT_TRIES) {
    cb_loop_timer_start(box->boxes->loop, t, RECONNECT_MS, on_lost, box);
    return;
  }
  cb_log(box->boxes->log, CB_LOG_ERROR, "box", "%s: its init cannot be reached, ending it: %s",
         box->id, err.text);
  cb_box_kill(box);
}

static void on_no_hello(struct cb_loop_timer *t)
{
  struct cb_box *box = t->owner;
  struct cb_err err = CB_ERR_INIT;
  cb_err_set(&err, CB_TIMEOUT, "the box's init did not answer for %d s", HELLO_MS / 1000);
  cb_log(box->boxes->log, CB_LOG_ERROR, "box", "%s: %s, ending it", box->id, err.text);
  cb_box_kill(box);
  if (!cb_box_up(box))
    cb_box_fail(box, &err);
}

/* hello: is this the box, is this the pid 1 we think it is, do we speak one language? */
static int take_hello(struct cb_box *box, const char *m, size_t n, struct cb_err *err)
{
  struct cb_record rec;
  int64_t version = 0, start = 0;
  if (!cb_record_find(m, n, "version", &rec) || !cb_record_int(&rec, &version) ||
      version != CB_BOX_VERSION)
    return cb_err_set(err, CB_PROTOCOL, "the box's init speaks version %d, this daemon %d: end "
                                        "the box with the daemon that made it",
                      (int)version, CB_BOX_VERSION);
  if (!cb_record_find(m, n, "box", &rec) || rec.len != strlen(box->id) ||
      memcmp(rec.value, box->id, rec.len) != 0)
    return cb_err_set(err, CB_PROTOCOL, "the init of another box answered");
  if (!cb_record_find(m, n, "pid_start", &rec) || !cb_record_int(&rec, &start) ||
      start != start_of(box->pid))
    return cb_err_set(err, CB_NOT_FOUND, "pid %d is another process by now", box->pid);
  return CB_OK;
}

static void on_hello(struct cb_box *box, const char *m, size_t n)
{
  struct cb_err err = CB_ERR_INIT;
  bool again = box->stage == CB_BOX_LOST;
  if (take_hello(box, m, n, &err)) {
    if (again)
      lose(box);
    else
      cb_box_fail(box, &err);
    return;
  }
  cb_loop_timer_stop(box->boxes->loop, &box->timer);
  box->stage = CB_BOX_UP;
  if (again)
    cb_box_find_exits(box);
  else if (box->cancelled)
    cb_box_kill(box);
  else
    box->events.ready(box->arg, box, NULL);
}

static void forget_live(struct cb_box *box, int64_t pid)
{
  for (struct cb_box_live **l = &box->live; *l; l = &(*l)->next)
    if ((*l)->pid == pid) {
      struct cb_box_live *gone = *l;
      *l = gone->next;
      cb_free(gone);
      return;
    }
}

static void on_exit_event(struct cb_box *box, const char *m, size_t n)
{
  struct cb_record rec;
  int64_t pid, status, deadline = 0;
  if (!cb_record_find(m, n, "pid", &rec) || !cb_record_int(&rec, &pid) ||
      !cb_record_find(m, n, "status", &rec) || !cb_record_int(&rec, &status))
    return;
  if (cb_record_find(m, n, "deadline", &rec))
    (void)cb_record_int(&rec, &deadline);
  forget_live(box, pid);
  if (box->events.exit)
    box->events.exit(box->arg, box, pid, (int)status, deadline == 1);
}

static void on_relay(struct cb_box *box, const char *m, size_t n, int *fd)
{
  struct cb_record name, port_rec;
  char text[CB_EGRESS_NAME_MAX + 1];
  int64_t port;
  int given = *fd;
  if (!cb_record_find(m, n, "port", &port_rec) || !cb_record_int(&port_rec, &port) || port < 1 ||
      port > 65535)
    return;
  if (cb_record_find(m, n, "name", &name)) {
    if (name.len > CB_EGRESS_NAME_MAX || memchr(name.value, '\0', name.len))
      return;
    memcpy(text, name.value, name.len);
    text[name.len] = '\0';
    *fd = -1;
    cb_egress_relay(box->egress, given, text, (uint16_t)port);
  } else {
    *fd = -1;
    cb_egress_relay_forward(box->egress, given, (uint16_t)port);
  }
}

/* One message. False when it is not the protocol. */
static bool take(struct cb_box *box, char *m, size_t len, int *fds, size_t nfds)
{
  struct cb_record_reader r;
  struct cb_record f, n_rec;
  int64_t n;
  cb_record_open(&r, m, len);
  if (cb_record_next(&r, &f) != 1 || !cb_record_is(&f, "f") || cb_record_next(&r, &n_rec) != 1 ||
      !cb_record_is(&n_rec, "n") || !cb_record_int(&n_rec, &n))
    return false;
#define IS(word) (f.len == sizeof(word) - 1 && memcmp(f.value, word, f.len) == 0)
  if (box->stage == CB_BOX_GREETING || box->stage == CB_BOX_LOST) {
    if (!IS("hello"))
      return false;
    on_hello(box, m, len);
  } else if (IS("ok") || IS("error")) {
    cb_box_take_answer(box, n, IS("error"), m + r.at, len - r.at, fds, nfds);
  } else if (IS("exit")) {
    on_exit_event(box, m, len);
  } else if (IS("relay") && nfds == 1) {
    on_relay(box, m, len, &fds[0]);
  }
#undef IS
  return true;
}

static bool flush(struct cb_box *box)
{
  while (box->out) {
    struct cb_box_message *m = box->out;
    int rc = cb_send_fds(box->conn, m->bytes, m->len, NULL, 0, NULL);
    if (rc == CB_BUSY)
      break;
    if (rc)
      return false;
    box->out = m->next;
    if (!box->out)
      box->out_last = &box->out;
    cb_free_wiped(m->bytes, m->len);
    cb_free(m);
  }
  cb_loop_mod(box->boxes->loop, &box->conn_watch, EPOLLIN | (box->out ? EPOLLOUT : 0));
  return true;
}

static void on_conn(struct cb_watch *w, uint32_t events)
{
  struct cb_box *box = w->owner;
  bool outermost = enter(box), ok = true;
  if (events & EPOLLOUT)
    ok = flush(box);
  /* A few messages a turn, so that one busy box does not starve the others. */
  for (int i = 0; ok && i < 32 && !box->freed && box->conn >= 0; i++) {
    int fds[CB_FDS_MAX];
    size_t n, nfds;
    int rc = cb_recv_fds(box->conn, box->frame, CB_BOX_FRAME_MAX, &n, fds, &nfds, NULL);
    if (rc == CB_BUSY)
      break;
    ok = rc == CB_OK && n > 0 && take(box, box->frame, n, fds, nfds);
    for (size_t k = 0; rc == CB_OK && k < nfds; k++)
      cb_close(&fds[k]);
  }
  if (!ok && !box->freed && box->conn >= 0)
    lose(box);
  leave(box, outermost);
}

int cb_box_send(struct cb_box *box, struct cb_buf *b, struct cb_err *err)
{
  struct cb_box_message *m = cb_calloc(1, sizeof *m);
  if (m)
    m->bytes = cb_buf_take(b, &m->len);
  if (!m || !m->bytes) {
    cb_free(m);
    return cb_err_no_memory(err);
  }
  *box->out_last = m;
  box->out_last = &m->next;
  /* A failure shows as the end of the connection, in the loop. */
  (void)flush(box);
  return CB_OK;
}

/* Through a descriptor of the folder, so that no state path is too long for a socket. */
int cb_box_connect(struct cb_box *box, struct cb_err *err)
{
  struct sockaddr_un a = { .sun_family = AF_UNIX };
  int rc = CB_OK;
  int dir = openat(box->boxes->dir, box->id, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (dir < 0)
    return cb_err_set(err, CB_NOT_FOUND, "box %s has no folder", box->id);
  snprintf(a.sun_path, sizeof a.sun_path, "/proc/self/fd/%d/init.sock", dir);
  int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) {
    rc = cb_err_errno(err, errno, "socket");
  } else if (connect(fd, (struct sockaddr *)&a, sizeof a) < 0) {
    rc = errno == ECONNREFUSED || errno == ENOENT
             ? cb_err_set(err, CB_NOT_FOUND, "box %s is not running", box->id)
             : cb_err_errno(err, errno, "connect to box %s", box->id);
  }
  if (!rc)
    rc = cb_loop_add(box->boxes->loop, &box->conn_watch, fd, EPOLLIN, on_conn, box, err);
  cb_close(&dir);
  if (rc) {
    cb_close(&fd);
    return rc;
  }
  box->conn = fd;
  if (box->stage != CB_BOX_LOST)
    box->stage = CB_BOX_GREETING;
  cb_loop_timer_start(box->boxes->loop, &box->timer, HELLO_MS, on_no_hello, box);
  return CB_OK;
}

/* --- the face --- */

static void on_check_over(void *arg, const struct cb_isolation *result)
{
  struct cb_box *box = arg;
  struct cb_err err = CB_ERR_INIT;
  if (!box) /* freed meanwhile */
    return;
  if (box->cancelled)
    cb_err_set(&err, CB_CANCELLED, "the box was killed while it started");
  else if (!result->ok)
    err = result->err;
  if (err.code)
    cb_box_fail(box, &err);
  else
    cb_box_prepare(box);
}

int cb_box_start(struct cb_box **out, struct cb_boxes *boxes, const struct cb_box_spec *spec,
                 const struct cb_box_events *events, void *arg, struct cb_err *err)
{
  struct cb_box *box = NULL;
  int rc = cb_box_make(&box, boxes, spec, events, arg, err);
  if (!rc)
    rc = cb_box_put_config(box, spec, err);
  if (rc) {
    cb_box_free(box);
    return rc;
  }
  assert(box);
  box->stage = CB_BOX_CHECKING;
  if (boxes->isolation.ok)
    cb_box_prepare(box);
  else
    cb_isolation_check(boxes, on_check_over, box);
  *out = box;
  return CB_OK;
}

int cb_box_reattach(struct cb_box **out, struct cb_boxes *boxes, const struct cb_box_spec *spec,
                    const struct cb_box_events *events, void *arg, struct cb_err *err)
{
  struct cb_box *box = NULL;
  struct ucred peer;
  socklen_t n = sizeof peer;
  int rc = cb_box_make(&box, boxes, spec, events, arg, err);
  if (rc)
    return rc;
  assert(box);
  *out = box;
  if (cb_box_connect(box, &box->failure)) {
    cb_box_fail_soon(box);
    return CB_OK;
  }
  /* Whoever called listen() is the peer: pid 1 of the box, in our numbering. */
  if (getsockopt(box->conn, SOL_SOCKET, SO_PEERCRED, &peer, &n) == 0 && peer.pid > 1) {
    box->pid = peer.pid;
    box->pidfd = (int)syscall(SYS_pidfd_open, peer.pid, 0);
  }
  if (box->pidfd < 0) {
    cb_err_set(&box->failure, CB_NOT_FOUND, "box %s is not running", box->id);
    drop_connection(box);
    cb_box_fail_soon(box);
    return CB_OK;
  }
  cb_box_watch_pid(box);
  return CB_OK;
}

void cb_box_kill(struct cb_box *box)
{
  box->cancelled = true;
  if (box->pidfd >= 0)
    (void)syscall(SYS_pidfd_send_signal, box->pidfd, SIGKILL, NULL, 0);
  else if (box->outer > 0)
    (void)kill(box->outer, SIGKILL); /* the report ends, and with it the start */
}
