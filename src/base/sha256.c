/* SPDX-License-Identifier: MIT */
#include "base/sha256.h"

#include <string.h>

#include "base/encode.h"

/* FIPS 180-4, 4.2.2 */
static const uint32_t K[64] = {
  0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
  0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
  0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
  0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
  0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
  0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
  0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
  0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t rotr(uint32_t x, int n)
{
  return x >> n | x << (32 - n);
}

static void compress(struct cb_sha256 *s, const unsigned char *p)
{
  uint32_t w[64];
  uint32_t a = s->state[0], b = s->state[1], c = s->state[2], d = s->state[3];
  uint32_t e = s->state[4], f = s->state[5], g = s->state[6], h = s->state[7];

  for (int i = 0; i < 16; i++)
    w[i] = (uint32_t)p[4 * i] << 24 | (uint32_t)p[4 * i + 1] << 16 | (uint32_t)p[4 * i + 2] << 8 |
           p[4 * i + 3];
  for (int i = 16; i < 64; i++) {
    uint32_t s0 = rotr(w[i - 15], 7) ^ rotr(w[i - 15], 18) ^ w[i - 15] >> 3;
    uint32_t s1 = rotr(w[i - 2], 17) ^ rotr(w[i - 2], 19) ^ w[i - 2] >> 10;
    w[i] = w[i - 16] + s0 + w[i - 7] + s1;
  }
  for (int i = 0; i < 64; i++) {
    uint32_t t1 = h + (rotr(e, 6) ^ rotr(e, 11) ^ rotr(e, 25)) + ((e & f) ^ (~e & g)) + K[i] + w[i];
    uint32_t t2 = (rotr(a, 2) ^ rotr(a, 13) ^ rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
  }
  s->state[0] += a, s->state[1] += b, s->state[2] += c, s->state[3] += d;
  s->state[4] += e, s->state[5] += f, s->state[6] += g, s->state[7] += h;
}

void cb_sha256_init(struct cb_sha256 *s)
{
  static const uint32_t start[8] = { 0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                     0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19 };
  memcpy(s->state, start, sizeof start);
  s->total = 0;
  s->used = 0;
}

void cb_sha256_add(struct cb_sha256 *s, const void *p, size_t n)
{
  const unsigned char *at = p;
  if (n == 0)
    return;
  s->total += n;
  if (s->used > 0) {
    size_t take = sizeof s->block - s->used;
    if (take > n)
      take = n;
    memcpy(s->block + s->used, at, take);
    s->used += take;
    at += take;
    n -= take;
    if (s->used < sizeof s->block)
      return;
    compress(s, s->block);
    s->used = 0;
  }
  for (; n >= sizeof s->block; at += sizeof s->block, n -= sizeof s->block)
    compress(s, at);
  memcpy(s->block, at, n);
  s->used = n;
}

void cb_sha256_end(struct cb_sha256 *s, unsigned char out[CB_SHA256_BYTES])
{
  static const unsigned char pad[64] = { 0x80 };
  uint64_t bits = s->total * 8;
  unsigned char tail[8];
  size_t fill = s->used < 56 ? 56 - s->used : 120 - s->used;

  for (int i = 0; i < 8; i++)
    tail[i] = (unsigned char)(bits >> (56 - 8 * i));
  cb_sha256_add(s, pad, fill);
  cb_sha256_add(s, tail, sizeof tail);
  for (int i = 0; i < 32; i++)
    out[i] = (unsigned char)(s->state[i / 4] >> (24 - 8 * (i % 4)));
}

void cb_sha256_end_hex(struct cb_sha256 *s, char out[CB_SHA256_HEX + 1])
{
  unsigned char raw[CB_SHA256_BYTES];
  cb_sha256_end(s, raw);
  cb_hex(raw, sizeof raw, out);
}

void cb_sha256_hex(const void *p, size_t n, char out[CB_SHA256_HEX + 1])
{
  struct cb_sha256 s;
  cb_sha256_init(&s);
  cb_sha256_add(&s, p, n);
  cb_sha256_end_hex(&s, out);
}

void cb_hmac_sha256(const void *key, size_t key_len, const void *p, size_t n,
                    unsigned char out[CB_SHA256_BYTES])
{
  unsigned char k[64] = { 0 }, pad[64];
  struct cb_sha256 s;
  if (key_len > sizeof k) {
    cb_sha256_init(&s);
    cb_sha256_add(&s, key, key_len);
    cb_sha256_end(&s, k);
  } else if (key_len) {
    memcpy(k, key, key_len);
  }
  for (size_t i = 0; i < sizeof k; i++)
    pad[i] = k[i] ^ 0x36;
  cb_sha256_init(&s);
  cb_sha256_add(&s, pad, sizeof pad);
  cb_sha256_add(&s, p, n);
  cb_sha256_end(&s, out);
  for (size_t i = 0; i < sizeof k; i++)
    pad[i] = k[i] ^ 0x5c;
  cb_sha256_init(&s);
  cb_sha256_add(&s, pad, sizeof pad);
  cb_sha256_add(&s, out, CB_SHA256_BYTES);
  cb_sha256_end(&s, out);
}
