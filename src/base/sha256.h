/* SPDX-License-Identifier: MIT
 * sha256.h: SHA-256 (FIPS 180-4), carried because the supervisor is linked with libc alone.
 * Tested against libcrypto in spec/c/base_test.c. */
#ifndef CB_BASE_SHA256_H
#define CB_BASE_SHA256_H
#include <stddef.h>
#include <stdint.h>

enum { CB_SHA256_BYTES = 32, CB_SHA256_HEX = 64 };

struct cb_sha256 {
  uint32_t state[8];
  uint64_t total;
  unsigned char block[64];
  size_t used;
};

void cb_sha256_init(struct cb_sha256 *s);
void cb_sha256_add(struct cb_sha256 *s, const void *p, size_t n);
void cb_sha256_end(struct cb_sha256 *s, unsigned char out[CB_SHA256_BYTES]);
void cb_sha256_end_hex(struct cb_sha256 *s, char out[CB_SHA256_HEX + 1]); /* lower case */
void cb_sha256_hex(const void *p, size_t n, char out[CB_SHA256_HEX + 1]);
/* HMAC-SHA-256 (RFC 2104). */
void cb_hmac_sha256(const void *key, size_t key_len, const void *p, size_t n,
                    unsigned char out[CB_SHA256_BYTES]);
#endif
