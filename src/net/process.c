/* SPDX-License-Identifier: MIT */
#include "net/process.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/fd.h"
#include "net/host_proc.h"
#include "net/shepherd.h"

enum { KEPT = 16 << 20, READ_STEP = 65536, LINGER_MS = 1000, CLOSE_WAIT_MS = 2000 };

struct pipe_end {
  int fd;
  struct cb_poll *poll;
};

struct cb_process {
  struct cb_io *io;
  struct cb_io_hook hook;
  cb_done *done;
  void *arg;
  struct cb_shepherd shepherd;
  struct cb_poll *exit_poll;
  struct pipe_end in, out, err;
  struct cb_buf out_bytes, err_bytes;
  char *input; /* wiped: may hold credentials */
  size_t input_len, input_at;
  struct cb_timer *timer; /* the time-out, then the lingering */
  bool exited, timed_out, truncated, cancelled;
};

static void drop_end(struct pipe_end *e)
{
  cb_poll_stop(e->poll);
  e->poll = NULL;
  cb_close(&e->fd);
}

static void free_process(struct cb_process *p)
{
  cb_io_hook_remove(&p->hook);
  cb_timer_stop(p->timer);
  cb_poll_stop(p->exit_poll);
  drop_end(&p->in);
  drop_end(&p->out);
  drop_end(&p->err);
  cb_shepherd_release(&p->shepherd);
  cb_buf_clear_wiped(&p->out_bytes);
  cb_buf_clear_wiped(&p->err_bytes);
  cb_free_wiped(p->input, p->input_len);
  cb_free(p);
}

/* ---- the end ----------------------------------------------------------------------------- */

static json_t *bytes(const struct cb_buf *b)
{
  return json_stringn_nocheck(b->p ? b->p : "", b->len);
}

static json_t *result_of(struct cb_process *p, int code, int status)
{
  json_t *v = json_object();
  json_object_set_new(v, code == CLD_EXITED ? "exit" : "signal", json_integer(status));
  json_object_set_new_nocheck(v, "stdout", bytes(&p->out_bytes));
  json_object_set_new_nocheck(v, "stderr", bytes(&p->err_bytes));
  if (p->timed_out)
    json_object_set_new(v, "timed_out", json_true());
  if (p->truncated)
    json_object_set_new(v, "truncated", json_true());
  return v;
}

/* Tells, and lets go of the pid. Only now is it free for others: until here its group could be
 * killed without hitting a stranger. */
static void finish(struct cb_process *p, enum cb_code code)
{
  struct cb_err err = CB_ERR_INIT;
  json_t *value = NULL;
  int how = 0, status = 0;
  if (code == CB_CLOSED)
    cb_err_set(&err, CB_CLOSED, "the I/O handle was closed");
  else if (code == CB_CANCELLED)
    cb_err_set(&err, CB_CANCELLED, "process: cancelled");
  else if (cb_shepherd_ended(&p->shepherd, &how, &status, &err) == CB_OK &&
           !(value = result_of(p, how, status)))
    cb_err_no_memory(&err);
  cb_done *done = p->done;
  void *arg = p->arg;
  free_process(p);
  done(arg, value, err.code ? &err : NULL);
}

static void on_lingered(void *arg)
{
  struct cb_process *p = arg;
  p->timer = NULL;
  finish(p, CB_OK);
}

static void check_end(struct cb_process *p)
{
  if (!p->exited)
    return;
  if (p->cancelled) {
    finish(p, CB_CANCELLED);
    return;
  }
  if (p->out.fd < 0 && p->err.fd < 0) {
    finish(p, CB_OK);
    return;
  }
  cb_timer_stop(p->timer);
  p->timer = cb_timer_start(p->io, p->timed_out ? 0 : LINGER_MS, on_lingered, p);
  if (!p->timer)
    finish(p, CB_OK);
}

static void on_exit_seen(void *arg, uint32_t events)
{
  struct cb_process *p = arg;
  (void)events;
  cb_poll_stop(p->exit_poll);
  p->exit_poll = NULL;
  p->exited = true;
  check_end(p);
}

static void kill_group(struct cb_process *p)
{
  kill(-p->shepherd.pid, SIGKILL);
}

static void on_timeout(void *arg)
{
  struct cb_process *p = arg;
  p->timer = NULL;
  p->timed_out = true;
  kill_group(p);
}

void cb_process_cancel(struct cb_process *p)
{
  if (p->cancelled)
    return;
  p->cancelled = true;
  kill_group(p);
  if (p->exited)
    finish(p, CB_CANCELLED);
}

/* The loop has ended: what was killed is awaited here, for a moment. */
static void on_close(void *arg)
{
  struct cb_process *p = arg;
  struct pollfd end = { .fd = p->shepherd.sock, .events = POLLIN };
  kill_group(p);
  poll(&end, 1, CLOSE_WAIT_MS);
  finish(p, CB_CLOSED);
}

/* ---- the pipes --------------------------------------------------------------------------- */

static void keep(struct cb_process *p, struct cb_buf *b, const char *from, size_t n)
{
  size_t room = b->max - b->len;
  if (n > room) {
    p->truncated = true;
    n = room;
  }
  if (n && cb_buf_add(b, from, n))
    p->truncated = true;
}

static void on_output(struct cb_process *p, struct pipe_end *e, struct cb_buf *b)
{
  char piece[READ_STEP];
  ssize_t n = read(e->fd, piece, sizeof piece);
  if (n > 0) {
    keep(p, b, piece, (size_t)n);
    return;
  }
  if (n < 0 && (errno == EAGAIN || errno == EINTR))
    return;
  drop_end(e);
  check_end(p);
}

