/* SPDX-License-Identifier: MIT
 * State is read from a box at every tick: what is accepted is in bounds and can be written. */
#include <assert.h>

#include "fuzz/fuzz.h"
#include "wire/state.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
  struct cb_state s;
  if (cb_state_parse(&s, p, n, NULL) == CB_OK) {
    struct cb_buf b;
    assert(s.beat >= 0 && s.age_ms >= 0 && s.out.end >= 0 && s.err.end >= 0);
    assert(s.out.gap_from <= s.out.gap_to && s.err.gap_from <= s.err.gap_to);
    cb_buf_init(&b, CB_STATE_MAX_BYTES);
    assert(cb_state_write(&s, &b, NULL) == CB_OK);
    struct cb_state again;
    assert(cb_state_parse(&again, b.p, b.len, NULL) == CB_OK);
    assert(again.beat == s.beat && again.phase == s.phase && again.out.end == s.out.end);
    cb_buf_clear(&b);
  }
  return 0;
}
