/* SPDX-License-Identifier: MIT
 * box_start.c: from a spec to a running init: folders and base layer on another thread, then
 * crewbox-init, exec'd afresh with exactly the descriptors of box/protocol.h and an empty
 * environment, then its report. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fd.h"
#include "base/path.h"
#include "box/protocol.h"
#include "boxd/box_internal.h"
#include "wire/record.h"

/* --- configuration --- */

static int put_list(struct cb_buf *b, const char *name, const char *const *list, size_t n)
{
  int rc = CB_OK;
  for (size_t i = 0; i < n && !rc; i++)
    rc = cb_record_addz(b, name, list[i]);
  return rc;
}

static int put_rules(struct cb_buf *b, const struct cb_box_spec *spec)
{
  char text[320];
  int rc = put_list(b, "allow", spec->allow, spec->allow_count);
  for (size_t i = 0; i < spec->forward_count && !rc; i++) {
    snprintf(text, sizeof text, "%u %.300s", (unsigned)spec->forward[i].port,
             spec->forward[i].to);
    rc = cb_record_addz(b, "forward", text);
  }
  return rc;
}

static int put_mounts(struct cb_buf *b, const struct cb_box_spec *spec)
{
  int rc = CB_OK;
  for (size_t i = 0; i < spec->mount_count && !rc; i++) {
    struct cb_buf one;
    cb_buf_init(&one, 16 * 1024);
    rc = cb_record_addz(&one, "source", spec->mounts[i].source);
    if (!rc)
      rc = cb_record_addz(&one, "target", spec->mounts[i].target);
    if (!rc)
      rc = cb_record_add(b, "mount", one.p, one.len);
    cb_buf_clear(&one);
  }
  return rc;
}

static int check_mounts(const struct cb_box_spec *spec, struct cb_err *err)
{
  static const char *const kept[] = { "/proc", "/dev", "/sys", "/run" };
  for (size_t i = 0; i < spec->mount_count; i++) {
    const char *t = spec->mounts[i].target;
    if (spec->mounts[i].source[0] != '/' || t[0] != '/' || !cb_path_is_plain(t + 1, strlen(t + 1)))
      return cb_err_set(err, CB_INVALID, "mount %.120s on %.120s: both must be absolute paths",
                        spec->mounts[i].source, t);
    for (size_t k = 0; k < sizeof kept / sizeof *kept; k++) {
      size_t n = strlen(kept[k]);
      if (strncmp(t, kept[k], n) == 0 && (t[n] == '/' || t[n] == '\0'))
        return cb_err_set(err, CB_INVALID, "mount on %.120s: nothing can be mounted below %s", t,
                          kept[k]);
    }
  }
  return CB_OK;
}

int cb_box_put_config(struct cb_box *box, const struct cb_box_spec *spec, struct cb_err *err)
{
  const struct cb_boxes *boxes = box->boxes;
  struct cb_buf *b = &box->config;
  char dir[CB_PATH_MAX_BYTES + 1];

  int n = snprintf(dir, sizeof dir, "%s/boxes/%s", boxes->state_dir, box->id);
  if (n < 0 || (size_t)n >= sizeof dir)
    return cb_err_set(err, CB_INVALID, "the state folder's path is too long");
  int rc = check_mounts(spec, err);
  if (rc)
    return rc;
  rc = cb_record_addi(b, "crewbox_box", CB_BOX_VERSION);
  if (!rc)
    rc = cb_record_addz(b, "id", box->id);
  if (!rc)
    rc = cb_record_addi(b, "uid", boxes->uid);
  if (!rc)
    rc = cb_record_addi(b, "gid", boxes->gid);
  if (!rc)
    rc = cb_record_addz(b, "dir", dir);
  if (!rc)
    rc = cb_record_addz(b, "network", spec->network ? "allowlist" : "none");
  if (!rc)
    rc = put_rules(b, spec);
  if (!rc)
    rc = put_mounts(b, spec);
  if (!rc)
    rc = put_list(b, "path", spec->path, spec->path_count);
  if (!rc)
    rc = put_list(b, "env", spec->env, spec->env_count);
  if (!rc)
    rc = cb_record_addi(b, "expires_boot_ms", spec->expires_boot_ms);
  if (!rc)
    rc = cb_record_addi(b, "check", box->check);
  if (rc == CB_TOO_LARGE)
    return cb_err_set(err, rc, "environment, mounts and rules of the box are too large");
  return rc ? cb_err_no_memory(err) : CB_OK;
}

