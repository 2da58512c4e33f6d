/* SPDX-License-Identifier: MIT */
#include "net/local_server.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/fd.h"
#include "net/io_private.h"

enum { READ_STEP = 65536, ACCEPT_PAUSE_MS = 100 };

struct conn {
  struct conn *next;     /* of its server */
  struct conn *next_any; /* of the io, guarded by its lock */
  struct cb_line_server *server;
  uint64_t id;
  int fd;
  struct cb_poll *poll;
  struct cb_buf in, out;
  size_t searched; /* bytes of in known to hold no line end */
  bool close_after;
};

struct cb_lines { /* all connections of an io, so that answers find theirs from any thread */
  pthread_mutex_t lock;
  struct conn *conns;
  uint64_t last;
};

struct cb_line_server {
  struct cb_io *io;
  struct cb_io_hook hook;
  struct cb_lines *lines;
  struct cb_line_handler handler;
  void *arg;
  char *path;
  struct stat born; /* of the socket file */
  int fd;
  struct cb_poll *poll;
  struct cb_timer *pause;
  struct conn *conns;
  size_t count;
};

/* ---- the list of all connections --------------------------------------------------------- */

static struct cb_lines *lines_of(struct cb_io *io)
{
  struct cb_lines *l = atomic_load(&io->lines);
  if (l)
    return l;
  l = cb_calloc(1, sizeof *l);
  if (!l)
    return NULL;
  pthread_mutex_init(&l->lock, NULL);
  atomic_store(&io->lines, l); /* only the I/O thread makes it */
  return l;
}

void cb_lines_free(struct cb_lines *l)
{
  if (!l)
    return;
  pthread_mutex_destroy(&l->lock);
  cb_free(l);
}

static void enlist(struct cb_lines *l, struct conn *c)
{
  pthread_mutex_lock(&l->lock);
  c->id = ++l->last;
  c->next_any = l->conns;
  l->conns = c;
  pthread_mutex_unlock(&l->lock);
}

static void delist(struct cb_lines *l, struct conn *c)
{
  pthread_mutex_lock(&l->lock);
  struct conn **at = &l->conns;
  while (*at != c)
    at = &(*at)->next_any;
  *at = c->next_any;
  pthread_mutex_unlock(&l->lock);
}

/* On the I/O thread the result may be used after the lock: only that thread frees. */
static struct conn *find(struct cb_lines *l, uint64_t id)
{
  pthread_mutex_lock(&l->lock);
  struct conn *c = l->conns;
  while (c && c->id != id)
    c = c->next_any;
  pthread_mutex_unlock(&l->lock);
  return c;
}

/* ---- connections ------------------------------------------------------------------------- */

static void drop_conn(struct conn *c, bool tell)
{
  struct cb_line_server *s = c->server;
  uint64_t id = c->id;
  struct conn **at = &s->conns;
  while (*at != c)
    at = &(*at)->next;
  *at = c->next;
  s->count--;
  delist(s->lines, c);
  cb_poll_stop(c->poll);
  cb_close(&c->fd);
  cb_buf_clear_wiped(&c->in);
  cb_buf_clear_wiped(&c->out);
  cb_free(c);
  if (tell)
    s->handler.closed(s->arg, id);
}

/* Hands out the complete lines of the input. */
static void take_lines(struct conn *c)
{
  size_t start = 0;
  char *eol;
  while ((eol = memchr(c->in.p + c->searched, '\n', c->in.len - c->searched))) {
    size_t end = (size_t)(eol - c->in.p);
    c->server->handler.line(c->server->arg, c->id, c->in.p + start, end - start);
    start = c->searched = end + 1;
  }
  cb_buf_drop_front(&c->in, start);
  c->searched = c->in.len;
}

/* False when the connection is over. */
static bool read_some(struct conn *c)
{
  char piece[READ_STEP];
  ssize_t n = read(c->fd, piece, sizeof piece);
  if (n < 0)
    return errno == EAGAIN || errno == EINTR;
  if (n == 0 || cb_buf_add(&c->in, piece, (size_t)n))
    return false;
  take_lines(c);
  explicit_bzero(piece, (size_t)n);
  return c->in.len <= CB_LINE_MAX;
}

