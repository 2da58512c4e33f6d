/* SPDX-License-Identifier: MIT
 * egress.c: relayed connections: resolve, connect, copy both ways. See egress.h. */
#include "boxd/egress.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fd.h"
#include "boxd/loop.h"
#include "boxd/pool.h"

enum {
  ADDRESSES_MAX = 16,
  FLOW_BYTES = 64 * 1024, /* most that is held for a slow reader, each way */
  THREADS = 4,
  ALL_CONNS_MAX = 4096,
};

struct address {
  struct sockaddr_storage at;
  socklen_t len;
};

/* One direction of a connection. */
struct flow {
  char *bytes; /* FLOW_BYTES, while there is something in it */
  size_t start, end;
  bool ended; /* the source has no more */
  bool shut;  /* and the destination knows */
};

struct lookup;

struct conn {
  struct conn *next, *prev;
  struct cb_egress_box *box;
  char *target;          /* "name:port", for the log */
  int fd[2];             /* 0: the box's side, 1: the outside */
  struct cb_watch watch[2];
  struct flow flow[2];   /* flow[i] is read from fd[i] */
  struct lookup *lookup; /* while names are resolved */
  struct address addresses[ADDRESSES_MAX];
  size_t address_count, next_address;
  bool open;
  struct cb_loop_timer timer; /* connecting: what is left for this address; open: idleness */
  int64_t deadline_ms, active_ms;
};

struct cb_egress {
  struct cb_loop *loop;
  const struct cb_log *log;
  struct cb_pool *pool;
  size_t conn_count;
};

struct cb_egress_box {
  struct cb_egress *egress;
  struct cb_egress_rules *rules;
  char id[72];
  struct conn conns; /* ring head */
  size_t conn_count;
};

int cb_egress_new(struct cb_egress **out, struct cb_loop *loop, const struct cb_log *log,
                  struct cb_err *err)
{
  struct cb_egress *e = cb_calloc(1, sizeof *e);
  if (!e)
    return cb_err_no_memory(err);
  e->loop = loop;
  e->log = log;
  int rc = cb_pool_new(&e->pool, loop, THREADS, err);
  if (rc) {
    cb_free(e);
    return rc;
  }
  *out = e;
  return CB_OK;
}

void cb_egress_free(struct cb_egress *e)
{
  if (!e)
    return;
  assert(e->conn_count == 0);
  cb_pool_free(e->pool, false);
  cb_free(e);
}

int cb_egress_box_new(struct cb_egress_box **out, struct cb_egress *egress, const char *id,
                      struct cb_egress_rules *rules, struct cb_err *err)
{
  struct cb_egress_box *b = cb_calloc(1, sizeof *b);
  if (!b) {
    cb_egress_rules_free(rules);
    return cb_err_no_memory(err);
  }
  b->egress = egress;
  b->rules = rules;
  snprintf(b->id, sizeof b->id, "%s", id);
  b->conns.next = b->conns.prev = &b->conns;
  *out = b;
  return CB_OK;
}

/* --- the end of a connection --- */

struct lookup {
  struct cb_job job;
  struct conn *conn; /* NULL: nobody waits any more */
  char host[CB_EGRESS_NAME_MAX + 1], port[8];
  bool checked; /* addresses must pass cb_egress_address_ok */
  bool literal;
  struct address found[ADDRESSES_MAX];
  size_t found_count;
  size_t refused; /* addresses that did not pass */
  int gai;
};

static void end(struct conn *c)
{
  struct cb_egress *e = c->box->egress;
  if (c->lookup)
    c->lookup->conn = NULL;
  cb_loop_timer_stop(e->loop, &c->timer);
  for (int i = 0; i < 2; i++) {
    cb_loop_del(e->loop, &c->watch[i]);
    cb_close(&c->fd[i]);
    cb_free(c->flow[i].bytes);
  }
  c->prev->next = c->next;
  c->next->prev = c->prev;
  c->box->conn_count--;
  e->conn_count--;
  cb_free(c->target);
  cb_free(c);
}

