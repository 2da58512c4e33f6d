/* SPDX-License-Identifier: MIT
 * init.h: pid 1 of a box: starts and reaps processes, works on files from inside the view,
 * answers names, hands connections out, and ends the box when its time is over. One thread,
 * one epoll; every descriptor has a cb_source, every wait is a timer on CLOCK_BOOTTIME.
 *
 * The parts (children, files, names, relay, sudo, control) share struct cb_init and nothing else. */
#ifndef CB_BOX_INIT_H
#define CB_BOX_INIT_H
#include <stdbool.h>
#include <stdint.h>
#include "box/config.h"
#include "box/step.h"

struct cb_init;
struct cb_control;
struct cb_names;
struct cb_relays;
struct cb_sudo_server;
struct cb_child;

/* Embedded in what owns a descriptor. Removed (cb_init_unwatch) before the descriptor closes;
 * events are taken one at a time, so a source may be freed in any callback. */
struct cb_source {
  int fd; /* -1: not watched */
  void (*ready)(struct cb_init *init, struct cb_source *src, uint32_t events);
  void *owner;
};

struct cb_init {
  struct cb_box_config *config;
  int epoll, signals, alarm;
  struct cb_source listener, on_signal, on_alarm;
  struct cb_control *control; /* never NULL */
  struct cb_child *children;
  size_t child_count;
  struct cb_names *names;   /* NULL without a network */
  struct cb_relays *relays; /* NULL without rules */
  struct cb_sudo_server *sudo;
  int64_t started_ms, expires_ms; /* CLOCK_BOOTTIME; expires_ms 0: never */
  int64_t armed_ms;
};

/* Before privileges go: binds sockets in the box's network and view. */
int cb_init_new(struct cb_init **out, struct cb_box_config *config, int listener,
                struct cb_step *s);
_Noreturn void cb_init_run(struct cb_init *init);

int cb_init_watch(struct cb_init *init, struct cb_source *src, int fd, uint32_t events,
                  void (*ready)(struct cb_init *, struct cb_source *, uint32_t), void *owner);
void cb_init_rewatch(struct cb_init *init, struct cb_source *src, uint32_t events);
void cb_init_unwatch(struct cb_init *init, struct cb_source *src);
#endif
