/* SPDX-License-Identifier: MIT */
#include "wire/orders.h"

#include <string.h>

#include "base/alloc.h"
#include "base/path.h"
#include "wire/record.h"

enum {
  DEFAULT_LOG_MAX = 64 << 20,
  DEFAULT_SEGMENT = 256 << 10,
  DEFAULT_GRACE_MS = 5000,
  DEFAULT_BEAT_MS = 1000,
  LEAST_SEGMENT = 4096,
  LEAST_BEAT_MS = 20
};
static const int64_t MOST_LOG = (int64_t)1 << 40;     /* 1 TiB */
static const int64_t MOST_MS = (int64_t)366 * 86400000; /* a year */

static int broken(struct cb_err *err, const char *name, const char *rule)
{
  return cb_err_set(err, CB_INVALID, "orders: %s: %s", name, rule);
}

void cb_orders_clear(struct cb_orders *o)
{
  cb_free(o->argv);
  cb_free(o->env);
  cb_free(o->secrets);
  memset(o, 0, sizeof *o);
}

/* How many of each list there are, so that the lists can be made in one go. The last record says
 * that it is the last: orders cut between two records would run without their secrets. */
static int count_lists(struct cb_orders *o, const char *p, size_t len, struct cb_err *err)
{
  struct cb_record_reader r;
  struct cb_record rec;
  int got;
  cb_record_open(&r, p, len);
  while ((got = cb_record_next(&r, &rec)) == 1) {
    o->argc += cb_record_is(&rec, "argv");
    o->env_count += cb_record_is(&rec, "env");
    o->secret_count += cb_record_is(&rec, "secret");
  }
  if (got < 0)
    return cb_err_set(err, CB_PROTOCOL, "orders: broken record");
  if (!cb_record_is(&rec, "end"))
    return cb_err_set(err, CB_PROTOCOL, "orders: cut short");
  if (o->argc == 0)
    return broken(err, "argv", "missing");
  if (o->argc > CB_ORDERS_MAX_LIST || o->env_count > CB_ORDERS_MAX_LIST ||
      o->secret_count > CB_ORDERS_MAX_LIST)
    return cb_err_set(err, CB_TOO_LARGE, "orders: more than %d of one list", CB_ORDERS_MAX_LIST);
  o->argv = cb_calloc(o->argc + 1, sizeof *o->argv);
  o->env = cb_calloc(o->env_count + 1, sizeof *o->env);
  o->secrets = cb_calloc(o->secret_count + 1, sizeof *o->secrets);
  o->argc = o->env_count = o->secret_count = 0;
  return o->argv && o->env && o->secrets ? CB_OK : cb_err_no_memory(err);
}

/* "NAME=..." with a name that is neither empty nor holds a control character. */
static char *after_name(char *s)
{
  char *eq = strchr(s, '=');
  if (!eq || eq == s)
    return NULL;
  for (const char *c = s; c < eq; c++) {
    if ((unsigned char)*c < 0x21 || *c == 0x7f)
      return NULL;
  }
  return eq;
}

static int take_secret(struct cb_orders *o, char *value, size_t len, struct cb_err *err)
{
  char *eq = after_name(value);
  if (!eq)
    return broken(err, "secret", "not NAME=VALUE");
  *eq = '\0';
  struct cb_order_secret *s = &o->secrets[o->secret_count++];
  s->name = value;
  s->value = eq + 1;
  s->len = len - (size_t)(eq + 1 - value);
  return CB_OK;
}

/* A record that is a list or a word of its own; *known says whether it was one. */
static int take_special(struct cb_orders *o, const struct cb_record *rec, char *value,
                        bool *known, struct cb_err *err)
{
  bool has_nul = memchr(value, '\0', rec->len) != NULL;
  *known = true;
  if (cb_record_is(rec, "secret"))
    return take_secret(o, value, rec->len, err);
  if (cb_record_is(rec, "argv")) {
    if (has_nul)
      return broken(err, "argv", "holds a NUL");
    o->argv[o->argc++] = value;
    return CB_OK;
  }
  if (cb_record_is(rec, "env")) {
    if (has_nul || !after_name(value))
      return broken(err, "env", has_nul ? "holds a NUL" : "not NAME=VALUE");
    o->env[o->env_count++] = value;
    return CB_OK;
  }
  if (cb_record_is(rec, "streams")) {
    if (has_nul || (strcmp(value, "split") != 0 && strcmp(value, "merged") != 0))
      return broken(err, "streams", "neither split nor merged");
    o->merged = value[0] == 'm';
    return CB_OK;
  }
  *known = false;
  return CB_OK;
}

