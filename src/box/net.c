/* SPDX-License-Identifier: MIT
 * net.c: see net.h. */
#include "box/net.h"

#include <errno.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"

int cb_net_loopback_up(struct cb_step *s)
{
  struct ifreq req = { .ifr_flags = IFF_UP | IFF_RUNNING };
  int rc = 0;
  int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0)
    return cb_step_host(s, errno, "open a socket", "");
  memcpy(req.ifr_name, "lo", 3);
  if (ioctl(fd, SIOCSIFFLAGS, &req) < 0)
    rc = cb_step_host(s, errno, "bring up the loopback", "a network namespace is needed");
  cb_close(&fd);
  return rc;
}

/* A request of rtnetlink: header, a fixed part, attributes. */
struct request {
  struct nlmsghdr head;
  union {
    struct rtmsg route;
    struct ifaddrmsg address;
    char room[128];
  } u;
};

static void begin(struct request *r, unsigned short type, size_t fixed)
{
  memset(r, 0, sizeof *r);
  r->head.nlmsg_len = (unsigned)NLMSG_LENGTH(fixed);
  r->head.nlmsg_type = type;
  r->head.nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_REPLACE;
  r->head.nlmsg_seq = 1;
}

static void add_attr(struct request *r, unsigned short type, const void *p, unsigned short n)
{
  struct rtattr *a = (struct rtattr *)((char *)r + NLMSG_ALIGN(r->head.nlmsg_len));
  a->rta_type = type;
  a->rta_len = (unsigned short)RTA_LENGTH(n);
  memcpy(RTA_DATA(a), p, n);
  r->head.nlmsg_len = NLMSG_ALIGN(r->head.nlmsg_len) + RTA_ALIGN(a->rta_len);
}

static int ask(const struct request *r, const char *step, struct cb_step *s)
{
  union {
    struct nlmsghdr head;
    char bytes[1024];
  } answer;
  int rc = 0;
  int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
  if (fd < 0 || send(fd, r, r->head.nlmsg_len, 0) < 0) {
    rc = cb_step_host(s, errno, step, "");
    goto out;
  }
  ssize_t k = recv(fd, &answer, sizeof answer, 0);
  if (k < (ssize_t)NLMSG_LENGTH(sizeof(struct nlmsgerr)) ||
      answer.head.nlmsg_type != NLMSG_ERROR) {
    rc = cb_step_host(s, k < 0 ? errno : EPROTO, step, "");
    goto out;
  }
  const struct nlmsgerr *e = NLMSG_DATA(&answer.head);
  if (e->error != 0)
    rc = cb_step_host(s, -e->error, step, "");
out:
  cb_close(&fd);
  return rc;
}

int cb_net_local_route(struct in_addr network, unsigned bits, struct cb_step *s)
{
  struct request r;
  unsigned lo = if_nametoindex("lo");
  begin(&r, RTM_NEWROUTE, sizeof r.u.route);
  r.u.route = (struct rtmsg){ .rtm_family = AF_INET, .rtm_dst_len = (unsigned char)bits,
                              .rtm_table = RT_TABLE_LOCAL, .rtm_protocol = RTPROT_BOOT,
                              .rtm_scope = RT_SCOPE_HOST, .rtm_type = RTN_LOCAL };
  add_attr(&r, RTA_DST, &network, sizeof network);
  add_attr(&r, RTA_OIF, &lo, sizeof lo);
  return ask(&r, "add a local route", s);
}

int cb_net_address(struct in_addr address, struct cb_step *s)
{
  struct request r;
  begin(&r, RTM_NEWADDR, sizeof r.u.address);
  r.u.address = (struct ifaddrmsg){ .ifa_family = AF_INET, .ifa_prefixlen = 32,
                                    .ifa_scope = RT_SCOPE_UNIVERSE,
                                    .ifa_index = if_nametoindex("lo") };
  add_attr(&r, IFA_LOCAL, &address, sizeof address);
  add_attr(&r, IFA_ADDRESS, &address, sizeof address);
  return ask(&r, "add an address", s);
}
