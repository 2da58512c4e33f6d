/* SPDX-License-Identifier: MIT
 * options.h: the command line of crewboxd. */
#ifndef CB_BOXD_OPTIONS_H
#define CB_BOXD_OPTIONS_H
#include <stdbool.h>
#include "base/err.h"

struct cb_options {
  const char *state;   /* --state, required */
  const char *socket;  /* --socket; NULL: none given */
  const char *listen;  /* --listen HOST:PORT; NULL: none */
  bool listen_any;     /* --listen-any: other addresses than loopback are allowed */
  const char *init;    /* --init; NULL: look for it */
  const char *log;     /* --log FILE or -; NULL: standard error */
  long max_boxes;      /* --max-boxes */
  bool verbose;        /* --verbose */
  bool help, version;
};

extern const char cb_options_help[];
/* CB_INVALID with what is wrong. Strings are those of argv. */
int cb_options_read(struct cb_options *o, int argc, char **argv, struct cb_err *err);
#endif
