/* SPDX-License-Identifier: MIT
 * auth.c: see auth.h. */
#include "boxd/auth.h"
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "base/buf.h"
#include "base/encode.h"
#include "base/sha256.h"

void cb_auth_token(const void *seed, size_t seed_len, const char *box_id,
                   char out[CB_AUTH_TOKEN_LEN + 1])
{
  unsigned char mac[CB_SHA256_BYTES];
  cb_hmac_sha256(seed, seed_len, box_id, strlen(box_id), mac);
  cb_hex(mac, sizeof mac, out);
}

bool cb_auth_equal(const char *given, const char *right)
{
  /* Digests have one length, so the time does not tell the length of the right one either. */
  unsigned char a[CB_SHA256_BYTES], b[CB_SHA256_BYTES];
  struct cb_sha256 s;
  if (!given)
    return false;
  cb_sha256_init(&s);
  cb_sha256_add(&s, given, strlen(given));
  cb_sha256_end(&s, a);
  cb_sha256_init(&s);
  cb_sha256_add(&s, right, strlen(right));
  cb_sha256_end(&s, b);
  return cb_equal_const_time(a, b, sizeof a);
}

int cb_auth_basic_user(const char *header, char out[CB_AUTH_USER_MAX + 1], struct cb_err *err)
{
  out[0] = '\0';
  if (!header)
    return CB_OK;
  if (strncasecmp(header, "Basic ", 6) != 0)
    return cb_err_set(err, CB_UNAUTHORIZED, "invalid Authorization header: not Basic");
  struct cb_buf b;
  cb_buf_init(&b, 1024);
  int rc = cb_base64_decode(&b, header + 6, strlen(header + 6));
  const char *colon = rc || !b.len ? NULL : memchr(b.p, ':', b.len);
  size_t n = colon ? (size_t)(colon - b.p) : 0;
  if (!colon || n > CB_AUTH_USER_MAX || memchr(b.p, '\0', n))
    rc = cb_err_set(err, CB_UNAUTHORIZED, "invalid Authorization header: no user name");
  if (!rc) {
    memcpy(out, b.p, n);
    out[n] = '\0';
  }
  cb_buf_clear(&b);
  return rc;
}

int cb_auth_signature(const char *signature, const char *path, bool writing, const char *user,
                      const char *token, const char *expiration, int64_t now_s,
                      struct cb_err *err)
{
  unsigned char digest[CB_SHA256_BYTES];
  char text[CB_BASE64_LEN(CB_SHA256_BYTES) + 8] = "v1_";
  struct cb_sha256 s;
  const char *op = writing ? ":write:" : ":read:";
  if (!signature)
    return cb_err_set(err, CB_UNAUTHORIZED, "missing signature query parameter");
  cb_sha256_init(&s);
  cb_sha256_add(&s, path, strlen(path));
  cb_sha256_add(&s, op, strlen(op));
  cb_sha256_add(&s, user, strlen(user));
  cb_sha256_add(&s, ":", 1);
  cb_sha256_add(&s, token, strlen(token));
  if (expiration) {
    cb_sha256_add(&s, ":", 1);
    cb_sha256_add(&s, expiration, strlen(expiration));
  }
  cb_sha256_end(&s, digest);
  cb_base64(digest, sizeof digest, text + 3);
  text[strcspn(text, "=")] = '\0';
  if (!cb_auth_equal(signature, text))
    return cb_err_set(err, CB_UNAUTHORIZED, "invalid signature");
  if (expiration) {
    char *end;
    long long at = strtoll(expiration, &end, 10);
    if (*end || end == expiration)
      return cb_err_set(err, CB_UNAUTHORIZED, "invalid signature");
    if (at < now_s)
      return cb_err_set(err, CB_UNAUTHORIZED, "signature is already expired");
  }
  return CB_OK;
}
