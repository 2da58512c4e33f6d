/* SPDX-License-Identifier: MIT
 * init.c: see init.h. */
#include "box/init.h"

#include <errno.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "box/control.h"
#include "box/names.h"
#include "box/children.h"
#include "box/relay.h"
#include "box/sudo.h"

int cb_init_watch(struct cb_init *init, struct cb_source *src, int fd, uint32_t events,
                  void (*ready)(struct cb_init *, struct cb_source *, uint32_t), void *owner)
{
  struct epoll_event ev = { .events = events, .data.ptr = src };
  if (epoll_ctl(init->epoll, EPOLL_CTL_ADD, fd, &ev) < 0)
    return -1;
  src->fd = fd;
  src->ready = ready;
  src->owner = owner;
  return 0;
}

void cb_init_rewatch(struct cb_init *init, struct cb_source *src, uint32_t events)
{
  struct epoll_event ev = { .events = events, .data.ptr = src };
  if (src->fd >= 0)
    (void)epoll_ctl(init->epoll, EPOLL_CTL_MOD, src->fd, &ev);
}

void cb_init_unwatch(struct cb_init *init, struct cb_source *src)
{
  if (src->fd >= 0)
    (void)epoll_ctl(init->epoll, EPOLL_CTL_DEL, src->fd, NULL);
  src->fd = -1;
}

static void on_signal(struct cb_init *init, struct cb_source *src, uint32_t events)
{
  struct signalfd_siginfo info;
  (void)events;
  while (read(src->fd, &info, sizeof info) > 0)
    continue;
  cb_child_reap(init);
}

static void on_alarm(struct cb_init *init, struct cb_source *src, uint32_t events)
{
  uint64_t n;
  (void)events;
  if (read(src->fd, &n, sizeof n) == (ssize_t)sizeof n)
    init->armed_ms = 0;
}

int cb_init_new(struct cb_init **out, struct cb_box_config *config, int listener,
                struct cb_step *s)
{
  sigset_t children;
  struct cb_init *init = cb_calloc(1, sizeof *init);
  if (!init)
    return cb_step_host(s, ENOMEM, "make the init", "");
  init->config = config;
  init->started_ms = cb_boot_ms();
  init->expires_ms = config->expires_boot_ms;
  init->listener.fd = -1;
  /* A pipe nobody reads must not end pid 1; children get the default again. */
  signal(SIGPIPE, SIG_IGN);
  sigemptyset(&children);
  sigaddset(&children, SIGCHLD);
  sigprocmask(SIG_BLOCK, &children, NULL);
  init->epoll = epoll_create1(EPOLL_CLOEXEC);
  init->signals = signalfd(-1, &children, SFD_CLOEXEC | SFD_NONBLOCK);
  init->alarm = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
  if (init->epoll < 0 || init->signals < 0 || init->alarm < 0 ||
      cb_init_watch(init, &init->on_signal, init->signals, EPOLLIN, on_signal, NULL) < 0 ||
      cb_init_watch(init, &init->on_alarm, init->alarm, EPOLLIN, on_alarm, NULL) < 0)
    return cb_step_host(s, errno, "make the init", "");
  if (cb_control_new(init, listener, s) < 0 || cb_sudo_new(init, s) < 0)
    return -1;
  if (config->network && (cb_names_new(init, s) < 0 || cb_relays_new(init, s) < 0))
    return -1;
  *out = init; /* pid 1 never frees it: its end is the end of everything */
  return 0;
}

static int64_t sooner(int64_t a, int64_t b)
{
  return a == 0 || (b != 0 && b < a) ? b : a;
}

/* Sets the one timer to the first thing that is due. */
static void arm(struct cb_init *init)
{
  int64_t at = sooner(init->expires_ms, cb_child_next_due(init));
  if (at == init->armed_ms)
    return;
  struct itimerspec when = { .it_value = { at / 1000, at % 1000 * 1000000 } };
  if (timerfd_settime(init->alarm, TFD_TIMER_ABSTIME, &when, NULL) == 0)
    init->armed_ms = at;
}

void cb_init_run(struct cb_init *init)
{
  cb_control_listen(init);
  for (;;) {
    struct epoll_event ev;
    int64_t now = cb_boot_ms();
    if (init->expires_ms != 0 && now >= init->expires_ms)
      _exit(0); /* the end of pid 1 is the end of the box */
    cb_child_due(init, now);
    arm(init);
    if (epoll_wait(init->epoll, &ev, 1, -1) == 1) {
      struct cb_source *src = ev.data.ptr;
      src->ready(init, src, ev.events);
    }
  }
}
