/* SPDX-License-Identifier: MIT
 * route.c: see route.h. Two tables: the control plane by method and path pattern, a box by path.
 * A request is about a box when its Host says so (PORT-ID.anything) or, on any other host, when
 * the two routing headers do. */
#include "boxd/route.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "boxd/auth.h"
#include "boxd/boxd.h"
#include "boxd/control.h"
#include "boxd/envd.h"
#include "boxd/files_auth.h"

enum { ENVD_PORT = 49983 };

#define ID_CHARS "abcdefghijklmnopqrstuvwxyz0123456789"

struct route {
  const char *method;
  const char *path;              /* "{}" stands for one component, the id of a box */
  const struct cb_endpoint endpoint;
  const char *missing;           /* E2B has this and we do not: the feature's name */
  bool any_box;                  /* also one that is ending */
  bool open;                     /* no key needed */
};

#define SERVE(f) { .serve = (f) }
#define NOT_HERE(name) { NULL, NULL, NULL }, name, false, false

static const struct route control_routes[] = {
  { "POST", "/v2/sandboxes", SERVE(cb_control_create_v2), NULL, false, false },
  { "POST", "/sandboxes", SERVE(cb_control_create_v1), NULL, false, false },
  { "GET", "/v2/sandboxes", SERVE(cb_control_list_v2), NULL, false, false },
  { "GET", "/sandboxes", SERVE(cb_control_list_v1), NULL, false, false },
  { "GET", "/sandboxes/metrics", NOT_HERE("metrics of the control plane") }, /* before {} */
  { "GET", "/sandboxes/{}", SERVE(cb_control_info), NULL, false, false },
  { "DELETE", "/sandboxes/{}", SERVE(cb_control_kill), NULL, true, false },
  { "POST", "/v2/sandboxes/{}/connect", SERVE(cb_control_connect_v2), NULL, false, false },
  { "POST", "/sandboxes/{}/connect", SERVE(cb_control_connect_v1), NULL, false, false },
  { "POST", "/sandboxes/{}/timeout", SERVE(cb_control_timeout), NULL, false, false },
  { "POST", "/sandboxes/{}/refreshes", SERVE(cb_control_refresh), NULL, false, false },
  { "GET", "/health", SERVE(cb_control_health), NULL, false, true },

  { "POST", "/sandboxes/{}/pause", NOT_HERE("pausing a box") },
  { "POST", "/sandboxes/{}/resume", NOT_HERE("resuming a box (use connect)") },
  { "PUT", "/sandboxes/{}/network", NOT_HERE("changing the network of a running box") },
  { "POST", "/sandboxes/{}/snapshots", NOT_HERE("snapshots") },
  { "GET", "/snapshots", NOT_HERE("snapshots") },
  { "DELETE", "/templates/{}", NOT_HERE("deleting templates") },
  { "GET", "/templates", NOT_HERE("listing templates") },
  { "POST", "/templates", NOT_HERE("building templates") },
  { "POST", "/sandboxes/{}/fork", NOT_HERE("forking a box") },
  { "GET", "/sandboxes/{}/metrics", NOT_HERE("metrics of the control plane") },
  { "GET", "/sandboxes/{}/logs", NOT_HERE("logs of a box") },
  { "GET", "/v2/sandboxes/{}/logs", NOT_HERE("logs of a box") },
};

struct box_route {
  const char *method;
  const char *path;
  struct cb_endpoint endpoint;
  enum { TOKEN, OPEN, FILES_READ, FILES_WRITE } access;
};

#define RPC(path, f) { "POST", path, SERVE(f), TOKEN }

static const struct box_route box_routes[] = {
  RPC("/process.Process/Start", cb_envd_start),
  RPC("/process.Process/Connect", cb_envd_connect),
  RPC("/process.Process/List", cb_envd_list),
  RPC("/process.Process/SendInput", cb_envd_send_input),
  RPC("/process.Process/CloseStdin", cb_envd_close_stdin),
  RPC("/process.Process/SendSignal", cb_envd_send_signal),
  RPC("/process.Process/StreamInput", cb_envd_unimplemented),
  RPC("/process.Process/Update", cb_envd_unimplemented),
  RPC("/filesystem.Filesystem/Stat", cb_envd_stat),
  RPC("/filesystem.Filesystem/MakeDir", cb_envd_make_dir),
  RPC("/filesystem.Filesystem/Move", cb_envd_move),
  RPC("/filesystem.Filesystem/ListDir", cb_envd_list_dir),
  RPC("/filesystem.Filesystem/Remove", cb_envd_remove),
  RPC("/filesystem.Filesystem/WatchDir", cb_envd_unimplemented),
  RPC("/filesystem.Filesystem/CreateWatcher", cb_envd_unimplemented),
  RPC("/filesystem.Filesystem/GetWatcherEvents", cb_envd_unimplemented),
  RPC("/filesystem.Filesystem/RemoveWatcher", cb_envd_unimplemented),
  { "GET", "/health", SERVE(cb_envd_health), OPEN },
  { "GET", "/envs", SERVE(cb_envd_envs), TOKEN },
  { "GET", "/metrics", SERVE(cb_envd_metrics), TOKEN },
  { "GET", "/files", SERVE(cb_envd_download), FILES_READ },
  { "POST", "/files", { NULL, NULL, NULL }, FILES_WRITE }, /* its endpoint is cb_envd_upload */
};

