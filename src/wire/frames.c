/* SPDX-License-Identifier: MIT */
#include "wire/frames.h"

#include <stdint.h>
#include <string.h>

int cb_frame_add(struct cb_buf *b, int flags, const void *p, size_t n)
{
  if (n > CB_FRAME_MAX)
    return CB_TOO_LARGE;
  unsigned char head[CB_FRAME_HEAD_BYTES] = {
    (unsigned char)flags, (unsigned char)(n >> 24), (unsigned char)(n >> 16),
    (unsigned char)(n >> 8), (unsigned char)n
  };
  /* Room for both first, so that a failure never leaves a head without its payload. */
  int rc = cb_buf_reserve(b, sizeof head + n);
  if (rc)
    return rc;
  cb_buf_add(b, head, sizeof head);
  if (n > 0)
    cb_buf_add(b, p, n);
  return CB_OK;
}

void cb_frame_decoder_init(struct cb_frame_decoder *d, size_t max_payload)
{
  memset(d, 0, sizeof *d);
  cb_buf_init(&d->body, max_payload < CB_FRAME_MAX ? max_payload : CB_FRAME_MAX);
}

void cb_frame_decoder_clear(struct cb_frame_decoder *d)
{
  cb_buf_clear(&d->body);
  d->head_used = 0;
}

static int fail(struct cb_frame_decoder *d)
{
  d->failed = true;
  return -1;
}

static int take_head(struct cb_frame_decoder *d, struct cb_err *err)
{
  const unsigned char *h = d->head;
  if (h[0] & CB_FRAME_COMPRESSED) {
    cb_err_set(err, CB_PROTOCOL, "stream envelope is compressed though nobody asked for it");
    return fail(d);
  }
  if (h[0] & ~CB_FRAME_END) {
    cb_err_set(err, CB_PROTOCOL, "stream envelope has unknown flags 0x%02x", h[0]);
    return fail(d);
  }
  uint32_t n = (uint32_t)h[1] << 24 | (uint32_t)h[2] << 16 | (uint32_t)h[3] << 8 | h[4];
  if (n > d->body.max) {
    cb_err_set(err, CB_TOO_LARGE, "stream envelope of %u bytes is over the limit of %zu",
               (unsigned)n, d->body.max);
    return fail(d);
  }
  d->want = n;
  return 0;
}

int cb_frame_next(struct cb_frame_decoder *d, const char **p, size_t *n, struct cb_frame *out,
                  struct cb_err *err)
{
  if (d->failed) {
    cb_err_set(err, CB_PROTOCOL, "stream of envelopes was broken before");
    return -1;
  }
  if (d->head_used == CB_FRAME_HEAD_BYTES && d->body.len == d->want) { /* given out last time */
    d->head_used = 0;
    cb_buf_reset(&d->body);
  }
  if (d->ended) {
    if (*n == 0)
      return 0;
    cb_err_set(err, CB_PROTOCOL, "stream goes on after its end envelope");
    return fail(d);
  }
  if (d->head_used < CB_FRAME_HEAD_BYTES) {
    size_t take = CB_FRAME_HEAD_BYTES - d->head_used;
    if (take > *n)
      take = *n;
    if (take > 0)
      memcpy(d->head + d->head_used, *p, take);
    d->head_used += take;
    *p += take;
    *n -= take;
    if (d->head_used < CB_FRAME_HEAD_BYTES)
      return 0;
    if (take_head(d, err))
      return -1;
  }
  size_t take = d->want - d->body.len;
  if (take > *n)
    take = *n;
  if (take > 0 && cb_buf_add(&d->body, *p, take)) {
    cb_err_no_memory(err);
    return fail(d);
  }
  *p += take;
  *n -= take;
  if (d->body.len < d->want)
    return 0;
  out->flags = d->head[0];
  out->p = d->body.p ? d->body.p : "";
  out->n = d->body.len;
  d->ended = (d->head[0] & CB_FRAME_END) != 0;
  return 1;
}

bool cb_frame_is_torn(const struct cb_frame_decoder *d)
{
  if (d->head_used == 0)
    return false;
  return d->head_used < CB_FRAME_HEAD_BYTES || d->body.len < d->want;
}
