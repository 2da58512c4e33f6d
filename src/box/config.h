/* SPDX-License-Identifier: MIT
 * config.h: what crewboxd tells a new init (protocol.h says in which form). Parsed once; the
 * strings live as long as the struct. */
#ifndef CB_BOX_CONFIG_H
#define CB_BOX_CONFIG_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include "base/buf.h"
#include "base/err.h"

struct cb_box_bind {
  char *source, *target;
};

struct cb_box_rule { /* allow: name and port; forward: port and to */
  char *name;        /* lower case; NULL for a forward */
  char *to;          /* NULL for an allow rule */
  uint16_t port;
};

struct cb_strings {
  char **at;
  size_t count;
};

struct cb_box_config {
  char *id, *dir, *base;
  uid_t uid; /* of the host */
  gid_t gid;
  bool network; /* allowlist; false: loopback only */
  bool check;
  int64_t expires_boot_ms; /* 0: never */
  struct cb_box_rule *rules;
  size_t rule_count;
  struct cb_box_bind *binds;
  size_t bind_count;
  struct cb_strings path, env;
};

/* Reads fd to its end and takes everything in. CB_INVALID names what is wrong. */
int cb_box_config_read(struct cb_box_config *out, int fd, struct cb_err *err);
/* The pure half: bytes to struct. *out is zeroed first and needs cb_box_config_clear after
 * success and after failure. */
int cb_box_config_parse(struct cb_box_config *out, const void *bytes, size_t n,
                        struct cb_err *err);
void cb_box_config_clear(struct cb_box_config *config);

/* Lists of strings, also used elsewhere in the init. */
int cb_strings_add(struct cb_strings *s, const char *p, size_t n); /* CB_OK or CB_NO_MEMORY */
void cb_strings_clear(struct cb_strings *s);
#endif
