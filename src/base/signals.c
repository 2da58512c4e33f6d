/* SPDX-License-Identifier: MIT */
#include "base/signals.h"

#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { KERNEL_SIGNALS = 64 };

void cb_signals_default(void)
{
  /* The kernel's own struct sigaction, all zero: SIG_DFL, no flags, an empty mask. It is at most
   * 32 bytes on the machines we know; the call takes the size of the mask alone. */
  static const unsigned long zero[8];
  sigset_t none;
  for (int sig = 1; sig <= KERNEL_SIGNALS; sig++)
    syscall(SYS_rt_sigaction, sig, zero, NULL, KERNEL_SIGNALS / 8);
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, NULL);
}
