/* SPDX-License-Identifier: MIT
 * box_client.h: crewboxd's side of its boxes: makes them, talks to the init of each, relays
 * their connections, removes what they leave. Everything about namespaces, mounts and ids is
 * behind this header. Loop thread only, unless said otherwise; nothing here blocks.
 *
 * A box is a process tree whose pid 1 is crewbox-init; it outlives the daemon. struct cb_box is
 * the daemon's handle: freeing it leaves the box running (cb_box_kill ends it).
 *
 *     cb_boxes_open
 *       cb_box_start or cb_box_reattach -> events.ready(err or NULL) -> requests ...
 *         -> events.gone, once, when pid 1 is dead -> cb_box_free -> cb_boxes_remove
 *     cb_boxes_close
 */
#ifndef CB_BOXD_BOX_CLIENT_H
#define CB_BOXD_BOX_CLIENT_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include "base/err.h"
#include "base/log.h"
#include "boxd/egress.h"

struct cb_loop;
struct cb_boxes; /* what the boxes of one state folder share */
struct cb_box;   /* handle of one box */

struct cb_boxes_config {
  struct cb_loop *loop;
  const char *state_dir;   /* absolute; boxes/ and base/ are made below it */
  const char *init_path;   /* absolute path of crewbox-init */
  const struct cb_log *log;
};

int cb_boxes_open(struct cb_boxes **out, const struct cb_boxes_config *config,
                  struct cb_err *err);
/* Every cb_box must be freed. Waits for work on other threads (seconds at the worst). */
void cb_boxes_close(struct cb_boxes *boxes);

/* --- can this host isolate? --- */

struct cb_isolation {
  bool known;           /* a check has ended */
  bool ok;
  struct cb_err err;    /* why not: CB_ISOLATION, naming the step and what to allow */
  char summary[240];    /* what holds, for /health: "user namespace, overlay view, seccomp" */
};

/* Starts a throw-away box that tries to write outside, to see host processes and to use what
 * the filters forbid, and tells. A good result is kept for the life of `boxes`; a bad one is
 * tried again at the next call. cb_box_start does this by itself before the first box. */
void cb_isolation_check(struct cb_boxes *boxes,
                        void (*done)(void *arg, const struct cb_isolation *result), void *arg);
const struct cb_isolation *cb_isolation_last(const struct cb_boxes *boxes); /* never NULL */

/* --- life of a box --- */

struct cb_box_mount {
  const char *source; /* absolute on the host, a folder or a file; read-only in the box */
  const char *target; /* absolute in the box, below any folder but /proc, /dev, /sys, /run */
};

struct cb_box_spec {
  const char *id;                 /* [a-z0-9]{1,64}: name of STATE/boxes/ID */
  bool network;                   /* false: loopback only, and the rules must be empty */
  const char *const *allow;       /* as cb_egress_rules_new */
  size_t allow_count;
  const struct cb_egress_forward *forward;
  size_t forward_count;
  const struct cb_box_mount *mounts;
  size_t mount_count;
  const char *const *path;        /* absolute folders in front of the default PATH */
  size_t path_count;
  const char *const *env;         /* "NAME=VALUE" for every process of the box */
  size_t env_count;
  int64_t expires_boot_ms;        /* cb_boot_ms at which the box ends itself; 0: never */
};

/* Callbacks of a box. None is called from within the call that caused it. In each, cb_box_free
 * of that box is allowed. */
struct cb_box_events {
  /* The box is up (err NULL), or did not come up or back; then it is gone and only cb_box_free
   * and cb_boxes_remove are left to do. Codes: CB_ISOLATION, CB_INVALID (a mount source that
   * is not there), CB_NOT_FOUND (reattach: no init answers; the box is dead), CB_DISK_FULL... */
  void (*ready)(void *arg, struct cb_box *box, const struct cb_err *err);
  /* A process started through us ended. status as waitpid gives it; deadline: its deadline_ms
   * had passed. Its output may still be in the pipes. */
  void (*exit)(void *arg, struct cb_box *box, int64_t pid, int status, bool deadline);
  /* pid 1 is dead and with it every process of the box. Never before ready. */
  void (*gone)(void *arg, struct cb_box *box);
};

