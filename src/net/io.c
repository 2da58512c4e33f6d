/* SPDX-License-Identifier: MIT
 * io.c: life and loop of the I/O thread, posts and polls. */
#include "net/io.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fd.h"
#include "net/io_private.h"

enum { EVENTS_A_TURN = 128 };

struct cb_poll {
  struct cb_io *io;
  struct cb_poll *prev, *next; /* of io->polls, or next in the graveyard */
  int fd;
  bool dead;
  void (*fn)(void *arg, uint32_t events);
  void *arg;
};

/* ---- life -------------------------------------------------------------------------------- */

int cb_io_new(struct cb_io **out, struct cb_err *err)
{
  int rc = CB_OK;
  struct cb_io *io = cb_calloc(1, sizeof *io);
  if (!io)
    return cb_err_no_memory(err);
  io->pid = getpid();
  atomic_init(&io->refs, 1);
  io->ep = -1;
  io->done_fd = -1;
  pthread_mutex_init(&io->lock, NULL);
  cb_ops_init(&io->ops);
  cb_worker_init(&io->worker);
  io->hooks.prev = io->hooks.next = &io->hooks;
  io->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (io->wake_fd >= 0)
    io->done_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (io->done_fd < 0) {
    rc = cb_err_errno(err, errno, "make an I/O handle");
    cb_io_drop(io);
    return rc;
  }
  *out = io;
  return CB_OK;
}

bool cb_io_ours(const struct cb_io *io)
{
  return io->pid == getpid();
}

struct cb_io *cb_io_keep(struct cb_io *io)
{
  atomic_fetch_add(&io->refs, 1);
  return io;
}

void cb_io_drop(struct cb_io *io)
{
  if (!io || atomic_fetch_sub(&io->refs, 1) != 1)
    return;
  /* In a forked child the threads that used these locks do not exist; the memory and our
   * copies of the descriptors are all there is to give back. curl's handles are left: they may
   * have been copied in the middle of a change. */
  cb_close(&io->wake_fd);
  cb_close(&io->done_fd);
  cb_close(&io->ep);
  cb_ops_clear(io);
  if (cb_io_ours(io)) {
    cb_lines_free(atomic_load(&io->lines));
    cb_worker_clear(&io->worker);
    pthread_mutex_destroy(&io->ops.lock);
    pthread_mutex_destroy(&io->lock);
  }
  cb_free(io);
}

void cb_io_free(struct cb_io *io)
{
  if (!io)
    return;
  cb_io_close(io);
  cb_io_drop(io);
}

int cb_io_thread(pthread_t *out, void *(*fn)(void *), void *arg, struct cb_err *err)
{
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int rc = pthread_create(out, NULL, fn, arg);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return rc ? cb_err_errno(err, rc, "start a thread") : CB_OK;
}

bool cb_io_closing(struct cb_io *io)
{
  return atomic_load(&io->closing);
}

bool cb_io_alive(struct cb_io *io)
{
  return cb_io_ours(io) && !cb_io_closing(io);
}

static bool on_loop(struct cb_io *io)
{
  return atomic_load(&io->loop_tid) == gettid();
}

static void ring(int fd)
{
  uint64_t one = 1;
  ssize_t n;
  do
    n = write(fd, &one, sizeof one);
  while (n < 0 && errno == EINTR); /* EAGAIN: it is ringing already */
}

static void silence(int fd)
{
  uint64_t count;
  ssize_t n;
  do
    n = read(fd, &count, sizeof count);
  while (n < 0 && errno == EINTR);
}

/* ---- polls ------------------------------------------------------------------------------- */

struct cb_poll *cb_poll_start(struct cb_io *io, int fd, uint32_t events,
                              void (*fn)(void *arg, uint32_t events), void *arg)
{
  assert(on_loop(io));
  if (cb_io_closing(io))
    return NULL;
  struct cb_poll *p = cb_calloc(1, sizeof *p);
  if (!p)
    return NULL;
  struct epoll_event ev = { .events = events, .data.ptr = p };
  if (epoll_ctl(io->ep, EPOLL_CTL_ADD, fd, &ev) < 0) {
    cb_free(p);
    return NULL;
  }
  p->io = io;
  p->fd = fd;
  p->fn = fn;
  p->arg = arg;
  p->next = io->polls;
  if (p->next)
    p->next->prev = p;
  io->polls = p;
  return p;
}

void cb_poll_change(struct cb_poll *p, uint32_t events)
{
  struct epoll_event ev = { .events = events, .data.ptr = p };
  epoll_ctl(p->io->ep, EPOLL_CTL_MOD, p->fd, &ev);
}

void cb_poll_stop(struct cb_poll *p)
{
  if (!p || p->dead)
    return;
  struct cb_io *io = p->io;
  epoll_ctl(io->ep, EPOLL_CTL_DEL, p->fd, NULL);
  if (p->prev)
    p->prev->next = p->next;
  else
    io->polls = p->next;
  if (p->next)
    p->next->prev = p->prev;
  /* An event of it may wait further down in the batch of this turn: freed after the turn. */
  p->dead = true;
  p->next = io->graveyard;
  io->graveyard = p;
}

static void bury(struct cb_io *io)
{
  while (io->graveyard) {
    struct cb_poll *p = io->graveyard;
    io->graveyard = p->next;
    cb_free(p);
  }
}

/* ---- hooks ------------------------------------------------------------------------------- */

void cb_io_hook_add(struct cb_io *io, struct cb_io_hook *hook, void (*fn)(void *arg), void *arg)
{
  hook->fn = fn;
  hook->arg = arg;
  hook->prev = io->hooks.prev;
  hook->next = &io->hooks;
  hook->prev->next = hook;
  io->hooks.prev = hook;
}

