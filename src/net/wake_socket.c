/* SPDX-License-Identifier: MIT */
#include "net/wake_socket.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fd.h"

enum { CONNECT_MS = 10000 };

struct wake {
  struct cb_io *io;
  struct cb_io_hook hook;
  char *path;
  int listener, peer;
  int done_fd; /* a copy of the io's, so that several wakes can watch it */
  struct cb_poll *listener_poll, *peer_poll, *done_poll;
  struct cb_timer *timer;
};

static void stop_listening(struct wake *w)
{
  if (w->listener < 0)
    return;
  cb_poll_stop(w->listener_poll);
  w->listener_poll = NULL;
  (void)unlink(w->path);
  cb_close(&w->listener);
}

static void free_wake(void *arg)
{
  struct wake *w = arg;
  cb_io_hook_remove(&w->hook);
  cb_timer_stop(w->timer);
  stop_listening(w);
  cb_poll_stop(w->peer_poll);
  cb_poll_stop(w->done_poll);
  cb_close(&w->peer);
  cb_close(&w->done_fd);
  cb_free(w->path);
  cb_free(w);
}

static void on_done(void *arg, uint32_t events)
{
  struct wake *w = arg;
  ssize_t n;
  (void)events;
  do
    n = send(w->peer, "c", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
  while (n < 0 && errno == EINTR);
  if (n < 0 && errno != EAGAIN)
    free_wake(w);
}

/* The peer says nothing: what comes is its end. */
static void on_peer(void *arg, uint32_t events)
{
  struct wake *w = arg;
  char piece[64];
  ssize_t n = read(w->peer, piece, sizeof piece);
  (void)events;
  if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
    free_wake(w);
}

static bool is_this_process(int sock)
{
  struct ucred c;
  socklen_t n = sizeof c;
  return getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &c, &n) == 0 && c.pid == getpid();
}

static void welcome(struct wake *w, int fd)
{
  if (!is_this_process(fd)) {
    cb_close(&fd);
    return;
  }
  cb_timer_stop(w->timer);
  w->timer = NULL;
  stop_listening(w);
  w->peer = fd;
  w->peer_poll = cb_poll_start(w->io, fd, EPOLLIN, on_peer, w);
  /* Edge-triggered: tells at once when completions wait already, and then once for each write to
   * the eventfd, which comes when the queue had been empty. */
  w->done_poll = cb_poll_start(w->io, w->done_fd, EPOLLIN | EPOLLET, on_done, w);
  if (!w->peer_poll || !w->done_poll)
    free_wake(w);
}

static void on_nobody(void *arg)
{
  struct wake *w = arg;
  w->timer = NULL;
  free_wake(w);
}

static void on_listener(void *arg, uint32_t events)
{
  struct wake *w = arg;
  (void)events;
  int fd = accept4(w->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd >= 0)
    welcome(w, fd);
  else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
    free_wake(w); /* the host sees its connection closed, and asks again after a while */
}

static void start(struct cb_io *io, void *arg)
{
  struct wake *w = arg;
  w->listener_poll = cb_poll_start(io, w->listener, EPOLLIN, on_listener, w);
  w->timer = cb_timer_start(io, CONNECT_MS, on_nobody, w);
  if (!w->listener_poll || !w->timer)
    free_wake(w);
  else
    cb_io_hook_add(io, &w->hook, free_wake, w);
}

int cb_wake_socket(struct cb_io *io, const char *path, struct cb_err *err)
{
  struct wake *w = cb_calloc(1, sizeof *w);
  if (!w)
    return cb_err_no_memory(err);
  w->io = io;
  w->listener = w->peer = -1;
  w->done_fd = fcntl(cb_io_fd(io), F_DUPFD_CLOEXEC, 3);
  w->path = cb_strdup(path);
  int rc = CB_OK;
  if (w->done_fd < 0)
    rc = cb_err_errno(err, errno, "watch for completions");
  else if (!w->path)
    rc = cb_err_no_memory(err);
  if (rc == CB_OK)
    rc = cb_unix_listen(path, SOCK_STREAM | SOCK_NONBLOCK, &w->listener, err);
  if (rc == CB_OK)
    rc = cb_io_post(io, start, w, err);
  if (rc) {
    if (w->listener >= 0)
      (void)unlink(path);
    cb_close(&w->listener);
    cb_close(&w->done_fd);
    cb_free(w->path);
    cb_free(w);
  }
  return rc;
}
