/* SPDX-License-Identifier: MIT
 * Records are read from boxes and written by us: reading never leaves the bytes it was given,
 * and what was read can be written again and reads the same. */
#include <assert.h>
#include <string.h>

#include "base/buf.h"
#include "fuzz/fuzz.h"
#include "wire/record.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
  struct cb_record_reader r;
  struct cb_record rec;
  struct cb_buf again;
  int rc;

  cb_buf_init(&again, n + 1);
  cb_record_open(&r, p, n);
  while ((rc = cb_record_next(&r, &rec)) == 1) {
    assert((const uint8_t *)rec.value >= p && (const uint8_t *)rec.value + rec.len < p + n);
    assert(rec.value[rec.len] == '\n');
    int64_t v;
    (void)cb_record_int(&rec, &v);
    assert(cb_record_add(&again, rec.name, rec.value, rec.len) == CB_OK);
  }
  assert(again.len <= n);
  if (rc == 0 && n > 0)
    assert(again.len == n && memcmp(again.p, p, n) == 0); /* one way to write a thing */
  assert(cb_record_next(&r, &rec) == rc);
  cb_buf_clear(&again);
  return 0;
}
