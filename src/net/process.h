/* SPDX-License-Identifier: MIT
 * process.h: a child process on this host, run to its end without blocking. I/O thread only.
 *
 * The child has a process group of its own, default signals, an empty signal mask and no
 * descriptor but 0, 1 and 2. Its end is awaited by a shepherd (shepherd.h): no SIGCHLD handler, no
 * wait for any other child of the host, and no loss where a host reaps every child, as nginx does. */
#ifndef CB_NET_PROCESS_H
#define CB_NET_PROCESS_H
#include <stddef.h>
#include <stdint.h>

#include "net/io.h"

struct cb_process;

struct cb_process_req {   /* everything is copied */
  char *const *argv;      /* argv[0]: a path, or a name looked up in PATH of env */
  char *const *env;       /* "NAME=VALUE", the whole environment */
  const char *cwd;        /* NULL: ours */
  const void *input;      /* its stdin; NULL: /dev/null */
  size_t input_len;
  size_t max_bytes;       /* kept of each output stream; 0: 16 MiB. More is read and dropped */
  int64_t timeout_ms;     /* 0: none. Then the whole group is killed */
};

/* done gives {exit | signal, stdout, stderr, timed_out?, truncated?}. A child whose own
 * descendants keep its pipes open after its end is waited for one second longer.
 * NULL with *err filled, and no callback, when it could not be started. */
struct cb_process *cb_process_start(struct cb_io *io, const struct cb_process_req *req,
                                    cb_done *done, void *arg, struct cb_err *err);
/* Kills its group; done comes with CB_CANCELLED once it has ended. */
void cb_process_cancel(struct cb_process *p);
#endif
