/* SPDX-License-Identifier: MIT
 * scripted_server.c: answers for any number of boxes that are not there, so that a benchmark of
 * clients measures clients. One thread, epoll, HTTP/1.1 with kept connections, on a unix socket
 * and on a port of the loopback at once.
 *
 *   scripted_server SOCKET      prints "ready PORT"; ends by a signal, or when nobody has asked
 *                               for anything in two minutes
 *
 *   GET  /files?path=..          the state file of the run whose folder the path names; its beat
 *                                moves once a second
 *   GET  /health                 204        POST /sandboxes/ID/timeout   204
 *   GET  /sandboxes/ID           a running box, its end an hour away
 *   POST ../connect              the same with an access token
 *   GET  /bench/stats            {"requests":{..},"connections":..,"cpu_s":..} since it started */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "wire/state.h"

enum { HEAD_MAX = 16384, OUT_MAX = 4096, EVENTS = 256, IDLE_MS = 120000 };

struct connection {
  int fd;
  size_t have;    /* bytes of `in` that are used */
  size_t discard; /* of a body that nobody reads */
  bool chunked;   /* and that comes in chunks */
  char in[HEAD_MAX];
};

static struct {
  unsigned long files, info, timeout, health, connect, other, connections;
} counted;
static struct timespec began;

static void die(const char *what)
{
  fprintf(stderr, "scripted_server: %s: %s\n", what, strerror(errno));
  exit(1);
}

static int64_t age_ms(void)
{
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)(now.tv_sec - began.tv_sec) * 1000 + (now.tv_nsec - began.tv_nsec) / 1000000;
}

/* ---- answers ----------------------------------------------------------------------------- */

static size_t answer(char out[OUT_MAX], const char *status, const char *headers, const char *body,
                     size_t n)
{
  int head = snprintf(out, OUT_MAX, "HTTP/1.1 %s\r\n%sContent-Length: %zu\r\n\r\n", status, headers,
                      n);
  if (head < 0 || (size_t)head + n > OUT_MAX)
    die("an answer is too long");
  memcpy(out + head, body, n);
  return (size_t)head + n;
}

static size_t answer_json(char out[OUT_MAX], const char *status, const char *body)
{
  return answer(out, status, "Content-Type: application/json\r\n", body, strlen(body));
}

static size_t answer_nothing(char out[OUT_MAX])
{
  static const char text[] = "HTTP/1.1 204 No Content\r\n\r\n";
  memcpy(out, text, sizeof text - 1);
  return sizeof text - 1;
}

/* The part of a percent-encoded path between "runs/" and the next slash. */
static void run_of(const char *path, char run[64])
{
  size_t n = 0;
  const char *p = strstr(path, "runs%2F");
  p = p ? p + 7 : strstr(path, "runs/");
  if (p && strncmp(p, "runs/", 5) == 0)
    p += 5;
  while (p && p[n] && n < 63 && p[n] != '/' && p[n] != '%' && p[n] != '&' && p[n] != ' ')
    n++;
  memcpy(run, p ? p : "", n);
  run[n] = '\0';
}

static size_t answer_state(char out[OUT_MAX], const char *path, bool ranged)
{
  struct cb_state s;
  struct cb_buf b;
  char headers[128];
  cb_state_init(&s);
  cb_buf_init(&b, CB_STATE_MAX_BYTES);
  run_of(path, s.run);
  s.launch_seq = 1;
  s.phase = CB_PHASE_RUNNING;
  s.sup_pid = 20;
  s.sup_start = 100;
  s.pid = 21;
  s.pid_start = 101;
  s.age_ms = age_ms();
  s.beat = s.age_ms / 1000 + 1;
  s.quiet_ms = s.age_ms;
  s.segment = 256 * 1024;
  if (!s.run[0] || cb_state_write(&s, &b, NULL))
    return answer_json(out, "404 Not Found", "{\"code\":404,\"message\":\"no such file\"}");
  snprintf(headers, sizeof headers, ranged ? "Content-Range: bytes 0-%zu/%zu\r\n" : "", b.len - 1,
           b.len);
  size_t n = answer(out, ranged ? "206 Partial Content" : "200 OK", headers, b.p, b.len);
  cb_buf_clear(&b);
  return n;
}

static size_t answer_box(char out[OUT_MAX], const char *path, bool token)
{
  char id[64] = "", end[64], body[1024];
  time_t at = time(NULL) + 3600;
  struct tm tm;
  const char *p = strstr(path, "/sandboxes/");
  sscanf(p ? p + 11 : "", "%63[a-z0-9]", id);
  strftime(end, sizeof end, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&at, &tm));
  snprintf(body, sizeof body,
           "{\"sandboxID\":\"%s\",\"templateID\":\"base\",\"clientID\":\"c\",\"alias\":\"base\",\"state\":\"running\","
           "\"startedAt\":\"2026-01-01T00:00:00Z\",\"endAt\":\"%s\",\"cpuCount\":2,\"memoryMB\":512,"
           "\"diskSizeMB\":1024,\"envdVersion\":\"0.6.1\",\"metadata\":{}%s}",
           id, end, token ? ",\"envdAccessToken\":\"t0000000000000000\"" : "");
  return answer_json(out, "200 OK", body);
}

