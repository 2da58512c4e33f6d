/* SPDX-License-Identifier: MIT
 * What an init reads: its configuration, and requests of a daemon. Everything a request would do
 * to the machine is a stub; what reads the bytes is the init's own.
 * links: src/box/config.c */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fuzz/fuzz.h"

#define connect(fd, address, n) (errno = ECONNREFUSED, -1)
#include "src/box/control.c"
#undef connect

/* Of files.c only the reading of paths runs: the rest works on the machine. */
#define cb_files_open unused_open
#define cb_files_stat unused_stat
#define cb_files_mkdir unused_mkdir
#define cb_files_remove unused_remove
#define cb_files_move unused_move
#define cb_files_list unused_list
#define add_entry files_add_entry
#include "src/box/files.c"
#undef cb_files_open
#undef cb_files_stat
#undef cb_files_mkdir
#undef cb_files_remove
#undef cb_files_move
#undef cb_files_list

/* Clean and absolute whatever came: nothing that leads up, nothing doubled. */
static void check_path(const char *path)
{
  size_t n = strlen(path);
  assert(path[0] == '/' && n <= CB_FILES_PATH_MAX);
  assert(!strstr(path, "//") && !strstr(path, "/../") && !strstr(path, "/./"));
  assert(n < 3 || strcmp(path + n - 3, "/..") != 0);
}

int cb_files_open(const char *path, bool for_writing, int *fd, int64_t *size, struct cb_err *err)
{
  (void)for_writing;
  (void)fd;
  (void)size;
  check_path(path);
  return cb_err_set(err, CB_NOT_FOUND, "%s", path);
}

int cb_files_stat(const char *path, const char *user, struct cb_buf *into, struct cb_err *err)
{
  (void)user;
  (void)err;
  check_path(path);
  return cb_record_addz(into, "path", path);
}

int cb_files_mkdir(const char *path, struct cb_err *err)
{
  (void)err;
  check_path(path);
  return CB_OK;
}

int cb_files_remove(const char *path, struct cb_err *err)
{
  return cb_files_mkdir(path, err);
}

int cb_files_move(const char *from, const char *to, struct cb_err *err)
{
  check_path(from);
  return cb_files_mkdir(to, err);
}

int cb_files_list(const char *path, const char *user, int depth,
                  int (*each)(void *, const struct cb_buf *, struct cb_err *), void *arg,
                  struct cb_err *err)
{
  struct cb_buf item;
  (void)user;
  check_path(path);
  assert(depth <= CB_BOX_DEPTH_MAX);
  cb_buf_init(&item, 64);
  int rc = cb_buf_addz(&item, path[0] ? "x" : "");
  rc = rc ? rc : each(arg, &item, err);
  cb_buf_clear(&item);
  return rc;
}

static struct cb_child child = { .pid = 7, .in = -1, .out = { -1, -1 }, .exited = true,
                                 .listed = true };

int cb_child_start(struct cb_init *init, const struct cb_command *c, struct cb_child **out,
                   struct cb_err *err)
{
  size_t total = strlen(c->cmd) + strlen(c->cwd) + strlen(c->user) + strlen(c->tag);
  (void)init;
  for (size_t i = 0; i < c->args.count; i++)
    total += strlen(c->args.at[i]);
  for (size_t i = 0; i < c->env.count; i++)
    assert(strchr(c->env.at[i], '=') && c->env.at[i][0] != '=');
  assert(total <= CB_BOX_FRAME_MAX + 8);
  *out = &child;
  return total % 2 ? cb_err_set(err, CB_SYSTEM, "no process here") : CB_OK;
}

struct cb_child *cb_child_find(struct cb_init *init, int64_t pid)
{
  (void)init;
  return pid == child.pid ? &child : NULL;
}

void cb_child_attached(struct cb_init *init, bool attached)
{
  (void)init;
  (void)attached;
}

const char *cb_child_home(const char *user)
{
  return strcmp(user, "user") == 0 ? "/home/user" : strcmp(user, "root") == 0 ? "/root" : NULL;
}

int cb_metrics_put(const struct cb_init *init, struct cb_buf *into)
{
  (void)init;
  return cb_record_addi(into, "cpu", 1);
}

int cb_init_watch(struct cb_init *init, struct cb_source *src, int fd, uint32_t events,
                  void (*ready)(struct cb_init *, struct cb_source *, uint32_t), void *owner)
{
  (void)init;
  (void)src;
  (void)fd;
  (void)events;
  (void)ready;
  (void)owner;
  return 0;
}

void cb_init_rewatch(struct cb_init *init, struct cb_source *src, uint32_t events)
{
  (void)init;
  (void)src;
  (void)events;
}

void cb_init_unwatch(struct cb_init *init, struct cb_source *src)
{
  (void)init;
  (void)src;
}

int cb_step_host(struct cb_step *s, int sys, const char *what, const char *hint)
{
  (void)s;
  (void)sys;
  (void)what;
  (void)hint;
  return -1;
}

/* Sends the request over a real socket, as a daemon does; what is answered must be records. */
static void request(const uint8_t *p, size_t n)
{
  static char answer[CB_BOX_FRAME_MAX + 1];
  static const char stop[] = "f 4\nstop\n";
  struct cb_control control;
  struct cb_init init;
  int ends[2];
  if (n >= sizeof stop - 1 && memcmp(p, stop, sizeof stop - 1) == 0)
    return; /* would end us, as it should */
  memset(&control, 0, sizeof control);
  memset(&init, 0, sizeof init);
  assert(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, ends) == 0);
  control.conn = ends[0];
  control.last = &control.first;
  init.control = &control;
  init.children = &child;
  if (serve(&init, (const char *)p, n)) {
    ssize_t k;
    while ((k = recv(ends[1], answer, sizeof answer, 0)) > 0) {
      struct cb_record_reader reader;
      struct cb_record rec;
      int more;
      cb_record_open(&reader, answer, (size_t)k);
      while ((more = cb_record_next(&reader, &rec)) == 1) {
      }
      assert(more == 0);
    }
  }
  detach(&init);
  close(ends[1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
  struct cb_box_config config;
  request(p, n);
  if (cb_box_config_parse(&config, p, n, NULL) == CB_OK) {
    assert(config.id && config.dir && config.base);
    for (size_t i = 0; i < config.rule_count; i++)
      assert(config.rules[i].port && (config.rules[i].name || config.rules[i].to));
    for (size_t i = 0; i < config.bind_count; i++)
      assert(config.binds[i].source && config.binds[i].target);
  }
  cb_box_config_clear(&config);
  return 0;
}
