/* SPDX-License-Identifier: MIT
 * names.c: see names.h. */
#include "box/names.h"

#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fd.h"
#include "box/dns.h"
#include "box/relay.h"

enum { TCP_PEERS = 16 };

/* A client over TCP: messages with two bytes of length in front, answered in turn. */
struct tcp_peer {
  struct cb_source src;
  uint8_t bytes[2 + CB_DNS_MAX];
  size_t have;
};

struct cb_names {
  struct cb_source udp, tcp;
  struct tcp_peer peers[TCP_PEERS];
  unsigned next; /* of peers: the one to give up for a newcomer */
};

/* Length of the answer in out; 0: none is due. */
static size_t answer(struct cb_init *init, const uint8_t *query, size_t n,
                     uint8_t out[CB_DNS_MAX])
{
  struct cb_dns_query q;
  struct in_addr address;
  bool full = false;
  int rcode = cb_dns_parse(&q, query, n);
  if (rcode < 0)
    return 0;
  if (rcode != CB_DNS_OK)
    return cb_dns_answer(query, q.question_end, rcode, NULL, out);
  if (!cb_relays_resolve(init, q.name, &address, &full))
    return cb_dns_answer(query, q.question_end,
                         full ? CB_DNS_SERVER_FAILURE : CB_DNS_NO_SUCH_NAME, NULL, out);
  return cb_dns_answer(query, q.question_end, CB_DNS_OK,
                       q.type == CB_DNS_TYPE_A ? &address : NULL, out);
}

static void on_udp(struct cb_init *init, struct cb_source *src, uint32_t events)
{
  uint8_t query[CB_DNS_MAX + 1], out[CB_DNS_MAX];
  struct sockaddr_in from;
  socklen_t len = sizeof from;
  (void)events;
  ssize_t k = recvfrom(src->fd, query, sizeof query, 0, (struct sockaddr *)&from, &len);
  size_t n = k > 0 ? answer(init, query, (size_t)k, out) : 0;
  if (n > 0)
    (void)sendto(src->fd, out, n, MSG_NOSIGNAL, (struct sockaddr *)&from, len);
}

static void drop_peer(struct cb_init *init, struct tcp_peer *p)
{
  int fd = p->src.fd;
  cb_init_unwatch(init, &p->src);
  cb_close(&fd);
  p->have = 0;
}

static void on_tcp_peer(struct cb_init *init, struct cb_source *src, uint32_t events)
{
  struct tcp_peer *p = src->owner;
  uint8_t out[2 + CB_DNS_MAX];
  (void)events;
  ssize_t k = recv(src->fd, p->bytes + p->have, sizeof p->bytes - p->have, 0);
  if (k < 0 && (errno == EAGAIN || errno == EINTR))
    return;
  if (k <= 0) {
    drop_peer(init, p);
    return;
  }
  p->have += (size_t)k;
  while (p->have >= 2) {
    size_t len = (size_t)(p->bytes[0] << 8 | p->bytes[1]);
    if (len > CB_DNS_MAX) {
      drop_peer(init, p);
      return;
    }
    if (p->have < 2 + len)
      return;
    size_t n = answer(init, p->bytes + 2, len, out + 2);
    out[0] = (uint8_t)(n >> 8);
    out[1] = (uint8_t)n;
    /* An answer always fits the socket buffer of a client that reads its answers. */
    if (n == 0 || send(src->fd, out, n + 2, MSG_NOSIGNAL) != (ssize_t)n + 2) {
      drop_peer(init, p);
      return;
    }
    p->have -= 2 + len;
    memmove(p->bytes, p->bytes + 2 + len, p->have);
  }
}

static void on_tcp(struct cb_init *init, struct cb_source *src, uint32_t events)
{
  struct cb_names *names = init->names;
  (void)events;
  int fd = accept4(src->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd < 0)
    return;
  struct tcp_peer *p = &names->peers[names->next++ % TCP_PEERS];
  drop_peer(init, p);
  if (cb_init_watch(init, &p->src, fd, EPOLLIN, on_tcp_peer, p) < 0)
    cb_close(&fd);
}

static int open_socket(struct cb_init *init, int type, struct cb_source *src,
                       void (*ready)(struct cb_init *, struct cb_source *, uint32_t),
                       struct cb_step *s)
{
  struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(53),
                           .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
  int fd = socket(AF_INET, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof a) < 0 ||
      (type == SOCK_STREAM && listen(fd, TCP_PEERS) < 0) ||
      cb_init_watch(init, src, fd, EPOLLIN, ready, NULL) < 0) {
    cb_step_host(s, errno, "open the box's resolver", "");
    cb_close(&fd);
    return -1;
  }
  return 0;
}

int cb_names_new(struct cb_init *init, struct cb_step *s)
{
  struct cb_names *names = cb_calloc(1, sizeof *names);
  if (!names)
    return cb_step_host(s, ENOMEM, "open the box's resolver", "");
  names->udp.fd = names->tcp.fd = -1;
  for (int i = 0; i < TCP_PEERS; i++)
    names->peers[i].src.fd = -1;
  init->names = names;
  if (open_socket(init, SOCK_DGRAM, &names->udp, on_udp, s) < 0)
    return -1;
  return open_socket(init, SOCK_STREAM, &names->tcp, on_tcp, s);
}
