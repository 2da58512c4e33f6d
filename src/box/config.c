/* SPDX-License-Identifier: MIT
 * config.c: see config.h. */
#include "box/config.h"

#include <ctype.h>
#include <string.h>

#include "base/alloc.h"
#include "box/protocol.h"
#include "wire/record.h"

enum { NAME_MAX_BYTES = 253 };

int cb_strings_add(struct cb_strings *s, const char *p, size_t n)
{
  /* Two spare places: execve wants a NULL at the end and callers like to add one more. */
  char **grown = cb_realloc(s->at, (s->count + 2) * sizeof *grown);
  if (!grown)
    return CB_NO_MEMORY;
  s->at = grown;
  s->at[s->count] = cb_memdup(p, n);
  s->at[s->count + 1] = NULL;
  if (!s->at[s->count])
    return CB_NO_MEMORY;
  s->count++;
  return CB_OK;
}

void cb_strings_clear(struct cb_strings *s)
{
  for (size_t i = 0; i < s->count; i++)
    cb_free(s->at[i]);
  cb_free(s->at);
  memset(s, 0, sizeof *s);
}

static int bad(struct cb_err *err, const struct cb_record *rec)
{
  return cb_err_set(err, CB_INVALID, "box configuration: bad %s \"%.*s\"", rec->name,
                    (int)(rec->len < 120 ? rec->len : 120), rec->value);
}

static int take_text(char **into, const struct cb_record *rec, struct cb_err *err)
{
  if (rec->len == 0 || memchr(rec->value, '\0', rec->len) || *into)
    return bad(err, rec);
  *into = cb_memdup(rec->value, rec->len);
  return *into ? CB_OK : cb_err_no_memory(err);
}

static int take_strings(struct cb_strings *into, const struct cb_record *rec, struct cb_err *err)
{
  if (memchr(rec->value, '\0', rec->len))
    return bad(err, rec);
  return cb_strings_add(into, rec->value, rec->len) ? cb_err_no_memory(err) : CB_OK;
}

static bool port_of(const char *p, size_t n, uint16_t *out)
{
  struct cb_record digits = { .value = p, .len = n };
  int64_t v;
  if (!cb_record_int(&digits, &v) || v < 1 || v > 65535)
    return false;
  *out = (uint16_t)v;
  return true;
}

static int add_rule(struct cb_box_config *c, struct cb_box_rule rule, struct cb_err *err)
{
  struct cb_box_rule *grown = NULL;
  if (c->rule_count < 2 * CB_BOX_RULES_MAX)
    grown = cb_realloc(c->rules, (c->rule_count + 1) * sizeof *grown);
  if (grown)
    c->rules = grown; /* even when there is nothing to put in: the old ones are gone */
  if (!grown || !(rule.name || rule.to)) {
    cb_free(rule.name);
    cb_free(rule.to);
    return cb_err_no_memory(err);
  }
  c->rules[c->rule_count++] = rule;
  return CB_OK;
}

static int take_allow(struct cb_box_config *c, const struct cb_record *rec, struct cb_err *err)
{
  struct cb_box_rule rule = { 0 };
  const char *colon = memrchr(rec->value, ':', rec->len);
  size_t n = colon ? (size_t)(colon - rec->value) : 0;
  if (n == 0 || n > NAME_MAX_BYTES || memchr(rec->value, '\0', n) ||
      !port_of(colon + 1, rec->len - n - 1, &rule.port))
    return bad(err, rec);
  rule.name = cb_memdup(rec->value, n);
  for (char *p = rule.name; p && *p; p++)
    *p = (char)tolower((unsigned char)*p);
  return add_rule(c, rule, err);
}

static int take_forward(struct cb_box_config *c, const struct cb_record *rec, struct cb_err *err)
{
  struct cb_box_rule rule = { 0 };
  const char *space = memchr(rec->value, ' ', rec->len);
  size_t n = space ? (size_t)(space - rec->value) : 0;
  if (!space || n + 1 == rec->len || memchr(rec->value, '\0', rec->len) ||
      !port_of(rec->value, n, &rule.port))
    return bad(err, rec);
  rule.to = cb_memdup(space + 1, rec->len - n - 1);
  return add_rule(c, rule, err);
}

static int take_mount(struct cb_box_config *c, const struct cb_record *rec, struct cb_err *err)
{
  struct cb_box_bind bind = { NULL, NULL }, *grown = NULL;
  struct cb_record_reader r;
  struct cb_record part;
  int rc = CB_OK, more;
  cb_record_open(&r, rec->value, rec->len);
  while (rc == CB_OK && (more = cb_record_next(&r, &part)) != 0) {
    if (more < 0)
      rc = bad(err, rec);
    else if (cb_record_is(&part, "source"))
      rc = take_text(&bind.source, &part, err);
    else if (cb_record_is(&part, "target"))
      rc = take_text(&bind.target, &part, err);
  }
  if (rc == CB_OK && (!bind.source || !bind.target || bind.source[0] != '/' ||
                      bind.target[0] != '/' || c->bind_count == CB_BOX_MOUNTS_MAX))
    rc = bad(err, rec);
  if (rc == CB_OK) {
    grown = cb_realloc(c->binds, (c->bind_count + 1) * sizeof *grown);
    rc = grown ? CB_OK : cb_err_no_memory(err);
  }
  if (rc) {
    cb_free(bind.source);
    cb_free(bind.target);
    return rc;
  }
  c->binds = grown;
  c->binds[c->bind_count++] = bind;
  return CB_OK;
}

