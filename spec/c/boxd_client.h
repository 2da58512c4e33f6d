/* SPDX-License-Identifier: MIT
 * boxd_client.h: for the tests of crewboxd: starts the real daemon in a temporary folder and
 * speaks HTTP to it, as a client would. Every wait is bounded. */
#ifndef CB_SPEC_BOXD_CLIENT_H
#define CB_SPEC_BOXD_CLIENT_H
#include <curl/curl.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "base/buf.h"
#include "base/encode.h"
#include "wire/frames.h"

extern char **environ;

static char boxd_program[4096]; /* set by main */

static double boxd_now(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static inline void boxd_nap(void)
{
  usleep(20000);
}

/* --- the daemon --- */

struct boxd {
  pid_t pid;
  int out;           /* its standard output */
  char dir[64];      /* its state folder */
  char address[256]; /* what its ready line said */
};

/* Starts one; extra options end with NULL. True when the ready line came. */
static bool boxd_start(struct boxd *d, const char *const *extra)
{
  char *argv[24] = { boxd_program, (char *)"--state", d->dir, (char *)"--log", NULL };
  char log[96], line[512] = "";
  int ends[2], n = 6;
  snprintf(log, sizeof log, "%s.log", d->dir);
  argv[4] = log;
  argv[5] = (char *)"--verbose";
  for (; extra && *extra && n < 23; extra++)
    argv[n++] = (char *)(uintptr_t)*extra;
  argv[n] = NULL;
  if (pipe2(ends, O_CLOEXEC))
    return false;
  posix_spawn_file_actions_t fa;
  posix_spawn_file_actions_init(&fa);
  posix_spawn_file_actions_adddup2(&fa, ends[1], 1);
  int rc = posix_spawn(&d->pid, boxd_program, &fa, NULL, argv, environ);
  posix_spawn_file_actions_destroy(&fa);
  close(ends[1]);
  d->out = ends[0];
  if (rc) {
    d->pid = 0;
    return false;
  }
  struct pollfd p = { d->out, POLLIN, 0 };
  size_t at = 0;
  double until = boxd_now() + 30;
  while (!strchr(line, '\n') && at < sizeof line - 1 && boxd_now() < until) {
    if (poll(&p, 1, 1000) <= 0)
      continue;
    ssize_t k = read(d->out, line + at, sizeof line - 1 - at);
    if (k <= 0)
      return false;
    at += (size_t)k;
    line[at] = '\0';
  }
  return sscanf(line, "ready %255s", d->address) == 1;
}

/* Sends sig and waits for the end; its exit status, or -1. */
static int boxd_stop(struct boxd *d, int sig)
{
  int status = -1;
  if (d->pid <= 0)
    return -1;
  kill(d->pid, sig);
  double until = boxd_now() + 20;
  pid_t got = 0;
  while ((got = waitpid(d->pid, &status, WNOHANG)) == 0 && boxd_now() < until)
    boxd_nap();
  if (got == 0) {
    kill(d->pid, SIGKILL);
    waitpid(d->pid, &status, 0);
    status = -1;
  }
  d->pid = 0;
  close(d->out);
  return status == -1 ? -1 : WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* A connected unix socket, or -1. */
static int boxd_connect(const char *path, int type)
{
  struct sockaddr_un a = { .sun_family = AF_UNIX };
  size_t n = strlen(path);
  int s = n < sizeof a.sun_path ? socket(AF_UNIX, type | SOCK_CLOEXEC, 0) : -1;
  if (s < 0)
    return -1;
  memcpy(a.sun_path, path, n + 1);
  if (connect(s, (struct sockaddr *)&a, sizeof a) == 0)
    return s;
  close(s);
  return -1;
}

/* --- HTTP --- */

struct reply {
  long status;
  struct cb_buf body;
  char headers[4096];
  json_t *json; /* of the body, when it is JSON */
};

struct call {
  const char *method, *path;
  const char *headers[12]; /* "Name: value" ... NULL */
  const void *body;
  size_t body_len;
  bool chunked;
  /* Called with every piece of the answer; false ends the transfer. */
  bool (*each)(void *arg, const char *p, size_t n);
  void *arg;
  long timeout_ms;
};

static void reply_clear(struct reply *r)
{
  cb_buf_clear(&r->body);
  json_decref(r->json);
  memset(r, 0, sizeof *r);
}

struct transfer {
  struct reply *r;
  const struct call *c;
};

static size_t boxd_on_body(char *p, size_t size, size_t n, void *arg)
{
  struct transfer *t = arg;
  if (t->c->each)
    return t->c->each(t->c->arg, p, size * n) ? size * n : 0;
  return cb_buf_add(&t->r->body, p, size * n) == CB_OK ? size * n : 0;
}

static size_t boxd_on_header(char *p, size_t size, size_t n, void *arg)
{
  struct reply *r = arg;
  size_t used = strlen(r->headers);
  if (used + size * n + 1 < sizeof r->headers) {
    memcpy(r->headers + used, p, size * n);
    r->headers[used + size * n] = '\0';
  }
  return size * n;
}

/* One request on a connection of its own. curl's code; the reply must be cleared. */
static int boxd_call(const char *address, const struct call *c, struct reply *r)
{
  CURL *curl = curl_easy_init();
  struct curl_slist *list = curl_slist_append(NULL, "Expect:");
  struct transfer t = { r, c };
  char url[4096];
  memset(r, 0, sizeof *r);
  cb_buf_init(&r->body, 512u << 20);
  bool tcp = strncmp(address, "http", 4) == 0;
  snprintf(url, sizeof url, "%s%s", tcp ? address : "http://localhost", c->path);
  if (!tcp)
    curl_easy_setopt(curl, CURLOPT_UNIX_SOCKET_PATH, address);
  curl_easy_setopt(curl, CURLOPT_URL, url);
  curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, c->method);
  curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, c->timeout_ms ? c->timeout_ms : 60000L);
  for (int i = 0; c->headers[i]; i++)
    list = curl_slist_append(list, c->headers[i]);
  if (c->chunked)
    list = curl_slist_append(list, "Transfer-Encoding: chunked");
  if (c->body) {
    curl_easy_setopt(curl, CURLOPT_POSTFIELDS, c->body);
    curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE, (long)c->body_len);
  }
  curl_easy_setopt(curl, CURLOPT_HTTPHEADER, list);
  curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, boxd_on_body);
  curl_easy_setopt(curl, CURLOPT_WRITEDATA, &t);
  curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, boxd_on_header);
  curl_easy_setopt(curl, CURLOPT_HEADERDATA, r);
  CURLcode rc = curl_easy_perform(curl);
  curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &r->status);
  if (r->body.len && strstr(r->headers, "json"))
    r->json = json_loadb(r->body.p, r->body.len, JSON_DECODE_ANY, NULL);
  curl_slist_free_all(list);
  curl_easy_cleanup(curl);
  return (int)rc;
}

