/* SPDX-License-Identifier: MIT */
#include "base/rand.h"

#include <assert.h>
#include <errno.h>
#include <sys/random.h>

void cb_random(void *p, size_t n)
{
  char *at = p;
  while (n > 0) {
    ssize_t k = getrandom(at, n < 256 ? n : 256, 0);
    if (k < 0) {
      assert(errno == EINTR);
      continue;
    }
    at += k;
    n -= (size_t)k;
  }
}

void cb_random_id(char *out, size_t n)
{
  static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789";
  size_t made = 0;
  while (made < n) {
    unsigned char r[64];
    cb_random(r, sizeof r);
    for (size_t i = 0; i < sizeof r && made < n; i++) {
      if (r[i] < 252) /* 7 * 36: no letter is likelier than another */
        out[made++] = letters[r[i] % 36];
    }
  }
  out[n] = '\0';
}

void cb_random_hex(char *out, size_t n)
{
  static const char digits[] = "0123456789abcdef";
  for (size_t i = 0; i < n; i++) {
    unsigned char r;
    cb_random(&r, 1);
    out[i] = digits[r & 15];
  }
  out[n] = '\0';
}