#define COUNT(a) (sizeof(a) / sizeof *(a))

/* --- whom a request is for --- */

/* "49983-ID.anything" or "49983-ID-more": port and id. */
static bool read_label(const char *host, long *port, char id[CB_ROW_ID_MAX + 1])
{
  size_t digits = strspn(host, "0123456789");
  if (digits == 0 || digits > 5 || host[digits] != '-')
    return false;
  const char *from = host + digits + 1;
  size_t n = strspn(from, ID_CHARS);
  if (n == 0 || n > CB_ROW_ID_MAX || (from[n] != '.' && from[n] != '-'))
    return false;
  *port = strtol(host, NULL, 10);
  memcpy(id, from, n);
  id[n] = '\0';
  return true;
}

enum target { TARGET_CONTROL, TARGET_BOX, TARGET_REFUSED };

static enum target read_target(struct cb_request *req, long *port, char id[CB_ROW_ID_MAX + 1])
{
  static const char type[] = "text/plain; charset=utf-8";
  const char *host = cb_request_header(req, "Host");
  const char *want = cb_request_header(req, "E2b-Sandbox-Id"),
             *want_port = cb_request_header(req, "E2b-Sandbox-Port");
  if (host && read_label(host, port, id))
    return TARGET_BOX;
  if (!want && !want_port)
    return TARGET_CONTROL;
  if (!want || !want_port) {
    cb_answer_text(req, 400, type, "missing header");
    return TARGET_REFUSED;
  }
  size_t n = strlen(want);
  if (n == 0 || n > CB_ROW_ID_MAX || strspn(want, ID_CHARS) != n) {
    cb_answer_text(req, 400, type, "Invalid sandbox ID");
    return TARGET_REFUSED;
  }
  size_t digits = strspn(want_port, "0123456789");
  if (digits == 0 || digits > 5 || want_port[digits]) {
    cb_answer_text(req, 400, type, "Invalid sandbox port");
    return TARGET_REFUSED;
  }
  *port = strtol(want_port, NULL, 10);
  memcpy(id, want, n + 1);
  return TARGET_BOX;
}

static void hold(struct cb_request *req, struct cb_row *row)
{
  cb_row_ref(row);
  req->box = row;
  req->release = cb_row_unref;
}

/* --- a box --- */

static void refuse_token(struct cb_request *req)
{
  cb_answer_error(req, 401, NULL,
                  "unauthorized access, please provide a valid access token or method signing if "
                  "supported");
}

static bool may(struct cb_request *req, const struct box_route *r, const char *id)
{
  const struct cb_state *state = &cb_boxd_of(req)->state;
  struct cb_err err = CB_ERR_INIT;
  char token[CB_AUTH_TOKEN_LEN + 1];
  cb_auth_token(state->seed, sizeof state->seed, id, token);
  if (r && r->access == OPEN)
    return true;
  if (r && r->access != TOKEN) {
    if (cb_files_authorize(req, token, r->access == FILES_WRITE, &err)) {
      cb_answer_error(req, 401, NULL, "%s", err.text);
      return false;
    }
    return true;
  }
  if (cb_auth_equal(cb_request_header(req, "X-Access-Token"), token))
    return true;
  refuse_token(req);
  return false;
}

