/* SPDX-License-Identifier: MIT
 * local_server.h: lines of text over a private unix socket: a server for one user's own
 * programs, and the question a client asks it. I/O thread only unless marked [any].
 *
 * The socket file has mode 0600 and every peer is checked by SO_PEERCRED. A line ends with \n
 * and has at most CB_LINE_MAX bytes; a connection that sends more is closed, as is one whose
 * unread answers exceed the same bound. Lines may carry credentials: buffers are wiped. */
#ifndef CB_NET_LOCAL_SERVER_H
#define CB_NET_LOCAL_SERVER_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "net/io.h"

enum {
  CB_LINE_MAX = 4 << 20,  /* environments travel in them */
  CB_LINE_CONNECTIONS = 64 /* at once to a server; more are closed at once */
};

struct cb_line_server;

struct cb_line_handler {
  /* One line, without its end. p is valid during the call. */
  void (*line)(void *arg, uint64_t conn, const char *p, size_t n);
  void (*closed)(void *arg, uint64_t conn); /* the peer is gone; once a connection */
};

/* NULL with *err filled: CB_EXISTS when another process serves there, CB_INVALID for a path
 * that is too long. Callbacks must not stop the server. */
struct cb_line_server *cb_line_server_start(struct cb_io *io, const char *path,
                                            const struct cb_line_handler *handler, void *arg,
                                            struct cb_err *err);
/* Closes its connections (without callbacks) and removes the socket file if it is still its
 * own. Closing the io stops a server by itself. */
void cb_line_server_stop(struct cb_line_server *s);

/* [any] Queues a line (without its end) for a connection; close: and closes it once the line
 * is written. p NULL: only closes. False when the connection is gone. */
bool cb_line_answer(struct cb_io *io, uint64_t conn, const char *p, size_t n, bool close);

/* Asks: one line there, one line back. done gives {"line": text}, or CB_UNREACHABLE (nobody
 * serves there), CB_CLOSED (closed without an answer), CB_TIMEOUT, CB_TOO_LARGE. NULL with *err
 * filled, and no callback, when it could not even begin. timeout_ms 0: 10 s. */
struct cb_line_ask;
struct cb_line_ask *cb_line_ask_start(struct cb_io *io, const char *path, const char *p, size_t n,
                                      int64_t timeout_ms, cb_done *done, void *arg,
                                      struct cb_err *err);
void cb_line_ask_cancel(struct cb_line_ask *a); /* done comes with CB_CANCELLED before it returns */
#endif
