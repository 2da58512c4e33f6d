/* SPDX-License-Identifier: MIT
 * log.h: one line a fact, for the two daemons. "LEVEL area: text" on a descriptor, with the
 * time in front. Never a secret in it: callers log names, ids and codes, not values.
 * The Lua module does not log; it reports errors and events. */
#ifndef CB_BASE_LOG_H
#define CB_BASE_LOG_H

enum cb_log_level { CB_LOG_DEBUG, CB_LOG_INFO, CB_LOG_WARN, CB_LOG_ERROR };

struct cb_log {
  int fd;                  /* -1: silent */
  enum cb_log_level least; /* lines below are dropped */
};

void cb_log(const struct cb_log *log, enum cb_log_level level, const char *area, const char *fmt,
            ...) __attribute__((format(printf, 4, 5)));
#endif