static bool write_some(struct conn *c)
{
  while (c->out.len > 0) {
    ssize_t n = send(c->fd, c->out.p, c->out.len, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR)
      continue;
    if (n < 0)
      return errno == EAGAIN;
    cb_buf_drop_front(&c->out, (size_t)n);
  }
  return !c->close_after;
}

static void attend(struct conn *c)
{
  if (write_some(c))
    cb_poll_change(c->poll, EPOLLIN | (c->out.len ? EPOLLOUT : 0u));
  else
    drop_conn(c, true);
}

static void on_conn(void *arg, uint32_t events)
{
  struct conn *c = arg;
  if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) && !read_some(c))
    drop_conn(c, true);
  else if (events & EPOLLOUT)
    attend(c);
}

struct answer {
  uint64_t conn;
  char *p; /* with its line end; NULL: none */
  size_t n;
  bool close;
};

static void free_answer(struct answer *a)
{
  cb_free_wiped(a->p, a->n);
  cb_free(a);
}

static void answer_now(struct cb_io *io, void *arg)
{
  struct answer *a = arg;
  struct cb_lines *l = atomic_load(&io->lines);
  assert(l); /* there was a connection to answer to */
  struct conn *c = find(l, a->conn);
  if (c) {
    c->close_after = c->close_after || a->close;
    if (a->p && cb_buf_add(&c->out, a->p, a->n))
      drop_conn(c, true);
    else
      attend(c);
  }
  free_answer(a);
}

bool cb_line_answer(struct cb_io *io, uint64_t conn, const char *p, size_t n, bool close)
{
  struct cb_lines *l = cb_io_alive(io) ? atomic_load(&io->lines) : NULL;
  if (!l || !find(l, conn))
    return false;
  struct answer *a = cb_calloc(1, sizeof *a);
  if (!a)
    return false;
  a->conn = conn;
  a->close = close;
  if (p) {
    a->n = n + 1;
    a->p = cb_malloc(a->n);
    if (!a->p) {
      cb_free(a);
      return false;
    }
    memcpy(a->p, p, n);
    a->p[n] = '\n';
  }
  if (cb_io_post(io, answer_now, a, NULL) == CB_OK)
    return true;
  free_answer(a);
  return false;
}

/* ---- the server -------------------------------------------------------------------------- */

static void welcome(struct cb_line_server *s, int fd)
{
  struct conn *c = NULL;
  if (s->count < CB_LINE_CONNECTIONS && cb_peer_is_us(fd))
    c = cb_calloc(1, sizeof *c);
  if (c)
    c->poll = cb_poll_start(s->io, fd, EPOLLIN, on_conn, c);
  if (!c || !c->poll) {
    cb_free(c);
    cb_close(&fd);
    return;
  }
  c->server = s;
  c->fd = fd;
  cb_buf_init(&c->in, CB_LINE_MAX + READ_STEP); /* what follows a line comes with it */
  cb_buf_init(&c->out, CB_LINE_MAX + 1);
  c->next = s->conns;
  s->conns = c;
  s->count++;
  enlist(s->lines, c);
}

static void on_pause_over(void *arg)
{
  struct cb_line_server *s = arg;
  s->pause = NULL;
  cb_poll_change(s->poll, EPOLLIN);
}

static void on_listener(void *arg, uint32_t events)
{
  struct cb_line_server *s = arg;
  (void)events;
  int fd = accept4(s->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd >= 0) {
    welcome(s, fd);
    return;
  }
  /* Out of descriptors: the connection stays queued and the listener stays readable. Wait a
   * little instead of turning at full speed. */
  if ((errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) && !s->pause) {
    s->pause = cb_timer_start(s->io, ACCEPT_PAUSE_MS, on_pause_over, s);
    if (s->pause)
      cb_poll_change(s->poll, 0);
  }
}