/* --- folders and base layer, on another thread --- */

struct cb_prepare {
  struct cb_job job;
  struct cb_boxes *boxes;
  struct cb_box *box; /* NULL once it was freed */
  char id[CB_BOX_ID_MAX + 1];
  bool collect;
  struct cb_base_layer layer;
  struct cb_err err;
  int rc;
};

static int make_folder(const struct cb_boxes *b, int at, const char *name, mode_t mode, bool give,
                       struct cb_err *err)
{
  int rc = CB_OK;
  if (mkdirat(at, name, 0700) < 0 && errno != EEXIST)
    return cb_err_errno(err, errno, "make the box's folder %s", name);
  int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0 || (give && geteuid() == 0 && fchown(fd, b->uid, b->gid) < 0) ||
      fchmod(fd, mode) < 0)
    rc = cb_err_errno(err, errno, "make the box's folder %s", name);
  cb_close(&fd);
  return rc;
}

static int make_folders(const struct cb_boxes *b, const char *id, struct cb_err *err)
{
  static const struct {
    const char *name;
    mode_t mode;
  } all[] = { { "up", 0755 }, { "work", 0755 }, { "home", 0755 }, { "root", 0700 },
              { "var", 0755 } };
  int fd = -1;
  /* Others may pass (the box's id must reach what is below), not list; boxes/ itself is 0700. */
  int rc = make_folder(b, b->dir, id, 0711, false, err);
  if (rc)
    return rc;
  fd = openat(b->dir, id, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0)
    return cb_err_errno(err, errno, "open the box's folder");
  for (size_t i = 0; i < sizeof all / sizeof *all && !rc; i++)
    rc = make_folder(b, fd, all[i].name, all[i].mode, true, err);
  cb_close(&fd);
  return rc;
}

static void prepare_work(struct cb_job *job)
{
  struct cb_prepare *p = (struct cb_prepare *)job;
  const struct cb_boxes *b = p->boxes;
  struct cb_base_layer_source from = { b->state_dir, b->init_path, b->uid, b->gid };
  p->rc = cb_base_layer_get(&from, &p->layer, &p->err);
  if (!p->rc && p->collect)
    cb_base_layer_collect(b->state_dir, p->layer.key);
  if (!p->rc)
    p->rc = make_folders(b, p->id, &p->err);
}

static void spawn(struct cb_box *box, struct cb_base_layer *layer);

static void prepare_done(struct cb_job *job)
{
  struct cb_prepare *p = (struct cb_prepare *)job;
  struct cb_box *box = p->box;
  if (box) {
    box->prepare = NULL;
    if (p->job.skipped)
      p->rc = cb_err_set(&p->err, CB_CLOSED, "the daemon is leaving");
    else if (box->cancelled)
      p->rc = cb_err_set(&p->err, CB_CANCELLED, "the box was killed while it started");
    if (p->rc)
      cb_box_fail(box, &p->err);
    else
      spawn(box, &p->layer);
  }
  if (!p->job.skipped)
    cb_base_layer_release(&p->layer);
  cb_free(p);
}

void cb_box_prepare(struct cb_box *box)
{
  struct cb_prepare *p = cb_calloc(1, sizeof *p);
  if (!p) {
    cb_err_no_memory(&box->failure);
    cb_box_fail_soon(box);
    return;
  }
  p->job.work = prepare_work;
  p->job.done = prepare_done;
  p->boxes = box->boxes;
  p->box = box;
  p->layer.lock = -1;
  snprintf(p->id, sizeof p->id, "%s", box->id);
  p->collect = !box->boxes->collected;
  box->boxes->collected = true;
  box->stage = CB_BOX_PREPARING;
  box->prepare = p;
  cb_pool_run(box->boxes->pool, &p->job);
}

