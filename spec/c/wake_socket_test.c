/* SPDX-License-Identifier: MIT
 * wake_socket_test.c: the bytes that wake a host with a loop of its own, and who gets them. */
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "c/check.h"
#include "c/io_help.h"
#include "net/wake_socket.h"

static char folder[64], path[96];

static bool readable(int fd, int ms)
{
  struct pollfd p = { .fd = fd, .events = POLLIN };
  return poll(&p, 1, ms) == 1;
}

/* Bytes that come until `want` did, or the bound is over. */
static int bytes(int fd, int want)
{
  char piece[64];
  int got = 0;
  while (got < want && readable(fd, HELP_BOUND_S * 1000)) {
    ssize_t n = read(fd, piece, sizeof piece);
    if (n <= 0)
      break;
    got += (int)n;
  }
  return got;
}

static void complete(struct cb_io *io)
{
  uint64_t op = cb_io_op(io, NULL, NULL);
  CHECK(op != 0);
  cb_io_complete(io, op, NULL, NULL, false);
}

static int drain(struct cb_io *io)
{
  struct cb_completion *c = cb_io_drain(io);
  int n = 0;
  while (c) {
    struct cb_completion *next = (struct cb_completion *)c->link.next;
    cb_completion_free(c);
    c = next;
    n++;
  }
  return n;
}

static void test_wakes(struct cb_io *io)
{
  struct cb_err err = CB_ERR_INIT;
  struct stat st;
  int fd = -1;
  complete(io); /* before anybody listens */
  CHECK(cb_wake_socket(io, path, &err) == CB_OK);
  CHECK(stat(path, &st) == 0 && (st.st_mode & 07777) == 0600);
  CHECK(cb_unix_connect(path, SOCK_STREAM, &fd, &err) == CB_OK);
  CHECK(bytes(fd, 1) == 1); /* what waited already */
  CHECK(stat(path, &st) < 0);
  CHECK(drain(io) == 1);

  complete(io);
  complete(io); /* the queue is not empty: no second byte */
  CHECK(bytes(fd, 1) == 1);
  CHECK(!readable(fd, 30));
  CHECK(drain(io) == 2);
  for (int i = 0; i < 100; i++) {
    complete(io);
    CHECK(bytes(fd, 1) == 1);
    CHECK(drain(io) == 1);
  }
  cb_close(&fd);

  /* Asking again after the connection was lost. */
  CHECK(cb_wake_socket(io, path, &err) == CB_OK);
  CHECK(cb_unix_connect(path, SOCK_STREAM, &fd, &err) == CB_OK);
  complete(io);
  CHECK(bytes(fd, 1) == 1);
  CHECK(drain(io) == 1);
  cb_close(&fd);
}

/* Another process of the same user gets nothing, and does not take the place of the right one. */
static void test_stranger(struct cb_io *io)
{
  struct cb_err err = CB_ERR_INIT;
  int fd = -1, status = -1;
  CHECK(cb_wake_socket(io, path, &err) == CB_OK);
  pid_t child = fork();
  if (child == 0) {
    char c;
    int mine = -1;
    if (cb_unix_connect(path, SOCK_STREAM, &mine, NULL))
      _exit(1);
    _exit(read(mine, &c, 1) == 0 ? 0 : 2);
  }
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  CHECK(cb_unix_connect(path, SOCK_STREAM, &fd, &err) == CB_OK);
  complete(io);
  CHECK(bytes(fd, 1) == 1);
  CHECK(drain(io) == 1);
  cb_close(&fd);
}

static void test_refusals(struct cb_io *io)
{
  struct cb_err err = CB_ERR_INIT;
  char longer[200];
  memset(longer, 'x', sizeof longer);
  longer[0] = '/';
  longer[sizeof longer - 1] = '\0';
  CHECK(cb_wake_socket(io, longer, &err) == CB_INVALID);
  err.code = CB_OK;
  CHECK(cb_wake_socket(io, "/nowhere/at/all", &err) != CB_OK);
}

int main(void)
{
  struct cb_io *io = NULL;
  struct cb_err err = CB_ERR_INIT;
  struct stat st;
  int before = help_fds();
  snprintf(folder, sizeof folder, "/tmp/cb-wake-XXXXXX");
  if (!mkdtemp(folder))
    return 2;
  snprintf(path, sizeof path, "%s/wake", folder);
  CHECK(cb_io_new(&io, &err) == CB_OK);
  test_wakes(io);
  test_stranger(io);
  test_refusals(io);
  CHECK(cb_wake_socket(io, path, &err) == CB_OK); /* nobody connects: the end removes it */
  cb_io_free(io);
  CHECK(stat(path, &st) < 0);
  CHECK(help_fds() == before);
  CHECK(rmdir(folder) == 0);
  return check_done();
}
