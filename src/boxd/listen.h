/* SPDX-License-Identifier: MIT
 * listen.h: the TCP socket of --listen. */
#ifndef CB_BOXD_LISTEN_H
#define CB_BOXD_LISTEN_H
#include <stdbool.h>
#include <stddef.h>
#include "base/err.h"

/* where: "127.0.0.1:0", "[::1]:3000", "localhost:3000". Binds and listens; *out is the socket
 * and url (at least 80 bytes) "http://127.0.0.1:PORT". An address that is not loopback is
 * CB_DENIED unless any. Names are not looked up, but for localhost. */
int cb_listen_tcp(const char *where, bool any, int *out, char *url, size_t url_size,
                  struct cb_err *err);
#endif
