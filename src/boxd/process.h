/* SPDX-License-Identifier: MIT
 * process.h: the processes of one box as clients see them: events fanned out to any number of
 * streams, input in order, exits kept for a while. The box's init starts and reaps them; here
 * are the ends of their pipes. Loop thread only.
 *
 * Fan-out blocks: output is read only while no subscriber lags behind. Without a subscriber it
 * is read and dropped, and nothing is replayed. */
#ifndef CB_BOXD_PROCESS_H
#define CB_BOXD_PROCESS_H
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include "base/err.h"
#include "boxd/box_client.h"
#include "boxd/loop.h"
#include "boxd/stream.h"

enum { CB_PROCESS_RETENTION_MS = 30000, CB_PROCESS_INPUT_MAX = 16 * 1024 * 1024 };

struct cb_process;

/* Embedded in the row of a box. */
struct cb_envd_procs {
  struct cb_loop *loop;
  struct cb_box *box; /* set when the box is up */
  struct cb_process *first;
  void (*recovered)(void *arg); /* while the list of a recovery is awaited */
  void *recovered_arg;
};

void cb_envd_procs_init(struct cb_envd_procs *ps, struct cb_loop *loop);
/* The box is gone: every stream is cut, everything waiting is answered, all freed. */
void cb_envd_procs_clear(struct cb_envd_procs *ps);

/* After a restart of the daemon: takes up what the init reports. recovered is called once,
 * later, when every process can be found again; not if the box goes meanwhile. */
void cb_envd_procs_recover(struct cb_envd_procs *ps, void (*recovered)(void *arg), void *arg);
/* What the events of the box say. */
void cb_envd_procs_exit(struct cb_envd_procs *ps, int64_t pid, int status, bool deadline);

/* A process that the init has just started for us. Takes config, an object as List shows it,
 * and the descriptors of the answer. first (may be NULL: the client has left) gets the start
 * event and is its first subscriber. */
struct cb_process *cb_envd_procs_add(struct cb_envd_procs *ps, struct cb_box_answer *answer,
                                json_t *config, const char *tag, struct cb_stream *first);

/* Live ones and those whose exit is still kept. pid 0: by tag. */
struct cb_process *cb_envd_procs_find(struct cb_envd_procs *ps, int64_t pid, const char *tag);
/* Live ones, as Connect's List; NULL: no memory. */
json_t *cb_envd_procs_list(struct cb_envd_procs *ps);
int64_t cb_process_pid(const struct cb_process *p);
bool cb_process_exited(const struct cb_process *p);
/* Start event now, then what comes; an exited one gives its end at once. Takes the stream over:
 * its owner becomes the process's. */
void cb_process_subscribe(struct cb_process *p, struct cb_stream *s);
/* A signal was sent by a client: its end is then not held up by pipes others keep open. */
void cb_process_signalled(struct cb_process *p);

/* Input, in the order of the calls. done(arg, NULL or why not) is called once, later or at
 * once. p[0..n) is copied. */
void cb_process_write(struct cb_process *p, const void *data, size_t n,
                      void (*done)(void *arg, const char *why), void *arg);
/* After what was written before. */
void cb_process_close_stdin(struct cb_process *p, void (*done)(void *arg, const char *why),
                            void *arg);

/* A stream of process events, not of any process yet. As cb_stream_new. */
struct cb_stream *cb_process_stream(struct cb_request *req, struct cb_loop *loop);
#endif