/* Makes STATE/boxes/ID if it is not there yet (write box.json into it before: it is mode 0711,
 * your files in it 0600) and starts the box. The spec is copied. */
int cb_box_start(struct cb_box **out, struct cb_boxes *boxes, const struct cb_box_spec *spec,
                 const struct cb_box_events *events, void *arg, struct cb_err *err);
/* After a restart of the daemon: takes the control of a running box again. Of the spec only id
 * and the network rules are used (the daemon's own copy of them is what counts). */
int cb_box_reattach(struct cb_box **out, struct cb_boxes *boxes, const struct cb_box_spec *spec,
                    const struct cb_box_events *events, void *arg, struct cb_err *err);
/* SIGKILL to pid 1: nothing in the box can delay it; `gone` follows. During a start: the start
 * is given up, `ready` tells CB_CANCELLED. */
void cb_box_kill(struct cb_box *box);
/* Drops the handle. Pending requests are forgotten, relayed connections closed. */
void cb_box_free(struct cb_box *box);
const char *cb_box_id(const struct cb_box *box);
bool cb_box_up(const struct cb_box *box);
pid_t cb_box_pid(const struct cb_box *box); /* of pid 1 as the host sees it; 0 when not up */

/* Removes STATE/boxes/ID, all of it, on another thread. The box must be dead. done may be NULL. */
void cb_boxes_remove(struct cb_boxes *boxes, const char *id,
                     void (*done)(void *arg, const struct cb_err *err), void *arg);

/* --- requests --- */

/* One answer type for all requests; which fields a request fills stands beside it. Strings and
 * arrays live until the callback returns. Descriptors are the callback's to take: set what is
 * kept to -1, the rest is closed afterwards. */
struct cb_box_entry {
  const char *name, *path; /* absolute path */
  char type;               /* 'f', 'd', 'l' (a link to nothing), 'o' other */
  int64_t size;
  uint32_t mode;           /* permission bits */
  int64_t modified_ms;     /* unix */
  const char *owner, *group;
  const char *link;        /* text of the link, or NULL; type is then that of its target */
};

struct cb_box_proc {
  int64_t pid;
  const char *cmd, *cwd, *user, *tag; /* tag: "" when none was given */
  const char *const *args;
  size_t arg_count;
  const char *const *env; /* "NAME=VALUE" as given at the start of this process */
  size_t env_count;
  bool exited; /* ended within the last 30 s */
  int status;
  bool deadline;
};

struct cb_box_metrics {
  int64_t cpu_count;
  int64_t cpu_ms;      /* used by all processes of the box that ended or live, since its start */
  int64_t uptime_ms;
  int64_t mem_total, mem_used, mem_cache; /* bytes; used: resident private memory of the box */
  int64_t disk_total, disk_used;          /* bytes of the file system that holds the box */
  int64_t processes;
};

struct cb_box_answer {
  const struct cb_err *err; /* NULL: ok. Codes of the init, or CB_CLOSED when the box went */
  int64_t pid;
  int64_t size;
  const char *path;
  int fds[3]; /* -1 where there is none */
  const struct cb_box_entry *entries;
  size_t entry_count;
  const struct cb_box_proc *procs;
  size_t proc_count;
  const struct cb_box_metrics *metrics;
};

typedef void cb_box_answer_fn(void *arg, struct cb_box_answer *answer);

/* Every request function returns CB_OK, and then fn is called exactly once, later, unless
 * cb_box_forget takes it back; or an error, and fn is never called. *ticket (may be NULL) is
 * for cb_box_forget. */

struct cb_box_command {
  const char *cmd;              /* looked up in PATH of its environment */
  const char *const *args;      /* without cmd itself */
  size_t arg_count;
  const char *const *env;       /* "NAME=VALUE", over the box's */
  size_t env_count;
  const char *cwd;              /* NULL or "": home; "~/x" and relative: below home */
  const char *user;             /* "user" or "root"; NULL: user. Else CB_UNAUTHORIZED */
  const char *tag;              /* may be NULL */
  bool stdin_open;              /* false: /dev/null */
  int64_t deadline_ms;          /* SIGKILL after so long; 0: never */
};

