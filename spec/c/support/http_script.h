/* SPDX-License-Identifier: MIT
 * http_script.h: a scripted HTTP server for C tests: real sockets on loopback, a thread a
 * connection, and a function of the test that writes whatever bytes it likes. It keeps every
 * request, so that a test can say what was sent and how often. */
#ifndef CB_SPEC_HTTP_SCRIPT_H
#define CB_SPEC_HTTP_SCRIPT_H
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

enum { SCRIPT_REQUESTS = 4096, SCRIPT_CONNS = 512 };

struct script_req {
  char method[16];
  char target[4096];
  char *head; /* all lines after the first */
  char *body; /* followed by a NUL */
  size_t body_len;
  int nth; /* 0, 1, ... of all requests */
};

struct script {
  int port, fd;
  pthread_t thread;
  pthread_mutex_t lock;
  bool (*answer)(struct script *s, const struct script_req *r, int fd); /* false: close */
  void *own;
  struct script_req reqs[SCRIPT_REQUESTS];
  int count;
  int conns[SCRIPT_CONNS];
  pthread_t threads[SCRIPT_CONNS];
  int conn_count;
};

struct script_conn {
  struct script *s;
  int fd;
};

static inline void script_write(int fd, const void *p, size_t n)
{
  const char *at = p;
  while (n > 0) {
    ssize_t k = send(fd, at, n, MSG_NOSIGNAL);
    if (k <= 0)
      return;
    at += k;
    n -= (size_t)k;
  }
}

/* An answer with a body of len bytes and extra header lines ("Name: value\r\n..."). */
static inline void script_send(int fd, int status, const char *type, const char *extra,
                               const char *body, size_t len)
{
  char head[1024];
  int n = snprintf(head, sizeof head,
                   "HTTP/1.1 %d X\r\nContent-Type: %s\r\n%sContent-Length: %zu\r\n\r\n", status,
                   type, extra ? extra : "", len);
  script_write(fd, head, (size_t)n);
  script_write(fd, body, len);
}

static inline void script_json(int fd, int status, const char *body)
{
  script_send(fd, status, "application/json", NULL, body, strlen(body));
}

static inline void script_no_content(int fd)
{
  static const char head[] = "HTTP/1.1 204 No Content\r\n\r\n";
  script_write(fd, head, sizeof head - 1);
}

/* Copies the value of a header; "" when absent. Name without colon. */
static inline const char *script_header(const struct script_req *r, const char *name, char *out,
                                        size_t max)
{
  size_t n = strlen(name);
  out[0] = '\0';
  for (const char *p = r->head; p && *p; p = strchr(p, '\n') ? strchr(p, '\n') + 1 : NULL)
    if (strncasecmp(p, name, n) == 0 && p[n] == ':') {
      p += n + 1;
      while (*p == ' ')
        p++;
      size_t len = strcspn(p, "\r\n");
      snprintf(out, max, "%.*s", (int)len, p);
      return out;
    }
  return out;
}

static inline bool script_fill(int fd, char **buf, size_t *len, size_t *cap)
{
  if (*len + 65536 > *cap) {
    *cap = *cap ? *cap * 2 : 131072;
    *buf = realloc(*buf, *cap);
  }
  ssize_t k = recv(fd, *buf + *len, *cap - *len - 1, 0);
  if (k <= 0)
    return false;
  *len += (size_t)k;
  (*buf)[*len] = '\0';
  return true;
}

static inline void *script_serve(void *arg)
{
  struct script_conn *c = arg;
  struct script *s = c->s;
  char *buf = NULL, value[64];
  size_t len = 0, cap = 0;
  bool open = true;
  while (open) {
    char *end;
    while (!(buf && (end = strstr(buf, "\r\n\r\n")) != NULL))
      if (!script_fill(c->fd, &buf, &len, &cap))
        goto out;
    struct script_req r = {0};
    size_t head_len = (size_t)(end - buf) + 4;
    sscanf(buf, "%15s %4095s", r.method, r.target);
    r.head = strndup(strchr(buf, '\n') + 1, head_len - (size_t)(strchr(buf, '\n') + 1 - buf));
    script_header(&r, "content-length", value, sizeof value);
    if (value[0]) {
      r.body_len = strtoul(value, NULL, 10);
      while (len < head_len + r.body_len)
        if (!script_fill(c->fd, &buf, &len, &cap))
          goto out;
    }
    r.body = calloc(1, r.body_len + 1);
    memcpy(r.body, buf + head_len, r.body_len);
    memmove(buf, buf + head_len + r.body_len, len - head_len - r.body_len + 1);
    len -= head_len + r.body_len;
    pthread_mutex_lock(&s->lock);
    r.nth = s->count;
    if (s->count < SCRIPT_REQUESTS)
      s->reqs[s->count++] = r;
    pthread_mutex_unlock(&s->lock);
    open = s->answer(s, &r, c->fd);
  }
out:
  shutdown(c->fd, SHUT_RDWR);
  free(buf);
  free(c);
  return NULL;
}

static inline void *script_accept(void *arg)
{
  struct script *s = arg;
  for (;;) {
    int fd = accept(s->fd, NULL, NULL), one = 1;
    if (fd < 0)
      return NULL;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    pthread_mutex_lock(&s->lock);
    if (s->conn_count < SCRIPT_CONNS) {
      struct script_conn *c = malloc(sizeof *c);
      c->s = s;
      c->fd = fd;
      s->conns[s->conn_count] = fd;
      pthread_create(&s->threads[s->conn_count++], NULL, script_serve, c);
    } else {
      close(fd);
    }
    pthread_mutex_unlock(&s->lock);
  }
}

static inline struct script *script_start(bool (*answer)(struct script *, const struct script_req *,
                                                         int))
{
  struct script *s = calloc(1, sizeof *s);
  struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t n = sizeof a;
  s->answer = answer;
  pthread_mutex_init(&s->lock, NULL);
  s->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (bind(s->fd, (struct sockaddr *)&a, sizeof a) || listen(s->fd, 128) ||
      getsockname(s->fd, (struct sockaddr *)&a, &n))
    abort();
  s->port = ntohs(a.sin_port);
  pthread_create(&s->thread, NULL, script_accept, s);
  return s;
}

/* How many requests were made so far. */
static inline int script_count(struct script *s)
{
  pthread_mutex_lock(&s->lock);
  int n = s->count;
  pthread_mutex_unlock(&s->lock);
  return n;
}

static inline void script_stop(struct script *s)
{
  shutdown(s->fd, SHUT_RDWR);
  pthread_join(s->thread, NULL);
  for (int i = 0; i < s->conn_count; i++)
    shutdown(s->conns[i], SHUT_RDWR);
  for (int i = 0; i < s->conn_count; i++) {
    pthread_join(s->threads[i], NULL);
    close(s->conns[i]);
  }
  close(s->fd);
  for (int i = 0; i < s->count; i++) {
    free(s->reqs[i].head);
    free(s->reqs[i].body);
  }
  free(s);
}
#endif
