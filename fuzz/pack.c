/* SPDX-License-Identifier: MIT
 * A result pack comes from a box: reading it is bounded and never goes past the bytes. */
#include <assert.h>
#include <string.h>

#include "fuzz/fuzz.h"
#include "wire/pack.h"

struct bytes {
  const uint8_t *p;
  size_t n;
};

static int take(void *ctx, void *p, size_t max, size_t *n, struct cb_err *err)
{
  struct bytes *b = ctx;
  (void)err;
  *n = b->n < max ? b->n : max;
  if (*n > 13)
    *n = 13; /* an awkward size, so that every field is cut somewhere */
  memcpy(p, b->p, *n);
  b->p += *n;
  b->n -= *n;
  return CB_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
  struct cb_manifest m = CB_MANIFEST_INIT;
  struct cb_pack_reader r;
  struct bytes all = { p, n };
  size_t index = 0, last = SIZE_MAX, total = 0;
  char data[100];

  if (cb_pack_open(&r, take, &all, &m, 100, 1 << 20, NULL) == CB_OK) {
    while (cb_pack_next(&r, &index, NULL) == CB_OK && index != SIZE_MAX) {
      size_t got;
      assert(index < m.count && (last == SIZE_MAX || index > last));
      last = index;
      while (cb_pack_read(&r, data, sizeof data, &got, NULL) == CB_OK && got > 0)
        total += got;
      assert(total <= n);
    }
  }
  cb_manifest_clear(&m);
  return 0;
}
