/* SPDX-License-Identifier: MIT
 * loop.c: see loop.h. One epoll with two descriptors of its own: an eventfd that wakes it for
 * posted calls, and a timerfd on CLOCK_BOOTTIME armed for the first timer. */
#include "boxd/loop.h"
#include <assert.h>
#include <errno.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/clock.h"
#include "base/fd.h"

enum { BATCH = 64 };

struct cb_loop {
  int epoll;
  int wake;
  int alarm;
  bool stop;
  struct cb_watch wake_watch, alarm_watch;
  struct cb_queue posted;
  struct cb_loop_timer timers; /* ring head; soonest first */
  int64_t armed_at;       /* what alarm is set to, 0 when off */
  struct cb_hook *hooks;
  struct epoll_event batch[BATCH];
  int batch_at, batch_n;
};

static void on_wake(struct cb_watch *w, uint32_t events)
{
  struct cb_loop *loop = w->owner;
  uint64_t n;
  (void)events;
  if (read(loop->wake, &n, sizeof n) < 0) {
    /* EAGAIN: woken for nothing */
  }
}

static void on_alarm(struct cb_watch *w, uint32_t events)
{
  struct cb_loop *loop = w->owner;
  uint64_t n;
  (void)events;
  if (read(loop->alarm, &n, sizeof n) < 0) {
    /* EAGAIN: re-armed meanwhile */
  }
  loop->armed_at = 0;
}

int cb_loop_new(struct cb_loop **out, struct cb_err *err)
{
  *out = NULL;
  struct cb_loop *loop = cb_calloc(1, sizeof *loop);
  if (!loop)
    return cb_err_no_memory(err);
  loop->timers.next = loop->timers.prev = &loop->timers;
  loop->wake_watch.fd = loop->alarm_watch.fd = -1;
  loop->epoll = epoll_create1(EPOLL_CLOEXEC);
  loop->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  loop->alarm = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
  int rc = CB_OK;
  if (loop->epoll < 0 || loop->wake < 0 || loop->alarm < 0)
    rc = cb_err_errno(err, errno, "make the event loop");
  if (!rc)
    rc = cb_loop_add(loop, &loop->wake_watch, loop->wake, EPOLLIN, on_wake, loop, err);
  if (!rc)
    rc = cb_loop_add(loop, &loop->alarm_watch, loop->alarm, EPOLLIN, on_alarm, loop, err);
  if (rc) {
    cb_loop_free(loop);
    return rc;
  }
  *out = loop;
  return CB_OK;
}

void cb_loop_free(struct cb_loop *loop)
{
  if (!loop)
    return;
  cb_close(&loop->alarm);
  cb_close(&loop->wake);
  cb_close(&loop->epoll);
  cb_free(loop);
}

/* --- descriptors --- */

int cb_loop_add(struct cb_loop *loop, struct cb_watch *w, int fd, uint32_t events,
                void (*ready)(struct cb_watch *w, uint32_t events), void *owner,
                struct cb_err *err)
{
  struct epoll_event ev = { .events = events, .data.ptr = w };
  if (epoll_ctl(loop->epoll, EPOLL_CTL_ADD, fd, &ev))
    return cb_err_errno(err, errno, "watch a descriptor");
  w->fd = fd;
  w->ready = ready;
  w->owner = owner;
  return CB_OK;
}

void cb_loop_mod(struct cb_loop *loop, struct cb_watch *w, uint32_t events)
{
  struct epoll_event ev = { .events = events, .data.ptr = w };
  if (w->fd < 0)
    return;
  int rc = epoll_ctl(loop->epoll, EPOLL_CTL_MOD, w->fd, &ev);
  assert(rc == 0); /* only a descriptor closed behind our back can fail here */
  (void)rc;
}

void cb_loop_del(struct cb_loop *loop, struct cb_watch *w)
{
  if (w->fd < 0)
    return;
  epoll_ctl(loop->epoll, EPOLL_CTL_DEL, w->fd, NULL);
  w->fd = -1;
  for (int i = loop->batch_at; i < loop->batch_n; i++)
    if (loop->batch[i].data.ptr == w)
      loop->batch[i].data.ptr = NULL;
}

/* --- timers --- */

