/* SPDX-License-Identifier: MIT
 * each_allocation.h: lets every allocation of an operation fail, one after the other. */
#ifndef CB_SPEC_EACH_ALLOCATION_H
#define CB_SPEC_EACH_ALLOCATION_H
#include <jansson.h>

#include "base/alloc.h"
#include "base/err.h"

enum { EACH_MAX = 5000 };

/* jansson allocates through us as well, so that its failures are met too. Before anything of it
 * is used. */
static inline void each_allocation_begin(void)
{
  json_set_alloc_funcs(cb_malloc, cb_free);
}

/* Runs op with its 1st, 2nd, ... allocation failing, until all of them went well. op cleans up
 * after itself and gives its code; `well` is the one it must end with when nothing fails. A run
 * in which one failed may go well all the same, else it has to be an error. False, after a word
 * on stderr, when that is not so. What leaks, the leak checker tells. */
static inline bool each_allocation(const char *what, int (*op)(void *arg, struct cb_err *err), void *arg,
                                   int well)
{
  for (unsigned long n = 1; n < EACH_MAX; n++) {
    struct cb_err err = CB_ERR_INIT;
    cb_alloc_fail_at(n);
    int rc = op(arg, &err);
    bool pending = cb_alloc_fail_pending();
    cb_alloc_fail_at(0);
    if (pending) {
      if (rc != well)
        fprintf(stderr, "%s: %d %s, and nothing had failed\n", what, rc, err.text);
      return rc == well && n > 1;
    }
    if (rc != well && (rc == CB_OK || (int)err.code != rc || !err.text[0])) {
      fprintf(stderr, "%s: allocation %lu failed: %d, but told is %d \"%s\"\n", what, n, rc,
              (int)err.code, err.text);
      return false;
    }
  }
  fprintf(stderr, "%s: has no end\n", what);
  return false;
}
#endif
