/* SPDX-License-Identifier: MIT
 * sudo.h: `sudo` of a box. /usr/local/bin/sudo is this program under another name; it asks
 * pid 1 to run the command as box uid 0 with the caller's stdio, folder and environment, passes
 * signals on and returns the exit status. There is no setuid in a box and none is needed: the
 * users of a box have one host id, so this gives nobody a power over the host or over other
 * boxes that they had not before. The command ends when its sudo does.
 *
 * Messages on CB_BOX_SUDO_SOCKET (SOCK_SEQPACKET), record sequences:
 *   to pid 1:   crewbox_sudo=1; descriptors: stdin, stdout, stderr, and a memory file with the
 *               records user, cwd, arg+ (the command first), env*
 *               signal=N, any time later
 *   back, once: status (as waitpid) or error (one line) */
#ifndef CB_BOX_SUDO_H
#define CB_BOX_SUDO_H
#include "box/init.h"

enum { CB_SUDO_ORDER_MAX = 4 << 20 };

/* In the view (the root is already the box's). */
int cb_sudo_new(struct cb_init *init, struct cb_step *s);
/* The program itself. */
int cb_sudo_main(int argc, char **argv);
#endif
