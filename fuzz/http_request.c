/* SPDX-License-Identifier: MIT
 * What crewboxd reads from the head of a request: the input's lines "name=value" are its query
 * parameters and headers alike. A page's token leads to the next page; a range lies within the
 * file; a head that two readers could understand differently is refused; nobody is let in by a
 * signature or a name he made up.
 * links: src/boxd/range.c src/boxd/head_guard.c src/boxd/auth.c src/boxd/egress_rules.c */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "boxd/auth.h"
#include "boxd/head_guard.h"
#include "boxd/range.h"
#include "fuzz/fuzz.h"
/* For its readers of queries; what it asks of the daemon is below. */
#include "src/boxd/list.c"

enum { LINES_MAX = 32, ROWS = 3 };

static struct {
  char *text; /* the input with NULs for its line ends */
  const char *name[LINES_MAX], *value[LINES_MAX];
  size_t count;
} head;

static struct cb_row rows[ROWS];
static char next_token[512];
static int status;
static size_t listed;

static const char *find(const char *name)
{
  for (size_t i = 0; i < head.count; i++)
    if (strcmp(head.name[i], name) == 0)
      return head.value[i];
  return NULL;
}

const char *cb_request_query(struct cb_request *req, const char *name)
{
  (void)req;
  return find(name);
}

struct cb_row *cb_table_first(struct cb_table *t)
{
  (void)t;
  return &rows[0];
}

struct cb_row *cb_table_next(struct cb_row *row)
{
  return row + 1 < rows + ROWS ? row + 1 : NULL;
}

json_t *cb_listed_json(struct cb_request *req, const struct cb_row *row)
{
  (void)req;
  return json_string(row->id);
}

void cb_answer_header(struct cb_request *req, const char *name, const char *value)
{
  (void)req;
  if (strcmp(name, "X-Next-Token") == 0)
    snprintf(next_token, sizeof next_token, "%s", value);
}

void cb_answer_json(struct cb_request *req, int code, json_t *body)
{
  (void)req;
  status = code;
  listed = json_array_size(body);
  json_decref(body);
}

void cb_answer_error(struct cb_request *req, int code, const char *error_code, const char *fmt, ...)
{
  (void)req;
  (void)error_code;
  (void)fmt;
  status = code;
}

int MHD_get_connection_values(struct MHD_Connection *conn, enum MHD_ValueKind kind,
                              MHD_KeyValueIterator each, void *cls)
{
  (void)conn;
  for (size_t i = 0; i < head.count; i++)
    each(cls, kind, head.name[i], head.value[i]);
  return (int)head.count;
}

static void split(const uint8_t *p, size_t n)
{
  head.count = 0;
  head.text = malloc(n + 1);
  assert(head.text);
  memcpy(head.text, p, n);
  head.text[n] = '\0';
  for (char *line = head.text; *line && head.count < LINES_MAX;) {
    char *end = strchrnul(line, '\n'), *next = *end ? end + 1 : end;
    *end = '\0';
    char *eq = strchr(line, '=');
    if (eq) {
      *eq = '\0';
      head.name[head.count] = line;
      head.value[head.count++] = eq + 1;
    }
    line = next;
  }
}

static void check_list(void)
{
  struct cb_boxd d;
  struct cb_request req;
  memset(&d, 0, sizeof d);
  memset(&req, 0, sizeof req);
  req.owner = &d;
  *next_token = '\0';
  status = 0;
  list(&req, true);
  assert(status == 200 || status == 400);
  if (!*next_token || head.count == LINES_MAX)
    return;
  size_t first = listed, i;
  assert(status == 200 && first > 0);
  for (i = 0; i < head.count; i++)
    if (strcmp(head.name[i], "nextToken") == 0)
      break;
  char *token = strdup(next_token);
  head.name[i] = "nextToken";
  head.value[i] = token;
  head.count += i == head.count;
  list(&req, true);
  assert(status == 200 && first + listed <= ROWS);
  head.value[i] = "";
  free(token);
}

static void check_range(void)
{
  static const uint64_t sizes[] = { 0, 1, 10, UINT64_MAX };
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    uint64_t from = 0, n = 0;
    if (cb_range_read(find("Range"), sizes[i], &from, &n) == CB_RANGE_PART)
      assert(n > 0 && from < sizes[i] && n <= sizes[i] - from);
  }
}

static void check_head(void)
{
  struct cb_head_facts facts;
  size_t lengths = 0, encodings = 0;
  for (size_t i = 0; i < head.count; i++) {
    lengths += strcasecmp(head.name[i], "Content-Length") == 0;
    encodings += strcasecmp(head.name[i], "Transfer-Encoding") == 0;
  }
  if (!cb_head_guard(NULL, &facts))
    assert(lengths + encodings <= 1);
}

static void check_auth(void)
{
  static const char token[] = "0f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c4b5a69788796a5b4c3d2e1f0";
  char user[CB_AUTH_USER_MAX + 1];
  const char *given = find("signature"), *path = find("path");
  /* Without the token no signature is right; to guess one is to break SHA-256. */
  assert(cb_auth_signature(given, path ? path : "", true, "", token, find("expiration"), 1000,
                           NULL) != CB_OK);
  assert(!cb_auth_equal(find("X-Access-Token"), token) || strcmp(find("X-Access-Token"), token) == 0);
  if (cb_auth_basic_user(find("Authorization"), user, NULL) == CB_OK)
    assert(strlen(user) <= CB_AUTH_USER_MAX);
}

static void check_rules(void)
{
  struct cb_egress_rules *rules;
  const char *allow[] = { find("allow") }, *to = find("forward");
  struct cb_egress_forward forward = { 80, to };
  if (cb_egress_rules_new(&rules, allow, allow[0] != NULL, &forward, to != NULL, NULL) != CB_OK)
    return;
  assert(!to || cb_egress_forward_to(rules, 80));
  assert(!cb_egress_forward_to(rules, 81));
  cb_egress_allows(rules, find("name") ? find("name") : "", 443);
  cb_egress_rules_free(rules);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
  if (!rows[0].id[0])
    for (int i = 0; i < ROWS; i++) {
      snprintf(rows[i].id, sizeof rows[i].id, "box%d", i);
      snprintf(rows[i].template, sizeof rows[i].template, "base");
      rows[i].state = CB_ROW_RUNNING;
      rows[i].started_at_ms = 1000 * (i / 2);
      rows[i].metadata = json_pack("{s:s}", "a", "b");
    }
  split(p, n);
  check_head();
  check_range();
  check_auth();
  check_rules();
  check_list();
  free(head.text);
  return 0;
}