/* A control call with a JSON text (or NULL) as its body: the status. */
static long boxd_control(struct boxd *d, const char *method, const char *path, const char *json,
                         struct reply *r)
{
  struct call c = { .method = method,
                    .path = path,
                    .headers = { "Content-Type: application/json", NULL },
                    .body = json,
                    .body_len = json ? strlen(json) : 0 };
  boxd_call(d->address, &c, r);
  return r->status;
}

static const char *text_of(const struct reply *r, const char *key)
{
  const char *s = json_string_value(json_object_get(r->json, key));
  return s ? s : "";
}

/* --- boxes --- */

struct box {
  struct boxd *d;
  char id[80], token[100];
};

static bool box_create(struct boxd *d, const char *json, struct box *b)
{
  struct reply r;
  long status = boxd_control(d, "POST", "/v2/sandboxes", json, &r);
  b->d = d;
  snprintf(b->id, sizeof b->id, "%s", text_of(&r, "sandboxID"));
  snprintf(b->token, sizeof b->token, "%s", text_of(&r, "envdAccessToken"));
  if (status != 201)
    fprintf(stderr, "create: %ld %s\n", status, r.body.p ? r.body.p : "");
  reply_clear(&r);
  return status == 201;
}

static long box_kill(struct box *b)
{
  char path[128];
  struct reply r;
  snprintf(path, sizeof path, "/sandboxes/%s", b->id);
  long status = boxd_control(b->d, "DELETE", path, NULL, &r);
  reply_clear(&r);
  return status;
}

/* A call to the box itself. type NULL: no Content-Type; more: further headers, NULL-ended. */
static int box_call(const struct box *b, const char *method, const char *path, const char *type,
                    const void *body, size_t n, const char *const *more, struct reply *r)
{
  char id[128], token[160], ct[128];
  struct call c = { .method = method, .path = path, .body = body, .body_len = n };
  snprintf(id, sizeof id, "E2b-Sandbox-Id: %s", b->id);
  snprintf(token, sizeof token, "X-Access-Token: %s", b->token);
  snprintf(ct, sizeof ct, "Content-Type: %s", type ? type : "");
  int k = 0;
  c.headers[k++] = id;
  c.headers[k++] = "E2b-Sandbox-Port: 49983";
  if (b->token[0])
    c.headers[k++] = token;
  if (type)
    c.headers[k++] = ct;
  for (; more && *more && k < 11; more++)
    c.headers[k++] = *more;
  return boxd_call(b->d->address, &c, r);
}

static long box_rpc(const struct box *b, const char *method, const char *json, struct reply *r)
{
  char path[128];
  snprintf(path, sizeof path, "/%s", method);
  box_call(b, "POST", path, "application/json", json, strlen(json), NULL, r);
  return r->status;
}

/* --- streams --- */

struct events {
  struct cb_frame_decoder decoder;
  struct cb_buf out, err;
  long pid;
  int exit;           /* exitCode of the end event */
  bool started, ended, trailer, broken;
  int keepalives;
  char status[64];    /* of the end event */
  char error[64], message[256]; /* of the trailer */
  /* Looked at after every event: true ends the transfer. */
  bool (*enough)(struct events *e);
  pthread_mutex_t lock; /* held while an event is noted, for tests that look from outside */
};

