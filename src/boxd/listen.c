/* SPDX-License-Identifier: MIT
 * listen.c: see listen.h. */
#include "boxd/listen.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include "base/fd.h"

union address {
  struct sockaddr any;
  struct sockaddr_in v4;
  struct sockaddr_in6 v6;
};

/* Splits at the last colon; brackets of an IPv6 address are taken off. */
static int split(const char *where, char host[64], int *port, struct cb_err *err)
{
  const char *colon = strrchr(where, ':');
  char *end;
  if (!colon || colon[1] == '\0')
    return cb_err_set(err, CB_INVALID, "--listen %s: must be HOST:PORT", where);
  long n = strtol(colon + 1, &end, 10);
  size_t len = (size_t)(colon - where);
  if (*end || n < 0 || n > 65535)
    return cb_err_set(err, CB_INVALID, "--listen %s: the port must be 0 to 65535", where);
  if (len >= 2 && where[0] == '[' && where[len - 1] == ']') {
    where++;
    len -= 2;
  }
  if (len == 0 || len >= 64)
    return cb_err_set(err, CB_INVALID, "--listen: the address is missing or too long");
  memcpy(host, where, len);
  host[len] = '\0';
  *port = (int)n;
  return CB_OK;
}

static int parse(const char *where, union address *a, socklen_t *len, bool *loopback,
                 struct cb_err *err)
{
  char host[64];
  int port = 0;
  int rc = split(where, host, &port, err);
  if (rc)
    return rc;
  memset(a, 0, sizeof *a);
  const char *text = strcmp(host, "localhost") == 0 ? "127.0.0.1" : host;
  if (inet_pton(AF_INET, text, &a->v4.sin_addr) == 1) {
    a->v4.sin_family = AF_INET;
    a->v4.sin_port = htons((uint16_t)port);
    *len = sizeof a->v4;
    *loopback = ntohl(a->v4.sin_addr.s_addr) >> 24 == 127;
    return CB_OK;
  }
  if (inet_pton(AF_INET6, text, &a->v6.sin6_addr) == 1) {
    a->v6.sin6_family = AF_INET6;
    a->v6.sin6_port = htons((uint16_t)port);
    *len = sizeof a->v6;
    *loopback = IN6_IS_ADDR_LOOPBACK(&a->v6.sin6_addr);
    return CB_OK;
  }
  return cb_err_set(err, CB_INVALID, "--listen %s: not an IP address", where);
}

int cb_listen_tcp(const char *where, bool any, int *out, char *url, size_t url_size,
                  struct cb_err *err)
{
  union address a;
  socklen_t len;
  bool loopback = false;
  char host[64];
  int one = 1;
  int rc = parse(where, &a, &len, &loopback, err);
  if (rc)
    return rc;
  if (!loopback && !any)
    return cb_err_set(err, CB_DENIED,
                      "--listen %s: others could reach it, and whoever has the key can run "
                      "programs here; use 127.0.0.1, or add --listen-any if that is meant",
                      where);
  int s = socket(a.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (s < 0)
    return cb_err_errno(err, errno, "make a socket");
  setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  if (bind(s, &a.any, len) < 0 || listen(s, 4096) < 0 || getsockname(s, &a.any, &len) < 0) {
    rc = cb_err_errno(err, errno, "listen on %s", where);
    cb_close(&s);
    return rc;
  }
  bool v4 = a.any.sa_family == AF_INET;
  inet_ntop(a.any.sa_family, v4 ? (void *)&a.v4.sin_addr : (void *)&a.v6.sin6_addr, host,
            sizeof host);
  snprintf(url, url_size, v4 ? "http://%s:%d" : "http://[%s]:%d", host,
           ntohs(v4 ? a.v4.sin_port : a.v6.sin6_port));
  *out = s;
  return CB_OK;
}
