/* SPDX-License-Identifier: MIT
 * boxes.c: what the boxes of one state folder share; the isolation check; removal. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fd.h"
#include "base/path.h"
#include "base/rand.h"
#include "boxd/box_internal.h"
#include "boxd/seccomp.h"

/* Host ids for the boxes of a root daemon: above everything that distributions, subuid ranges
 * and container managers hand out (see systemd's UIDS-GIDS), below 2^31. */
enum { UID_FIRST = 2000000000, UID_COUNT = 100000000, THREADS = 3 };

/* The id is drawn once for a state folder and kept there, so that its files stay readable. */
static int choose_ids(struct cb_boxes *b, struct cb_err *err)
{
  struct cb_buf text;
  unsigned long v = 0;
  int state = -1, rc = CB_OK;

  if (geteuid() != 0) {
    b->uid = geteuid();
    b->gid = getegid();
    return CB_OK;
  }
  state = open(b->state_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (state < 0)
    return cb_err_errno(err, errno, "open %s", b->state_dir);
  cb_buf_init(&text, 64);
  rc = cb_read_file_beneath(state, "box_uid", &text, err);
  if (rc == CB_NOT_FOUND) {
    uint32_t random;
    char line[32];
    cb_random(&random, sizeof random);
    v = UID_FIRST + random % UID_COUNT;
    int n = snprintf(line, sizeof line, "%lu\n", v);
    rc = cb_write_file_beneath(state, "box_uid", line, (size_t)n, 0600, true, err);
  } else if (!rc && (sscanf(text.p ? text.p : "", "%lu", &v) != 1 || v < UID_FIRST ||
                     v >= UID_FIRST + (unsigned long)UID_COUNT)) {
    rc = cb_err_set(err, CB_CORRUPT, "%s/box_uid is damaged: remove it while no box runs",
                    b->state_dir);
  }
  b->uid = (uid_t)v;
  b->gid = (gid_t)v;
  cb_buf_clear(&text);
  cb_close(&state);
  return rc;
}

static int open_dir(struct cb_boxes *b, struct cb_err *err)
{
  char path[CB_PATH_MAX_BYTES + 1];
  int n = snprintf(path, sizeof path, "%s/boxes", b->state_dir);
  if (b->state_dir[0] != '/' || n < 0 || (size_t)n >= sizeof path)
    return cb_err_set(err, CB_INVALID, "the state folder must be an absolute path, not too long");
  int rc = cb_mkdirs(path, 0700, err);
  if (rc)
    return rc;
  b->dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  return b->dir < 0 ? cb_err_errno(err, errno, "open %s", path) : CB_OK;
}

/* Of checks that a dying daemon left behind. */
static void sweep_checks(struct cb_boxes *b)
{
  struct dirent *e;
  int fd = openat(b->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR *d = fd < 0 ? NULL : fdopendir(fd);
  if (!d)
    cb_close(&fd);
  while (d && (e = readdir(d)))
    if (strncmp(e->d_name, CB_BOX_CHECK_PREFIX, strlen(CB_BOX_CHECK_PREFIX)) == 0)
      cb_boxes_remove(b, e->d_name, NULL, NULL);
  if (d)
    closedir(d);
}

int cb_boxes_open(struct cb_boxes **out, const struct cb_boxes_config *c, struct cb_err *err)
{
  struct cb_boxes *b = cb_calloc(1, sizeof *b);
  if (!b)
    return cb_err_no_memory(err);
  b->loop = c->loop;
  b->log = c->log;
  b->dir = b->root_filter = b->user_filter = -1;
  b->state_dir = cb_strdup(c->state_dir);
  b->init_path = cb_strdup(c->init_path);
  int rc = b->state_dir && b->init_path ? CB_OK : cb_err_no_memory(err);
  if (!rc)
    rc = open_dir(b, err);
  if (!rc)
    rc = choose_ids(b, err);
  if (!rc)
    rc = cb_seccomp_compile(CB_SECCOMP_ROOT, &b->root_filter, err);
  if (!rc)
    rc = cb_seccomp_compile(CB_SECCOMP_USER, &b->user_filter, err);
  if (!rc)
    rc = cb_pool_new(&b->pool, c->loop, THREADS, err);
  if (!rc)
    rc = cb_egress_new(&b->egress, c->loop, c->log, err);
  if (rc) {
    cb_boxes_close(b);
    return rc;
  }
  sweep_checks(b);
  *out = b;
  return CB_OK;
}

void cb_boxes_close(struct cb_boxes *b)
{
  if (!b)
    return;
  cb_box_free(b->checker); /* its folder is found by the next sweep_checks */
  b->checker = NULL;
  while (b->waiters) {
    struct cb_check_waiter *w = b->waiters;
    b->waiters = w->next;
    cb_free(w);
  }
  cb_loop_timer_stop(b->loop, &b->answer_soon);
  cb_pool_free(b->pool, true);
  cb_egress_free(b->egress);
  cb_close(&b->root_filter);
  cb_close(&b->user_filter);
  cb_close(&b->dir);
  cb_free(b->state_dir);
  cb_free(b->init_path);
  cb_free(b);
}

/* --- the isolation check --- */

const struct cb_isolation *cb_isolation_last(const struct cb_boxes *boxes)
{
  return &boxes->isolation;
}

static void tell_waiters(struct cb_loop_timer *t)
{
  struct cb_boxes *b = t->owner;
  struct cb_check_waiter *w = b->waiters;
  b->waiters = NULL; /* whoever asks from within a callback is a new waiter */
  while (w) {
    struct cb_check_waiter *next = w->next;
    w->done(w->arg, &b->isolation);
    cb_free(w);
    w = next;
  }
}

void cb_boxes_checked(struct cb_boxes *b, const struct cb_err *err)
{
  struct cb_isolation *i = &b->isolation;
  i->known = true;
  i->ok = !err;
  if (err) {
    i->err = *err;
    snprintf(i->summary, sizeof i->summary, "none: %.200s", err->text);
    cb_log(b->log, CB_LOG_ERROR, "isolation", "%s", err->text);
  } else {
    memset(&i->err, 0, sizeof i->err);
    snprintf(i->summary, sizeof i->summary,
             "namespaces (user, mount, pid, ipc, uts, net, cgroup), overlay view, %s, "
             "no capabilities, seccomp; shared host kernel, not a virtual machine",
             geteuid() == 0 ? "own host id" : "host id of the daemon's user");
  }
  cb_loop_timer_start(b->loop, &b->answer_soon, 0, tell_waiters, b);
}

static void on_checker_ready(void *arg, struct cb_box *box, const struct cb_err *err)
{
  struct cb_boxes *b = arg;
  char id[CB_BOX_ID_MAX + 1];
  snprintf(id, sizeof id, "%s", cb_box_id(box));
  b->checker = NULL;
  struct cb_err copy = CB_ERR_INIT;
  if (err)
    copy = *err;
  cb_box_free(box);
  cb_boxes_remove(b, id, NULL, NULL);
  cb_boxes_checked(b, err ? &copy : NULL);
}

static void start_checker(struct cb_boxes *b)
{
  static const struct cb_box_events events = { on_checker_ready, NULL, NULL };
  char id[24] = CB_BOX_CHECK_PREFIX;
  struct cb_box_spec spec = { .id = id };
  struct cb_err err = CB_ERR_INIT;
  cb_random_id(id + strlen(id), 12);
  if (cb_box_make(&b->checker, b, &spec, &events, b, &err)) {
    b->checker = NULL;
    cb_boxes_checked(b, &err);
    return;
  }
  b->checker->check = true;
  if (cb_box_put_config(b->checker, &spec, &b->checker->failure))
    cb_box_fail_soon(b->checker);
  else
    cb_box_prepare(b->checker);
}

void cb_isolation_check(struct cb_boxes *b,
                        void (*done)(void *arg, const struct cb_isolation *result), void *arg)
{
  struct cb_check_waiter *w = cb_calloc(1, sizeof *w);
  if (!w) { /* the one case in which the answer comes at once */
    struct cb_isolation none = { .known = true };
    cb_err_no_memory(&none.err);
    done(arg, &none);
    return;
  }
  w->done = done;
  w->arg = arg;
  w->next = b->waiters;
  b->waiters = w;
  if (b->isolation.ok)
    cb_loop_timer_start(b->loop, &b->answer_soon, 0, tell_waiters, b);
  else if (!b->checker)
    start_checker(b);
}

/* --- removal --- */

struct removal {
  struct cb_job job;
  struct cb_boxes *boxes;
  char id[CB_BOX_ID_MAX + 1];
  struct cb_err err;
  int rc;
  void (*done)(void *arg, const struct cb_err *err);
  void *arg;
};

static void remove_work(struct cb_job *job)
{
  struct removal *r = (struct removal *)job;
  r->rc = cb_rmtree_beneath(r->boxes->dir, r->id, &r->err);
}

static void remove_done(struct cb_job *job)
{
  struct removal *r = (struct removal *)job;
  if (r->rc)
    cb_log(r->boxes->log, CB_LOG_WARN, "box", "%s: %s", r->id, r->err.text);
  if (r->done)
    r->done(r->arg, r->rc ? &r->err : NULL);
  cb_free(r);
}

void cb_boxes_remove(struct cb_boxes *boxes, const char *id,
                     void (*done)(void *arg, const struct cb_err *err), void *arg)
{
  struct removal *r = cb_calloc(1, sizeof *r);
  if (!r) {
    struct cb_err err = CB_ERR_INIT;
    cb_err_no_memory(&err);
    if (done)
      done(arg, &err);
    return;
  }
  r->job.work = remove_work;
  r->job.done = remove_done;
  r->boxes = boxes;
  snprintf(r->id, sizeof r->id, "%s", id);
  r->done = done;
  r->arg = arg;
  cb_pool_run(boxes->pool, &r->job);
}
