/* SPDX-License-Identifier: MIT
 * Connect envelopes: the frames found do not depend on where the bytes were cut. */
#include <assert.h>
#include <string.h>

#include "fuzz/fuzz.h"
#include "wire/frames.h"

enum { PAYLOAD_MAX = 4096 };

/* A digest of what came out: number of frames, their flags and bytes, and how it ended. */
struct seen {
  size_t frames, bytes;
  uint64_t sum;
  int rc;
};

static struct seen decode(const uint8_t *p, size_t n, size_t cut)
{
  struct cb_frame_decoder d;
  struct seen s = { 0, 0, 0, 0 };
  cb_frame_decoder_init(&d, PAYLOAD_MAX);
  for (size_t at = 0; at < n && s.rc >= 0; at += cut) {
    const char *piece = (const char *)p + at;
    size_t left = n - at < cut ? n - at : cut;
    struct cb_frame f;
    while ((s.rc = cb_frame_next(&d, &piece, &left, &f, NULL)) == 1) {
      assert(f.n <= PAYLOAD_MAX && f.p[f.n] == '\0');
      s.frames++;
      s.bytes += f.n;
      for (size_t i = 0; i < f.n; i++)
        s.sum = s.sum * 31 + (unsigned char)f.p[i];
      s.sum = s.sum * 31 + (unsigned)f.flags;
    }
    assert(s.rc < 0 || left == 0);
  }
  cb_frame_decoder_clear(&d);
  return s;
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
  struct seen whole = decode(p, n, n ? n : 1);
  for (size_t cut = 1; cut <= 7; cut += 3) {
    struct seen s = decode(p, n, cut);
    assert(s.frames == whole.frames && s.bytes == whole.bytes && s.sum == whole.sum);
    assert(s.rc == whole.rc);
  }
  return 0;
}
