/* SPDX-License-Identifier: MIT
 * tap.c: stands between a client and a box server and counts the requests, for bench/launch.lua.
 *
 *   tap SERVER_SOCKET SOCKET     prints "ready PORT"; serves on SOCKET and on PORT of the loopback
 *
 * SIGUSR1: writes the count since the last time to SOCKET.count. Ends by a signal, or when nobody
 * has connected in two minutes. One thread a direction; bytes go through as they come. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { IDLE_MS = 120000, LINE_MAX_BYTES = 8192, PIECE = 65536 };

static const char *server_path;
static atomic_ulong requests;

struct pipe_end {
  int from, to;
  bool is_client;
};

/* Where a client's stream of requests stands: lines of a head, a body of known length, or chunks. */
struct framing {
  char line[LINE_MAX_BYTES];
  size_t n;         /* bytes of the line so far */
  size_t body;      /* bytes still to pass over */
  size_t length;    /* as this head says */
  bool chunked, in_chunks, in_head;
};

static void end_of_line(struct framing *f)
{
  f->line[f->n] = '\0';
  if (f->in_chunks) { /* the length of a chunk; behind an empty one only its line end follows */
    size_t n = strtoul(f->line, NULL, 16);
    f->body = n + 2;
    f->in_chunks = n > 0;
    return;
  }
  if (f->n > 0) {
    f->in_head = true;
    if (strncasecmp(f->line, "content-length:", 15) == 0)
      f->length = strtoul(f->line + 15, NULL, 10);
    if (strncasecmp(f->line, "transfer-encoding: chunked", 26) == 0)
      f->chunked = true;
  } else if (f->in_head) {
    atomic_fetch_add(&requests, 1);
    f->body = f->length;
    f->in_chunks = f->chunked;
    f->in_head = f->chunked = false;
    f->length = 0;
  }
}

static void count(struct framing *f, const char *p, size_t n)
{
  for (size_t i = 0; i < n;) {
    if (f->body > 0) {
      size_t pass = f->body < n - i ? f->body : n - i;
      f->body -= pass;
      i += pass;
      continue;
    }
    char c = p[i++];
    if (c == '\n') {
      end_of_line(f);
      f->n = 0;
    } else if (c != '\r' && f->n < LINE_MAX_BYTES - 1) {
      f->line[f->n++] = c;
    }
  }
}

static void *carry(void *arg)
{
  struct pipe_end *e = arg;
  struct framing *f = e->is_client ? calloc(1, sizeof *f) : NULL;
  char *piece = malloc(PIECE);
  for (;;) {
    ssize_t n = piece ? recv(e->from, piece, PIECE, 0) : -1;
    if (n <= 0)
      break;
    if (f)
      count(f, piece, (size_t)n);
    ssize_t sent = 0, k = 1;
    while (sent < n && (k = send(e->to, piece + sent, (size_t)(n - sent), MSG_NOSIGNAL)) > 0)
      sent += k;
    if (k <= 0)
      break;
  }
  shutdown(e->to, SHUT_RDWR); /* ends the other direction, too */
  shutdown(e->from, SHUT_RDWR);
  free(piece);
  free(f);
  return NULL;
}

static int connect_server(void)
{
  struct sockaddr_un a = { .sun_family = AF_UNIX };
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  snprintf(a.sun_path, sizeof a.sun_path, "%s", server_path);
  if (fd >= 0 && connect(fd, (struct sockaddr *)&a, sizeof a) < 0) {
    close(fd);
    return -1;
  }
  return fd;
}

static void *serve(void *arg)
{
  int client = (int)(intptr_t)arg, now = 1, server = connect_server();
  struct pipe_end up = { client, server, true }, down = { server, client, false };
  pthread_t t;
  setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &now, sizeof now);
  if (server >= 0 && pthread_create(&t, NULL, carry, &down) == 0) {
    carry(&up);
    pthread_join(t, NULL);
  }
  if (server >= 0)
    close(server);
  close(client);
  return NULL;
}

static void write_count(const char *path)
{
  char name[256];
  snprintf(name, sizeof name, "%s.count.new", path);
  FILE *f = fopen(name, "w");
  if (!f)
    return;
  fprintf(f, "%lu\n", atomic_exchange(&requests, 0));
  fclose(f);
  char real[256];
  snprintf(real, sizeof real, "%s.count", path);
  rename(name, real);
}

static int listen_at(const char *path, int *port)
{
  struct sockaddr_un un = { .sun_family = AF_UNIX };
  struct sockaddr_in in = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
  socklen_t n = sizeof in;
  int fd = socket(path ? AF_UNIX : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (path)
    snprintf(un.sun_path, sizeof un.sun_path, "%s", path);
  int rc = path ? bind(fd, (struct sockaddr *)&un, sizeof un)
                : bind(fd, (struct sockaddr *)&in, sizeof in);
  if (rc < 0 || listen(fd, 64) < 0 || (port && getsockname(fd, (struct sockaddr *)&in, &n) < 0)) {
    perror("tap");
    exit(1);
  }
  if (port)
    *port = ntohs(in.sin_port);
  return fd;
}

int main(int argc, char **argv)
{
  int port = 0;
  sigset_t set;
  if (argc != 3) {
    fprintf(stderr, "usage: tap SERVER_SOCKET SOCKET\n");
    return 2;
  }
  server_path = argv[1];
  sigemptyset(&set);
  sigaddset(&set, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &set, NULL); /* threads inherit it: only the descriptor gets it */
  struct pollfd p[3] = { { signalfd(-1, &set, SFD_CLOEXEC), POLLIN, 0 },
                         { listen_at(argv[2], NULL), POLLIN, 0 },
                         { listen_at(NULL, &port), POLLIN, 0 } };
  printf("ready %d\n", port);
  fflush(stdout);
  while (poll(p, 3, IDLE_MS) != 0) {
    if (p[0].revents) {
      struct signalfd_siginfo info;
      if (read(p[0].fd, &info, sizeof info) == (ssize_t)sizeof info)
        write_count(argv[2]);
    }
    for (int i = 1; i < 3; i++) {
      pthread_t t;
      int fd = p[i].revents ? accept4(p[i].fd, NULL, NULL, SOCK_CLOEXEC) : -1;
      if (fd >= 0 && pthread_create(&t, NULL, serve, (void *)(intptr_t)fd) == 0)
        pthread_detach(t);
      else if (fd >= 0)
        close(fd);
    }
  }
  unlink(argv[2]);
  return 0;
}
