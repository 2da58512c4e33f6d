/* SPDX-License-Identifier: MIT */
#include "base/fd.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

void cb_close(int *fd)
{
  if (*fd < 0)
    return;
  int keep = errno;
  close(*fd);
  *fd = -1;
  errno = keep;
}

int cb_nonblock(int fd, bool on, struct cb_err *err)
{
  int fl = fcntl(fd, F_GETFL);
  if (fl < 0 || fcntl(fd, F_SETFL, on ? fl | O_NONBLOCK : fl & ~O_NONBLOCK) < 0)
    return cb_err_errno(err, errno, "fcntl");
  return CB_OK;
}

int cb_pipe(int ends[2], struct cb_err *err)
{
  if (pipe2(ends, O_CLOEXEC) == 0)
    return CB_OK;
  ends[0] = ends[1] = -1;
  return cb_err_errno(err, errno, "pipe");
}

int cb_write_full(int fd, const void *p, size_t n, struct cb_err *err)
{
  const char *at = p;
  while (n > 0) {
    ssize_t k = write(fd, at, n);
    if (k < 0) {
      if (errno == EINTR)
        continue;
      return cb_err_errno(err, errno, "write");
    }
    at += k;
    n -= (size_t)k;
  }
  return CB_OK;
}

int cb_read_full(int fd, void *p, size_t n, struct cb_err *err)
{
  char *at = p;
  while (n > 0) {
    ssize_t k = read(fd, at, n);
    if (k < 0) {
      if (errno == EINTR)
        continue;
      return cb_err_errno(err, errno, "read");
    }
    if (k == 0)
      return cb_err_set(err, CB_PROTOCOL, "read: ended %zu bytes early", n);
    at += k;
    n -= (size_t)k;
  }
  return CB_OK;
}

int cb_send_fds(int sock, const void *p, size_t n, const int *fds, size_t nfds,
                struct cb_err *err)
{
  union {
    char bytes[CMSG_SPACE(sizeof(int) * CB_FDS_MAX)];
    struct cmsghdr align;
  } control;
  struct iovec iov = { .iov_base = (void *)(uintptr_t)p, .iov_len = n };
  struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };

  if (nfds > CB_FDS_MAX)
    return cb_err_set(err, CB_INVALID, "send: %zu descriptors, at most %d", nfds, CB_FDS_MAX);
  memset(&control, 0, sizeof control);
  if (nfds > 0) {
    m.msg_control = control.bytes;
    m.msg_controllen = CMSG_SPACE(sizeof(int) * nfds);
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    assert(c); /* the buffer holds at least one */
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int) * nfds);
    memcpy(CMSG_DATA(c), fds, sizeof(int) * nfds);
  }
  for (;;) {
    ssize_t k = sendmsg(sock, &m, MSG_NOSIGNAL);
    if (k >= 0 && (size_t)k == n)
      return CB_OK;
    if (k >= 0)
      return cb_err_set(err, CB_PROTOCOL, "send: message cut at %zd of %zu bytes", k, n);
    if (errno == EINTR)
      continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK)
      return cb_err_set(err, CB_BUSY, "send: the socket is full");
    return cb_err_errno(err, errno, "send");
  }
}

int cb_recv_fds(int sock, void *p, size_t max, size_t *n, int *fds, size_t *nfds,
                struct cb_err *err)
{
  union {
    char bytes[CMSG_SPACE(sizeof(int) * CB_FDS_MAX)];
    struct cmsghdr align;
  } control;
  struct iovec iov = { .iov_base = p, .iov_len = max };
  struct msghdr m = { .msg_iov = &iov,
                      .msg_iovlen = 1,
                      .msg_control = control.bytes,
                      .msg_controllen = sizeof control.bytes };
  ssize_t k;

  *n = *nfds = 0;
  do
    k = recvmsg(sock, &m, MSG_CMSG_CLOEXEC);
  while (k < 0 && errno == EINTR);
  if (k < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
    return cb_err_set(err, CB_BUSY, "receive: nothing there");
  if (k < 0)
    return cb_err_errno(err, errno, "receive");
  for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
      continue;
    size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; i++) {
      int fd;
      memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
      if (*nfds < CB_FDS_MAX)
        fds[(*nfds)++] = fd;
      else
        cb_close(&fd);
    }
  }
  if (m.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) {
    while (*nfds > 0)
      cb_close(&fds[--*nfds]);
    return cb_err_set(err, CB_PROTOCOL, "receive: message larger than %zu bytes", max);
  }
  *n = (size_t)k;
  return CB_OK;
}

static int fill_address(const char *path, struct sockaddr_un *a, struct cb_err *err)
{
  size_t n = strlen(path);
  memset(a, 0, sizeof *a);
  a->sun_family = AF_UNIX;
  if (n == 0 || n >= sizeof a->sun_path)
    return cb_err_set(err, CB_INVALID,
                      "socket path of %zu bytes, at most %zu: choose a shorter folder", n,
                      sizeof a->sun_path - 1);
  memcpy(a->sun_path, path, n);
  return CB_OK;
}

int cb_unix_connect(const char *path, int type, int *out, struct cb_err *err)
{
  struct sockaddr_un a;
  int rc = fill_address(path, &a, err);
  if (rc)
    return rc;
  int s = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
  if (s < 0)
    return cb_err_errno(err, errno, "socket");
  if (connect(s, (struct sockaddr *)&a, sizeof a) < 0) {
    int sys = errno;
    cb_close(&s);
    if (sys == ECONNREFUSED || sys == ENOENT)
      return cb_err_set(err, CB_UNREACHABLE, "connect %s: nobody listens", path);
    return cb_err_errno(err, sys, "connect %s", path);
  }
  *out = s;
  return CB_OK;
}

int cb_unix_listen(const char *path, int type, int *out, struct cb_err *err)
{
  struct sockaddr_un a;
  struct stat st;
  int s = -1;
  int rc = fill_address(path, &a, err);
  if (rc)
    return rc;
  if (lstat(path, &st) == 0) {
    int probe = -1;
    if (!S_ISSOCK(st.st_mode))
      return cb_err_set(err, CB_EXISTS, "listen %s: a file that is not a socket is there", path);
    if (cb_unix_connect(path, type, &probe, NULL) == CB_OK) {
      cb_close(&probe);
      return cb_err_set(err, CB_EXISTS, "listen %s: another process already serves it", path);
    }
    if (unlink(path) < 0 && errno != ENOENT)
      return cb_err_errno(err, errno, "replace %s", path);
  }
  s = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
  if (s < 0)
    return cb_err_errno(err, errno, "socket");
  /* fchmod before bind sets the mode the file is born with: no moment at which others can
   * connect, and no process-wide umask. */
  if (fchmod(s, 0600) < 0 || bind(s, (struct sockaddr *)&a, sizeof a) < 0 ||
      chmod(path, 0600) < 0 || listen(s, 128) < 0) {
    rc = cb_err_errno(err, errno, "listen %s", path);
    cb_close(&s);
    return rc;
  }
  *out = s;
  return CB_OK;
}

bool cb_peer_is_us(int sock)
{
  struct ucred c;
  socklen_t n = sizeof c;
  if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &c, &n) < 0)
    return false;
  return c.uid == geteuid() || c.uid == 0;
}
