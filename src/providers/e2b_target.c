/* SPDX-License-Identifier: MIT
 * e2b_target.c: where requests go and what their heads say: E2B's cloud, a self-hosted domain,
 * explicit URLs, or crewboxd behind a unix socket. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/encode.h"
#include "providers/e2b_call.h"

static const char default_domain[] = "e2b.app";

/* These domains have one host for all boxes and route by the headers. */
static const char *const shared_host[] = {"e2b.app", "e2b.dev", "e2b.pro", "e2b-staging.dev"};

static const char *domain_of(const struct cb_e2b *p, const char *box_domain)
{
  if (box_domain && *box_domain)
    return box_domain;
  return p->domain ? p->domain : default_domain;
}

int cb_e2b_control_url(const struct cb_e2b *p, struct cb_buf *out)
{
  if (p->socket)
    return cb_buf_addz(out, "http://localhost");
  if (p->api_url)
    return cb_buf_addz(out, p->api_url);
  return cb_buf_addf(out, "https://api.%s", domain_of(p, NULL));
}

int cb_e2b_envd_url(const struct cb_e2b *p, const char *id, const char *box_domain,
                    struct cb_buf *out)
{
  if (p->socket)
    return cb_buf_addz(out, "http://localhost");
  if (p->sandbox_url)
    return cb_buf_addz(out, p->sandbox_url);
  const char *domain = domain_of(p, box_domain);
  for (size_t i = 0; i < sizeof shared_host / sizeof *shared_host; i++)
    if (strcmp(domain, shared_host[i]) == 0)
      return cb_buf_addf(out, "https://sandbox.%s", domain);
  return cb_e2b_port_url(p, id, box_domain, CB_E2B_ENVD_PORT, out);
}

int cb_e2b_port_url(const struct cb_e2b *p, const char *id, const char *box_domain, int port,
                    struct cb_buf *out)
{
  if (p->socket)
    return cb_buf_addz(out, "http://localhost");
  if (p->sandbox_url)
    return cb_buf_addz(out, p->sandbox_url);
  return cb_buf_addf(out, "https://%d-%s.%s", port, id, domain_of(p, box_domain));
}

/* "Authorization: Basic base64(user:)" */
static int add_user(struct cb_buf *b, const char *user)
{
  struct cb_buf plain;
  cb_buf_init(&plain, 512);
  int rc = cb_buf_addf(&plain, "%s:", user);
  if (!rc)
    rc = cb_buf_addz(b, "Authorization: Basic ");
  if (!rc)
    rc = cb_base64_add(b, plain.p, plain.len);
  cb_buf_clear(&plain);
  return rc ? rc : cb_buf_addc(b, '\0');
}

/* crewboxd behind TCP serves both planes and wants its key on every request. A box of anybody else
 * must never see the account's key. */
static bool one_server(const struct cb_e2b *p)
{
  if (p->socket || !p->api_url || !p->sandbox_url)
    return false;
  return strcmp(p->api_url, p->sandbox_url) == 0;
}

char **cb_e2b_envd_headers(const struct cb_e2b_call *c, bool stream)
{
  struct cb_buf b;
  size_t count = 4;
  char **list = NULL;
  int rc;
  cb_buf_init(&b, 16384);
  rc = cb_buf_addf(&b, "User-Agent: crewbox/" CB_VERSION "%cAccept: */*%cE2b-Sandbox-Id: %s%c", 0,
                   0, c->id, 0);
  if (!rc)
    rc = cb_buf_addf(&b, "E2b-Sandbox-Port: %d%c", (int)CB_E2B_ENVD_PORT, 0);
  if (!rc && c->token) {
    rc = cb_buf_addf(&b, "X-Access-Token: %s%c", c->token, 0);
    count++;
  }
  if (!rc && c->p->api_key && one_server(c->p)) {
    rc = cb_buf_addf(&b, "X-API-Key: %s%c", c->p->api_key, 0);
    count++;
  }
  if (!rc && c->user) {
    rc = add_user(&b, c->user);
    count++;
  }
  if (!rc && stream) {
    rc = cb_buf_addf(&b, "Keepalive-Ping-Interval: %d%c", c->p->keepalive_s, 0);
    count++;
  }
  if (!rc && c->range) {
    rc = cb_buf_addf(&b, "Range: %s%c", c->range, 0);
    count++;
  }
  if (!rc)
    list = cb_malloc((count + 1) * sizeof *list + b.len);
  if (list) {
    char *at = (char *)(list + count + 1);
    memcpy(at, b.p, b.len);
    for (size_t i = 0; i < count; i++, at += strlen(at) + 1)
      list[i] = at;
    list[count] = NULL;
  }
  cb_buf_clear_wiped(&b);
  return list;
}

/* ---- boxes that were just made or resumed ------------------------------------------------- */

void cb_e2b_settling(struct cb_e2b *p, const char *id, bool resumed)
{
  size_t i = p->next_recent++ % CB_E2B_RECENT;
  snprintf(p->recent[i].id, sizeof p->recent[i].id, "%s", id);
  p->recent[i].until = cb_now_ms() + CB_E2B_SETTLE_MS;
  p->recent[i].resumed = resumed;
}

bool cb_e2b_is_settling(const struct cb_e2b *p, const char *id, bool *resumed)
{
  int64_t now = cb_now_ms();
  bool found = false;
  for (size_t i = 0; i < CB_E2B_RECENT; i++)
    if (p->recent[i].until > now && strcmp(p->recent[i].id, id) == 0) {
      found = true;
      if (resumed && p->recent[i].resumed)
        *resumed = true;
    }
  return found;
}
