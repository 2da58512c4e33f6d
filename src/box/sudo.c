/* SPDX-License-Identifier: MIT
 * sudo.c: the side of pid 1; see sudo.h. */
#include "box/sudo.h"

#include <errno.h>
#include <linux/magic.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fd.h"
#include "box/children.h"
#include "box/protocol.h"
#include "wire/record.h"

enum { CLIENTS_MAX = 256 };

struct client {
  struct cb_source src;
  struct cb_child *proc; /* NULL before the order and after the end */
};

struct cb_sudo_server {
  struct cb_source listener;
  size_t clients;
};

static void drop(struct cb_init *init, struct client *c)
{
  int fd = c->src.fd;
  if (c->proc) { /* sudo was killed: what it ran goes with it, its whole session */
    c->proc->on_exit = NULL;
    (void)kill(-c->proc->pid, SIGKILL);
    (void)kill(c->proc->pid, SIGKILL);
  }
  cb_init_unwatch(init, &c->src);
  cb_close(&fd);
  cb_free(c);
  init->sudo->clients--;
}

static void reply(const struct client *c, const char *name, const char *text, int64_t number)
{
  struct cb_buf m;
  cb_buf_init(&m, 2048);
  int rc = text ? cb_record_addz(&m, name, text) : cb_record_addi(&m, name, number);
  if (!rc)
    (void)cb_send_fds(c->src.fd, m.p, m.len, NULL, 0, NULL);
  cb_buf_clear(&m);
}

static void on_exit_of(struct cb_init *init, struct cb_child *p, void *arg)
{
  struct client *c = arg;
  reply(c, "status", NULL, p->status);
  c->proc = NULL;
  drop(init, c);
}

/* Only a memory file: reading anything else could wait, and pid 1 must not. */
static int read_order(int fd, struct cb_buf *into, struct cb_err *err)
{
  struct stat st;
  struct statfs fs;
  if (fstat(fd, &st) < 0 || fstatfs(fd, &fs) < 0 || !S_ISREG(st.st_mode) ||
      fs.f_type != TMPFS_MAGIC || st.st_size > CB_SUDO_ORDER_MAX)
    return cb_err_set(err, CB_INVALID, "the command and its environment are too large");
  int rc = cb_buf_reserve(into, (size_t)st.st_size);
  if (rc)
    return cb_err_no_memory(err);
  ssize_t k = pread(fd, into->p, (size_t)st.st_size, 0);
  if (k < 0)
    return cb_err_errno(err, errno, "read the command");
  into->len = (size_t)k;
  into->p[k] = '\0';
  return CB_OK;
}

static int start(struct cb_init *init, struct client *client, const int *fds, struct cb_err *err)
{
  struct cb_command c = { .user = "root", .whole_env = true, .stdio = fds };
  struct cb_strings words = { 0 };
  char *user = NULL, *cwd = NULL;
  struct cb_buf order;
  struct cb_record_reader r;
  struct cb_record rec;
  int more;

  cb_buf_init(&order, CB_SUDO_ORDER_MAX + 1);
  int rc = read_order(fds[3], &order, err);
  cb_record_open(&r, order.p ? order.p : "", order.len);
  while (!rc && (more = cb_record_next(&r, &rec)) != 0) {
    if (more < 0 || memchr(rec.value, '\0', rec.len))
      rc = cb_err_set(err, CB_INVALID, "a broken order");
    else if (cb_record_is(&rec, "arg"))
      rc = cb_strings_add(&words, rec.value, rec.len);
    else if (cb_record_is(&rec, "env") && memchr(rec.value, '=', rec.len))
      rc = cb_strings_add(&c.env, rec.value, rec.len);
    else if (cb_record_is(&rec, "user") && !user)
      rc = (user = cb_memdup(rec.value, rec.len)) ? CB_OK : CB_NO_MEMORY;
    else if (cb_record_is(&rec, "cwd") && !cwd)
      rc = (cwd = cb_memdup(rec.value, rec.len)) ? CB_OK : CB_NO_MEMORY;
    if (rc == CB_NO_MEMORY)
      cb_err_no_memory(err);
  }
  if (!rc && words.count == 0)
    rc = cb_err_set(err, CB_INVALID, "no command given");
  if (!rc) {
    c.cmd = words.at[0];
    c.args.at = words.at + 1;
    c.args.count = words.count - 1;
    c.user = user ? user : "root";
    c.cwd = cwd;
    rc = cb_child_start(init, &c, &client->proc, err);
  }
  if (!rc) {
    client->proc->on_exit = on_exit_of;
    client->proc->on_exit_arg = client;
  }
  cb_free(user);
  cb_free(cwd);
  cb_strings_clear(&words);
  cb_strings_clear(&c.env);
  cb_buf_clear_wiped(&order);
  return rc;
}

static void on_client(struct cb_init *init, struct cb_source *src, uint32_t events)
{
  struct client *c = src->owner;
  char m[256];
  int fds[CB_FDS_MAX];
  size_t n, nfds;
  struct cb_record rec;
  struct cb_err err = CB_ERR_INIT;
  int64_t sig;
  (void)events;

  int rc = cb_recv_fds(src->fd, m, sizeof m, &n, fds, &nfds, NULL);
  if (rc == CB_BUSY)
    return;
  bool keep = false;
  if (rc || n == 0) {
    /* gone */
  } else if (!c->proc && nfds == 4 && cb_record_kind(m, n, "crewbox_sudo", 1)) {
    keep = start(init, c, fds, &err) == CB_OK;
    if (!keep)
      reply(c, "error", err.text, 0);
  } else if (c->proc && nfds == 0 && cb_record_find(m, n, "signal", &rec) &&
             cb_record_int(&rec, &sig) && sig > 0 && sig <= 64) {
    keep = true;
    (void)kill(-c->proc->pid, (int)sig);
  }
  while (nfds > 0)
    cb_close(&fds[--nfds]);
  if (!keep)
    drop(init, c);
}

static void on_listener(struct cb_init *init, struct cb_source *src, uint32_t events)
{
  struct ucred peer;
  socklen_t len = sizeof peer;
  struct client *c = NULL;
  (void)events;
  int fd = accept4(src->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd < 0)
    return;
  /* pid 0 means a process outside of our pid namespace: somebody who is not of the box. */
  if (init->sudo->clients < CLIENTS_MAX &&
      getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0 && peer.pid > 0)
    c = cb_calloc(1, sizeof *c);
  if (!c || cb_init_watch(init, &c->src, fd, EPOLLIN, on_client, c) < 0) {
    cb_free(c);
    cb_close(&fd);
    return;
  }
  init->sudo->clients++;
}

int cb_sudo_new(struct cb_init *init, struct cb_step *s)
{
  struct sockaddr_un a = { .sun_family = AF_UNIX, .sun_path = CB_BOX_SUDO_SOCKET };
  struct cb_sudo_server *server = cb_calloc(1, sizeof *server);
  int fd = server ? socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0) : -1;
  if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof a) < 0 || chmod(a.sun_path, 0666) < 0 ||
      listen(fd, 64) < 0 ||
      cb_init_watch(init, &server->listener, fd, EPOLLIN, on_listener, NULL) < 0) {
    cb_step_host(s, errno, "open the socket of sudo", "");
    cb_close(&fd);
    cb_free(server);
    return -1;
  }
  init->sudo = server;
  return 0;
}