/* pid; fds[0] write end of stdin or -1, fds[1] and fds[2] read ends, all non-blocking. While a
 * daemon is attached it must read them; without one the init throws output away.
 * CB_INVALID "cwd '/x' does not exist". A missing cmd is an ordinary exit 127. */
int cb_box_start_process(struct cb_box *box, const struct cb_box_command *command,
                         cb_box_answer_fn *fn, void *arg, uint64_t *ticket, struct cb_err *err);
/* The same descriptors again, for a process of before a restart. CB_NOT_FOUND. */
int cb_box_attach(struct cb_box *box, int64_t pid, cb_box_answer_fn *fn, void *arg,
                  uint64_t *ticket, struct cb_err *err);
int cb_box_list(struct cb_box *box, cb_box_answer_fn *fn, void *arg, uint64_t *ticket,
                struct cb_err *err); /* procs */
int cb_box_signal(struct cb_box *box, int64_t pid, int sig, cb_box_answer_fn *fn, void *arg,
                  uint64_t *ticket, struct cb_err *err); /* that process only. CB_NOT_FOUND */
/* Closes the init's own copy of the write end; close yours too. */
int cb_box_close_stdin(struct cb_box *box, int64_t pid, cb_box_answer_fn *fn, void *arg,
                       uint64_t *ticket, struct cb_err *err);

/* Paths: absolute, "~/x", or relative to the home of `user`. user may be NULL.
 * size, path (absolute), fds[0]: a regular file, opened inside the box's view. For writing,
 * missing parents are made and the file is truncated or created. CB_NOT_FOUND, CB_INVALID for
 * what is not a regular file of the box (folders, devices, /proc), CB_DENIED, CB_DISK_FULL. */
int cb_box_open(struct cb_box *box, const char *path, const char *user, bool for_writing,
                cb_box_answer_fn *fn, void *arg, uint64_t *ticket, struct cb_err *err);
int cb_box_stat(struct cb_box *box, const char *path, const char *user, cb_box_answer_fn *fn,
                void *arg, uint64_t *ticket, struct cb_err *err); /* entries[0] */
/* entries[0]. Parents are made. CB_EXISTS for a folder, CB_INVALID for anything else there. */
int cb_box_mkdir(struct cb_box *box, const char *path, const char *user, cb_box_answer_fn *fn,
                 void *arg, uint64_t *ticket, struct cb_err *err);
/* A whole tree; absent is ok. */
int cb_box_remove(struct cb_box *box, const char *path, const char *user, cb_box_answer_fn *fn,
                  void *arg, uint64_t *ticket, struct cb_err *err);
/* entries[0] of the destination. Parents are made, a file there is replaced. */
int cb_box_move(struct cb_box *box, const char *from, const char *to, const char *user,
                cb_box_answer_fn *fn, void *arg, uint64_t *ticket, struct cb_err *err);
/* entries, sorted by path. depth 1: its direct children. CB_NOT_FOUND, CB_INVALID (no folder),
 * CB_TOO_LARGE over 20,000 entries. */
int cb_box_list_dir(struct cb_box *box, const char *path, const char *user, int depth,
                    cb_box_answer_fn *fn, void *arg, uint64_t *ticket, struct cb_err *err);

/* When the box ends itself, on cb_boot_ms; in the past: at once; 0: never. */
int cb_box_expire(struct cb_box *box, int64_t at_boot_ms, cb_box_answer_fn *fn, void *arg,
                  uint64_t *ticket, struct cb_err *err);
int cb_box_measure(struct cb_box *box, cb_box_answer_fn *fn, void *arg, uint64_t *ticket,
                   struct cb_err *err); /* metrics */
/* fds[0]: a connected, non-blocking TCP socket to 127.0.0.1:port inside the box (or [::1]).
 * CB_UNREACHABLE when nobody listens there. */
int cb_box_dial(struct cb_box *box, uint16_t port, cb_box_answer_fn *fn, void *arg,
                uint64_t *ticket, struct cb_err *err);

/* The answer of that request is no longer wanted: fn will not be called; what it carries is
 * closed. The request itself still happens. An old or unknown ticket is fine. */
void cb_box_forget(struct cb_box *box, uint64_t ticket);
#endif