static void free_server(struct cb_line_server *s)
{
  struct stat now;
  cb_io_hook_remove(&s->hook);
  cb_timer_stop(s->pause);
  cb_poll_stop(s->poll);
  while (s->conns)
    drop_conn(s->conns, false);
  if (s->fd >= 0 && lstat(s->path, &now) == 0 && now.st_ino == s->born.st_ino &&
      now.st_dev == s->born.st_dev)
    (void)unlink(s->path);
  cb_close(&s->fd);
  cb_free(s->path);
  cb_free(s);
}

void cb_line_server_stop(struct cb_line_server *s)
{
  free_server(s);
}

static void on_close(void *arg)
{
  free_server(arg);
}

struct cb_line_server *cb_line_server_start(struct cb_io *io, const char *path,
                                            const struct cb_line_handler *handler, void *arg,
                                            struct cb_err *err)
{
  struct cb_line_server *s = cb_calloc(1, sizeof *s);
  if (!s) {
    cb_err_no_memory(err);
    return NULL;
  }
  s->io = io;
  s->handler = *handler;
  s->arg = arg;
  s->fd = -1;
  s->lines = lines_of(io);
  s->path = cb_strdup(path);
  int rc = s->path && s->lines ? cb_unix_listen(path, SOCK_STREAM | SOCK_NONBLOCK, &s->fd, err)
                               : cb_err_no_memory(err);
  if (rc == CB_OK && lstat(path, &s->born) < 0)
    rc = cb_err_errno(err, errno, "listen %s", path);
  if (rc == CB_OK) {
    s->poll = cb_poll_start(io, s->fd, EPOLLIN, on_listener, s);
    if (!s->poll)
      rc = cb_io_closing(io) ? cb_err_set(err, CB_CLOSED, "the I/O handle is closed")
                             : cb_err_no_memory(err);
  }
  if (rc) {
    free_server(s);
    return NULL;
  }
  cb_io_hook_add(io, &s->hook, on_close, s);
  return s;
}

/* ---- asking ------------------------------------------------------------------------------ */

enum { ASK_MS = 10000, RETRY_MS = 20 };

struct cb_line_ask {
  struct cb_io *io;
  struct cb_io_hook hook;
  cb_done *done;
  void *arg;
  char *path;
  int fd;
  struct cb_poll *poll;
  struct cb_timer *deadline, *retry;
  struct cb_buf out, in;
};

static void free_ask(struct cb_line_ask *a)
{
  cb_io_hook_remove(&a->hook);
  cb_timer_stop(a->deadline);
  cb_timer_stop(a->retry);
  cb_poll_stop(a->poll);
  cb_close(&a->fd);
  cb_buf_clear_wiped(&a->out);
  cb_buf_clear_wiped(&a->in);
  cb_free(a->path);
  cb_free(a);
}

static void end_ask(struct cb_line_ask *a, json_t *value, const struct cb_err *err)
{
  cb_done *done = a->done;
  void *arg = a->arg;
  free_ask(a);
  done(arg, value, err);
}

static void fail_ask(struct cb_line_ask *a, enum cb_code code, const char *why)
{
  struct cb_err err = CB_ERR_INIT;
  cb_err_set(&err, code, "ask %s: %s", a->path, why);
  end_ask(a, NULL, &err);
}

static void on_deadline(void *arg)
{
  struct cb_line_ask *a = arg;
  a->deadline = NULL;
  fail_ask(a, CB_TIMEOUT, "no answer in time");
}

void cb_line_ask_cancel(struct cb_line_ask *a)
{
  fail_ask(a, CB_CANCELLED, "cancelled");
}

static void on_ask_close(void *arg)
{
  fail_ask(arg, CB_CLOSED, "the I/O handle was closed");
}

