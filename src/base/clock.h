/* SPDX-License-Identifier: MIT
 * clock.h: the three clocks, in milliseconds. Any thread. */
#ifndef CB_BASE_CLOCK_H
#define CB_BASE_CLOCK_H
#include <stdint.h>

int64_t cb_now_ms(void);  /* CLOCK_MONOTONIC: intervals; stands still in suspend */
int64_t cb_boot_ms(void); /* CLOCK_BOOTTIME: leases and expiry; goes on in suspend */
int64_t cb_wall_ms(void); /* CLOCK_REALTIME: only to show to people and to store */
#endif