/* --- crewbox-init --- */

static int config_file(const struct cb_box *box, const struct cb_base_layer *layer,
                       struct cb_err *err)
{
  char base[CB_PATH_MAX_BYTES + 1];
  struct cb_buf extra;
  int rc = CB_OK;
  int fd = memfd_create("crewbox-config", MFD_CLOEXEC);
  if (fd < 0) {
    cb_err_errno(err, errno, "make a memory file");
    return -1;
  }
  cb_buf_init(&extra, sizeof base + 64);
  snprintf(base, sizeof base, "%s/base/%s", box->boxes->state_dir, layer->key);
  if (cb_record_addz(&extra, "base", base))
    rc = cb_err_no_memory(err);
  if (!rc)
    rc = cb_write_full(fd, box->config.p, box->config.len, err);
  if (!rc)
    rc = cb_write_full(fd, extra.p, extra.len, err);
  if (!rc && lseek(fd, 0, SEEK_SET) < 0)
    rc = cb_err_errno(err, errno, "rewind the configuration");
  cb_buf_clear(&extra);
  if (rc)
    cb_close(&fd);
  return fd;
}

/* posix_spawn because the daemon has threads. given[i] becomes descriptor 3 + i. */
static int run_init(const char *path, const int given[5], pid_t *pid, struct cb_err *err)
{
  char name[] = "crewbox-init", verb[] = "box", *argv[] = { name, verb, NULL }, *envp[] = { NULL };
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attr;
  sigset_t all, none;
  int high[5] = { -1, -1, -1, -1, -1 }, sys = 0;

  posix_spawn_file_actions_init(&actions);
  posix_spawnattr_init(&attr);
  sigfillset(&all);
  sigemptyset(&none);
  for (int i = 0; i < 5 && !sys; i++) { /* out of the way of 3 to 7 */
    high[i] = fcntl(given[i], F_DUPFD_CLOEXEC, 16);
    sys = high[i] < 0 ? errno : posix_spawn_file_actions_adddup2(&actions, high[i], 3 + i);
  }
  if (!sys)
    sys = posix_spawn_file_actions_addclosefrom_np(&actions, CB_BOX_FD_BASE_LOCK + 1);
  if (!sys)
    sys = posix_spawnattr_setsigdefault(&attr, &all);
  if (!sys)
    sys = posix_spawnattr_setsigmask(&attr, &none);
  if (!sys)
    sys = posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK |
                                              POSIX_SPAWN_SETSID);
  if (!sys)
    sys = posix_spawn(pid, path, &actions, &attr, argv, envp);
  for (int i = 0; i < 5; i++)
    cb_close(&high[i]);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attr);
  if (sys == ENOENT || sys == EACCES)
    return cb_err_set(err, CB_ISOLATION, "cannot run %.300s: %s: build or install crewbox-init",
                      path, strerror(sys));
  return sys ? cb_err_errno(err, sys, "run %.300s", path) : CB_OK;
}

static void reap_outer(struct cb_box *box)
{
  /* It leaves right after its report or was killed: this does not wait in any real sense. */
  while (box->outer > 0 && waitpid(box->outer, NULL, 0) < 0 && errno == EINTR)
    continue;
  box->outer = 0;
  cb_loop_del(box->boxes->loop, &box->report_watch);
  cb_close(&box->report);
}

