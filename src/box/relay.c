/* SPDX-License-Identifier: MIT
 * relay.c: see relay.h. */
#include "box/relay.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fd.h"
#include "box/control.h"
#include "box/net.h"
#include "wire/record.h"

enum { NAMES_MAX = 4096, ACCEPTS = 32 };
#define POOL 0xc6120000u /* 198.18.0.0 */
enum { POOL_BITS = 15 };

struct listener {
  struct cb_source src;
  const char *name; /* of the names table, or NULL */
  const char *to;   /* of the rule, or NULL */
  uint16_t port;
};

struct name {
  char *text;
  struct in_addr address;
};

struct cb_relays {
  struct name names[NAMES_MAX];
  size_t name_count;
};

static void on_listener(struct cb_init *init, struct cb_source *src, uint32_t events)
{
  struct listener *l = src->owner;
  struct linger reset = { .l_onoff = 1, .l_linger = 0 };
  (void)events;
  for (int i = 0; i < ACCEPTS; i++) {
    int fd = accept4(src->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0)
      return;
    if (!cb_control_ready(init)) { /* descriptors in flight are counted against the host id */
      setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
      cb_close(&fd);
      continue;
    }
    struct cb_buf m;
    cb_frame_begin(&m, "relay", 0);
    int rc = l->name ? cb_record_addz(&m, "name", l->name) : cb_record_addz(&m, "to", l->to);
    if (rc || cb_record_addi(&m, "port", l->port))
      cb_buf_reset(&m);
    cb_control_send(init, &m, &fd, 1);
  }
}

static int open_listener(struct cb_init *init, struct in_addr address, uint16_t port,
                         const char *name, const char *to)
{
  struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(port), .sin_addr = address };
  int on = 1;
  struct listener *l = cb_calloc(1, sizeof *l);
  int fd = l ? socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0) : -1;
  if (fd >= 0)
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof a) < 0 || listen(fd, 128) < 0 ||
      cb_init_watch(init, &l->src, fd, EPOLLIN, on_listener, l) < 0) {
    int sys = errno;
    cb_close(&fd);
    cb_free(l);
    errno = sys;
    return -1;
  }
  l->name = name;
  l->to = to;
  l->port = port;
  return 0; /* listeners live as long as the box */
}

static bool rule_allows(const struct cb_box_rule *rule, const char *name)
{
  if (!rule->name)
    return false;
  if (strncmp(rule->name, "*.", 2) != 0)
    return strcmp(rule->name, name) == 0;
  size_t suffix = strlen(rule->name) - 1, n = strlen(name);
  return n > suffix && strcmp(name + n - suffix, rule->name + 1) == 0;
}

/* Several rules may open one port of one name. */
static bool is_first(const struct cb_box_config *c, size_t index, const char *name)
{
  for (size_t i = 0; i < index; i++)
    if (c->rules[i].port == c->rules[index].port && rule_allows(&c->rules[i], name))
      return false;
  return true;
}

static const struct name *add_name(struct cb_init *init, const char *text, struct in_addr address)
{
  struct cb_relays *r = init->relays;
  struct name *n = &r->names[r->name_count];
  n->text = cb_strdup(text);
  if (!n->text)
    return NULL;
  n->address = address;
  r->name_count++;
  const struct cb_box_config *c = init->config;
  for (size_t i = 0; i < c->rule_count; i++)
    if (rule_allows(&c->rules[i], text) && is_first(c, i, text))
      /* A port that a program of the box has taken stays that program's. */
      (void)open_listener(init, address, c->rules[i].port, n->text, NULL);
  return n;
}

bool cb_relays_resolve(struct cb_init *init, const char *name, struct in_addr *out, bool *full)
{
  struct cb_relays *r = init->relays;
  const struct cb_box_config *c = init->config;
  bool allowed = false;
  *full = false;
  for (size_t i = 0; i < r->name_count; i++)
    if (strcmp(r->names[i].text, name) == 0) {
      *out = r->names[i].address;
      return true;
    }
  for (size_t i = 0; i < c->rule_count && !allowed; i++)
    allowed = rule_allows(&c->rules[i], name);
  if (!allowed)
    return false;
  if (r->name_count >= NAMES_MAX) {
    *full = true;
    return false;
  }
  /* .0 looks special to people, .1 is the box itself. */
  struct in_addr address = { htonl(POOL + 2 + (uint32_t)r->name_count) };
  const struct name *n = add_name(init, name, address);
  *full = !n;
  if (n)
    *out = n->address;
  return n != NULL;
}

static int add_rule(struct cb_init *init, const struct cb_box_rule *rule, struct cb_step *s)
{
  struct in_addr address = { htonl(INADDR_LOOPBACK) };
  bool full;
  if (rule->to) {
    if (open_listener(init, address, rule->port, NULL, rule->to) < 0)
      return cb_step_set(s, CB_INVALID, errno, "open a forward",
                         "forward of port %u: %s: correct the rules", (unsigned)rule->port,
                         strerror(errno));
    return 0;
  }
  if (strncmp(rule->name, "*.", 2) == 0)
    return 0;
  if (inet_pton(AF_INET, rule->name, &address) != 1) {
    (void)cb_relays_resolve(init, rule->name, &address, &full);
    return full ? cb_step_set(s, CB_INVALID, 0, "allow names", "too many allowed names") : 0;
  }
  /* An address listed as such leads here too, so that it needs no name. */
  for (size_t i = 0; i < init->relays->name_count; i++)
    if (strcmp(init->relays->names[i].text, rule->name) == 0)
      return 0;
  if (cb_net_local_route(address, 32, s) < 0)
    return -1;
  return add_name(init, rule->name, address) ? 0 : cb_step_host(s, ENOMEM, "allow names", "");
}

int cb_relays_new(struct cb_init *init, struct cb_step *s)
{
  struct in_addr pool = { htonl(POOL) }, own = { htonl(POOL + 1) };
  init->relays = cb_calloc(1, sizeof *init->relays);
  if (!init->relays)
    return cb_step_host(s, ENOMEM, "allow names", "");
  if (cb_net_local_route(pool, POOL_BITS, s) < 0 || cb_net_address(own, s) < 0)
    return -1;
  for (size_t i = 0; i < init->config->rule_count; i++)
    if (add_rule(init, &init->config->rules[i], s) < 0)
      return -1;
  return 0;
}
