/* SPDX-License-Identifier: MIT */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

void cb_log(const struct cb_log *log, enum cb_log_level level, const char *area, const char *fmt,
            ...)
{
  static const char *const names[] = { "debug", "info", "warn", "error" };
  char line[1024];
  struct timespec now;
  struct tm tm;
  va_list ap;

  if (!log || log->fd < 0 || level < log->least)
    return;
  clock_gettime(CLOCK_REALTIME, &now);
  gmtime_r(&now.tv_sec, &tm);
  size_t n = strftime(line, sizeof line, "%FT%T", &tm);
  n += (size_t)snprintf(line + n, sizeof line - n, ".%03ldZ %s %s: ", now.tv_nsec / 1000000,
                        names[level], area);
  va_start(ap, fmt);
  int k = vsnprintf(line + n, sizeof line - n, fmt, ap);
  va_end(ap);
  if (k > 0)
    n += (size_t)k;
  if (n > sizeof line - 1)
    n = sizeof line - 1;
  for (size_t i = 0; i < n; i++) /* one fact, one line: no forged lines from names */
    if (line[i] == '\n' || line[i] == '\r' || line[i] == '\033')
      line[i] = '?';
  line[n++] = '\n';
  ssize_t done = write(log->fd, line, n);
  (void)done; /* a full disk must not stop the daemon */
}