static int read_report(struct cb_box *box, struct cb_err *err)
{
  char m[4096];
  int fds[CB_FDS_MAX];
  size_t n, nfds;
  struct cb_record rec, text;
  int64_t pid;

  int rc = cb_recv_fds(box->report, m, sizeof m, &n, fds, &nfds, err);
  if (rc == CB_BUSY)
    return rc;
  if (!rc && n == 0)
    rc = cb_err_set(err, CB_ISOLATION, "this host cannot isolate a box: crewbox-init died");
  if (!rc && cb_record_find(m, n, "f", &rec) && rec.len == 5 &&
      memcmp(rec.value, "ready", 5) == 0 && nfds == 1 && cb_record_find(m, n, "pid", &rec) &&
      cb_record_int(&rec, &pid) && pid > 1) {
    box->pid = (pid_t)pid;
    box->pidfd = fds[0];
    return CB_OK;
  }
  while (nfds > 0)
    cb_close(&fds[--nfds]);
  if (rc)
    return rc;
  enum cb_code code = CB_SYSTEM;
  if (cb_record_find(m, n, "code", &rec))
    for (int i = CB_OK + 1; i < CB_CODE_COUNT; i++)
      if (strlen(cb_code_name(i)) == rec.len && memcmp(cb_code_name(i), rec.value, rec.len) == 0)
        code = (enum cb_code)i;
  if (!cb_record_find(m, n, "text", &text))
    return cb_err_set(err, code, "crewbox-init failed without a reason");
  return cb_err_set(err, code, "%.*s", (int)(text.len < 440 ? text.len : 440), text.value);
}

static void on_report(struct cb_watch *w, uint32_t events)
{
  struct cb_box *box = w->owner;
  struct cb_err err = CB_ERR_INIT;
  (void)events;
  int rc = read_report(box, &err);
  if (rc == CB_BUSY)
    return;
  reap_outer(box);
  if (box->cancelled) {
    if (box->pidfd >= 0) /* came up in the last moment */
      (void)syscall(SYS_pidfd_send_signal, box->pidfd, SIGKILL, NULL, 0);
    rc = cb_err_set(&err, CB_CANCELLED, "the box was killed while it started");
  }
  if (rc) {
    cb_box_fail(box, &err);
    return;
  }
  if (box->check) { /* the proof is over and its processes are gone */
    box->stage = CB_BOX_DEAD;
    box->events.ready(box->arg, box, NULL);
    return;
  }
  cb_box_watch_pid(box);
  if (cb_box_connect(box, &err)) {
    (void)syscall(SYS_pidfd_send_signal, box->pidfd, SIGKILL, NULL, 0);
    cb_box_fail(box, &err);
  }
}

static void spawn(struct cb_box *box, struct cb_base_layer *layer)
{
  struct cb_boxes *b = box->boxes;
  struct cb_err err = CB_ERR_INIT;
  int ends[2] = { -1, -1 };
  int rc = CB_OK;

  int config = config_file(box, layer, &err);
  if (config < 0)
    rc = err.code;
  if (!rc && socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
    rc = cb_err_errno(&err, errno, "make a socket pair");
  if (!rc) {
    const int given[5] = { config, ends[1], b->root_filter, b->user_filter, layer->lock };
    rc = run_init(b->init_path, given, &box->outer, &err);
  }
  cb_close(&config);
  cb_close(&ends[1]);
  cb_buf_clear_wiped(&box->config);
  if (!rc) {
    box->stage = CB_BOX_SPAWNING;
    box->report = ends[0];
    rc = cb_nonblock(box->report, true, &err);
    if (!rc)
      rc = cb_loop_add(b->loop, &box->report_watch, box->report, EPOLLIN, on_report, box, &err);
    if (rc) {
      kill(box->outer, SIGKILL);
      reap_outer(box);
    }
  } else {
    cb_close(&ends[0]);
    box->outer = 0;
  }
  if (rc)
    cb_box_fail(box, &err);
}

void cb_box_start_abort(struct cb_box *box)
{
  if (box->prepare)
    box->prepare->box = NULL;
  box->prepare = NULL;
  if (box->outer > 0) {
    kill(box->outer, SIGKILL); /* its half-made pid 1 goes with it */
    reap_outer(box);
  }
}