static int take_one(struct cb_box_config *c, const struct cb_record *rec, struct cb_err *err)
{
  int64_t v;
  if (cb_record_is(rec, "id"))
    return take_text(&c->id, rec, err);
  if (cb_record_is(rec, "dir"))
    return take_text(&c->dir, rec, err);
  if (cb_record_is(rec, "base"))
    return take_text(&c->base, rec, err);
  if (cb_record_is(rec, "allow"))
    return take_allow(c, rec, err);
  if (cb_record_is(rec, "forward"))
    return take_forward(c, rec, err);
  if (cb_record_is(rec, "mount"))
    return take_mount(c, rec, err);
  if (cb_record_is(rec, "path"))
    return take_strings(&c->path, rec, err);
  if (cb_record_is(rec, "env"))
    return memchr(rec->value, '=', rec->len) ? take_strings(&c->env, rec, err) : bad(err, rec);
  if (cb_record_is(rec, "network")) {
    c->network = rec->len == 9 && memcmp(rec->value, "allowlist", 9) == 0;
    if (!c->network && !(rec->len == 4 && memcmp(rec->value, "none", 4) == 0))
      return bad(err, rec);
    return CB_OK;
  }
  if (cb_record_is(rec, "uid") || cb_record_is(rec, "gid")) {
    if (!cb_record_int(rec, &v) || v < 0 || v >= UINT32_MAX)
      return bad(err, rec);
    if (rec->name[0] == 'u')
      c->uid = (uid_t)v;
    else
      c->gid = (gid_t)v;
    return CB_OK;
  }
  if (cb_record_is(rec, "expires_boot_ms"))
    return cb_record_int(rec, &c->expires_boot_ms) ? CB_OK : bad(err, rec);
  if (cb_record_is(rec, "check")) {
    c->check = rec->len == 1 && rec->value[0] == '1';
    return CB_OK;
  }
  return CB_OK; /* of a newer daemon */
}

int cb_box_config_parse(struct cb_box_config *out, const void *bytes, size_t n,
                        struct cb_err *err)
{
  struct cb_record_reader r;
  struct cb_record rec;
  int rc = CB_OK, more;

  memset(out, 0, sizeof *out);
  out->uid = (uid_t)-1;
  out->gid = (gid_t)-1;
  if (!cb_record_kind(bytes, n, "crewbox_box", CB_BOX_VERSION))
    return cb_err_set(err, CB_INVALID, "box configuration: not of version %d", CB_BOX_VERSION);
  cb_record_open(&r, bytes, n);
  while (rc == CB_OK && (more = cb_record_next(&r, &rec)) != 0)
    rc = more < 0 ? cb_err_set(err, CB_INVALID, "box configuration: broken records")
                  : take_one(out, &rec, err);
  if (rc == CB_OK &&
      (!out->id || !out->dir || !out->base || out->dir[0] != '/' || out->base[0] != '/' ||
       out->uid == (uid_t)-1 || out->gid == (gid_t)-1 || out->uid == 0 || out->gid == 0))
    rc = cb_err_set(err, CB_INVALID, "box configuration: id, dir, base, uid or gid is missing");
  return rc;
}

int cb_box_config_read(struct cb_box_config *out, int fd, struct cb_err *err)
{
  struct cb_buf text;
  memset(out, 0, sizeof *out);
  cb_buf_init(&text, CB_BOX_CONFIG_MAX);
  int rc = cb_buf_read_all(&text, fd, err);
  if (!rc)
    rc = cb_box_config_parse(out, text.p ? text.p : "", text.len, err);
  cb_buf_clear_wiped(&text);
  return rc;
}

void cb_box_config_clear(struct cb_box_config *c)
{
  for (size_t i = 0; i < c->rule_count; i++) {
    cb_free(c->rules[i].name);
    cb_free(c->rules[i].to);
  }
  for (size_t i = 0; i < c->bind_count; i++) {
    cb_free(c->binds[i].source);
    cb_free(c->binds[i].target);
  }
  cb_free(c->rules);
  cb_free(c->binds);
  cb_free(c->id);
  cb_free(c->dir);
  cb_free(c->base);
  cb_strings_clear(&c->path);
  cb_strings_clear(&c->env);
  memset(c, 0, sizeof *c);
}
