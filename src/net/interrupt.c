/* SPDX-License-Identifier: MIT */
#include "net/interrupt.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* File-level because a signal handler can be given nothing else. */
static atomic_int last_signal, signal_count, wake = -1;

static void on_signal(int sig)
{
  int keep = errno, fd = atomic_load(&wake);
  uint64_t one = 1;
  atomic_store(&last_signal, sig);
  atomic_fetch_add(&signal_count, 1);
  if (fd >= 0 && write(fd, &one, sizeof one) < 0) {
    /* EAGAIN: it is readable already */
  }
  errno = keep;
}

int cb_interrupt_catch(struct cb_err *err)
{
  static const int signals[] = { SIGINT, SIGTERM };
  if (atomic_load(&wake) >= 0)
    return CB_OK;
  int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (fd < 0)
    return cb_err_errno(err, errno, "catch signals");
  atomic_store(&wake, fd);
  for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
    struct sigaction sa, before;
    memset(&sa, 0, sizeof sa);
    sa.sa_handler = on_signal;
    sa.sa_flags = SA_RESTART;
    sigemptyset(&sa.sa_mask);
    if (sigaction(signals[i], NULL, &before) == 0 && before.sa_handler == SIG_IGN)
      continue;
    if (sigaction(signals[i], &sa, NULL) < 0)
      return cb_err_errno(err, errno, "catch signals");
  }
  return CB_OK;
}

int cb_interrupted(int *count)
{
  if (count)
    *count = atomic_load(&signal_count);
  return atomic_load(&last_signal);
}

int cb_interrupt_fd(void)
{
  return atomic_load(&wake);
}

void cb_interrupt_seen(void)
{
  uint64_t count;
  int fd = atomic_load(&wake);
  if (fd >= 0 && read(fd, &count, sizeof count) < 0) {
    /* EAGAIN: another thread saw it first */
  }
}