static size_t answer_stats(char out[OUT_MAX])
{
  struct rusage u;
  char body[512];
  getrusage(RUSAGE_SELF, &u);
  double cpu = (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
               (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
  snprintf(body, sizeof body,
           "{\"requests\":{\"files\":%lu,\"info\":%lu,\"timeout\":%lu,\"health\":%lu,\"connect\":%lu,\"other\":%lu},"
           "\"connections\":%lu,\"cpu_s\":%.3f}",
           counted.files, counted.info, counted.timeout, counted.health, counted.connect,
           counted.other, counted.connections, cpu);
  return answer_json(out, "200 OK", body);
}

static size_t route(char out[OUT_MAX], const char *method, const char *path, bool ranged)
{
  bool post = strcmp(method, "POST") == 0;
  if (strncmp(path, "/files", 6) == 0 && !post)
    return counted.files++, answer_state(out, path, ranged);
  if (strcmp(path, "/health") == 0)
    return counted.health++, answer_nothing(out);
  if (post && strstr(path, "/timeout"))
    return counted.timeout++, answer_nothing(out);
  if (post && strstr(path, "/connect"))
    return counted.connect++, answer_box(out, path, true);
  if (!post && strncmp(path, "/sandboxes/", 11) == 0)
    return counted.info++, answer_box(out, path, true);
  if (strcmp(path, "/bench/stats") == 0)
    return answer_stats(out);
  counted.other++;
  return answer_json(out, "404 Not Found", "{\"code\":404,\"message\":\"no such route\"}");
}

/* ---- connections --------------------------------------------------------------------------- */

static bool send_all(int fd, const char *p, size_t n)
{
  while (n > 0) {
    ssize_t k = send(fd, p, n, MSG_NOSIGNAL);
    if (k < 0 && errno == EAGAIN) /* a client that does not read: an answer is small, wait for it */
      continue;
    if (k <= 0)
      return false;
    p += k;
    n -= (size_t)k;
  }
  return true;
}

static bool serve_head(struct connection *c, char *head)
{
  char method[8], path[4096], out[OUT_MAX];
  if (sscanf(head, "%7s %4095s", method, path) != 2)
    return false;
  const char *length = strcasestr(head, "\r\ncontent-length:");
  c->discard = length ? strtoul(length + 17, NULL, 10) : 0;
  c->chunked = strcasestr(head, "\r\ntransfer-encoding: chunked") != NULL;
  size_t n = route(out, method, path, strcasestr(head, "\r\nrange:") != NULL);
  return send_all(c->fd, out, n);
}

static void drop_front(struct connection *c, size_t n)
{
  memmove(c->in, c->in + n, c->have - n);
  c->have -= n;
}

/* Everything whole that has come. false: the connection is over. */
static bool serve_input(struct connection *c)
{
  for (;;) {
    size_t drop = c->discard < c->have ? c->discard : c->have;
    drop_front(c, drop);
    c->discard -= drop;
    if (c->discard > 0 || c->have == 0)
      return true;
    const char *mark = c->chunked ? "\r\n" : "\r\n\r\n";
    char *end = memmem(c->in, c->have, mark, strlen(mark));
    if (!end)
      return c->have < sizeof c->in;
    size_t used = (size_t)(end - c->in) + strlen(mark);
    if (c->chunked) { /* the line with a chunk's length; the last chunk is empty */
      size_t n = strtoul(c->in, NULL, 16);
      c->discard = n + 2;
      c->chunked = n > 0;
    } else {
      end[2] = '\0'; /* the head is text that ends in its last line end */
      if (!serve_head(c, c->in))
        return false;
    }
    drop_front(c, used);
  }
}

static bool serve_connection(struct connection *c)
{
  for (;;) {
    ssize_t n = recv(c->fd, c->in + c->have, sizeof c->in - c->have, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
      return true;
    if (n <= 0)
      return false;
    c->have += (size_t)n;
    if (!serve_input(c))
      return false;
  }
}

static void add(int epoll, int fd, void *what)
{
  struct epoll_event e = { .events = EPOLLIN, .data.ptr = what };
  if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &e) < 0)
    die("epoll_ctl");
}

static void take_connection(int epoll, int listener)
{
  int now = 1, fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
  struct connection *c = fd < 0 ? NULL : calloc(1, sizeof *c);
  if (!c) {
    if (fd >= 0)
      close(fd);
    return;
  }
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &now, sizeof now); /* no matter on a unix socket */
  c->fd = fd;
  counted.connections++;
  add(epoll, fd, c);
}

static int listen_unix(const char *path)
{
  struct sockaddr_un a = { .sun_family = AF_UNIX };
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
  if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof a) < 0 || listen(fd, 1024) < 0)
    die(path);
  return fd;
}

static int listen_tcp(int *port)
{
  struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
  socklen_t n = sizeof a;
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof a) < 0 || listen(fd, 1024) < 0 ||
      getsockname(fd, (struct sockaddr *)&a, &n) < 0)
    die("listen");
  *port = ntohs(a.sin_port);
  return fd;
}

int main(int argc, char **argv)
{
  static int listeners[2]; /* their addresses tell them from connections */
  struct epoll_event events[EVENTS];
  int port, epoll = epoll_create1(EPOLL_CLOEXEC);
  if (argc != 2) {
    fprintf(stderr, "usage: scripted_server SOCKET\n");
    return 2;
  }
  clock_gettime(CLOCK_MONOTONIC, &began);
  listeners[0] = listen_unix(argv[1]);
  listeners[1] = listen_tcp(&port);
  add(epoll, listeners[0], &listeners[0]);
  add(epoll, listeners[1], &listeners[1]);
  printf("ready %d\n", port);
  fflush(stdout);
  for (;;) {
    int n = epoll_wait(epoll, events, EVENTS, IDLE_MS);
    if (n == 0) { /* whoever started us is gone */
      unlink(argv[1]);
      return 0;
    }
    for (int i = 0; i < n; i++) {
      void *what = events[i].data.ptr;
      if (what == &listeners[0] || what == &listeners[1]) {
        take_connection(epoll, *(int *)what);
      } else if (!serve_connection(what)) {
        struct connection *c = what;
        close(c->fd);
        free(c);
      }
    }
  }
}
