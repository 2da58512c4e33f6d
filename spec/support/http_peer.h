/* SPDX-License-Identifier: MIT
 * http_peer.h: an HTTP server that misbehaves on request, for tests. The path says how:
 *
 *   /echo              200, body: method, path and headers as they came, an empty line, the body
 *   /status/N          answers N;  /retry/V: 429 with Retry-After: V (_ stands for a blank)
 *   /zero              a body with zero bytes      /chunked   three chunks
 *   /interim           two 1xx answers, then 200   /trailer   chunks with a trailer
 *   /slow              never answers               /drip      half a body, then silence
 *   /reset             resets the connection       /close     closes it without an answer
 *   /torn              promises 100 bytes, sends 10 and closes
 *   /garbage           what is not HTTP            /badchunk  a chunk that is none
 *   /headers /line /1xx /body   without end: headers, one header line, 1xx answers, body
 *   /second            as /echo, but the second request of a connection is read and the
 *                      connection closed without an answer
 *   /count             how many requests for /second have been read
 *
 * One thread a connection, blocking. It runs in a process of its own. */
#ifndef CB_SPEC_HTTP_PEER_H
#define CB_SPEC_HTTP_PEER_H
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { PEER_HEAD_MAX = 65536 };

static atomic_int peer_seconds;

struct peer_request {
  char head[PEER_HEAD_MAX + 1];
  size_t head_len;
  char method[16], path[1024];
  char *body;
  size_t body_len;
};

static bool peer_send(int fd, const void *p, size_t n)
{
  while (n > 0) {
    ssize_t k = send(fd, p, n, MSG_NOSIGNAL);
    if (k <= 0)
      return false;
    p = (const char *)p + k;
    n -= (size_t)k;
  }
  return true;
}

static bool peer_text(int fd, const char *text)
{
  return peer_send(fd, text, strlen(text));
}

static bool peer_answer(int fd, int status, const char *headers, const void *body, size_t n)
{
  char head[2048];
  snprintf(head, sizeof head, "HTTP/1.1 %d Said\r\nContent-Length: %zu\r\n%s\r\n", status, n,
           headers);
  return peer_text(fd, head) && peer_send(fd, body, n);
}

/* Reads one request; false at the end of the connection. */
static bool peer_read(int fd, struct peer_request *r)
{
  char *end = NULL;
  r->head_len = 0;
  r->body = NULL;
  r->body_len = 0;
  while (!end) {
    if (r->head_len == PEER_HEAD_MAX || recv(fd, r->head + r->head_len, 1, 0) != 1)
      return false;
    r->head[++r->head_len] = '\0';
    if (r->head_len >= 4 && memcmp(r->head + r->head_len - 4, "\r\n\r\n", 4) == 0)
      end = r->head + r->head_len;
  }
  if (sscanf(r->head, "%15s %1023s", r->method, r->path) != 2)
    return false;
  const char *length = strcasestr(r->head, "\r\ncontent-length:");
  if (length) {
    r->body_len = strtoul(length + 17, NULL, 10);
    r->body = malloc(r->body_len + 1);
    for (size_t at = 0; at < r->body_len;) {
      ssize_t k = recv(fd, r->body + at, r->body_len - at, 0);
      if (k <= 0)
        return false;
      at += (size_t)k;
    }
  }
  return true;
}

static bool peer_echo(int fd, const struct peer_request *r)
{
  size_t n = r->head_len + r->body_len;
  char *all = malloc(n + 1);
  memcpy(all, r->head, r->head_len);
  if (r->body_len)
    memcpy(all + r->head_len, r->body, r->body_len);
  bool ok = peer_answer(fd, 200, "Content-Type: Text/Plain; charset=utf-8\r\nX-Two: a\r\nx-two: b\r\n",
                        all, n);
  free(all);
  return ok;
}

static void peer_wait_for_end(int fd)
{
  char c;
  while (recv(fd, &c, 1, 0) > 0) {
  }
}

/* Repeats a piece until the other side has had enough. */
static bool peer_for_ever(int fd, const char *first, const char *piece)
{
  bool ok = peer_text(fd, first);
  while (ok)
    ok = peer_text(fd, piece);
  return false;
}

static bool peer_reset(int fd)
{
  struct linger l = { 1, 0 };
  setsockopt(fd, SOL_SOCKET, SO_LINGER, &l, sizeof l);
  return false;
}

static bool peer_retry(int fd, const char *value)
{
  char header[256];
  snprintf(header, sizeof header, "Retry-After: %s\r\n", value);
  for (char *c = header; *c; c++)
    *c = *c == '_' ? ' ' : *c;
  return peer_answer(fd, 429, header, "", 0);
}

static bool peer_drip(int fd)
{
  if (peer_text(fd, "HTTP/1.1 200 Said\r\nContent-Length: 10\r\n\r\nhalf"))
    peer_wait_for_end(fd);
  return false;
}