/* A client should see a refusal, not the clean end of an empty answer. */
static void reset(int *fd)
{
  struct linger now = { .l_onoff = 1, .l_linger = 0 };
  if (*fd >= 0)
    (void)setsockopt(*fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
  cb_close(fd);
}

static void refuse(struct conn *c, const char *why)
{
  cb_log(c->box->egress->log, CB_LOG_INFO, "egress", "box %s to %s: %s", c->box->id, c->target,
         why);
  cb_loop_del(c->box->egress->loop, &c->watch[0]);
  reset(&c->fd[0]);
  end(c);
}

void cb_egress_box_free(struct cb_egress_box *b)
{
  if (!b)
    return;
  while (b->conns.next != &b->conns)
    end(b->conns.next);
  cb_egress_rules_free(b->rules);
  cb_free(b);
}

/* --- copying --- */

static void pump(struct conn *c);

static void update_watches(struct conn *c)
{
  struct cb_loop *loop = c->box->egress->loop;
  for (int i = 0; i < 2; i++) {
    const struct flow *in = &c->flow[i], *out = &c->flow[1 - i];
    uint32_t events = 0;
    if (!in->ended && in->start == in->end)
      events |= EPOLLIN;
    if (out->start < out->end)
      events |= EPOLLOUT;
    /* Nothing more to expect of this side: epoll would tell its hang-up for ever. */
    if (in->ended && out->shut)
      cb_loop_del(loop, &c->watch[i]);
    else
      cb_loop_mod(loop, &c->watch[i], events);
  }
}

/* False when the connection is broken. */
static bool fill(struct conn *c, int i)
{
  struct flow *f = &c->flow[i];
  if (f->ended || f->start < f->end)
    return true;
  if (!f->bytes)
    f->bytes = cb_malloc(FLOW_BYTES);
  if (!f->bytes)
    return false;
  ssize_t k = recv(c->fd[i], f->bytes, FLOW_BYTES, 0);
  if (k < 0)
    return errno == EAGAIN || errno == EINTR;
  f->start = 0;
  f->end = (size_t)k;
  f->ended = k == 0;
  c->active_ms = cb_boot_ms();
  return true;
}

static bool empty(struct conn *c, int i)
{
  struct flow *f = &c->flow[i];
  if (f->start < f->end) {
    ssize_t k = send(c->fd[1 - i], f->bytes + f->start, f->end - f->start, MSG_NOSIGNAL);
    if (k < 0)
      return errno == EAGAIN || errno == EINTR;
    f->start += (size_t)k;
    c->active_ms = cb_boot_ms();
  }
  if (f->start == f->end && f->ended && !f->shut) {
    (void)shutdown(c->fd[1 - i], SHUT_WR);
    f->shut = true;
  }
  if (f->start == f->end && f->bytes) { /* an idle connection holds no memory */
    cb_free(f->bytes);
    f->bytes = NULL;
  }
  return true;
}

static void pump(struct conn *c)
{
  for (int i = 0; i < 2; i++)
    if (!fill(c, i) || !empty(c, i)) {
      end(c);
      return;
    }
  if (c->flow[0].shut && c->flow[1].shut)
    end(c);
  else
    update_watches(c);
}

static void on_open_event(struct cb_watch *w, uint32_t events)
{
  struct conn *c = w->owner;
  (void)events;
  pump(c);
}

static void on_idle(struct cb_loop_timer *t)
{
  struct conn *c = t->owner;
  int64_t most = c->flow[0].ended || c->flow[1].ended ? CB_EGRESS_HALF_MS : CB_EGRESS_IDLE_MS;
  int64_t left = c->active_ms + most - cb_boot_ms();
  if (left <= 0)
    end(c);
  else
    cb_loop_timer_start(c->box->egress->loop, t, left < CB_EGRESS_HALF_MS ? left : CB_EGRESS_HALF_MS,
                   on_idle, c);
}

static void opened(struct conn *c)
{
  struct cb_loop *loop = c->box->egress->loop;
  int on = 1;
  c->open = true;
  c->active_ms = cb_boot_ms();
  for (int i = 0; i < 2; i++)
    (void)setsockopt(c->fd[i], IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  (void)setsockopt(c->fd[1], SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  cb_loop_del(loop, &c->watch[1]);
  if (cb_loop_add(loop, &c->watch[0], c->fd[0], EPOLLIN, on_open_event, c, NULL) ||
      cb_loop_add(loop, &c->watch[1], c->fd[1], EPOLLIN, on_open_event, c, NULL)) {
    end(c);
    return;
  }
  cb_loop_timer_start(loop, &c->timer, CB_EGRESS_HALF_MS, on_idle, c);
}

/* --- connecting: one address after the other --- */

static void try_next(struct conn *c, int last_errno);

static void on_connect_event(struct cb_watch *w, uint32_t events)
{
  struct conn *c = w->owner;
  int sys = 0;
  socklen_t n = sizeof sys;
  (void)events;
  if (getsockopt(c->fd[1], SOL_SOCKET, SO_ERROR, &sys, &n) < 0)
    sys = errno;
  if (sys)
    try_next(c, sys);
  else
    opened(c);
}

static void on_connect_timeout(struct cb_loop_timer *t)
{
  try_next(t->owner, ETIMEDOUT);
}

static void try_next(struct conn *c, int last_errno)
{
  struct cb_loop *loop = c->box->egress->loop;
  for (;;) {
    cb_loop_del(loop, &c->watch[1]);
    cb_close(&c->fd[1]);
    int64_t left = c->deadline_ms - cb_boot_ms();
    if (c->next_address >= c->address_count || left <= 0) {
      refuse(c, strerror(last_errno ? last_errno : ETIMEDOUT));
      return;
    }
    const struct address *a = &c->addresses[c->next_address];
    /* An equal share of what is left for each address that is left. */
    int64_t share = left / (int64_t)(c->address_count - c->next_address++);
    c->fd[1] = socket(a->at.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (c->fd[1] < 0 ||
        (connect(c->fd[1], (const struct sockaddr *)&a->at, a->len) < 0 && errno != EINPROGRESS)) {
      last_errno = errno;
      continue;
    }
    if (cb_loop_add(loop, &c->watch[1], c->fd[1], EPOLLOUT, on_connect_event, c, NULL)) {
      last_errno = ENOMEM;
      continue;
    }
    cb_loop_timer_start(loop, &c->timer, share, on_connect_timeout, c);
    return;
  }
}

/* --- names, on other threads --- */

/* A name may point at this very machine by an address that looks like any other. */
static bool is_own_address(const struct ifaddrs *list, const struct sockaddr *a)
{
  for (const struct ifaddrs *i = list; i; i = i->ifa_next) {
    if (!i->ifa_addr || i->ifa_addr->sa_family != a->sa_family)
      continue;
    if (a->sa_family == AF_INET &&
        ((const struct sockaddr_in *)(const void *)i->ifa_addr)->sin_addr.s_addr ==
            ((const struct sockaddr_in *)(const void *)a)->sin_addr.s_addr)
      return true;
    if (a->sa_family == AF_INET6 &&
        memcmp(&((const struct sockaddr_in6 *)(const void *)i->ifa_addr)->sin6_addr,
               &((const struct sockaddr_in6 *)(const void *)a)->sin6_addr, 16) == 0)
      return true;
  }
  return false;
}

static void lookup_work(struct cb_job *job)
{
  struct lookup *l = (struct lookup *)job;
  struct addrinfo hints = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM,
                            .ai_flags = AI_NUMERICSERV | AI_ADDRCONFIG };
  struct addrinfo *list = NULL;
  struct ifaddrs *own = NULL;

  if (l->literal)
    hints.ai_flags = AI_NUMERICSERV | AI_NUMERICHOST;
  else if (!l->checked) /* a forward: AI_ADDRCONFIG knows nothing of loopback */
    hints.ai_flags = AI_NUMERICSERV;
  l->gai = getaddrinfo(l->host, l->port, &hints, &list);
  if (l->gai)
    return;
  if (l->checked && getifaddrs(&own) < 0)
    own = NULL;
  for (struct addrinfo *a = list; a && l->found_count < ADDRESSES_MAX; a = a->ai_next) {
    if (a->ai_addrlen > sizeof l->found[0].at)
      continue;
    if (l->checked && (!cb_egress_address_ok(a->ai_addr, l->literal) ||
                       is_own_address(own, a->ai_addr))) {
      l->refused++;
      continue;
    }
    memcpy(&l->found[l->found_count].at, a->ai_addr, a->ai_addrlen);
    l->found[l->found_count++].len = a->ai_addrlen;
  }
  if (own)
    freeifaddrs(own);
  freeaddrinfo(list);
}

static void lookup_done(struct cb_job *job)
{
  struct lookup *l = (struct lookup *)job;
  struct conn *c = l->conn;
  if (c) {
    c->lookup = NULL;
    if (l->job.skipped) {
      refuse(c, "the daemon is leaving");
    } else if (l->gai) {
      refuse(c, gai_strerror(l->gai));
    } else if (l->found_count == 0) {
      refuse(c, l->refused ? "refused: it leads to this machine or its private network"
                           : "no address");
    } else {
      memcpy(c->addresses, l->found, sizeof c->addresses);
      c->address_count = l->found_count;
      try_next(c, 0);
    }
  }
  cb_free(l);
}

static void relay(struct cb_egress_box *b, int fd, const char *host, size_t host_len,
                  uint16_t port, bool checked)
{
  struct cb_egress *e = b->egress;
  struct conn *c = NULL;
  struct lookup *l = NULL;
  char target[CB_EGRESS_NAME_MAX + 8];
  struct in_addr v4;

  snprintf(target, sizeof target, "%.*s:%u", (int)host_len, host, (unsigned)port);
  if (b->conn_count >= CB_EGRESS_CONNS_MAX || e->conn_count >= ALL_CONNS_MAX) {
    cb_log(e->log, CB_LOG_WARN, "egress", "box %s to %s: too many connections", b->id, target);
    goto fail;
  }
  c = cb_calloc(1, sizeof *c);
  l = cb_calloc(1, sizeof *l);
  if (c)
    c->target = cb_strdup(target);
  if (!c || !l || !c->target || host_len > CB_EGRESS_NAME_MAX || cb_nonblock(fd, true, NULL))
    goto fail;
  c->box = b;
  c->fd[0] = fd;
  c->fd[1] = c->watch[0].fd = c->watch[1].fd = -1;
  c->deadline_ms = cb_boot_ms() + CB_EGRESS_CONNECT_MS;
  c->next = b->conns.next;
  c->prev = &b->conns;
  c->next->prev = c;
  b->conns.next = c;
  b->conn_count++;
  e->conn_count++;
  memcpy(l->host, host, host_len);
  snprintf(l->port, sizeof l->port, "%u", (unsigned)port);
  l->checked = checked;
  l->literal = inet_pton(AF_INET, l->host, &v4) == 1;
  l->conn = c;
  l->job.work = lookup_work;
  l->job.done = lookup_done;
  c->lookup = l;
  cb_pool_run(e->pool, &l->job);
  /* A resolver may hang for longer than anybody wants to wait. */
  cb_loop_timer_start(e->loop, &c->timer, CB_EGRESS_CONNECT_MS, on_connect_timeout, c);
  return;
fail:
  reset(&fd);
  if (c)
    cb_free(c->target);
  cb_free(c);
  cb_free(l);
}

void cb_egress_relay(struct cb_egress_box *b, int fd, const char *name, uint16_t port)
{
  if (!cb_egress_allows(b->rules, name, port)) {
    cb_log(b->egress->log, CB_LOG_WARN, "egress", "box %s to %.253s:%u: not allowed", b->id, name,
           (unsigned)port);
    reset(&fd);
    return;
  }
  relay(b, fd, name, strlen(name), port, true);
}

void cb_egress_relay_forward(struct cb_egress_box *b, int fd, uint16_t port)
{
  const char *to = cb_egress_forward_to(b->rules, port);
  unsigned v = 0;
  if (!to) {
    cb_log(b->egress->log, CB_LOG_WARN, "egress", "box %s: port %u is not forwarded", b->id,
           (unsigned)port);
    reset(&fd);
    return;
  }
  const char *colon = strrchr(to, ':'); /* the rules were checked */
  for (const char *p = colon + 1; *p; p++)
    v = v * 10 + (unsigned)(*p - '0');
  size_t n = (size_t)(colon - to);
  bool bracketed = n > 2 && to[0] == '[' && to[n - 1] == ']';
  relay(b, fd, to + bracketed, n - (bracketed ? 2 : 0), (uint16_t)v, false);
}