static void ask_write(struct cb_line_ask *a)
{
  ssize_t n = send(a->fd, a->out.p, a->out.len, MSG_NOSIGNAL);
  if (n < 0 && errno != EAGAIN && errno != EINTR) {
    fail_ask(a, CB_CLOSED, "closed before the question was sent");
    return;
  }
  if (n > 0)
    cb_buf_drop_front(&a->out, (size_t)n);
  if (a->out.len == 0)
    cb_poll_change(a->poll, EPOLLIN);
}

static void ask_read(struct cb_line_ask *a)
{
  char piece[READ_STEP];
  ssize_t n = read(a->fd, piece, sizeof piece);
  if (n < 0 && (errno == EAGAIN || errno == EINTR))
    return;
  if (n <= 0) {
    fail_ask(a, CB_CLOSED, "closed without an answer");
    return;
  }
  const char *eol = memchr(piece, '\n', (size_t)n);
  int rc = cb_buf_add(&a->in, piece, eol ? (size_t)(eol - piece) : (size_t)n);
  if (rc)
    fail_ask(a, rc, "the answer is too large");
  else if (eol)
    end_ask(a, json_pack("{s:o}", "line", json_stringn_nocheck(a->in.p ? a->in.p : "", a->in.len)),
            NULL);
}

static void on_ask(void *arg, uint32_t events)
{
  struct cb_line_ask *a = arg;
  if (a->out.len > 0 && (events & EPOLLOUT))
    ask_write(a);
  else
    ask_read(a);
}

static void try_connect(void *arg);

/* CB_OK also when the server's queue of connections is full: tried again until the deadline. */
static int connect_ask(struct cb_line_ask *a, struct cb_err *err)
{
  struct cb_err mine = CB_ERR_INIT;
  int rc = cb_unix_connect(a->path, SOCK_STREAM | SOCK_NONBLOCK, &a->fd, &mine);
  if (rc == CB_SYSTEM && mine.sys == EAGAIN) {
    a->retry = cb_timer_start(a->io, RETRY_MS, try_connect, a);
    return a->retry ? CB_OK : cb_err_no_memory(err);
  }
  if (rc) {
    if (err)
      *err = mine;
    return rc;
  }
  a->poll = cb_poll_start(a->io, a->fd, EPOLLIN | EPOLLOUT, on_ask, a);
  return a->poll ? CB_OK : cb_err_no_memory(err);
}

static void try_connect(void *arg)
{
  struct cb_line_ask *a = arg;
  struct cb_err err = CB_ERR_INIT;
  a->retry = NULL;
  if (connect_ask(a, &err))
    end_ask(a, NULL, &err);
}

struct cb_line_ask *cb_line_ask_start(struct cb_io *io, const char *path, const char *p, size_t n,
                                      int64_t timeout_ms, cb_done *done, void *arg,
                                      struct cb_err *err)
{
  int rc = CB_OK;
  if (n > CB_LINE_MAX || memchr(p, '\n', n)) {
    cb_err_set(err, n > CB_LINE_MAX ? CB_TOO_LARGE : CB_INVALID,
               "ask %s: a question is one line of at most %d bytes", path, CB_LINE_MAX);
    return NULL;
  }
  struct cb_line_ask *a = cb_calloc(1, sizeof *a);
  if (!a) {
    cb_err_no_memory(err);
    return NULL;
  }
  a->io = io;
  a->done = done;
  a->arg = arg;
  a->fd = -1;
  cb_buf_init(&a->out, CB_LINE_MAX + 1);
  cb_buf_init(&a->in, CB_LINE_MAX);
  a->path = cb_strdup(path);
  if (!a->path || cb_buf_add(&a->out, p, n) || cb_buf_addc(&a->out, '\n'))
    rc = cb_err_no_memory(err);
  if (rc == CB_OK)
    rc = connect_ask(a, err);
  if (rc == CB_OK) {
    a->deadline = cb_timer_start(io, timeout_ms > 0 ? timeout_ms : ASK_MS, on_deadline, a);
    if (!a->deadline)
      rc = cb_err_no_memory(err);
  }
  if (rc) {
    free_ask(a);
    return NULL;
  }
  cb_io_hook_add(io, &a->hook, on_ask_close, a);
  return a;
}
