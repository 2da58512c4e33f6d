/* SPDX-License-Identifier: MIT
 * list.c: GET /sandboxes and GET /v2/sandboxes: filters, order, pages. A page's token names the
 * last box of the page, so that boxes that come or go between pages move none of the others. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "base/alloc.h"
#include "base/encode.h"
#include "boxd/boxd.h"
#include "boxd/control.h"
#include "boxd/json.h"

enum { LIMIT_MAX = 100, TOKEN_MAX = 256 };

struct query {
  bool running; /* paused boxes do not exist here */
  bool ascending;
  size_t limit;
  json_t *metadata;
  int64_t started_after_ms; /* -1: any */
  const char *template;     /* NULL: any */
  bool after;               /* of the token: only boxes behind this one */
  int64_t after_ms;
  char after_id[CB_ROW_ID_MAX + 1];
};

/* One side of k=v: percent-decoded, a plus is a space. */
static char *decode(const char *p, size_t n)
{
  struct cb_buf b;
  cb_buf_init(&b, n + 1);
  if (cb_percent_decode(&b, p, n, true)) {
    cb_buf_clear(&b);
    return NULL;
  }
  char *text = cb_buf_take(&b, &n);
  if (text && strlen(text) != n) { /* a NUL in it */
    cb_free(text);
    return NULL;
  }
  return text;
}

/* The value was decoded once as a query value; the whole is encoded once more, and each key and
 * value again. */
static int read_metadata(json_t **out, const char *value, struct cb_err *err)
{
  *out = json_object();
  char *whole = decode(value, strlen(value));
  int rc = CB_OK;
  if (!*out || !whole)
    rc = cb_err_set(err, CB_INVALID, "error parsing metadata: it is not a query string");
  for (const char *p = whole; !rc && p && *p;) {
    size_t n = strcspn(p, "&");
    const char *eq = memchr(p, '=', n);
    if (!eq || memchr(eq + 1, '=', n - (size_t)(eq + 1 - p))) {
      rc = cb_err_set(err, CB_INVALID, "error parsing metadata: each part must be key=value");
      break;
    }
    char *k = decode(p, (size_t)(eq - p)), *v = decode(eq + 1, n - (size_t)(eq + 1 - p));
    if (!k || !v || json_object_set_new(*out, k, json_string(v)))
      rc = cb_err_set(err, CB_INVALID, "error parsing metadata: a part is not valid text");
    cb_free(k);
    cb_free(v);
    p += n;
    p += *p == '&';
  }
  cb_free(whole);
  return rc;
}

static int read_states(struct query *q, const char *value, struct cb_err *err)
{
  if (!value || !*value)
    return CB_OK;
  q->running = false;
  for (const char *p = value; *p;) {
    size_t n = strcspn(p, ",");
    if (n == 7 && strncmp(p, "running", n) == 0)
      q->running = true;
    else if (n != 6 || strncmp(p, "paused", n) != 0)
      return cb_err_set(err, CB_INVALID, "validation error: state must be running or paused");
    p += n;
    p += *p == ',';
  }
  return CB_OK;
}

static int read_token(struct query *q, const char *token, struct cb_err *err)
{
  struct cb_buf b;
  cb_buf_init(&b, TOKEN_MAX);
  int rc = cb_base64_decode(&b, token, strlen(token));
  long long ms = 0;
  int used = 0;
  char order[8] = "";
  if (!rc && b.len)
    used = sscanf(b.p, "%lld__%64[a-z0-9]__%7[a-z]", &ms, q->after_id, order);
  cb_buf_clear(&b);
  if (used != 3 || strcmp(order, q->ascending ? "asc" : "desc") != 0)
    return cb_err_set(err, CB_INVALID, "invalid nextToken: it is not of a list with this order");
  q->after = true;
  q->after_ms = ms;
  return CB_OK;
}

static int read_time(const char *text, int64_t *out, struct cb_err *err)
{
  struct tm tm;
  memset(&tm, 0, sizeof tm);
  const char *rest = strptime(text, "%Y-%m-%dT%H:%M:%S", &tm);
  int64_t ms = 0, scale = 100;
  if (rest && *rest == '.')
    for (rest++; *rest >= '0' && *rest <= '9'; rest++, scale /= 10)
      ms += (*rest - '0') * scale;
  int64_t offset_s = 0;
  int h = 0, m = 0;
  char sign = 0;
  if (rest && (*rest == '+' || *rest == '-' || *rest == ' ') &&
      sscanf(rest, "%c%2d:%2d", &sign, &h, &m) == 3) {
    offset_s = (h * 60 + m) * 60 * (sign == '-' ? -1 : 1); /* a plus may arrive as a space */
    rest = "Z";
  }
  if (!rest || (strcmp(rest, "Z") != 0 && strcmp(rest, "z") != 0))
    return cb_err_set(err, CB_INVALID, "validation error: startedAfter must be an RFC 3339 time");
  *out = ((int64_t)timegm(&tm) - offset_s) * 1000 + ms;
  return CB_OK;
}

