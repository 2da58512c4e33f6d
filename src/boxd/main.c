/* SPDX-License-Identifier: MIT
 * main.c: crewboxd: puts the parts together, takes up the boxes that are there, serves until a
 * signal ends it. Boxes go on. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/fd.h"
#include "boxd/boxd.h"
#include "boxd/listen.h"
#include "boxd/options.h"
#include "boxd/route.h"

enum {
  EXIT_USAGE = 2,
  EXIT_BUSY = 3,
  STOP_POLL_MS = 20,
  STOP_MAX_MS = 10000, /* what is being made or removed when the signal comes may end */
};

struct daemon {
  struct cb_boxd boxd;
  struct cb_options options;
  char init[PATH_MAX];
  char socket[PATH_MAX]; /* of ours, to be removed; "" for none */
  char address[PATH_MAX];
  int signals;
  struct cb_watch signal_watch;
  struct cb_loop_timer stop_timer;
  int64_t stop_at_ms;
  struct cb_err err; /* of what failed inside the loop */
};

/* --- the process --- */

/* Descriptors 0 to 2 exist, none above is inherited. */
static void tidy_descriptors(void)
{
  int fd;
  do
    fd = open("/dev/null", O_RDWR);
  while (fd >= 0 && fd <= 2);
  close_range(3, ~0u, 0);
}

static void raise_nofile(void)
{
  struct rlimit r;
  if (getrlimit(RLIMIT_NOFILE, &r) == 0 && r.rlim_cur < r.rlim_max) {
    r.rlim_cur = r.rlim_max;
    setrlimit(RLIMIT_NOFILE, &r);
  }
}

static int open_log(struct daemon *d, struct cb_err *err)
{
  const char *file = d->options.log;
  d->boxd.log.least = d->options.verbose ? CB_LOG_DEBUG : CB_LOG_INFO;
  d->boxd.log.fd = STDERR_FILENO;
  if (!file || strcmp(file, "-") == 0)
    return CB_OK;
  int fd = open(file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (fd < 0)
    return cb_err_errno(err, errno, "open the log %s", file);
  d->boxd.log.fd = fd;
  return CB_OK;
}

static int find_init(struct daemon *d, struct cb_err *err)
{
  static const char *const places[] = { "crewbox-init", "../libexec/crewbox/crewbox-init" };
  char self[PATH_MAX], path[PATH_MAX + 64];
  if (d->options.init) {
    if (!realpath(d->options.init, d->init) || access(d->init, X_OK) < 0)
      return cb_err_errno(err, errno, "--init %s", d->options.init);
    return CB_OK;
  }
  ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
  if (n <= 0)
    return cb_err_errno(err, errno, "find this program");
  self[n] = '\0';
  char *slash = strrchr(self, '/');
  if (slash)
    *slash = '\0';
  for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
    snprintf(path, sizeof path, "%s/%s", self, places[i]);
    if (realpath(path, d->init) && access(d->init, X_OK) == 0)
      return CB_OK;
  }
  return cb_err_set(err, CB_NOT_FOUND,
                    "crewbox-init is neither beside crewboxd (%s) nor in ../libexec/crewbox: name "
                    "it with --init",
                    self);
}

/* --- stopping --- */

static void on_stop_poll(struct cb_loop_timer *t)
{
  struct daemon *d = t->owner;
  if (cb_boot_ms() < d->stop_at_ms &&
      (cb_web_pending(d->boxd.web) > 0 || cb_table_busy(d->boxd.table) > 0)) {
    cb_loop_timer_start(d->boxd.loop, t, STOP_POLL_MS, on_stop_poll, d);
    return;
  }
  cb_loop_stop(d->boxd.loop);
}

static void begin_stop(struct daemon *d)
{
  if (d->boxd.stopping)
    return;
  d->boxd.stopping = true;
  cb_log(&d->boxd.log, CB_LOG_INFO, "crewboxd", "stops serving; boxes go on");
  if (d->socket[0])
    unlink(d->socket);
  cb_web_quiesce(d->boxd.web);
  d->stop_at_ms = cb_boot_ms() + STOP_MAX_MS;
  cb_loop_timer_start(d->boxd.loop, &d->stop_timer, 0, on_stop_poll, d);
}

static void on_signal(struct cb_watch *w, uint32_t events)
{
  struct daemon *d = w->owner;
  struct signalfd_siginfo info;
  (void)events;
  if (read(d->signals, &info, sizeof info) == (ssize_t)sizeof info)
    begin_stop(d);
}

static int watch_signals(struct daemon *d, struct cb_err *err)
{
  sigset_t set;
  signal(SIGPIPE, SIG_IGN);
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGHUP);
  sigprocmask(SIG_BLOCK, &set, NULL); /* before any thread is started */
  d->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  if (d->signals < 0)
    return cb_err_errno(err, errno, "take signals");
  return cb_loop_add(d->boxd.loop, &d->signal_watch, d->signals, EPOLLIN, on_signal, d, err);
}

