/* SPDX-License-Identifier: MIT
 * check.h: the whole of the C test harness. A test file has a main that calls its cases and
 * returns check_done(); a failed CHECK names its line and goes on. A line that passes counts
 * once, however often a loop comes by: the figures are the same on every machine. */
#ifndef CB_SPEC_CHECK_H
#define CB_SPEC_CHECK_H
#include <stdio.h>
#include <string.h>

static int check_passed, check_failed;

#define CHECK(cond)                                                        \
  do {                                                                     \
    static int passed_here_;                                               \
    if (cond) {                                                            \
      check_passed += !passed_here_;                                       \
      passed_here_ = 1;                                                    \
    } else {                                                               \
      check_failed++;                                                      \
      fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #cond);   \
    }                                                                      \
  } while (0)

#define CHECK_STR(got, want)                                                               \
  do {                                                                                     \
    static int passed_here_;                                                               \
    const char *got_ = (got), *want_ = (want);                                             \
    if (got_ && strcmp(got_, want_) == 0) {                                                \
      check_passed += !passed_here_;                                                       \
      passed_here_ = 1;                                                                    \
    } else {                                                                               \
      check_failed++;                                                                      \
      fprintf(stderr, "%s:%d: %s is \"%s\", not \"%s\"\n", __FILE__, __LINE__, #got,       \
              got_ ? got_ : "(null)", want_);                                              \
    }                                                                                      \
  } while (0)

static inline int check_done(void)
{
  printf("%d passed, %d failed\n", check_passed, check_failed);
  return check_failed ? 1 : 0;
}
#endif
