/* SPDX-License-Identifier: MIT
 * Orders are ours, but the file they come in lies in a box. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz/fuzz.h"
#include "wire/orders.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
  struct cb_orders o;
  char *own = malloc(n ? n : 1);
  if (!own)
    return 0;
  memcpy(own, p, n);
  memset(&o, 0, sizeof o);
  if (cb_orders_parse(&o, own, n, NULL) == CB_OK) {
    assert(o.argc > 0 && !o.argv[o.argc] && !o.env[o.env_count]);
    assert(o.run_dir[0] == '/' && o.cwd[0] == '/');
    for (size_t i = 0; i < o.env_count; i++)
      assert(strchr(o.env[i], '='));
  }
  cb_orders_clear(&o);
  free(own);
  return 0;
}
