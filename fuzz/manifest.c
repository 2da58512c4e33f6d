/* SPDX-License-Identifier: MIT
 * A manifest comes from a box: what is accepted is sorted, plain, and written back the same. */
#include <assert.h>
#include <string.h>

#include "base/path.h"
#include "fuzz/fuzz.h"
#include "wire/manifest.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
  struct cb_manifest m = CB_MANIFEST_INIT;
  if (cb_manifest_parse(&m, p, n, 1000, NULL) == CB_OK) {
    struct cb_buf b;
    cb_buf_init(&b, n + 1);
    assert(cb_manifest_write(&m, &b, NULL) == CB_OK);
    assert(b.len == n && (n == 0 || memcmp(b.p, p, n) == 0));
    for (size_t i = 0; i < m.count; i++) {
      const struct cb_manifest_entry *e = &m.entries[i];
      assert(cb_path_is_plain(e->path, e->path_len));
      assert(cb_manifest_find(&m, e->path, e->path_len) == e);
      assert(i == 0 || cb_path_order(e[-1].path, e[-1].path_len, e->path, e->path_len) < 0);
    }
    cb_buf_clear(&b);
  }
  cb_manifest_clear(&m);
  return 0;
}
