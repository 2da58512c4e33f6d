/* SPDX-License-Identifier: MIT */
#include "net/multi.h"

#include <assert.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/epoll.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "net/io_private.h"

enum {
  POOL_MAX = 64,         /* idle easy handles kept: each is about 16 KiB once used */
  CONNECTIONS_KEPT = 256 /* idle connections */
};

struct cb_multi {
  struct cb_io *io;
  CURLM *curl;
  int depth;                            /* calls into curl on the stack */
  struct cb_transfer *pending, **pending_end; /* to add or remove once curl has returned */
  CURL *pool[POOL_MAX];
  size_t pool_count;
  int64_t deadline_ms;                  /* when curl wants to be called; -1: no time */
};

static void settle(struct cb_multi *m);

/* ---- what curl asks for ------------------------------------------------------------------ */

static void act(struct cb_multi *m, curl_socket_t fd, int what)
{
  int running;
  m->depth++;
  curl_multi_socket_action(m->curl, fd, what, &running);
  m->depth--;
  settle(m);
}

/* Never fails: a transfer that curl adds while this fails is lost to it half-made. So the time is
 * only noted, and the loop asks for it (cb_multi_wait). */
static int want_timer(CURLM *curl, long ms, void *arg)
{
  struct cb_multi *m = arg;
  (void)curl;
  m->deadline_ms = ms < 0 ? -1 : cb_now_ms() + ms;
  return 0;
}

int64_t cb_multi_wait(struct cb_multi *m)
{
  if (!m || m->deadline_ms < 0)
    return -1;
  int64_t left = m->deadline_ms - cb_now_ms();
  return left > 0 ? left : 0;
}

void cb_multi_run(struct cb_multi *m)
{
  if (cb_multi_wait(m) != 0)
    return;
  m->deadline_ms = -1;
  act(m, CURL_SOCKET_TIMEOUT, 0);
}

static void on_socket(void *arg, uint32_t events);

/* What a poll needs to reach both the multi and its descriptor. */
struct watch {
  struct cb_multi *m;
  curl_socket_t fd;
  struct cb_poll *poll;
};

static void pend(struct cb_multi *m, struct cb_transfer *t);

/* A socket that cannot be watched ends its own transfer. (Refusing it, as curl offers, would end
 * every other one with it.) */
static void starve(struct cb_multi *m, CURL *easy)
{
  struct cb_transfer *t = NULL;
  curl_easy_getinfo(easy, CURLINFO_PRIVATE, (char **)&t);
  if (!t || t->state != CB_TRANSFER_RUNNING)
    return;
  t->state = CB_TRANSFER_STARVED;
  pend(m, t);
}

static int want_socket(CURL *easy, curl_socket_t fd, int what, void *arg, void *known)
{
  struct cb_multi *m = arg;
  struct watch *w = known;
  if (what == CURL_POLL_REMOVE) {
    if (w)
      cb_poll_stop(w->poll);
    cb_free(w);
    curl_multi_assign(m->curl, fd, NULL);
    return 0;
  }
  uint32_t events = (what & CURL_POLL_IN ? EPOLLIN : 0u) | (what & CURL_POLL_OUT ? EPOLLOUT : 0u);
  if (w) {
    cb_poll_change(w->poll, events);
    return 0;
  }
  w = cb_calloc(1, sizeof *w);
  if (w) {
    w->m = m;
    w->fd = fd;
    w->poll = cb_poll_start(m->io, fd, events, on_socket, w);
  }
  if (!w || !w->poll) {
    cb_free(w);
    starve(m, easy);
    return 0;
  }
  curl_multi_assign(m->curl, fd, w);
  return 0;
}

static void on_socket(void *arg, uint32_t events)
{
  struct watch *w = arg;
  act(w->m, w->fd, (events & EPOLLIN ? CURL_CSELECT_IN : 0) |
                       (events & EPOLLOUT ? CURL_CSELECT_OUT : 0) |
                       (events & (EPOLLERR | EPOLLHUP) ? CURL_CSELECT_ERR : 0));
}

/* ---- transfers --------------------------------------------------------------------------- */

static void pend(struct cb_multi *m, struct cb_transfer *t)
{
  t->next_pending = NULL;
  *m->pending_end = t;
  m->pending_end = &t->next_pending;
}

static bool add_now(struct cb_multi *m, struct cb_transfer *t)
{
  m->depth++;
  curl_easy_setopt(t->easy, CURLOPT_PRIVATE, (void *)t);
  CURLMcode rc = curl_multi_add_handle(m->curl, t->easy);
  m->depth--;
  t->in_curl = rc == CURLM_OK;
  t->state = t->in_curl ? CB_TRANSFER_RUNNING : CB_TRANSFER_IDLE;
  return t->in_curl;
}

