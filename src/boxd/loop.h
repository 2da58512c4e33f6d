/* SPDX-License-Identifier: MIT
 * loop.h: the one event loop of crewboxd: descriptors (epoll), timers, calls posted by other
 * threads, and hooks that run after every batch. Everything but cb_loop_post belongs to the
 * thread that runs the loop.
 *
 * Nothing here is allocated per use: a watch or a timer is embedded in what owns it, and must be
 * taken out (cb_loop_del, cb_loop_timer_stop) before its memory goes. Both may be done from any
 * callback, also for a watch whose event is later in the same batch: it is then not called. */
#ifndef CB_BOXD_LOOP_H
#define CB_BOXD_LOOP_H
#include <stdbool.h>
#include <stdint.h>
#include "base/err.h"
#include "base/queue.h"

struct cb_loop; /* opaque: defined in loop.c */

int cb_loop_new(struct cb_loop **out, struct cb_err *err);
void cb_loop_free(struct cb_loop *loop); /* everything in it must be out; NULL is fine */
/* Runs until cb_loop_stop. CB_OK, or the reason epoll gave up. */
int cb_loop_run(struct cb_loop *loop, struct cb_err *err);
void cb_loop_stop(struct cb_loop *loop); /* run returns after this batch, or at once */

/* --- descriptors --- */

/* Level-triggered unless EPOLLET is among the events. */
struct cb_watch {
  void (*ready)(struct cb_watch *w, uint32_t events); /* EPOLLIN, EPOLLHUP, ... */
  void *owner;                                        /* for ready to use */
  int fd;                                             /* -1 while not in a loop */
};
#define CB_WATCH_INIT { NULL, NULL, -1 }

/* Starts watching fd, which stays the caller's: it is not closed by cb_loop_del. */
int cb_loop_add(struct cb_loop *loop, struct cb_watch *w, int fd, uint32_t events,
                void (*ready)(struct cb_watch *w, uint32_t events), void *owner,
                struct cb_err *err);
/* Other events; 0 leaves only what epoll always tells (EPOLLHUP, EPOLLERR). Cannot fail. */
void cb_loop_mod(struct cb_loop *loop, struct cb_watch *w, uint32_t events);
/* Stops watching; before the descriptor is closed. Not in a loop is fine. Sets w->fd to -1. */
void cb_loop_del(struct cb_loop *loop, struct cb_watch *w);

/* --- timers: one shot, on CLOCK_BOOTTIME, so that a suspended machine is not given more --- */

struct cb_loop_timer {
  struct cb_loop_timer *next, *prev;
  int64_t at_ms; /* cb_boot_ms; meaningful while on */
  void (*fire)(struct cb_loop_timer *t);
  void *owner;
  bool on;
};
#define CB_TIMER_INIT { NULL, NULL, 0, NULL, NULL, false }

/* (Re)starts t to fire once in delay_ms (0 and less: in this turn of the loop). Cannot fail. */
void cb_loop_timer_start(struct cb_loop *loop, struct cb_loop_timer *t, int64_t delay_ms,
                    void (*fire)(struct cb_loop_timer *t), void *owner);
/* The same for a point of cb_boot_ms. */
void cb_loop_timer_start_at(struct cb_loop *loop, struct cb_loop_timer *t, int64_t at_ms,
                       void (*fire)(struct cb_loop_timer *t), void *owner);
/* Stopped already is fine. */
void cb_loop_timer_stop(struct cb_loop *loop, struct cb_loop_timer *t);

/* --- calls from other threads --- */

struct cb_call {
  struct cb_link link;
  void (*run)(struct cb_call *c); /* on the loop's thread; may free what c is part of */
};

/* Any thread. c belongs to the loop until it is run. */
void cb_loop_post(struct cb_loop *loop, struct cb_call *c);

/* --- hooks --- */

/* Run after every batch of events, never inside one (a library with an epoll of its own may
 * free things whose events come later in the batch). Returns the milliseconds after which it
 * wants to run again at the latest, -1 for whenever something happens. */
struct cb_hook {
  struct cb_hook *next;
  int64_t (*run)(struct cb_hook *h);
  void *owner;
};

void cb_loop_hook(struct cb_loop *loop, struct cb_hook *h,
                  int64_t (*run)(struct cb_hook *h), void *owner);
void cb_loop_unhook(struct cb_loop *loop, struct cb_hook *h);
#endif
