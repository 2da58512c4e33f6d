/* SPDX-License-Identifier: MIT
 * multi.h: curl_multi driven by the I/O thread's polls and timers. I/O thread only.
 *
 * curl forbids most calls from inside its own callbacks. The rule is kept here once: add and
 * remove may be called from anywhere, and are carried out at once or as soon as curl has
 * returned. Ends are told outside of curl, so whoever hears of one is free to do anything. */
#ifndef CB_NET_MULTI_H
#define CB_NET_MULTI_H
#include <curl/curl.h>
#include <stdbool.h>

#include "net/io.h"

struct cb_multi;

enum cb_transfer_state { CB_TRANSFER_IDLE, CB_TRANSFER_ADDING, CB_TRANSFER_RUNNING,
                         CB_TRANSFER_STARVED, CB_TRANSFER_REMOVING };

/* One transfer, embedded in its owner; zeroed before the first use. */
struct cb_transfer {
  CURL *easy;
  /* The transfer is over and its handle out of the multi. Exactly one of the two is called. */
  void (*ended)(struct cb_transfer *t, CURLcode code);
  void (*removed)(struct cb_transfer *t); /* the same, after cb_multi_remove */
  enum cb_transfer_state state; /* multi.c's own from here */
  bool in_curl;
  struct cb_transfer *next_pending;
};

/* The io's, made at the first call. NULL when memory runs out or the io closes. */
struct cb_multi *cb_multi_of(struct cb_io *io);

/* A clean handle, from the pool or new; NULL when memory runs out. Given back by easy_back. */
CURL *cb_multi_easy(struct cb_multi *m);
void cb_multi_easy_back(struct cb_multi *m, CURL *easy);

/* Starts a transfer. false: no memory, and neither function of it will be called. */
bool cb_multi_add(struct cb_multi *m, struct cb_transfer *t);
/* Takes a transfer back before its end: `removed` is called, at once or, inside of curl, when
 * curl has returned. Until then the handle's callbacks may still be called. */
void cb_multi_remove(struct cb_multi *m, struct cb_transfer *t);
#endif
