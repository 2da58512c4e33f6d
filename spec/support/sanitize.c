/* SPDX-License-Identifier: MIT
 * sanitize.c: linked into everything that scripts/asan and scripts/tsan build: how the sanitizers
 * are to behave. It is in the binary and not in the environment, because programs under test are
 * started with an environment of the test's own. Reports go to files of REPORTS, where the script
 * looks for them: the stderr of a daemon is nobody's. */
#include <unistd.h>

const char *__asan_default_options(void);
const char *__lsan_default_options(void);
const char *__lsan_default_suppressions(void);
const char *__ubsan_default_options(void);
const char *__tsan_default_options(void);
const char *__tsan_default_suppressions(void);

#define LOG "log_path=" REPORTS "/report:exitcode=99:"

/* In a box there is no folder for reports, and the leak check may not stop threads there: those
 * programs are checked for leaks by their C tests, outside. */
static int in_a_box(void)
{
  return access(REPORTS, W_OK) != 0;
}

const char *__asan_default_options(void)
{
  return in_a_box() ? "detect_leaks=0:exitcode=99:allocator_may_return_null=1"
                    : LOG "detect_stack_use_after_return=1:strict_string_checks=1:"
                          "allocator_may_return_null=1:check_initialization_order=1";
}

const char *__lsan_default_options(void)
{
  return in_a_box() ? "" : "print_suppressions=0";
}

const char *__ubsan_default_options(void)
{
  return in_a_box() ? "print_stacktrace=1:halt_on_error=1"
                    : LOG "print_stacktrace=1:halt_on_error=1";
}

const char *__tsan_default_options(void)
{
  /* A child of a threaded program that has only exec ahead of it may go on. */
  return in_a_box() ? "" : LOG "die_after_fork=0:second_deadlock_stack=1:history_size=4";
}

const char *__lsan_default_suppressions(void)
{
  return "";
}

const char *__tsan_default_suppressions(void)
{
  return "";
}