static const struct cb_endpoint *route_box(struct cb_request *req, long port, const char *id)
{
  struct cb_row *row = cb_table_find(cb_boxd_of(req)->table, id);
  if (!row) {
    cb_answer_json(req, 502,
                   json_pack("{s:s,s:s,s:i}", "sandboxId", id, "message",
                             "The sandbox was not found", "code", 502));
    return NULL;
  }
  if (port != ENVD_PORT) {
    cb_answer_json(req, 502,
                   json_pack("{s:s,s:s,s:i,s:i}", "sandboxId", id, "message",
                             "The sandbox is running but crewboxd does not serve its ports",
                             "port", (int)port, "code", 502));
    return NULL;
  }
  const struct box_route *found = NULL;
  bool path_known = false;
  for (size_t i = 0; i < COUNT(box_routes) && !found; i++) {
    if (strcmp(box_routes[i].path, req->path) != 0)
      continue;
    path_known = true;
    if (strcmp(box_routes[i].method, req->method) == 0)
      found = &box_routes[i];
  }
  if (!may(req, found, id))
    return NULL;
  if (!found) {
    cb_answer_text(req, path_known ? 405 : 404, "text/plain; charset=utf-8",
                   path_known ? "method not allowed\n" : "404 page not found\n");
    return NULL;
  }
  hold(req, row);
  return found->access == FILES_WRITE ? &cb_envd_upload : &found->endpoint;
}

/* --- the control plane --- */

/* Whether path fits the pattern; the component for "{}" is copied to name (cut off at its room:
 * it is then too long to be an id, and is refused as one). */
static bool fits(const char *pattern, const char *path, char *name, size_t room)
{
  name[0] = '\0';
  while (*pattern && *path) {
    if (pattern[0] == '{') {
      size_t n = strcspn(path, "/");
      if (n == 0)
        return false;
      snprintf(name, room, "%.*s", (int)(n < room ? n : room - 1), path);
      path += n;
      pattern += 2;
    } else if (*pattern++ != *path++) {
      return false;
    }
  }
  return *pattern == '\0' && *path == '\0';
}

static bool known_client(struct cb_request *req)
{
  const char *key = cb_request_header(req, "X-API-Key");
  if (req->local || cb_auth_equal(key, cb_boxd_of(req)->state.key))
    return true;
  if (key)
    cb_answer_error(req, 401, NULL, "Invalid API key: it is not the content of the key file in "
                                    "the state folder");
  else
    cb_answer_error(req, 401, NULL, "authorization header is missing");
  return false;
}

/* ID or ID-CLIENT to ID in place; false with the request answered. */
static bool plain_id(struct cb_request *req)
{
  char *dash = strchr(req->name, '-');
  bool ok = !dash || !strchr(dash + 1, '-');
  if (dash)
    *dash = '\0';
  ok = ok && req->name[0] && strspn(req->name, ID_CHARS) == strlen(req->name);
  if (!ok)
    cb_answer_error(req, 400, NULL, "Invalid sandbox ID");
  return ok;
}

static const struct cb_endpoint *route_control(struct cb_request *req)
{
  const struct route *found = NULL;
  bool path_known = false;
  for (size_t i = 0; i < COUNT(control_routes) && !found; i++) {
    if (!fits(control_routes[i].path, req->path, req->name, sizeof req->name))
      continue;
    path_known = true;
    if (strcmp(control_routes[i].method, req->method) == 0)
      found = &control_routes[i];
  }
  if ((!found || !found->open) && !known_client(req))
    return NULL;
  if (!found) {
    cb_answer_error(req, path_known ? 405 : 404, NULL,
                    path_known ? "validation error: method not allowed"
                               : "validation error: no matching operation was found");
    return NULL;
  }
  if (found->missing) {
    cb_answer_error(req, 501, "not_supported", "crewboxd does not offer %s", found->missing);
    return NULL;
  }
  if (strstr(found->path, "{}")) {
    if (!plain_id(req))
      return NULL;
    struct cb_table *table = cb_boxd_of(req)->table;
    struct cb_row *row = found->any_box ? cb_table_find_any(table, req->name)
                                        : cb_table_find(table, req->name);
    if (!row || row->state == CB_ROW_STARTING) {
      cb_control_no_box(req, req->name);
      return NULL;
    }
    hold(req, row);
  }
  return &found->endpoint;
}

const struct cb_endpoint *cb_route(struct cb_request *req)
{
  long port;
  char id[CB_ROW_ID_MAX + 1];
  if (cb_boxd_of(req)->stopping) {
    cb_answer_error(req, 503, NULL, "crewboxd is stopping");
    return NULL;
  }
  switch (read_target(req, &port, id)) {
  case TARGET_CONTROL:
    return route_control(req);
  case TARGET_BOX:
    return route_box(req, port, id);
  case TARGET_REFUSED:
    break;
  }
  return NULL;
}