static void take_out(struct cb_multi *m, struct cb_transfer *t)
{
  if (t->in_curl) {
    m->depth++;
    curl_multi_remove_handle(m->curl, t->easy);
    m->depth--;
  }
  t->in_curl = false;
  t->state = CB_TRANSFER_IDLE;
}

static void do_pending(struct cb_multi *m)
{
  while (m->pending) {
    struct cb_transfer *t = m->pending;
    m->pending = t->next_pending;
    if (!m->pending)
      m->pending_end = &m->pending;
    if (t->state == CB_TRANSFER_REMOVING) {
      take_out(m, t);
      t->removed(t);
    } else if (t->state == CB_TRANSFER_STARVED) {
      take_out(m, t);
      t->ended(t, CURLE_OUT_OF_MEMORY);
    } else if (!add_now(m, t)) {
      t->ended(t, CURLE_OUT_OF_MEMORY);
    }
  }
}

/* Outside of curl again: does what was put off and tells who has ended. */
static void settle(struct cb_multi *m)
{
  CURLMsg *msg;
  int left;
  do_pending(m);
  while ((msg = curl_multi_info_read(m->curl, &left))) {
    if (msg->msg != CURLMSG_DONE)
      continue;
    CURLcode code = msg->data.result;
    struct cb_transfer *t = NULL;
    curl_easy_getinfo(msg->easy_handle, CURLINFO_PRIVATE, (char **)&t);
    take_out(m, t);
    t->ended(t, code);
  }
}

bool cb_multi_add(struct cb_multi *m, struct cb_transfer *t)
{
  if (m->depth == 0)
    return add_now(m, t);
  t->state = CB_TRANSFER_ADDING;
  pend(m, t);
  return true;
}

void cb_multi_remove(struct cb_multi *m, struct cb_transfer *t)
{
  assert(t->state != CB_TRANSFER_IDLE && t->state != CB_TRANSFER_REMOVING);
  bool queued = t->state != CB_TRANSFER_RUNNING;
  if (m->depth == 0) {
    take_out(m, t);
    t->removed(t);
    return;
  }
  t->state = CB_TRANSFER_REMOVING;
  if (!queued)
    pend(m, t);
}

/* ---- handles ----------------------------------------------------------------------------- */

CURL *cb_multi_easy(struct cb_multi *m)
{
  return m->pool_count ? m->pool[--m->pool_count] : curl_easy_init();
}

void cb_multi_easy_back(struct cb_multi *m, CURL *easy)
{
  if (!easy)
    return;
  if (m->pool_count == POOL_MAX) {
    curl_easy_cleanup(easy);
    return;
  }
  curl_easy_reset(easy);
  m->pool[m->pool_count++] = easy;
}

static void global_init(void)
{
  curl_global_init(CURL_GLOBAL_DEFAULT);
}

struct cb_multi *cb_multi_of(struct cb_io *io)
{
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  if (io->multi || cb_io_closing(io))
    return cb_io_closing(io) ? NULL : io->multi;
  pthread_once(&once, global_init);
  struct cb_multi *m = cb_calloc(1, sizeof *m);
  if (!m)
    return NULL;
  m->io = io;
  m->deadline_ms = -1;
  m->pending_end = &m->pending;
  m->curl = curl_multi_init();
  if (!m->curl) {
    cb_free(m);
    return NULL;
  }
  curl_multi_setopt(m->curl, CURLMOPT_SOCKETFUNCTION, want_socket);
  curl_multi_setopt(m->curl, CURLMOPT_SOCKETDATA, m);
  curl_multi_setopt(m->curl, CURLMOPT_TIMERFUNCTION, want_timer);
  curl_multi_setopt(m->curl, CURLMOPT_TIMERDATA, m);
  curl_multi_setopt(m->curl, CURLMOPT_MAXCONNECTS, (long)CONNECTIONS_KEPT);
  return io->multi = m;
}

void cb_multi_free(struct cb_multi *m)
{
  if (!m)
    return;
  /* Its transfers are gone, by their hooks. Cleaning up closes idle connections, which asks for
   * sockets to be forgotten: want_socket stays until then. */
  while (m->pool_count)
    curl_easy_cleanup(m->pool[--m->pool_count]);
  curl_multi_cleanup(m->curl);
  cb_free(m);
}