static int take_scalar(struct cb_orders *o, const struct cb_record *rec, char *value,
                       struct cb_err *err)
{
  const struct {
    const char *name;
    char **to;
  } texts[] = { { "run", &o->run },
                { "kind", &o->kind },
                { "run_dir", &o->run_dir },
                { "cwd", &o->cwd },
                { "user", &o->user },
                { "stdin", &o->stdin_path },
                { "findings", &o->findings } };
  const struct {
    const char *name;
    int64_t *to, least, most;
  } numbers[] = { { "launch_seq", &o->launch_seq, 1, INT64_MAX },
                  { "log_max", &o->log_max, 2 * LEAST_SEGMENT, MOST_LOG },
                  { "segment", &o->segment, LEAST_SEGMENT, 64 << 20 },
                  { "grace_ms", &o->grace_ms, 0, 3600000 },
                  { "start_deadline_ms", &o->start_deadline_ms, 0, MOST_MS },
                  { "guard_ms", &o->guard_ms, 0, MOST_MS },
                  { "beat_ms", &o->beat_ms, LEAST_BEAT_MS, 60000 } };

  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    if (!cb_record_is(rec, texts[i].name))
      continue;
    if (memchr(value, '\0', rec->len))
      return broken(err, rec->name, "holds a NUL");
    *texts[i].to = value;
    return CB_OK;
  }
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
    int64_t v;
    if (!cb_record_is(rec, numbers[i].name))
      continue;
    if (!cb_record_int(rec, &v) || v < numbers[i].least || v > numbers[i].most)
      return broken(err, rec->name, "not a number in its range");
    *numbers[i].to = v;
    return CB_OK;
  }
  return CB_OK; /* unknown: of a later version */
}

static bool is_id(const char *s)
{
  size_t n = s ? strlen(s) : 0;
  return n > 0 && n <= CB_ID_MAX && strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789") == n;
}

static bool is_absolute(const char *s)
{
  return s && s[0] == '/' && strlen(s) <= CB_PATH_MAX_BYTES;
}

static int check_whole(const struct cb_orders *o, struct cb_err *err)
{
  if (!is_id(o->run))
    return broken(err, "run", "missing or not of a-z and 0-9");
  if (o->launch_seq == 0)
    return broken(err, "launch_seq", "missing");
  if (!is_absolute(o->run_dir))
    return broken(err, "run_dir", "missing or not absolute");
  if (!is_absolute(o->cwd))
    return broken(err, "cwd", "missing or not absolute");
  if (o->argv[0][0] == '\0')
    return broken(err, "argv", "an empty program name");
  if (*o->stdin_path && !is_absolute(o->stdin_path) &&
      !cb_path_is_plain(o->stdin_path, strlen(o->stdin_path)))
    return broken(err, "stdin", "neither absolute nor a plain path below run_dir");
  if (*o->findings && !is_absolute(o->findings))
    return broken(err, "findings", "not absolute");
  if (o->log_max < 2 * o->segment)
    return broken(err, "log_max", "less than two segments");
  return CB_OK;
}

int cb_orders_parse(struct cb_orders *o, char *p, size_t len, struct cb_err *err)
{
  static char empty[] = "";
  struct cb_record_reader r;
  struct cb_record rec;
  int rc;

  memset(o, 0, sizeof *o);
  if (len > CB_ORDERS_MAX_BYTES)
    return cb_err_set(err, CB_TOO_LARGE, "orders: over %d bytes", CB_ORDERS_MAX_BYTES);
  if (!cb_record_kind(p, len, "crewbox_orders", 1))
    return cb_err_set(err, CB_PROTOCOL, "orders: not orders of version 1");
  o->kind = o->user = o->stdin_path = o->findings = empty;
  o->log_max = DEFAULT_LOG_MAX;
  o->segment = DEFAULT_SEGMENT;
  o->grace_ms = DEFAULT_GRACE_MS;
  o->beat_ms = DEFAULT_BEAT_MS;
  rc = count_lists(o, p, len, err);
  cb_record_open(&r, p, len);
  while (rc == CB_OK && cb_record_next(&r, &rec) == 1) {
    char *value = p + (rec.value - p);
    bool known;
    value[rec.len] = '\0'; /* the LF; the reader is past it */
    rc = take_special(o, &rec, value, &known, err);
    if (rc == CB_OK && !known)
      rc = take_scalar(o, &rec, value, err);
  }
  if (rc == CB_OK)
    rc = check_whole(o, err);
  if (rc)
    cb_orders_clear(o);
  return rc;
}
