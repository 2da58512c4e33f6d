/* SPDX-License-Identifier: MIT
 * e2b_list.c: boxes by their metadata, over all pages. The filter is applied here once more: a
 * sweep kills what this returns, so a server that overlooks the filter must not matter. */
#include <string.h>

#include "base/alloc.h"
#include "base/encode.h"
#include "providers/e2b_call.h"

enum { PAGE = 100, PAGES_MAX = 100, TOKEN_MAX = 1024 };

struct listing {
  json_t *boxes; /* by id: pages can show a box twice */
  struct cb_buf token, last_token;
  int pages;
};

static void listing_free(void *own)
{
  struct listing *l = own;
  json_decref(l->boxes);
  cb_buf_clear(&l->token);
  cb_buf_clear(&l->last_token);
  cb_free(l);
}

/* Adds the filter: k=v pairs with each part encoded twice, joined by &, and the whole encoded
 * once more. The server undoes one level as any query, one for the whole and one for each part. */
static int add_filter(struct cb_buf *url, const json_t *metadata)
{
  struct cb_buf once, pairs;
  const char *key;
  json_t *value;
  int rc = CB_OK;
  cb_buf_init(&once, 65536);
  cb_buf_init(&pairs, 65536);
  json_object_foreach((json_t *)(uintptr_t)metadata, key, value)
  {
    const char *part[2] = {key, json_string_value(value)};
    if (pairs.len > 0)
      rc = rc ? rc : cb_buf_addc(&pairs, '&');
    for (int i = 0; i < 2; i++) {
      cb_buf_reset(&once);
      rc = rc ? rc : cb_percent_add(&once, part[i], strlen(part[i]));
      rc = rc ? rc : cb_percent_add(&pairs, once.p ? once.p : "", once.len);
      if (i == 0)
        rc = rc ? rc : cb_buf_addc(&pairs, '=');
    }
  }
  if (pairs.len > 0) {
    rc = rc ? rc : cb_buf_addz(url, "metadata=");
    rc = rc ? rc : cb_percent_add(url, pairs.p, pairs.len);
    rc = rc ? rc : cb_buf_addc(url, '&');
  }
  cb_buf_clear(&once);
  cb_buf_clear(&pairs);
  return rc;
}

static bool matches(const json_t *box, const json_t *filter)
{
  const json_t *metadata = json_object_get(box, "metadata");
  const char *key;
  json_t *value;
  json_object_foreach((json_t *)(uintptr_t)filter, key, value)
  {
    const char *has = json_string_value(json_object_get(metadata, key));
    if (!has || strcmp(has, json_string_value(value)) != 0)
      return false;
  }
  return true;
}

static int take_page(struct cb_e2b_call *c, const json_t *page, struct cb_err *err)
{
  struct listing *l = c->own;
  const json_t *filter = json_object_get(c->args, "metadata");
  if (!json_is_array(page))
    return cb_err_set(err, CB_PROTOCOL, "the answer is not a list");
  for (size_t i = 0; i < json_array_size(page); i++) {
    json_t *box;
    int rc = cb_e2b_detail(json_array_get(page, i), &box, err);
    if (rc)
      return rc;
    json_object_del(box, "token");
    if (matches(box, filter))
      json_object_set(l->boxes, json_string_value(json_object_get(box, "id")), box);
    json_decref(box);
  }
  return CB_OK;
}

static json_t *as_list(const struct listing *l)
{
  json_t *boxes = json_array(), *box;
  const char *id;
  json_object_foreach(l->boxes, id, box) json_array_append(boxes, box);
  return json_pack("{s:o}", "boxes", boxes);
}

static void go_list(struct cb_e2b_call *c);

/* Takes the token of the next page out of the head; false when this was the last. */
static bool next_page(struct listing *l, const struct cb_http_res *res)
{
  size_t n;
  const char *token = cb_http_header(res, "x-next-token", &n);
  cb_buf_reset(&l->last_token);
  cb_buf_add(&l->last_token, l->token.p ? l->token.p : "", l->token.len);
  cb_buf_reset(&l->token);
  return token && n > 0 && cb_buf_add(&l->token, token, n) == CB_OK;
}

static void list_end(struct cb_e2b_call *c, struct cb_http_res *res, const struct cb_err *err)
{
  struct listing *l = c->own;
  struct cb_err own = CB_ERR_INIT;
  if (err && !c->p->v1_list && l->pages == 0 && cb_e2b_no_route(err)) {
    c->p->v1_list = true;
    go_list(c);
    return;
  }
  if (err) {
    cb_e2b_fail(c, err);
    return;
  }
  json_t *page = cb_e2b_json(res, &own);
  bool bad = !page || take_page(c, page, &own);
  json_decref(page);
  if (bad) {
    cb_e2b_fail(c, &own);
  } else if (!next_page(l, res)) {
    cb_e2b_finish(c, as_list(l));
  } else if (l->token.len == l->last_token.len && l->last_token.len > 0 &&
             memcmp(l->token.p, l->last_token.p, l->token.len) == 0) {
    cb_err_set(&own, CB_PROTOCOL, "the server gives the same page again and again");
    cb_e2b_fail(c, &own);
  } else if (++l->pages >= PAGES_MAX) {
    cb_err_set(&own, CB_TOO_LARGE, "there are more than %d boxes", PAGES_MAX * PAGE);
    cb_e2b_fail(c, &own);
  } else {
    go_list(c);
  }
}

static void go_list(struct cb_e2b_call *c)
{
  struct listing *l = c->own;
  struct cb_err err = CB_ERR_INIT;
  struct cb_buf url;
  cb_buf_init(&url, 65536);
  int rc = cb_buf_addz(&url, c->p->v1_list ? "/sandboxes?" : "/v2/sandboxes?");
  if (!rc)
    rc = add_filter(&url, json_object_get(c->args, "metadata"));
  if (!rc && !c->p->v1_list) /* old planes leave paused boxes out unless asked */
    rc = cb_buf_addf(&url, "state=running,paused&limit=%d", (int)PAGE);
  if (!rc && l->token.len > 0) {
    rc = cb_buf_addz(&url, "&nextToken=");
    if (!rc)
      rc = cb_percent_add(&url, l->token.p, l->token.len);
  }
  while (!rc && url.len > 0 && (url.p[url.len - 1] == '?' || url.p[url.len - 1] == '&'))
    url.p[--url.len] = '\0';
  if (rc) {
    cb_err_set(&err, CB_INVALID, "metadata is too long");
    cb_e2b_fail(c, &err);
  } else {
    cb_e2b_control(c, "GET", url.p, NULL, true, list_end);
  }
  cb_buf_clear(&url);
}

void cb_e2b_v_list(struct cb_provider *p, const json_t *args, cb_done *done, void *arg)
{
  static const char *const names[] = {"metadata", NULL};
  struct cb_err err = CB_ERR_INIT;
  const json_t *metadata;
  struct cb_e2b_call *c = cb_e2b_begin(p, "list", args, names, 0, done, arg);
  if (!c)
    return;
  struct listing *l = cb_calloc(1, sizeof *l);
  if (l) {
    l->boxes = json_object();
    cb_buf_init(&l->token, TOKEN_MAX);
    cb_buf_init(&l->last_token, TOKEN_MAX);
    c->own = l;
    c->free_own = listing_free;
  } else {
    cb_err_no_memory(&err);
  }
  if (!l || cb_arg_map(c->args, "metadata", &metadata, &err))
    cb_e2b_fail(c, &err);
  else
    go_list(c);
}