void cb_loop_timer_start_at(struct cb_loop *loop, struct cb_loop_timer *t, int64_t at_ms,
                       void (*fire)(struct cb_loop_timer *t), void *owner)
{
  cb_loop_timer_stop(loop, t);
  t->at_ms = at_ms;
  t->fire = fire;
  t->owner = owner;
  t->on = true;
  /* From the end: most timers are started to fire after the ones that are there. */
  struct cb_loop_timer *after = loop->timers.prev;
  while (after != &loop->timers && after->at_ms > at_ms)
    after = after->prev;
  t->prev = after;
  t->next = after->next;
  after->next->prev = t;
  after->next = t;
}

void cb_loop_timer_start(struct cb_loop *loop, struct cb_loop_timer *t, int64_t delay_ms,
                    void (*fire)(struct cb_loop_timer *t), void *owner)
{
  cb_loop_timer_start_at(loop, t, cb_boot_ms() + (delay_ms > 0 ? delay_ms : 0), fire, owner);
}

void cb_loop_timer_stop(struct cb_loop *loop, struct cb_loop_timer *t)
{
  (void)loop;
  if (!t->on)
    return;
  t->prev->next = t->next;
  t->next->prev = t->prev;
  t->next = t->prev = NULL;
  t->on = false;
}

static void fire_due(struct cb_loop *loop)
{
  int64_t now = cb_boot_ms();
  /* Bounded: a timer that starts itself anew with no delay must not hold the loop. */
  for (int i = 0; i < 4096; i++) {
    struct cb_loop_timer *t = loop->timers.next;
    if (t == &loop->timers || t->at_ms > now)
      return;
    cb_loop_timer_stop(loop, t);
    t->fire(t);
  }
}

static void arm(struct cb_loop *loop)
{
  const struct cb_loop_timer *first = loop->timers.next;
  int64_t at = first == &loop->timers ? 0 : first->at_ms;
  if (at == loop->armed_at)
    return;
  int64_t set = at ? (at > 0 ? at : 1) : 0; /* an absolute zero would switch it off */
  struct itimerspec when = { .it_value = { set / 1000, set % 1000 * 1000000 } };
  timerfd_settime(loop->alarm, TFD_TIMER_ABSTIME, &when, NULL);
  loop->armed_at = at;
}

/* --- posted calls --- */

void cb_loop_post(struct cb_loop *loop, struct cb_call *c)
{
  uint64_t one = 1;
  if (cb_queue_push(&loop->posted, &c->link) && write(loop->wake, &one, sizeof one) < 0) {
    /* EAGAIN: the counter is full, so the loop is being woken anyway */
  }
}

static void run_posted(struct cb_loop *loop)
{
  struct cb_link *l = cb_queue_take(&loop->posted);
  while (l) {
    struct cb_link *next = l->next;
    struct cb_call *c = (struct cb_call *)l; /* link is its first member */
    c->run(c);
    l = next;
  }
}

/* --- hooks --- */

void cb_loop_hook(struct cb_loop *loop, struct cb_hook *h, int64_t (*run)(struct cb_hook *h),
                  void *owner)
{
  h->run = run;
  h->owner = owner;
  h->next = loop->hooks;
  loop->hooks = h;
}

void cb_loop_unhook(struct cb_loop *loop, struct cb_hook *h)
{
  for (struct cb_hook **p = &loop->hooks; *p; p = &(*p)->next)
    if (*p == h) {
      *p = h->next;
      return;
    }
}

static int run_hooks(struct cb_loop *loop)
{
  int64_t least = -1;
  struct cb_hook *next;
  for (struct cb_hook *h = loop->hooks; h; h = next) {
    next = h->next;
    int64_t ms = h->run(h);
    if (ms >= 0 && (least < 0 || ms < least))
      least = ms;
  }
  return least > 60000 ? 60000 : (int)least;
}

/* --- the loop --- */

int cb_loop_run(struct cb_loop *loop, struct cb_err *err)
{
  while (!loop->stop) {
    int wait_ms = run_hooks(loop);
    arm(loop);
    int n = epoll_wait(loop->epoll, loop->batch, BATCH, wait_ms);
    if (n < 0 && errno != EINTR)
      return cb_err_errno(err, errno, "wait for events");
    loop->batch_n = n > 0 ? n : 0;
    for (loop->batch_at = 0; loop->batch_at < loop->batch_n;) {
      struct epoll_event ev = loop->batch[loop->batch_at++];
      struct cb_watch *w = ev.data.ptr;
      if (w)
        w->ready(w, ev.events);
    }
    loop->batch_n = loop->batch_at = 0;
    run_posted(loop);
    fire_due(loop);
  }
  return CB_OK;
}

void cb_loop_stop(struct cb_loop *loop)
{
  loop->stop = true;
}