void cb_io_hook_remove(struct cb_io_hook *hook)
{
  if (!hook->next)
    return;
  hook->prev->next = hook->next;
  hook->next->prev = hook->prev;
  hook->prev = hook->next = NULL;
}

/* ---- the loop ---------------------------------------------------------------------------- */

static bool run_posts(struct cb_io *io)
{
  struct cb_link *l = cb_queue_take(&io->posts);
  bool some = l != NULL;
  while (l) {
    struct cb_post *post = (struct cb_post *)l;
    l = l->next;
    post->fn(io, post->arg);
    cb_free(post);
  }
  return some;
}

/* The nearest timer, ours or curl's, is the time-out of the wait itself: curl asks for another
 * time at nearly every step, and a timerfd would cost a system call each. */
static int wait_ms(struct cb_io *io)
{
  int64_t a = cb_timers_wait(io), b = cb_multi_wait(io->multi);
  int64_t ms = a < 0 || (b >= 0 && b < a) ? b : a;
  return ms > INT_MAX ? INT_MAX : (int)ms;
}

static void turn(struct cb_io *io)
{
  struct epoll_event ev[EVENTS_A_TURN];
  int n = epoll_wait(io->ep, ev, EVENTS_A_TURN, wait_ms(io));
  for (int i = 0; i < n; i++) {
    struct cb_poll *p = ev[i].data.ptr;
    if (!p) {
      silence(io->wake_fd); /* before taking: a later post rings again */
      run_posts(io);
    } else if (!p->dead) {
      p->fn(p->arg, ev[i].events);
    }
  }
  cb_timers_run(io);
  cb_multi_run(io->multi);
  bury(io);
}

/* Ends everything, until nothing is left that could start something else. */
static void shut_down(struct cb_io *io)
{
  for (;;) {
    if (run_posts(io))
      continue;
    struct cb_io_hook *hook = io->hooks.prev;
    if (hook != &io->hooks) {
      cb_io_hook_remove(hook);
      hook->fn(hook->arg);
    } else if (!cb_ops_cancel_any(io) && !cb_worker_stop(io) && cb_queue_empty(&io->posts)) {
      break;
    }
  }
  pthread_mutex_lock(&io->lock);
  io->finished = true;
  pthread_mutex_unlock(&io->lock);
  cb_multi_free(io->multi);
  io->multi = NULL;
  while (io->polls)
    cb_poll_stop(io->polls);
  bury(io);
  cb_timers_clear(io);
}

static void *loop(void *arg)
{
  struct cb_io *io = arg;
  pthread_setname_np(pthread_self(), "crewbox-io");
  atomic_store(&io->loop_tid, gettid());
  while (!cb_io_closing(io))
    turn(io);
  shut_down(io);
  return NULL;
}

/* ---- from other threads ------------------------------------------------------------------ */

static int start_locked(struct cb_io *io, struct cb_err *err)
{
  if (io->started)
    return CB_OK;
  struct epoll_event ev = { .events = EPOLLIN, .data.ptr = NULL };
  io->ep = epoll_create1(EPOLL_CLOEXEC);
  if (io->ep < 0 || epoll_ctl(io->ep, EPOLL_CTL_ADD, io->wake_fd, &ev) < 0) {
    int rc = cb_err_errno(err, errno, "start the I/O thread");
    cb_close(&io->ep);
    return rc;
  }
  int rc = cb_io_thread(&io->thread, loop, io, err);
  if (rc)
    cb_close(&io->ep);
  else
    io->started = true;
  return rc;
}

static int refuse(struct cb_io *io, struct cb_err *err)
{
  if (!cb_io_ours(io))
    return cb_err_set(err, CB_CLOSED,
                      "the I/O handle was made before a fork: make one in this process");
  return cb_err_set(err, CB_CLOSED, "the I/O handle is closed");
}

void cb_io_push(struct cb_io *io, struct cb_post *post)
{
  if (cb_queue_push(&io->posts, &post->link))
    ring(io->wake_fd);
}

int cb_io_post(struct cb_io *io, void (*fn)(struct cb_io *io, void *arg), void *arg,
               struct cb_err *err)
{
  if (!cb_io_ours(io))
    return refuse(io, err); /* before the lock: a thread may have held it at the fork */
  struct cb_post *post = cb_malloc(sizeof *post);
  if (!post)
    return cb_err_no_memory(err);
  post->fn = fn;
  post->arg = arg;
  pthread_mutex_lock(&io->lock);
  int rc = CB_OK;
  if (io->finished || (cb_io_closing(io) && !on_loop(io)))
    rc = refuse(io, err);
  else
    rc = start_locked(io, err);
  /* Pushed under the lock: a post that was accepted comes before the end of the closing. */
  if (rc == CB_OK)
    cb_io_push(io, post);
  pthread_mutex_unlock(&io->lock);
  if (rc)
    cb_free(post);
  return rc;
}

void cb_io_close(struct cb_io *io)
{
  if (!io || !cb_io_ours(io))
    return;
  assert(!on_loop(io));
  pthread_mutex_lock(&io->lock);
  bool first = !cb_io_closing(io), started = io->started;
  atomic_store(&io->closing, true);
  if (!started)
    io->finished = true;
  pthread_mutex_unlock(&io->lock);
  if (first && started) {
    ring(io->wake_fd);
    pthread_join(io->thread, NULL);
  }
}

int cb_io_fd(struct cb_io *io)
{
  return io->done_fd;
}
