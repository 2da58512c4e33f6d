/* SPDX-License-Identifier: MIT
 * fd.h: file descriptors. Everything here is opened close-on-exec. Any thread. */
#ifndef CB_BASE_FD_H
#define CB_BASE_FD_H
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include "base/err.h"

enum { CB_FDS_MAX = 8 }; /* most descriptors in one message */

void cb_close(int *fd); /* closes unless -1, sets -1, keeps errno */
int cb_nonblock(int fd, bool on, struct cb_err *err);
int cb_pipe(int ends[2], struct cb_err *err);

/* Write or read exactly n bytes on a blocking descriptor, over EINTR and short counts.
 * Reading fewer because of end-of-file is CB_PROTOCOL. */
int cb_write_full(int fd, const void *p, size_t n, struct cb_err *err);
int cb_read_full(int fd, void *p, size_t n, struct cb_err *err);

/* One message with up to CB_FDS_MAX descriptors over a unix socket. Sending borrows the
 * descriptors. Receiving gives ownership of *nfds descriptors to the caller; a message with
 * more than room for is refused as CB_PROTOCOL with all of them closed.
 * *n is bytes received, 0 at end-of-file. CB_BUSY when the socket would block. */
int cb_send_fds(int sock, const void *p, size_t n, const int *fds, size_t nfds,
                struct cb_err *err);
int cb_recv_fds(int sock, void *p, size_t max, size_t *n, int *fds, size_t *nfds,
                struct cb_err *err);

/* Binds a unix socket of the given type (SOCK_STREAM, SOCK_SEQPACKET) at path, mode 0600, and
 * listens. A socket file nobody answers on is replaced, one that answers is CB_EXISTS.
 * A path over 107 bytes is CB_INVALID naming the limit. */
int cb_unix_listen(const char *path, int type, int *out, struct cb_err *err);
int cb_unix_connect(const char *path, int type, int *out, struct cb_err *err);

/* True when the peer of a connected unix socket has our effective uid (or is root). */
bool cb_peer_is_us(int sock);
#endif
