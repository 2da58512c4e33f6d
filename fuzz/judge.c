/* SPDX-License-Identifier: MIT
 * States as a hostile box would show them, one after the other (separated by a byte 0xff), and
 * lines of /proc/PID/stat: what is believed never goes backward, and nothing reads too far. */
#include <assert.h>
#include <string.h>

#include "fuzz/fuzz.h"
#include "watch/judge.c"

static void look(struct cb_judge *j, const uint8_t *p, size_t n)
{
  char line[512];
  if (n >= sizeof line)
    n = sizeof line - 1;
  memcpy(line, p, n);
  line[n] = '\0';
  cb_judge_look(j, line);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
  struct cb_judge j;
  int64_t now = 1;
  cb_judge_init(&j, now, 1000, 60000, false);
  while (n > 0) {
    const uint8_t *end = memchr(p, 0xff, n);
    size_t len = end ? (size_t)(end - p) : n;
    struct cb_state s, before = j.last;
    bool have = j.have;
    now += 500;
    if (cb_state_parse(&s, p, len, NULL) == CB_OK) {
      enum cb_verdict v = cb_judge_state(&j, now, &s);
      assert(v != CB_VERDICT_LIVE || !have || j.last.beat >= before.beat);
      assert(v != CB_VERDICT_LIVE || !have || j.last.out.end >= before.out.end);
      cb_judge_frozen(&j, now);
    } else {
      look(&j, p, len);
    }
    n -= len + (end ? 1 : 0);
    p += len + (end ? 1 : 0);
  }
  return 0;
}
