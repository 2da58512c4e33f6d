/* SPDX-License-Identifier: MIT
 * box_internal.h: what the files behind box_client.h share: boxes.c (the common part, isolation
 * check, removal), box_start.c (from nothing to a running init), box_client.c (the handle, the
 * connection), box_request.c (requests). Nobody else includes it. */
#ifndef CB_BOXD_BOX_INTERNAL_H
#define CB_BOXD_BOX_INTERNAL_H
#include "base/buf.h"
#include "boxd/base_layer.h"
#include "boxd/box_client.h"
#include "boxd/loop.h"
#include "boxd/pool.h"

enum { CB_BOX_ID_MAX = 64 };
/* Folders of throw-away boxes; no id of a box has a dot. */
#define CB_BOX_CHECK_PREFIX ".check-"

struct cb_check_waiter {
  struct cb_check_waiter *next;
  void (*done)(void *arg, const struct cb_isolation *result);
  void *arg;
};

struct cb_boxes {
  struct cb_loop *loop;
  char *state_dir, *init_path;
  const struct cb_log *log;
  int dir;                        /* STATE/boxes */
  uid_t uid;                      /* host id of the boxes */
  gid_t gid;
  int root_filter, user_filter;
  struct cb_pool *pool;           /* base layers, folders */
  struct cb_egress *egress;
  struct cb_isolation isolation;
  struct cb_box *checker;         /* the throw-away box, while it runs */
  struct cb_check_waiter *waiters;
  struct cb_loop_timer answer_soon;    /* tells waiters from the loop */
  bool collected;                 /* old base layers were looked for */
};

enum cb_box_stage {
  CB_BOX_CHECKING,  /* waits for the isolation check */
  CB_BOX_PREPARING, /* folders and base layer are being made on another thread */
  CB_BOX_SPAWNING,  /* crewbox-init is making the namespaces */
  CB_BOX_GREETING,  /* connected, waits for hello */
  CB_BOX_UP,
  CB_BOX_LOST,      /* was up, the connection broke; pid 1 lives, connecting again */
  CB_BOX_DEAD,      /* ready told a failure, or gone was told */
};

struct cb_box_message {
  struct cb_box_message *next;
  char *bytes;
  size_t len;
};

struct cb_box_pending {
  struct cb_box_pending *next;
  int64_t n;
  cb_box_answer_fn *fn; /* NULL: forgotten */
  void *arg;
  struct cb_buf bytes;  /* of an answer in several messages */
  bool starts;          /* of `start`: its pid is to be remembered */
};

/* A process whose exit event is still to come: after a broken connection it is looked for. */
struct cb_box_live {
  struct cb_box_live *next;
  int64_t pid;
};

struct cb_box {
  struct cb_boxes *boxes;
  char id[CB_BOX_ID_MAX + 1];
  struct cb_box_events events;
  void *arg;
  enum cb_box_stage stage;
  bool cancelled;             /* killed during the start */
  bool check;
  struct cb_buf config;       /* for crewbox-init, all but `base` */
  struct cb_egress_box *egress;
  struct cb_prepare *prepare; /* the job, while it runs */
  pid_t outer;                /* crewbox-init making the box; 0 when none */
  int report;
  struct cb_watch report_watch;
  pid_t pid;
  int pidfd;
  struct cb_watch pid_watch;
  int conn;
  struct cb_watch conn_watch;
  struct cb_loop_timer timer;      /* hello, reconnecting, telling a failure from the loop */
  struct cb_err failure;      /* for the timer that tells it */
  int tries;
  char *frame;                /* CB_BOX_FRAME_MAX bytes to receive into */
  struct cb_box_message *out, **out_last;
  struct cb_box_pending *pending;
  struct cb_box_live *live;
  int64_t next_n;
  bool freed, busy;           /* cb_box_free from within a callback: freed when it returns */
};

/* box_client.c */
int cb_box_make(struct cb_box **out, struct cb_boxes *boxes, const struct cb_box_spec *spec,
                const struct cb_box_events *events, void *arg, struct cb_err *err);
void cb_box_fail(struct cb_box *box, const struct cb_err *err);  /* tells ready(err) now */
void cb_box_fail_soon(struct cb_box *box);                       /* box->failure, from the loop */
void cb_box_watch_pid(struct cb_box *box);                       /* pidfd is set */
int cb_box_connect(struct cb_box *box, struct cb_err *err);      /* -> GREETING */

/* box_start.c */
int cb_box_put_config(struct cb_box *box, const struct cb_box_spec *spec, struct cb_err *err);
void cb_box_prepare(struct cb_box *box);    /* -> PREPARING ... GREETING, or failure */
void cb_box_start_abort(struct cb_box *box); /* no callback will come any more */

/* boxes.c */
void cb_boxes_checked(struct cb_boxes *boxes, const struct cb_err *err); /* NULL: it holds */

/* box_request.c */
void cb_box_take_answer(struct cb_box *box, int64_t n, bool failed, char *bytes, size_t len,
                        int *fds, size_t nfds);
void cb_box_fail_pending(struct cb_box *box); /* each with CB_CLOSED */
void cb_box_find_exits(struct cb_box *box);   /* after reconnecting */
/* Queues a message; takes m's bytes. */
int cb_box_send(struct cb_box *box, struct cb_buf *m, struct cb_err *err);
#endif