/* Answers; false: the connection is to be closed. */
static bool peer_act(int fd, const struct peer_request *r, int nth)
{
  const char *p = r->path;
  if (strcmp(p, "/second") == 0) {
    atomic_fetch_add(&peer_seconds, 1);
    return nth == 1 && peer_echo(fd, r);
  }
  if (strcmp(p, "/count") == 0) {
    char text[16];
    int n = snprintf(text, sizeof text, "%d", atomic_load(&peer_seconds));
    return peer_answer(fd, 200, "", text, (size_t)n);
  }
  if (strncmp(p, "/status/", 8) == 0)
    return peer_answer(fd, (int)strtol(p + 8, NULL, 10), "", "no", 2);
  if (strncmp(p, "/retry/", 7) == 0)
    return peer_retry(fd, p + 7);
  if (strcmp(p, "/zero") == 0)
    return peer_answer(fd, 200, "", "a\0b\0", 4);
  if (strcmp(p, "/chunked") == 0)
    return peer_text(fd, "HTTP/1.1 200 Said\r\nTransfer-Encoding: chunked\r\n\r\n"
                         "3\r\none\r\n3\r\ntwo\r\n5\r\nthree\r\n0\r\n\r\n");
  if (strcmp(p, "/trailer") == 0)
    return peer_text(fd, "HTTP/1.1 200 Said\r\nTransfer-Encoding: chunked\r\nTrailer: X-T\r\n\r\n"
                         "3\r\none\r\n0\r\nX-T: 1\r\n\r\n");
  if (strcmp(p, "/badchunk") == 0)
    return peer_text(fd, "HTTP/1.1 200 Said\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\none\r\n");
  if (strcmp(p, "/interim") == 0)
    return peer_text(fd, "HTTP/1.1 100 Continue\r\nX-Early: 1\r\n\r\nHTTP/1.1 103 Hints\r\n\r\n") &&
           peer_answer(fd, 200, "", "late", 4);
  if (strcmp(p, "/slow") == 0)
    peer_wait_for_end(fd);
  else if (strcmp(p, "/drip") == 0)
    return peer_drip(fd);
  else if (strcmp(p, "/reset") == 0)
    return peer_reset(fd);
  else if (strcmp(p, "/torn") == 0)
    return peer_text(fd, "HTTP/1.1 200 Said\r\nContent-Length: 100\r\n\r\n0123456789") && false;
  else if (strcmp(p, "/garbage") == 0)
    return peer_text(fd, "SSH-2.0-peer\r\n\r\n") && false;
  else if (strcmp(p, "/headers") == 0)
    return peer_for_ever(fd, "HTTP/1.1 200 Said\r\n", "X-More: 0123456789012345678901234\r\n");
  else if (strcmp(p, "/line") == 0)
    return peer_for_ever(fd, "HTTP/1.1 200 Said\r\nX-Long: ", "0123456789012345678901234567");
  else if (strcmp(p, "/1xx") == 0)
    return peer_for_ever(fd, "", "HTTP/1.1 100 Continue\r\nX-Early: 0123456789\r\n\r\n");
  else if (strcmp(p, "/body") == 0)
    return peer_for_ever(fd, "HTTP/1.1 200 Said\r\n\r\n", "0123456789012345678901234567890123456");
  else if (strcmp(p, "/close") != 0)
    return peer_echo(fd, r);
  return false;
}

static void *peer_connection(void *arg)
{
  int fd = (int)(intptr_t)arg;
  struct peer_request *r = malloc(sizeof *r);
  bool go_on = true;
  for (int nth = 1; go_on && peer_read(fd, r); nth++) {
    go_on = peer_act(fd, r, nth);
    free(r->body);
    r->body = NULL;
  }
  free(r->body);
  free(r);
  close(fd);
  return NULL;
}

/* Serves for ever. */
static void peer_serve(int listener)
{
  for (;;) {
    pthread_t t;
    int fd = accept(listener, NULL, NULL);
    int now = 1; /* an answer goes out in two writes: no waiting for the other side's ACK */
    if (fd < 0)
      continue;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &now, sizeof now);
    if (pthread_create(&t, NULL, peer_connection, (void *)(intptr_t)fd) == 0)
      pthread_detach(t);
    else
      close(fd);
  }
}

/* A listening socket on a free port of the loopback (path NULL) or on a unix socket. */
static int peer_listen(const char *path, int *port)
{
  struct sockaddr_in in = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
  struct sockaddr_un un = { .sun_family = AF_UNIX };
  socklen_t n = sizeof in;
  int fd = socket(path ? AF_UNIX : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), rc;
  if (path) {
    snprintf(un.sun_path, sizeof un.sun_path, "%s", path);
    rc = bind(fd, (struct sockaddr *)&un, sizeof un);
  } else {
    rc = bind(fd, (struct sockaddr *)&in, sizeof in);
  }
  if (rc < 0 || listen(fd, 64) < 0) {
    close(fd);
    return -1;
  }
  if (port) {
    getsockname(fd, (struct sockaddr *)&in, &n);
    *port = ntohs(in.sin_port);
  }
  return fd;
}
#endif
