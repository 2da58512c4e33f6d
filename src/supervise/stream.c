/* SPDX-License-Identifier: MIT */
#include "supervise/stream.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"

enum {
  READ_BYTES = 64 << 10,
  CLEAN_BYTES = 4 << 20,
  LAST_BYTES = 16 << 20 /* more than a pipe can hold: somebody outside the tree is writing */
};

int cb_sup_stream_start(struct cb_sup_stream *s, int fd, const struct cb_redactor *redactor,
                        struct cb_err *err)
{
  s->fd = fd;
  s->redact = NULL;
  cb_buf_init(&s->clean, CLEAN_BYTES);
  return cb_redact_stream_new(&s->redact, redactor, err);
}

static void write_clean(struct cb_sup_stream *s)
{
  cb_sup_segments_add(&s->log, s->clean.p, s->clean.len);
  cb_buf_reset(&s->clean);
}

static void feed(struct cb_sup_stream *s, const char *p, size_t n)
{
  int tries = 0;
  while (n > 0) {
    size_t taken = 0;
    int rc = cb_redact_feed(s->redact, p, n, &s->clean, &taken, NULL);
    write_clean(s);
    if (rc == CB_OK)
      return;
    p += taken;
    n -= taken;
    if (taken == 0 && ++tries == 3) { /* no memory to mask them in: they must not get out */
      cb_sup_segments_lose(&s->log, n);
      return;
    }
  }
}

bool cb_sup_stream_pump(struct cb_sup_stream *s, size_t max)
{
  char bytes[READ_BYTES];
  size_t total = 0;
  while (s->fd >= 0 && total < max) {
    ssize_t n = read(s->fd, bytes, sizeof bytes);
    if (n < 0 && errno == EINTR)
      continue;
    if (n < 0 && errno == EAGAIN)
      break;
    if (n <= 0) {
      cb_close(&s->fd);
      break;
    }
    feed(s, bytes, (size_t)n);
    total += (size_t)n;
  }
  explicit_bzero(bytes, total < sizeof bytes ? total : sizeof bytes);
  return total > 0;
}

void cb_sup_stream_finish(struct cb_sup_stream *s)
{
  cb_sup_stream_pump(s, LAST_BYTES);
  cb_close(&s->fd);
  if (s->redact) {
    while (cb_redact_finish(s->redact, &s->clean, NULL) == CB_TOO_LARGE && s->clean.len > 0)
      write_clean(s);
    write_clean(s);
  }
  cb_sup_segments_close(&s->log);
}

void cb_sup_stream_clear(struct cb_sup_stream *s)
{
  cb_close(&s->fd);
  cb_redact_stream_free(s->redact);
  s->redact = NULL;
  cb_buf_clear(&s->clean);
}
