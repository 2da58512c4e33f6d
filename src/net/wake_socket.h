/* SPDX-License-Identifier: MIT
 * wake_socket.h: wakes a host that owns its event loop and can watch sockets it connected itself,
 * but no descriptor of ours: nginx. [any]
 *
 * Listens at path (mode 0600) at once; the socket file is removed as soon as the host has
 * connected. The one peer that is let in is this very process, by SO_PEERCRED: who else may
 * connect is told nothing. From then on one byte comes whenever the queue of completions goes from
 * empty to non-empty, and one at once when completions wait already; sometimes one too many. A byte
 * that finds the peer's buffer full is left out: there are bytes to read. When the peer closes, that
 * was it; a host that wants to go on asks again. A path that nobody connects to within ten seconds is
 * taken back. Ends with the io. */
#ifndef CB_NET_WAKE_SOCKET_H
#define CB_NET_WAKE_SOCKET_H
#include "net/io.h"

/* CB_EXISTS when another process serves there, CB_INVALID for a path over 107 bytes. */
int cb_wake_socket(struct cb_io *io, const char *path, struct cb_err *err);
#endif