static int read_query(struct query *q, struct cb_request *req, struct cb_err *err)
{
  const char *v;
  memset(q, 0, sizeof *q);
  q->running = true;
  q->limit = LIMIT_MAX;
  q->started_after_ms = -1;
  int rc = read_states(q, cb_request_query(req, "state"), err);
  if (!rc && (v = cb_request_query(req, "limit"))) {
    char *end;
    long n = strtol(v, &end, 10);
    if (!*v || *end || n < 1 || n > LIMIT_MAX)
      rc = cb_err_set(err, CB_INVALID, "validation error: limit must be 1 to %d", LIMIT_MAX);
    else
      q->limit = (size_t)n;
  }
  if (!rc && (v = cb_request_query(req, "order"))) {
    if (strcmp(v, "asc") != 0 && strcmp(v, "desc") != 0)
      rc = cb_err_set(err, CB_INVALID, "validation error: order must be asc or desc");
    q->ascending = strcmp(v, "asc") == 0;
  }
  if (!rc && (v = cb_request_query(req, "metadata")))
    rc = read_metadata(&q->metadata, v, err);
  if (!rc && (v = cb_request_query(req, "startedAfter")))
    rc = read_time(v, &q->started_after_ms, err);
  q->template = cb_request_query(req, "template");
  if (!rc && (v = cb_request_query(req, "nextToken")) && *v)
    rc = read_token(q, v, err);
  return rc;
}

/* By start and then by id, ascending. */
static int compare(int64_t a_ms, const char *a_id, int64_t b_ms, const char *b_id)
{
  if (a_ms != b_ms)
    return a_ms < b_ms ? -1 : 1;
  return strcmp(a_id, b_id);
}

static int by_start(const void *a, const void *b)
{
  const struct cb_row *x = *(struct cb_row *const *)a, *y = *(struct cb_row *const *)b;
  return compare(x->started_at_ms, x->id, y->started_at_ms, y->id);
}

static bool matches(const struct query *q, const struct cb_row *row)
{
  const char *key;
  json_t *value;
  if (row->state != CB_ROW_RUNNING || !q->running)
    return false;
  if (q->started_after_ms >= 0 && row->started_at_ms < q->started_after_ms)
    return false;
  if (q->template && *q->template && strcmp(q->template, row->template) != 0)
    return false;
  json_object_foreach(q->metadata, key, value)
  {
    json_t *has = json_object_get(row->metadata, key);
    if (!has || !json_equal(has, value))
      return false;
  }
  if (!q->after)
    return true;
  int side = compare(row->started_at_ms, row->id, q->after_ms, q->after_id);
  return q->ascending ? side > 0 : side < 0;
}

static void set_token(struct cb_request *req, const struct query *q, const struct cb_row *last)
{
  char plain[TOKEN_MAX / 2], token[CB_BASE64_LEN(sizeof plain) + 1];
  int n = snprintf(plain, sizeof plain, "%lld__%s__%s", (long long)last->started_at_ms, last->id,
                   q->ascending ? "asc" : "desc");
  cb_base64(plain, (size_t)n, token);
  for (char *p = token; *p; p++) /* URL-safe */
    *p = *p == '+' ? '-' : *p == '/' ? '_' : *p;
  cb_answer_header(req, "X-Next-Token", token);
}

static void list(struct cb_request *req, bool paged)
{
  struct cb_boxd *d = cb_boxd_of(req);
  struct cb_err err = CB_ERR_INIT;
  struct query q;
  struct cb_row **rows = NULL, *row;
  size_t n = 0, running = 0, room = 1;
  json_t *out = NULL;
  if (read_query(&q, req, &err)) {
    cb_answer_error(req, 400, NULL, "%s", err.text);
    goto out;
  }
  for (row = cb_table_first(d->table); row; row = cb_table_next(row))
    room++;
  rows = cb_calloc(room, sizeof *rows); /* NOLINT(bugprone-sizeof-expression): of pointers */
  out = json_array();
  if (!rows || !out) {
    cb_answer_error(req, 503, NULL, "out of memory");
    goto out;
  }
  for (row = cb_table_first(d->table); row; row = cb_table_next(row)) {
    running += row->state == CB_ROW_RUNNING;
    if (matches(&q, row))
      rows[n++] = row;
  }
  qsort(rows, n, sizeof *rows, by_start); /* NOLINT(bugprone-sizeof-expression): of pointers */
  size_t count = paged && n > q.limit ? q.limit : n;
  for (size_t i = 0; i < count; i++)
    json_array_append_new(out, cb_listed_json(req, rows[q.ascending ? i : n - 1 - i]));
  if (count < n)
    set_token(req, &q, rows[q.ascending ? count - 1 : n - count]);
  if (paged && q.running) {
    char text[24];
    snprintf(text, sizeof text, "%zu", running);
    cb_answer_header(req, "X-Total-Running", text);
  }
  cb_answer_json(req, 200, out);
  out = NULL;
out:
  json_decref(out);
  json_decref(q.metadata);
  cb_free(rows);
}

void cb_control_list_v1(struct cb_request *req)
{
  list(req, false);
}

void cb_control_list_v2(struct cb_request *req)
{
  list(req, true);
}