static void events_init(struct events *e)
{
  memset(e, 0, sizeof *e);
  cb_frame_decoder_init(&e->decoder, CB_FRAME_MAX);
  cb_buf_init(&e->out, 512u << 20);
  cb_buf_init(&e->err, 64u << 20);
  pthread_mutex_init(&e->lock, NULL);
}

static void events_clear(struct events *e)
{
  cb_frame_decoder_clear(&e->decoder);
  cb_buf_clear(&e->out);
  cb_buf_clear(&e->err);
  pthread_mutex_destroy(&e->lock);
}

static void events_note(struct events *e, json_t *j, bool is_trailer)
{
  json_t *event = json_object_get(j, "event"), *part, *text;
  if (is_trailer) {
    e->trailer = true;
    part = json_object_get(j, "error");
    if (part) {
      snprintf(e->error, sizeof e->error, "%s", json_string_value(json_object_get(part, "code")));
      snprintf(e->message, sizeof e->message, "%s",
               json_string_value(json_object_get(part, "message")));
    }
    return;
  }
  if ((part = json_object_get(event, "start"))) {
    e->started = true;
    e->pid = (long)json_integer_value(json_object_get(part, "pid"));
  }
  if ((part = json_object_get(event, "data"))) {
    if ((text = json_object_get(part, "stdout")))
      cb_base64_decode(&e->out, json_string_value(text), json_string_length(text));
    if ((text = json_object_get(part, "stderr")))
      cb_base64_decode(&e->err, json_string_value(text), json_string_length(text));
  }
  if (json_object_get(event, "keepalive"))
    e->keepalives++;
  if ((part = json_object_get(event, "end"))) {
    e->ended = true;
    e->exit = (int)json_integer_value(json_object_get(part, "exitCode"));
    snprintf(e->status, sizeof e->status, "%s", json_string_value(json_object_get(part, "status")));
  }
}

static bool events_each(void *arg, const char *p, size_t n)
{
  struct events *e = arg;
  struct cb_frame f;
  struct cb_err err = CB_ERR_INIT;
  int got;
  bool enough = false;
  pthread_mutex_lock(&e->lock);
  while ((got = cb_frame_next(&e->decoder, &p, &n, &f, &err)) > 0) {
    json_t *j = json_loadb(f.p, f.n, 0, NULL);
    events_note(e, j, f.flags & CB_FRAME_END);
    json_decref(j);
    enough = enough || (e->enough && e->enough(e));
  }
  e->broken = e->broken || got < 0;
  pthread_mutex_unlock(&e->lock);
  return !enough && got >= 0;
}

/* Runs a streaming call until its end, or until `enough`. */
static int box_stream(const struct box *b, const char *method, const char *json,
                      const char *const *more, struct events *e)
{
  char id[128], token[160], path[128];
  struct reply r;
  struct cb_buf body;
  cb_buf_init(&body, 32u << 20);
  cb_frame_add(&body, 0, json, strlen(json));
  snprintf(id, sizeof id, "E2b-Sandbox-Id: %s", b->id);
  snprintf(token, sizeof token, "X-Access-Token: %s", b->token);
  snprintf(path, sizeof path, "/process.Process/%s", method);
  struct call c = { .method = "POST",
                    .path = path,
                    .headers = { id, token, "E2b-Sandbox-Port: 49983",
                                 "Content-Type: application/connect+json", NULL },
                    .body = body.p,
                    .body_len = body.len,
                    .each = events_each,
                    .arg = e };
  int k = 4;
  for (; more && *more && k < 11; more++)
    c.headers[k++] = *more;
  int rc = boxd_call(b->d->address, &c, &r);
  cb_buf_clear(&body);
  reply_clear(&r);
  return rc;
}

/* Runs a shell command to its end. */
static void box_run(const struct box *b, const char *command, struct events *e)
{
  events_init(e);
  json_t *j = json_pack("{s:{s:s,s:[s,s]},s:b}", "process", "cmd", "/bin/sh", "args", "-c", command,
                        "stdin", 0);
  char *text = json_dumps(j, 0);
  json_decref(j);
  box_stream(b, "Start", text, NULL, e);
  free(text);
}

static bool enough_started(struct events *e)
{
  return e->started;
}

/* Starts a shell command in the background: its pid, 0 on failure. */
static long box_spawn(const struct box *b, const char *command, bool with_stdin)
{
  struct events e;
  events_init(&e);
  e.enough = enough_started;
  json_t *j = json_pack("{s:{s:s,s:[s,s]},s:b}", "process", "cmd", "/bin/sh", "args", "-c", command,
                        "stdin", with_stdin);
  char *text = json_dumps(j, 0);
  json_decref(j);
  box_stream(b, "Start", text, NULL, &e);
  free(text);
  long pid = e.pid;
  events_clear(&e);
  return pid;
}
#endif
