/* SPDX-License-Identifier: MIT
 * control.h: the frame protocol of interfaces.md section 7. One daemon at a time; a new one
 * takes over from the old. What the daemon does not take in time waits in a bounded queue;
 * a daemon that lets it overflow is disconnected (it then finds the state again by `list`). */
#ifndef CB_BOX_CONTROL_H
#define CB_BOX_CONTROL_H
#include "base/buf.h"
#include "box/init.h"

int cb_control_new(struct cb_init *init, int listener, struct cb_step *s);
void cb_control_listen(struct cb_init *init); /* starts taking connections */
/* A daemon is there and keeps up: what can be refused should be when it is not. */
bool cb_control_ready(const struct cb_init *init);

/* An event or answer begun with "f" and "n". */
void cb_frame_begin(struct cb_buf *m, const char *verb, int64_t n);
/* Sends or queues it. Takes the descriptors over. m is cleared. When nobody is attached or
 * memory is short, it is dropped and false comes back. */
bool cb_control_send(struct cb_init *init, struct cb_buf *m, const int *fds, size_t nfds);
#endif