static void on_out(void *arg, uint32_t events)
{
  struct cb_process *p = arg;
  (void)events;
  on_output(p, &p->out, &p->out_bytes);
}

static void on_err(void *arg, uint32_t events)
{
  struct cb_process *p = arg;
  (void)events;
  on_output(p, &p->err, &p->err_bytes);
}

static void on_in(void *arg, uint32_t events)
{
  struct cb_process *p = arg;
  (void)events;
  /* SIGPIPE is blocked on this thread: a reader that is gone is EPIPE. */
  ssize_t n = write(p->in.fd, p->input + p->input_at, p->input_len - p->input_at);
  if (n < 0 && (errno == EAGAIN || errno == EINTR))
    return;
  if (n > 0)
    p->input_at += (size_t)n;
  if (n < 0 || p->input_at == p->input_len)
    drop_end(&p->in);
}

/* ---- the start --------------------------------------------------------------------------- */

/* A pipe whose end on our side does not block. */
static int make_pipe(struct pipe_end *ours, int *theirs, bool we_read, struct cb_err *err)
{
  int ends[2];
  int rc = cb_pipe(ends, err);
  if (rc)
    return rc;
  ours->fd = ends[we_read ? 0 : 1];
  *theirs = ends[we_read ? 1 : 0];
  rc = cb_lift_fd(theirs, err);
  return rc ? rc : cb_nonblock(ours->fd, true, err);
}

static int check_folder(const char *cwd, struct cb_err *err)
{
  struct stat st;
  if (!cwd)
    return CB_OK;
  if (stat(cwd, &st) < 0)
    return cb_err_errno(err, errno, "run in the folder %s", cwd);
  return S_ISDIR(st.st_mode) ? CB_OK
                             : cb_err_set(err, CB_INVALID, "run in %s: not a folder", cwd);
}

/* Starts the child with its pipes; the child's ends are closed on our side either way. */
static int launch(struct cb_process *p, const struct cb_process_req *req, struct cb_err *err)
{
  struct cb_program c = { .argv = req->argv, .env = req->env, .cwd = req->cwd,
                          .in = -1, .out = -1, .err = -1 };
  char *path = NULL;
  int rc = check_folder(req->cwd, err);
  if (rc == CB_OK)
    rc = cb_find_program(req->argv[0], req->env, &path, err);
  if (rc == CB_OK)
    rc = make_pipe(&p->out, &c.out, true, err);
  if (rc == CB_OK)
    rc = make_pipe(&p->err, &c.err, true, err);
  if (rc == CB_OK && p->input_len > 0) {
    rc = make_pipe(&p->in, &c.in, false, err);
  } else if (rc == CB_OK) {
    c.in = open("/dev/null", O_RDONLY | O_CLOEXEC);
    rc = c.in < 0 ? cb_err_errno(err, errno, "open /dev/null") : cb_lift_fd(&c.in, err);
  }
  c.path = path;
  if (rc == CB_OK)
    rc = cb_shepherd_start(&p->shepherd, &c, err);
  cb_close(&c.in);
  cb_close(&c.out);
  cb_close(&c.err);
  cb_free(path);
  return rc;
}

/* Hangs the running child into the loop. */
static int attend(struct cb_process *p, int64_t timeout_ms, struct cb_err *err)
{
  p->exit_poll = cb_poll_start(p->io, p->shepherd.sock, EPOLLIN, on_exit_seen, p);
  p->out.poll = cb_poll_start(p->io, p->out.fd, EPOLLIN, on_out, p);
  p->err.poll = cb_poll_start(p->io, p->err.fd, EPOLLIN, on_err, p);
  if (p->in.fd >= 0)
    p->in.poll = cb_poll_start(p->io, p->in.fd, EPOLLOUT, on_in, p);
  if (timeout_ms > 0)
    p->timer = cb_timer_start(p->io, timeout_ms, on_timeout, p);
  if (!p->exit_poll || !p->out.poll || !p->err.poll || (p->in.fd >= 0 && !p->in.poll) ||
      (timeout_ms > 0 && !p->timer))
    return cb_err_no_memory(err);
  return CB_OK;
}

struct cb_process *cb_process_start(struct cb_io *io, const struct cb_process_req *req,
                                    cb_done *done, void *arg, struct cb_err *err)
{
  size_t max = req->max_bytes ? req->max_bytes : KEPT;
  if (cb_io_closing(io)) {
    cb_err_set(err, CB_CLOSED, "the I/O handle is closed");
    return NULL;
  }
  struct cb_process *p = cb_calloc(1, sizeof *p);
  if (!p) {
    cb_err_no_memory(err);
    return NULL;
  }
  p->io = io;
  p->done = done;
  p->arg = arg;
  p->shepherd.sock = p->in.fd = p->out.fd = p->err.fd = -1;
  cb_buf_init(&p->out_bytes, max);
  cb_buf_init(&p->err_bytes, max);
  int rc = CB_OK;
  if (req->input && req->input_len > 0) {
    p->input = cb_memdup(req->input, req->input_len);
    p->input_len = req->input_len;
    rc = p->input ? CB_OK : cb_err_no_memory(err);
  }
  if (rc == CB_OK)
    rc = launch(p, req, err);
  if (rc == CB_OK)
    rc = attend(p, req->timeout_ms, err);
  if (rc) { /* what runs already, and whose end nobody would hear, is killed with the release */
    free_process(p);
    return NULL;
  }
  cb_io_hook_add(io, &p->hook, on_close, p);
  return p;
}