/* --- starting --- */

static int serve_socket(struct daemon *d, struct cb_err *err)
{
  char path[PATH_MAX];
  int fd = -1;
  if (d->options.socket)
    snprintf(path, sizeof path, "%s", d->options.socket);
  else
    snprintf(path, sizeof path, "%s/api.sock", d->boxd.state.path);
  int rc = cb_unix_listen(path, SOCK_STREAM, &fd, err);
  if (!rc)
    rc = cb_web_serve(d->boxd.web, fd, true, err);
  if (rc)
    return rc;
  snprintf(d->socket, sizeof d->socket, "%s", path);
  snprintf(d->address, sizeof d->address, "%s", path);
  return CB_OK;
}

static int serve_tcp(struct daemon *d, struct cb_err *err)
{
  int fd = -1;
  int rc = cb_listen_tcp(d->options.listen, d->options.listen_any, &fd, d->address,
                         sizeof d->address, err);
  return rc ? rc : cb_web_serve(d->boxd.web, fd, false, err);
}

static void on_isolation(void *arg, const struct cb_isolation *result)
{
  struct daemon *d = arg;
  if (result->ok)
    cb_log(&d->boxd.log, CB_LOG_INFO, "crewboxd", "isolation holds: %s", result->summary);
  else
    cb_log(&d->boxd.log, CB_LOG_ERROR, "crewboxd", "no box can be started here: %s",
           result->err.text);
}

static void on_recovered(void *arg)
{
  struct daemon *d = arg;
  int rc = CB_OK;
  if (d->boxd.stopping)
    return;
  if (d->options.socket || !d->options.listen)
    rc = serve_socket(d, &d->err);
  if (!rc && d->options.listen)
    rc = serve_tcp(d, &d->err);
  if (rc) {
    cb_loop_stop(d->boxd.loop);
    return;
  }
  /* Whoever started us reads this line; a reader that has gone is no reason to end. */
  printf("ready %s\n", d->address);
  fflush(stdout);
  cb_log(&d->boxd.log, CB_LOG_INFO, "crewboxd", "%s serves %s", CB_VERSION, d->address);
  cb_isolation_check(d->boxd.boxes, on_isolation, d);
}

static int start(struct daemon *d, struct cb_err *err)
{
  struct cb_boxd *b = &d->boxd;
  int rc = open_log(d, err);
  if (!rc)
    rc = find_init(d, err);
  if (!rc)
    rc = cb_state_open(&b->state, d->options.state, err);
  if (!rc)
    rc = cb_loop_new(&b->loop, err);
  if (!rc)
    rc = watch_signals(d, err);
  if (rc)
    return rc;
  struct cb_boxes_config boxes = { b->loop, b->state.path, d->init, &b->log };
  rc = cb_boxes_open(&b->boxes, &boxes, err);
  if (rc)
    return rc;
  struct cb_table_config table = { b->loop, &b->log, b->boxes, b->state.dir,
                                   (size_t)d->options.max_boxes };
  rc = cb_table_new(&b->table, &table, err);
  if (!rc)
    rc = cb_web_new(&b->web, b->loop, &b->log, cb_route, b, err);
  if (!rc)
    rc = cb_table_recover(b->table, on_recovered, d, err);
  return rc;
}

int main(int argc, char **argv)
{
  static struct daemon d; /* too big for a stack, and as long-lived as the process */
  struct cb_err err = CB_ERR_INIT;
  d.boxd.log.fd = -1;
  d.signals = d.signal_watch.fd = -1;
  if (cb_options_read(&d.options, argc, argv, &err)) {
    fprintf(stderr, "crewboxd: %s\n", err.text);
    return EXIT_USAGE;
  }
  if (d.options.help || d.options.version) {
    fputs(d.options.help ? cb_options_help : "crewboxd " CB_VERSION "\n", stdout);
    return 0;
  }
  tidy_descriptors();
  raise_nofile();
  umask(022);
  int rc = start(&d, &err);
  if (!rc)
    rc = cb_loop_run(d.boxd.loop, &err);
  if (!rc && d.err.code) {
    err = d.err;
    rc = (int)err.code;
  }
  if (rc) {
    fprintf(stderr, "crewboxd: %s\n", err.text);
    return rc == CB_BUSY ? EXIT_BUSY : rc == CB_INVALID ? EXIT_USAGE : EXIT_FAILURE;
  }
  /* Threads may still look up names or remove folders, and every stream is cut by the kernel
   * with the rest: nothing is left to tidy up that the next daemon would not find. */
  fflush(NULL);
  _exit(0);
}
