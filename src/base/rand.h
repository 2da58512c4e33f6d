/* SPDX-License-Identifier: MIT
 * rand.h: random bytes from the kernel. Any thread. */
#ifndef CB_BASE_RAND_H
#define CB_BASE_RAND_H
#include <stddef.h>

void cb_random(void *p, size_t n);      /* getrandom; never fails on a booted system */
/* n characters of [a-z0-9] and a NUL: out has n + 1 bytes. 5.17 bits each. */
void cb_random_id(char *out, size_t n);
void cb_random_hex(char *out, size_t n); /* n hex digits and a NUL */
#endif
