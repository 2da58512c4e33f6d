/* SPDX-License-Identifier: MIT */
#include "base/clock.h"

#include <time.h>

static int64_t read_ms(clockid_t id)
{
  struct timespec t;
  clock_gettime(id, &t);
  return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

int64_t cb_now_ms(void)
{
  return read_ms(CLOCK_MONOTONIC);
}

int64_t cb_boot_ms(void)
{
  return read_ms(CLOCK_BOOTTIME);
}

int64_t cb_wall_ms(void)
{
  return read_ms(CLOCK_REALTIME);
}
