/* SPDX-License-Identifier: MIT
 * crewboxd as its clients see it: the real daemon, real boxes, HTTP over its unix socket (and
 * TCP where that differs). The programs are looked for in the folder given as argument, in
 * $CREWBOX_BUILD, or in the folder above this test. */
#include <dirent.h>
#include <zlib.h>
#include "c/boxd_client.h"
#include "c/check.h"

static struct boxd d; /* the daemon most cases share */

static const char base[] = "{\"templateID\":\"base\",\"timeout\":600}";

static bool make_dir(char *out, size_t size)
{
  snprintf(out, size, "/tmp/crewbox-boxd-XXXXXX");
  return mkdtemp(out) != NULL;
}

static void remove_dir(const char *dir)
{
  char command[256];
  snprintf(command, sizeof command, "rm -rf '%s' '%s.log'", dir, dir);
  if (system(command) != 0)
    fprintf(stderr, "could not remove %s\n", dir);
}

/* Folders of boxes; the one of the daemon's own check of the isolation is none. */
static size_t count_boxes(const char *dir)
{
  char path[256];
  size_t n = 0;
  snprintf(path, sizeof path, "%s/boxes", dir);
  DIR *o = opendir(path);
  const struct dirent *e;
  while (o && (e = readdir(o)))
    n += e->d_name[0] == 'i';
  if (o)
    closedir(o);
  return n;
}

static bool file_has(const char *path, const char *text)
{
  struct cb_buf b;
  bool has = false;
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    return false;
  cb_buf_init(&b, 64u << 20);
  if (cb_buf_read_all(&b, fd, NULL) == CB_OK && b.p)
    has = memmem(b.p, b.len, text, strlen(text)) != NULL;
  close(fd);
  cb_buf_clear(&b);
  return has;
}

/* Whether any process of the machine has `text` in its command line. */
static bool any_process_has(const char *text)
{
  DIR *o = opendir("/proc");
  const struct dirent *e;
  bool found = false;
  while (o && !found && (e = readdir(o))) {
    char path[300];
    if (e->d_name[0] < '1' || e->d_name[0] > '9' || strtol(e->d_name, NULL, 10) == getpid())
      continue;
    snprintf(path, sizeof path, "/proc/%s/cmdline", e->d_name);
    found = file_has(path, text);
  }
  if (o)
    closedir(o);
  return found;
}

static long box_info(struct boxd *at, const char *id, struct reply *r)
{
  char path[128];
  snprintf(path, sizeof path, "/sandboxes/%s", id);
  return boxd_control(at, "GET", path, NULL, r);
}

/* --- cases --- */

static void program(void)
{
  struct boxd two = { .pid = 0 };
  char command[4400];
  snprintf(command, sizeof command, "'%s' --help | grep -q 'usage: crewboxd'", boxd_program);
  CHECK(system(command) == 0);
  snprintf(command, sizeof command, "'%s' --version | grep -q '^crewboxd '", boxd_program);
  CHECK(system(command) == 0);
  snprintf(command, sizeof command, "'%s' --nonsense 2>/dev/null", boxd_program);
  CHECK(WEXITSTATUS(system(command)) == 2);
  snprintf(two.dir, sizeof two.dir, "%s", d.dir);
  CHECK(!boxd_start(&two, NULL)); /* the folder is taken */
  CHECK(boxd_stop(&two, SIGCONT) == 3);
  CHECK(kill(d.pid, 0) == 0);
}

static void health(void)
{
  struct reply r;
  CHECK(boxd_control(&d, "GET", "/health", NULL, &r) == 200);
  CHECK_STR(text_of(&r, "server"), "crewboxd");
  CHECK(*text_of(&r, "version"));
  CHECK(*json_string_value(json_object_get(json_object_get(r.json, "isolation"), "state")));
  reply_clear(&r);
}

static void unknown_and_missing(void)
{
  static const struct {
    const char *method, *path;
    long status;
    const char *says;
  } cases[] = {
    { "GET", "/nothing", 404, "validation error: no matching operation was found" },
    { "PATCH", "/sandboxes", 405, "validation error: method not allowed" },
    { "GET", "/sandboxes/i0123", 404, "Sandbox \"i0123\" doesn't exist" },
    { "DELETE", "/sandboxes/i0123", 404, "Sandbox \"i0123\" doesn't exist" },
    { "GET", "/sandboxes/i0123-client", 404, "Sandbox \"i0123\" doesn't exist" },
    { "GET", "/sandboxes/i0-1-2", 400, "Invalid sandbox ID" },
    { "GET", "/sandboxes/%2e%2e", 400, "Invalid sandbox ID" },
    { "POST", "/sandboxes/i0123/pause", 501, "pausing" },
    { "POST", "/sandboxes/i0123/snapshots", 501, "snapshots" },
    { "GET", "/sandboxes/metrics?sandbox_ids=a", 501, "metrics" },
    { "GET", "/sandboxes/%00", 400, "NUL" },
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct reply r;
    long status = boxd_control(&d, cases[i].method, cases[i].path, NULL, &r);
    bool as_said = status == cases[i].status && strstr(text_of(&r, "message"), cases[i].says);
    if (!as_said)
      fprintf(stderr, "%s %s: %ld %s\n", cases[i].method, cases[i].path, status, r.body.p);
    CHECK(as_said);
    CHECK(json_integer_value(json_object_get(r.json, "code")) == status);
    reply_clear(&r);
  }
}

static void create_errors(void)
{
  struct reply r;
  CHECK(boxd_control(&d, "POST", "/v2/sandboxes", "{", &r) == 400);
  reply_clear(&r);
  CHECK(boxd_control(&d, "POST", "/v2/sandboxes", "{\"templateID\":\"nope\"}", &r) == 404);
  CHECK(strstr(text_of(&r, "message"), "nope") != NULL);
  reply_clear(&r);
  CHECK(boxd_control(&d, "POST", "/v2/sandboxes",
                     "{\"templateID\":\"base\",\"crewbox\":{\"x\":1}}", &r) == 400);
  CHECK(strstr(text_of(&r, "message"), "\"x\"") != NULL);
  reply_clear(&r);
  CHECK(count_boxes(d.dir) == 0); /* nothing half-made */
}

static void life(void)
{
  struct box b;
  struct reply r;
  char path[160], end[64];
  CHECK(box_create(&d,
                   "{\"templateID\":\"base\",\"timeout\":600,\"metadata\":{\"k\":\"v\","
                   "\"odd key\":\"a&b=c\"},\"envVars\":{\"GREETING\":\"for-the-box-only-53\"},"
                   "\"crewbox\":{\"network\":{\"mode\":\"none\"},\"limits\":{}}}", &b));
  CHECK(strlen(b.id) == 21 && strlen(b.token) == 64);
  CHECK(box_info(&d, b.id, &r) == 200);
  CHECK_STR(text_of(&r, "state"), "running");
  CHECK_STR(text_of(&r, "envdAccessToken"), b.token);
  CHECK_STR(json_string_value(json_object_get(json_object_get(r.json, "metadata"), "k")), "v");
  snprintf(end, sizeof end, "%s", text_of(&r, "endAt"));
  reply_clear(&r);

  /* box-wide environment: in processes, not on disk */
  struct events e;
  box_run(&b, "echo $GREETING $E2B_SANDBOX $E2B_SANDBOX_ID", &e);
  char want[160];
  snprintf(want, sizeof want, "for-the-box-only-53 true %s\n", b.id);
  CHECK_STR(e.out.p, want);
  events_clear(&e);
  snprintf(path, sizeof path, "%s/boxes/%s/box.json", d.dir, b.id);
  CHECK(file_has(path, "odd key") && !file_has(path, "for-the-box-only-53"));
  CHECK(!any_process_has("for-the-box-only-53"));
  box_call(&b, "GET", "/envs", NULL, NULL, 0, NULL, &r);
  CHECK_STR(text_of(&r, "GREETING"), "for-the-box-only-53");
  reply_clear(&r);

  /* connect never shortens; timeout may; refresh extends */
  snprintf(path, sizeof path, "/v2/sandboxes/%s/connect", b.id);
  CHECK(boxd_control(&d, "POST", path, "{\"timeout\":10}", &r) == 200);
  CHECK_STR(text_of(&r, "sandboxID"), b.id);
  reply_clear(&r);
  box_info(&d, b.id, &r);
  CHECK(strncmp(text_of(&r, "endAt"), end, 16) >= 0);
  reply_clear(&r);
  snprintf(path, sizeof path, "/sandboxes/%s/connect", b.id);
  CHECK(boxd_control(&d, "POST", path, "{}", &r) == 400); /* v1 wants a timeout */
  reply_clear(&r);
  snprintf(path, sizeof path, "/sandboxes/%s/timeout", b.id);
  CHECK(boxd_control(&d, "POST", path, "{\"timeout\":60}", &r) == 204 && r.body.len == 0);
  reply_clear(&r);
  box_info(&d, b.id, &r);
  CHECK(strcmp(text_of(&r, "endAt"), end) < 0);
  reply_clear(&r);
  CHECK(boxd_control(&d, "POST", path, "{\"timeout\":\"x\"}", &r) == 400);
  reply_clear(&r);
  snprintf(path, sizeof path, "/sandboxes/%s/refreshes", b.id);
  CHECK(boxd_control(&d, "POST", path, "{\"duration\":3600}", &r) == 204);
  reply_clear(&r);
  CHECK(boxd_control(&d, "POST", path, "{\"duration\":3601}", &r) == 400);
  reply_clear(&r);
  box_info(&d, b.id, &r);
  CHECK(strcmp(text_of(&r, "endAt"), end) > 0);
  reply_clear(&r);

  CHECK(box_kill(&b) == 204);
  CHECK(box_info(&d, b.id, &r) == 404);
  reply_clear(&r);
  CHECK(box_kill(&b) == 404);
  box_call(&b, "GET", "/health", NULL, NULL, 0, NULL, &r);
  CHECK(r.status == 502);
  CHECK_STR(text_of(&r, "message"), "The sandbox was not found");
  reply_clear(&r);
  CHECK(count_boxes(d.dir) == 0);
}

static void lists(void)
{
  struct box b[3];
  struct reply r;
  char path[512], token[128] = "";
  for (int i = 0; i < 3; i++) {
    char json[256];
    snprintf(json, sizeof json,
             "{\"templateID\":\"base\",\"timeout\":600,\"metadata\":{\"n\":\"%d\","
             "\"odd key\":\"a&b=c\"}}", i);
    CHECK(box_create(&d, json, &b[i]));
  }
  CHECK(boxd_control(&d, "GET", "/v2/sandboxes", NULL, &r) == 200);
  CHECK(json_array_size(r.json) == 3 && !strcasestr(r.headers, "X-Next-Token"));
  CHECK(strcasestr(r.headers, "X-Total-Running: 3") != NULL);
  reply_clear(&r);
  CHECK(boxd_control(&d, "GET", "/sandboxes?metadata=n%3D1", NULL, &r) == 200);
  CHECK(json_array_size(r.json) == 1);
  CHECK_STR(json_string_value(json_object_get(json_array_get(r.json, 0), "sandboxID")), b[1].id);
  reply_clear(&r);
  /* keys and values are encoded twice, the whole once more */
  CHECK(boxd_control(&d, "GET",
                     "/v2/sandboxes?metadata=n%3D2%26odd%252520key%3Da%252526b%25253Dc", NULL,
                     &r) == 200);
  CHECK(json_array_size(r.json) == 1);
  reply_clear(&r);
  CHECK(boxd_control(&d, "GET", "/v2/sandboxes?state=paused", NULL, &r) == 200);
  CHECK(json_array_size(r.json) == 0);
  reply_clear(&r);
  static const char *const bad[] = { "limit=0", "limit=101", "limit=x", "state=odd", "order=up",
                                     "metadata=x", "metadata=a%3Db%3Dc", "nextToken=AAAA",
                                     "startedAfter=yesterday" };
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    snprintf(path, sizeof path, "/v2/sandboxes?%s", bad[i]);
    long status = boxd_control(&d, "GET", path, NULL, &r);
    if (status != 400)
      fprintf(stderr, "%s: %ld\n", bad[i], status);
    CHECK(status == 400);
    reply_clear(&r);
  }
  /* pages of one, oldest first */
  int seen = 0;
  bool in_order = true;
  for (int page = 0; page < 4; page++) {
    snprintf(path, sizeof path, "/v2/sandboxes?limit=1&order=asc%s%s", *token ? "&nextToken=" : "",
             token);
    CHECK(boxd_control(&d, "GET", path, NULL, &r) == 200);
    const char *id = json_string_value(json_object_get(json_array_get(r.json, 0), "sandboxID"));
    bool known = false;
    for (int i = 0; i < 3; i++)
      known = known || (id && strcmp(id, b[i].id) == 0);
    in_order = in_order && known;
    seen += (int)json_array_size(r.json);
    const char *next = strcasestr(r.headers, "X-Next-Token:");
    token[0] = '\0';
    if (next)
      sscanf(next + 13, " %127[^\r\n]", token);
    reply_clear(&r);
    if (!*token)
      break;
    for (char *p = token; *p; p++) /* padding must be encoded in a query */
      if (*p == '=')
        *p = '\0', p--;
  }
  CHECK(seen == 3 && in_order && !*token);
  for (int i = 0; i < 3; i++)
    CHECK(box_kill(&b[i]) == 204);
}

/* --- processes --- */

static void processes(struct box *b)
{
  struct events e;
  struct reply r;
  char json[256];
  box_run(b, "echo out; echo err >&2; exit 3", &e);
  CHECK_STR(e.out.p, "out\n");
  CHECK_STR(e.err.p, "err\n");
  CHECK(e.started && e.pid > 0 && e.ended && e.trailer && !*e.error && !e.broken);
  CHECK(e.exit == 3);
  CHECK_STR(e.status, "exit status 3");
  snprintf(json, sizeof json, "{\"process\":{\"pid\":%ld}}", e.pid);
  events_clear(&e);

  /* an exit is kept: start and end, no output */
  events_init(&e);
  box_stream(b, "Connect", json, NULL, &e);
  CHECK(e.started && e.ended && e.exit == 3 && e.out.len == 0 && e.trailer);
  events_clear(&e);

  box_run(b, "id -un; pwd; exit 0", &e);
  CHECK_STR(e.out.p, "user\n/home/user\n");
  CHECK_STR(e.status, "exit status 0");
  events_clear(&e);

  events_init(&e);
  static const char *const root[] = { "Authorization: Basic cm9vdDo=", NULL };
  box_stream(b, "Start",
             "{\"process\":{\"cmd\":\"/bin/sh\",\"args\":[\"-c\",\"id -u; echo $A\"],"
             "\"envs\":{\"A\":\"1\"}},\"stdin\":false}", root, &e);
  CHECK_STR(e.out.p, "0\n1\n");
  events_clear(&e);

  /* errors are in the trailer */
  static const struct {
    const char *json, *header, *code, *says;
  } bad[] = {
    { "{\"process\":{\"cmd\":\"true\",\"cwd\":\"/nope\"}}", NULL, "invalid_argument",
      "cwd '/nope' does not exist" },
    { "{\"process\":{\"cmd\":\"true\"}}", "Authorization: Basic bm9ib2R5Og==", "unauthenticated",
      "invalid username: 'nobody'" },
    { "{\"process\":{}}", NULL, "invalid_argument", "cmd" },
    { "{\"process\":{\"cmd\":\"true\",\"args\":[1]}}", NULL, "invalid_argument", "args" },
    { "{\"process\":{\"cmd\":\"true\",\"envs\":{\"A=\":\"\"}}}", NULL, "invalid_argument", "A=" },
    { "{\"process\":{\"cmd\":\"true\"},\"pty\":{\"size\":{\"cols\":80}}}", NULL, "unimplemented",
      "pty" },
    { "not json", NULL, "invalid_argument", "" },
    { "{\"process\":{\"cmd\":\"true\"}}", "Connect-Timeout-Ms: soon", "invalid_argument",
      "timeout" },
  };
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    const char *more[] = { bad[i].header, NULL };
    events_init(&e);
    box_stream(b, "Start", bad[i].json, more, &e);
    if (strcmp(e.error, bad[i].code) != 0 || !strstr(e.message, bad[i].says))
      fprintf(stderr, "%s: %s %s\n", bad[i].json, e.error, e.message);
    CHECK_STR(e.error, bad[i].code);
    CHECK(strstr(e.message, bad[i].says) && !e.started && e.trailer);
    events_clear(&e);
  }
  /* a missing program is an ordinary exit */
  events_init(&e);
  box_stream(b, "Start", "{\"process\":{\"cmd\":\"no-such-program\"},\"stdin\":false}", NULL, &e);
  CHECK(e.started && e.exit == 127);
  events_clear(&e);

  /* a deadline ends the process with SIGKILL, attached or not */
  static const char *const soon[] = { "Connect-Timeout-Ms: 300", NULL };
  events_init(&e);
  box_stream(b, "Start", "{\"process\":{\"cmd\":\"sleep\",\"args\":[\"300\"]},\"stdin\":false}",
             soon, &e);
  CHECK_STR(e.error, "deadline_exceeded");
  events_clear(&e);
  double until = boxd_now() + 10;
  bool none = false;
  while (!none && boxd_now() < until) {
    CHECK(box_rpc(b, "process.Process/List", "{}", &r) == 200);
    none = json_object_get(r.json, "processes") == NULL;
    reply_clear(&r);
    if (!none)
      boxd_nap();
  }
  CHECK(none);

  /* large output, whole and in order */
  box_run(b, "head -c 5000000 /dev/zero | tr '\\0' x; echo end", &e);
  CHECK(e.out.len == 5000004 && strcmp(e.out.p + 5000000, "end\n") == 0 && e.ended);
  events_clear(&e);
}

struct follower {
  struct box *b;
  long pid;
  struct events e;
  pthread_t thread;
};

static void *run_follower(void *arg)
{
  struct follower *f = arg;
  char json[96];
  snprintf(json, sizeof json, "{\"process\":{\"pid\":%ld}}", f->pid);
  box_stream(f->b, "Connect", json, NULL, &f->e);
  return NULL;
}

static void follower_start(struct follower *f, struct box *b, long pid)
{
  f->b = b;
  f->pid = pid;
  events_init(&f->e);
  pthread_create(&f->thread, NULL, run_follower, f);
  double until = boxd_now() + 20;
  bool started = false;
  while (!started && boxd_now() < until) {
    boxd_nap();
    pthread_mutex_lock(&f->e.lock);
    started = f->e.started;
    pthread_mutex_unlock(&f->e.lock);
  }
  CHECK(started);
}

static long send_input(struct box *b, long pid, const char *text)
{
  char b64[CB_BASE64_LEN(128) + 1], json[300];
  struct reply r;
  cb_base64(text, strlen(text), b64);
  snprintf(json, sizeof json, "{\"process\":{\"pid\":%ld},\"input\":{\"stdin\":\"%s\"}}", pid, b64);
  long status = box_rpc(b, "process.Process/SendInput", json, &r);
  reply_clear(&r);
  return status;
}

static void input_and_signals(struct box *b)
{
  struct reply r;
  struct follower one, two;
  struct events e;
  char json[200];
  long pid = box_spawn(b, "while read l; do echo got:$l; done; echo eof", true);
  CHECK(pid > 0);
  CHECK(box_rpc(b, "process.Process/List", "{}", &r) == 200);
  json_t *first = json_array_get(json_object_get(r.json, "processes"), 0);
  CHECK(json_integer_value(json_object_get(first, "pid")) == pid);
  CHECK_STR(json_string_value(json_object_get(json_object_get(first, "config"), "cmd")), "/bin/sh");
  reply_clear(&r);
  follower_start(&one, b, pid);
  follower_start(&two, b, pid);
  CHECK(send_input(b, pid, "hello\n") == 200);
  CHECK(send_input(b, pid, "again\n") == 200);
  snprintf(json, sizeof json, "{\"process\":{\"pid\":%ld}}", pid);
  CHECK(box_rpc(b, "process.Process/CloseStdin", json, &r) == 200);
  reply_clear(&r);
  pthread_join(one.thread, NULL);
  pthread_join(two.thread, NULL);
  CHECK_STR(one.e.out.p, "got:hello\ngot:again\neof\n");
  CHECK_STR(two.e.out.p, "got:hello\ngot:again\neof\n");
  CHECK(one.e.ended && one.e.exit == 0 && one.e.trailer);
  events_clear(&one.e);
  events_clear(&two.e);
  CHECK(send_input(b, pid, "late\n") == 404);

  /* a process without a pipe */
  pid = box_spawn(b, "sleep 300", false);
  CHECK(send_input(b, pid, "x") == 500);
  follower_start(&one, b, pid);
  snprintf(json, sizeof json, "{\"process\":{\"pid\":%ld},\"signal\":\"SIGNAL_SIGINT\"}", pid);
  CHECK(box_rpc(b, "process.Process/SendSignal", json, &r) == 501);
  reply_clear(&r);
  snprintf(json, sizeof json, "{\"process\":{\"pid\":%ld},\"signal\":\"SIGNAL_SIGTERM\"}", pid);
  CHECK(box_rpc(b, "process.Process/SendSignal", json, &r) == 200);
  reply_clear(&r);
  pthread_join(one.thread, NULL);
  CHECK_STR(one.e.status, "signal: terminated");
  CHECK(one.e.ended && one.e.exit == -1);
  events_clear(&one.e);
  CHECK(box_rpc(b, "process.Process/SendSignal", json, &r) == 404);
  CHECK_STR(text_of(&r, "code"), "not_found");
  reply_clear(&r);

  /* an end is not held up by a child that keeps the pipes once a signal was sent */
  pid = box_spawn(b, "sleep 300 & echo $!; wait", false);
  follower_start(&one, b, pid);
  snprintf(json, sizeof json, "{\"process\":{\"pid\":%ld},\"signal\":9}", pid);
  CHECK(box_rpc(b, "process.Process/SendSignal", json, &r) == 200);
  reply_clear(&r);
  pthread_join(one.thread, NULL);
  CHECK_STR(one.e.status, "signal: killed");
  events_clear(&one.e);
  box_run(b, "pkill sleep; true", &e);
  events_clear(&e);

  /* tags; nobody reads: output is dropped, the process goes on */
  events_init(&e);
  e.enough = enough_started;
  box_stream(b, "Start",
             "{\"process\":{\"cmd\":\"/bin/sh\",\"args\":[\"-c\",\"head -c 1000000 /dev/zero; "
             "touch ~/through; sleep 300\"]},\"tag\":\"mine\",\"stdin\":false}", NULL, &e);
  pid = e.pid;
  events_clear(&e);
  box_run(b, "for i in $(seq 500); do [ -e ~/through ] && echo yes && exit; sleep 0.02; done", &e);
  CHECK_STR(e.out.p, "yes\n");
  events_clear(&e);
  CHECK(box_rpc(b, "process.Process/SendSignal",
                "{\"process\":{\"tag\":\"mine\"},\"signal\":\"SIGNAL_SIGKILL\"}", &r) == 200);
  reply_clear(&r);
  events_init(&e);
  box_stream(b, "Connect", "{\"process\":{\"pid\":999999}}", NULL, &e);
  CHECK_STR(e.error, "not_found");
  CHECK_STR(e.message, "process with pid 999999 not found");
  events_clear(&e);

  /* what envd has and this server does not */
  CHECK(box_rpc(b, "process.Process/Update", "{}", &r) == 501);
  CHECK_STR(text_of(&r, "code"), "unimplemented");
  reply_clear(&r);
  CHECK(box_rpc(b, "process.Process/Nothing", "{}", &r) == 404);
  reply_clear(&r);
  box_call(b, "POST", "/process.Process/List", "application/proto", "", 0, NULL, &r);
  CHECK(r.status == 415);
  reply_clear(&r);
}

/* A reader that stops reading stops the process, and nothing grows meanwhile. */
static void back_pressure(struct box *b)
{
  struct events e;
  char text[1024];
  int s = boxd_connect(d.address, SOCK_STREAM);
  const char json[] = "{\"process\":{\"cmd\":\"/bin/sh\",\"args\":[\"-c\",\"yes | head -c 20000000;"
                      " touch ~/written; sleep 300\"]},\"stdin\":false}";
  int n = snprintf(text, sizeof text,
                   "POST /process.Process/Start HTTP/1.1\r\nHost: localhost\r\n"
                   "E2b-Sandbox-Id: %s\r\nE2b-Sandbox-Port: 49983\r\nX-Access-Token: %s\r\n"
                   "Content-Type: application/connect+json\r\nContent-Length: %zu\r\n\r\n", b->id,
                   b->token, sizeof json - 1 + 5);
  struct cb_buf body;
  cb_buf_init(&body, 4096);
  cb_frame_add(&body, 0, json, sizeof json - 1);
  CHECK(send(s, text, (size_t)n, MSG_NOSIGNAL) == n);
  CHECK(send(s, body.p, body.len, MSG_NOSIGNAL) == (ssize_t)body.len);
  cb_buf_clear(&body);
  struct pollfd p = { s, POLLIN, 0 };
  CHECK(poll(&p, 1, 20000) == 1);
  box_run(b, "sleep 1; [ -e ~/written ] && echo written || echo waits", &e);
  CHECK_STR(e.out.p, "waits\n");
  events_clear(&e);
  close(s); /* and the process goes on */
  box_run(b, "for i in $(seq 1000); do [ -e ~/written ] && echo yes && break; sleep 0.02; done; "
             "pkill sleep; true", &e);
  CHECK_STR(e.out.p, "yes\n");
  events_clear(&e);
}

static size_t open_descriptors(pid_t pid)
{
  char path[64];
  size_t n = 0;
  snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
  DIR *o = opendir(path);
  while (o && readdir(o))
    n++;
  if (o)
    closedir(o);
  return n;
}

/* Clients that leave quiet streams: the library would notice at the next keepalive only. */
static void abandoned_streams(struct box *b)
{
  enum { COUNT = 40 };
  long pid = box_spawn(b, "sleep 300", false);
  struct events e;
  size_t before = open_descriptors(d.pid);
  for (int i = 0; i < COUNT; i++) {
    char json[96];
    snprintf(json, sizeof json, "{\"process\":{\"pid\":%ld}}", pid);
    events_init(&e);
    e.enough = enough_started;
    box_stream(b, "Connect", json, NULL, &e);
    CHECK(e.started);
    events_clear(&e);
  }
  double until = boxd_now() + 20;
  while (open_descriptors(d.pid) > before && boxd_now() < until)
    boxd_nap();
  CHECK(open_descriptors(d.pid) <= before);
  box_run(b, "pkill sleep; true", &e);
  events_clear(&e);
}

/* Clients that leave during a create: each box is there or is not, and can be found. */
static void abandoned_creates(void)
{
  struct reply r;
  for (long ms = 1; ms <= 8; ms++) {
    const char json[] = "{\"templateID\":\"base\",\"timeout\":600,\"metadata\":{\"lost\":\"1\"}}";
    struct call c = { .method = "POST", .path = "/v2/sandboxes", .headers = { NULL }, .body = json,
                      .body_len = sizeof json - 1, .timeout_ms = ms };
    boxd_call(d.address, &c, &r);
    reply_clear(&r);
  }
  double until = boxd_now() + 20;
  int quiet = 0; /* looks in a row that found nothing: a request may still be on its way */
  while (quiet < 5 && boxd_now() < until) {
    boxd_control(&d, "GET", "/v2/sandboxes?metadata=lost%3D1", NULL, &r);
    size_t n = json_array_size(r.json);
    quiet = n == 0 && count_boxes(d.dir) == 0 ? quiet + 1 : 0;
    for (size_t i = 0; i < n; i++) {
      struct box b = { .d = &d };
      snprintf(b.id, sizeof b.id, "%s",
               json_string_value(json_object_get(json_array_get(r.json, i), "sandboxID")));
      CHECK(box_kill(&b) == 204);
    }
    reply_clear(&r);
    boxd_nap();
  }
  CHECK(quiet == 5);
}

static void keepalive(struct box *b)
{
  struct events e;
  static const char *const every[] = { "Keepalive-Ping-Interval: 1", NULL };
  events_init(&e);
  box_stream(b, "Start", "{\"process\":{\"cmd\":\"sleep\",\"args\":[\"2.5\"]},\"stdin\":false}",
             every, &e);
  CHECK(e.keepalives >= 1 && e.ended && e.exit == 0);
  events_clear(&e);
}

/* --- files --- */

static long upload(struct box *b, const char *query, const char *type, const void *body, size_t n,
                   const char *more, struct reply *r)
{
  char path[512];
  const char *headers[] = { more, NULL };
  snprintf(path, sizeof path, "/files%s", query);
  box_call(b, "POST", path, type, body, n, headers, r);
  return r->status;
}

static long download(struct box *b, const char *path, const char *more, struct reply *r)
{
  char target[512];
  const char *headers[] = { more, NULL };
  snprintf(target, sizeof target, "/files?path=%s", path);
  box_call(b, "GET", target, NULL, NULL, 0, headers, r);
  return r->status;
}

static size_t deflate_to(struct cb_buf *out, const void *p, size_t n)
{
  z_stream z;
  memset(&z, 0, sizeof z);
  deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
  size_t bound = deflateBound(&z, n);
  cb_buf_reserve(out, bound);
  z.next_in = (Bytef *)(uintptr_t)p;
  z.avail_in = (uInt)n;
  z.next_out = (Bytef *)out->p;
  z.avail_out = (uInt)bound;
  deflate(&z, Z_FINISH);
  out->len = bound - z.avail_out;
  deflateEnd(&z);
  return out->len;
}

static const char octets[] = "application/octet-stream";

static void files(struct box *b)
{
  struct reply r;
  struct events e;
  struct cb_buf big, zip;
  CHECK(upload(b, "?path=a%20b.bin", octets, "\0\1\2\377", 4, NULL, &r) == 200);
  json_t *one = json_array_get(r.json, 0);
  CHECK_STR(json_string_value(json_object_get(one, "path")), "/home/user/a b.bin");
  CHECK_STR(json_string_value(json_object_get(one, "name")), "a b.bin");
  CHECK_STR(json_string_value(json_object_get(one, "type")), "file");
  reply_clear(&r);
  CHECK(download(b, "/home/user/a+b.bin", NULL, &r) == 200);
  CHECK(r.body.len == 4 && memcmp(r.body.p, "\0\1\2\377", 4) == 0);
  reply_clear(&r);
  CHECK(download(b, "a%20b.bin", "Range: bytes=1-2", &r) == 206);
  CHECK(r.body.len == 2 && memcmp(r.body.p, "\1\2", 2) == 0);
  CHECK(strcasestr(r.headers, "Content-Range: bytes 1-2/4") != NULL);
  reply_clear(&r);
  CHECK(download(b, "a%20b.bin", "Range: bytes=4-", &r) == 416);
  CHECK(strcasestr(r.headers, "Content-Range: bytes */4") != NULL);
  reply_clear(&r);

  /* an empty file; a file in folders that are not there; an overwrite keeps the mode */
  CHECK(upload(b, "?path=/home/user/new/deep/empty", octets, "", 0, NULL, &r) == 200);
  reply_clear(&r);
  CHECK(download(b, "/home/user/new/deep/empty", NULL, &r) == 200 && r.body.len == 0);
  reply_clear(&r);

  /* many files in one form */
  static const char form[] =
      "--xBx\r\nContent-Disposition: form-data; name=\"file\"; filename=\"/home/user/m1\"\r\n"
      "Content-Type: application/octet-stream\r\n\r\none\r\n"
      "--xBx\r\nContent-Disposition: form-data; name=\"file\"; filename=\"m2/empty\"\r\n"
      "Content-Type: application/octet-stream\r\n\r\n\r\n"
      "--xBx\r\nContent-Disposition: form-data; name=\"file\"; filename=\"m2/three\"\r\n"
      "Content-Type: application/octet-stream\r\n\r\nthree\r\n--xBx--\r\n";
  CHECK(upload(b, "", "multipart/form-data; boundary=xBx", form, sizeof form - 1, NULL, &r) == 200);
  CHECK(json_array_size(r.json) == 3);
  CHECK_STR(json_string_value(json_object_get(json_array_get(r.json, 2), "path")),
            "/home/user/m2/three");
  reply_clear(&r);
  box_run(b, "cat ~/m1 ~/m2/three; stat -c %s ~/m2/empty; stat -c %U:%a ~/m1 ~/new/deep", &e);
  CHECK_STR(e.out.p, "onethree0\nuser:644\nuser:755\n");
  events_clear(&e);

  /* 20 MB, raw, as a form and gzipped, byte-exact */
  cb_buf_init(&big, 64u << 20);
  cb_buf_init(&zip, 64u << 20);
  cb_buf_reserve(&big, 20u << 20);
  for (size_t i = 0; i < (20u << 20); i++)
    big.p[i] = (char)((i * 2654435761u) >> 13);
  big.len = 20u << 20;
  CHECK(upload(b, "?path=big", octets, big.p, big.len, NULL, &r) == 200);
  reply_clear(&r);
  CHECK(download(b, "big", NULL, &r) == 200);
  CHECK(r.body.len == big.len && memcmp(r.body.p, big.p, big.len) == 0);
  reply_clear(&r);
  deflate_to(&zip, big.p, big.len);
  CHECK(upload(b, "?path=big2", octets, zip.p, zip.len, "Content-Encoding: gzip", &r) == 200);
  reply_clear(&r);
  cb_buf_reset(&zip);
  struct cb_buf formed;
  cb_buf_init(&formed, 64u << 20);
  cb_buf_addz(&formed, "--xBx\r\nContent-Disposition: form-data; name=\"file\"; "
                       "filename=\"big3\"\r\n\r\n");
  cb_buf_add(&formed, big.p, big.len);
  cb_buf_addz(&formed, "\r\n--xBx--\r\n");
  CHECK(upload(b, "", "multipart/form-data; boundary=xBx", formed.p, formed.len, NULL, &r) == 200);
  reply_clear(&r);
  deflate_to(&zip, formed.p, formed.len);
  CHECK(upload(b, "?path=big4", "multipart/form-data; boundary=xBx", zip.p, zip.len,
               "Content-Encoding: gzip", &r) == 200);
  reply_clear(&r);
  box_run(b, "sha256sum big big2 big3 big4 | cut -c1-64 | sort -u | wc -l; rm -f big*", &e);
  CHECK_STR(e.out.p, "1\n");
  events_clear(&e);
  cb_buf_clear(&formed);

  /* a bomb: little to send, much to write */
  cb_buf_reset(&zip);
  cb_buf_reset(&big);
  cb_buf_clear(&big);
  cb_buf_init(&big, 400u << 20);
  cb_buf_reserve(&big, 300u << 20);
  memset(big.p, 0, 300u << 20);
  deflate_to(&zip, big.p, 300u << 20);
  cb_buf_clear(&big);
  CHECK(upload(b, "?path=bomb", octets, zip.p, zip.len, "Content-Encoding: gzip", &r) == 400);
  CHECK(strstr(text_of(&r, "message"), "too much") != NULL);
  reply_clear(&r);
  cb_buf_clear(&zip);

  static const struct {
    const char *query, *type, *body, *more;
    long status;
  } bad[] = {
    { "", octets, "x", NULL, 400 },                          /* no path */
    { "?path=x", "text/plain", "x", NULL, 400 },
    { "?path=/home/user", octets, "x", NULL, 400 },          /* a folder */
    { "?path=x&username=nobody", octets, "x", NULL, 401 },
    { "?path=/proc/self/mem", octets, "x", NULL, 400 },
    { "?path=x", octets, "not gzip", "Content-Encoding: gzip", 400 },
    { "?path=x", octets, "x", "Content-Encoding: br", 400 },
    { "", "multipart/form-data; boundary=xBx",
      "--xBx\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\nx\r\n--xBx--\r\n", NULL, 400 },
    { "", "multipart/form-data", "x", NULL, 400 },
  };
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    long status = upload(b, bad[i].query, bad[i].type, bad[i].body, strlen(bad[i].body),
                         bad[i].more, &r);
    if (status != bad[i].status)
      fprintf(stderr, "upload case %zu: %ld %s\n", i, status, r.body.p ? r.body.p : "");
    CHECK(status == bad[i].status);
    reply_clear(&r);
  }
  CHECK(download(b, "/home/user/nothing", NULL, &r) == 404);
  CHECK(strstr(text_of(&r, "message"), "/home/user/nothing") != NULL);
  reply_clear(&r);
  CHECK(download(b, "/home/user", NULL, &r) == 400);
  reply_clear(&r);
  CHECK(download(b, "", NULL, &r) == 400);
  reply_clear(&r);
  /* a link is followed inside the box's view only */
  box_run(b, "ln -sf /etc/hostname ~/link; cat /etc/hostname", &e);
  CHECK(download(b, "link", NULL, &r) == 200 && e.out.p && strcmp(r.body.p, e.out.p) == 0);
  events_clear(&e);
  reply_clear(&r);
}

/* /run of a box is small: the upload is read to its end and then told why it failed. */
static void disk_full(struct box *b)
{
  struct reply r;
  size_t n = 100u << 20;
  char *body = calloc(1, n);
  CHECK(upload(b, "?path=/run/big&username=root", octets, body, n, NULL, &r) == 507);
  CHECK(strstr(text_of(&r, "message"), "disk space") != NULL);
  reply_clear(&r);
  free(body);
}

static void filesystem(struct box *b)
{
  struct reply r;
  static const struct {
    const char *method, *json;
    long status;
    const char *says;
  } steps[] = {
    { "MakeDir", "{\"path\":\"fs/a/b\"}", 200, "\"FILE_TYPE_DIRECTORY\"" },
    { "MakeDir", "{\"path\":\"fs/a/b\"}", 409, "already_exists" },
    { "Stat", "{\"path\":\"/home/user/fs/a\"}", 200, "\"path\":\"/home/user/fs/a\"" },
    { "Stat", "{\"path\":\"/home/user/fs/none\"}", 404, "not_found" },
    { "Move", "{\"source\":\"fs/a/b\",\"destination\":\"fs/moved/c\"}", 200,
      "\"path\":\"/home/user/fs/moved/c\"" },
    { "Move", "{\"source\":\"fs/a/b\",\"destination\":\"fs/x\"}", 404, "not_found" },
    { "ListDir", "{\"path\":\"fs\"}", 200, "\"name\":\"moved\"" },
    { "ListDir", "{\"path\":\"fs\",\"depth\":2}", 200, "\"path\":\"/home/user/fs/moved/c\"" },
    { "ListDir", "{\"path\":\"fs/none\"}", 404, "not_found" },
    { "ListDir", "{\"path\":\"/etc/hostname\"}", 400, "invalid_argument" },
    { "ListDir", "{\"path\":\"fs\",\"depth\":-1}", 400, "depth" },
    { "Remove", "{\"path\":\"fs\"}", 200, "{}" },
    { "Remove", "{\"path\":\"fs\"}", 200, "{}" },
    { "Remove", "{}", 400, "path" },
    { "Stat", "{\"path\":1}", 400, "path" },
    { "WatchDir", "{\"path\":\"fs\"}", 501, "unimplemented" },
  };
  for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
    char method[64];
    snprintf(method, sizeof method, "filesystem.Filesystem/%s", steps[i].method);
    long status = box_rpc(b, method, steps[i].json, &r);
    bool as_said = status == steps[i].status && r.body.p && strstr(r.body.p, steps[i].says);
    if (!as_said)
      fprintf(stderr, "%s %s: %ld %s\n", steps[i].method, steps[i].json, status,
              r.body.p ? r.body.p : "");
    CHECK(as_said);
    reply_clear(&r);
  }
}

static void facts(struct box *b)
{
  struct reply r;
  struct box other = *b;
  box_call(b, "GET", "/health", NULL, NULL, 0, NULL, &r);
  CHECK(r.status == 204 && strcasestr(r.headers, "no-store"));
  reply_clear(&r);
  box_call(b, "GET", "/metrics", NULL, NULL, 0, NULL, &r);
  CHECK(r.status == 200 && json_integer_value(json_object_get(r.json, "mem_total")) > 0);
  reply_clear(&r);

  /* who may */
  snprintf(other.token, sizeof other.token, "wrong");
  CHECK(box_rpc(&other, "process.Process/List", "{}", &r) == 401);
  CHECK(json_integer_value(json_object_get(r.json, "code")) == 401);
  CHECK(strstr(text_of(&r, "message"), "unauthorized access") != NULL);
  reply_clear(&r);
  box_call(&other, "GET", "/health", NULL, NULL, 0, NULL, &r);
  CHECK(r.status == 204);
  reply_clear(&r);
  other.token[0] = '\0';
  box_call(&other, "GET", "/files?path=x", NULL, NULL, 0, NULL, &r);
  CHECK(r.status == 401);
  CHECK_STR(text_of(&r, "message"), "missing signature query parameter");
  reply_clear(&r);

  /* routing by host label; half a pair of headers */
  char host[200], token[160];
  snprintf(host, sizeof host, "Host: 49983-%s.any.example", b->id);
  snprintf(token, sizeof token, "X-Access-Token: %s", b->token);
  struct call c = { .method = "GET", .path = "/metrics", .headers = { host, token, NULL } };
  boxd_call(d.address, &c, &r);
  CHECK(r.status == 200);
  reply_clear(&r);
  c.headers[0] = "E2b-Sandbox-Port: 49983";
  boxd_call(d.address, &c, &r);
  CHECK(r.status == 400 && r.body.p && strcmp(r.body.p, "missing header") == 0);
  reply_clear(&r);
  c.headers[1] = "E2b-Sandbox-Id: ../x";
  boxd_call(d.address, &c, &r);
  CHECK(r.status == 400 && r.body.p && strcmp(r.body.p, "Invalid sandbox ID") == 0);
  reply_clear(&r);
}

/* --- what may not be understood in two ways --- */

static int raw(const char *request, size_t n, char *answer, size_t size)
{
  int s = boxd_connect(d.address, SOCK_STREAM), status = 0;
  if (send(s, request, n, MSG_NOSIGNAL) == (ssize_t)n) {
    struct pollfd p = { s, POLLIN, 0 };
    size_t at = 0;
    while (at < size - 1 && poll(&p, 1, 5000) == 1) {
      ssize_t k = recv(s, answer + at, size - 1 - at, 0);
      if (k <= 0)
        break;
      at += (size_t)k;
      answer[at] = '\0';
      if (strstr(answer, "\r\n\r\n"))
        break;
    }
    answer[at] = '\0';
    sscanf(answer, "HTTP/1.1 %d", &status);
  }
  close(s);
  return status;
}

static void smuggling(void)
{
  static const char *const bad[] = {
    "POST /sandboxes HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\n{}",
    "POST /sandboxes HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n"
    "2\r\n{}\r\n0\r\n\r\n",
    "POST /sandboxes HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "POST /sandboxes HTTP/1.1\r\nHost: x\r\nContent-Length: +2\r\n\r\n{}",
    "GET /sandboxes HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
    "GET /health HTTP/1.1\r\n\r\n",
    "GET /health HTTP/1.1\r\nHost: x\r\nE2b-Sandbox-Id: a\r\nE2b-Sandbox-Id: b\r\n"
    "E2b-Sandbox-Port: 49983\r\n\r\n",
  };
  char answer[4096];
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    int status = raw(bad[i], strlen(bad[i]), answer, sizeof answer);
    if (status != 400)
      fprintf(stderr, "raw case %zu: %d\n", i, status);
    CHECK(status == 400);
  }
  const char good[] = "GET /health HTTP/1.1\r\nHost: x\r\n\r\n";
  CHECK(raw(good, sizeof good - 1, answer, sizeof answer) == 200);
}

static void big_bodies(void)
{
  struct reply r;
  size_t n = 17u << 20;
  char *body = malloc(n);
  memset(body, ' ', n);
  struct call c = { .method = "POST", .path = "/v2/sandboxes", .headers = { NULL }, .body = body,
                    .body_len = n };
  boxd_call(d.address, &c, &r);
  CHECK(r.status == 413);
  reply_clear(&r);
  c.chunked = true;
  boxd_call(d.address, &c, &r);
  CHECK(r.status == 413);
  reply_clear(&r);
  free(body);
}

/* --- TCP --- */

static void tcp(void)
{
  struct boxd t = { .pid = 0 };
  struct reply r;
  char key[64] = "", header[96], path[128];
  static const char *const extra[] = { "--listen", "127.0.0.1:0", NULL };
  CHECK(make_dir(t.dir, sizeof t.dir));
  CHECK(boxd_start(&t, extra));
  CHECK(strncmp(t.address, "http://127.0.0.1:", 17) == 0);
  snprintf(path, sizeof path, "%s/key", t.dir);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  struct stat st;
  CHECK(fstat(fd, &st) == 0 && (st.st_mode & 0777) == 0600);
  CHECK(read(fd, key, sizeof key - 1) == 44);
  close(fd);
  CHECK(boxd_control(&t, "GET", "/v2/sandboxes", NULL, &r) == 401);
  reply_clear(&r);
  struct call c = { .method = "GET", .path = "/v2/sandboxes", .headers = { header, NULL } };
  snprintf(header, sizeof header, "X-API-Key: %s", key);
  boxd_call(t.address, &c, &r);
  CHECK(r.status == 200);
  reply_clear(&r);
  key[10] ^= 1;
  snprintf(header, sizeof header, "X-API-Key: %s", key);
  boxd_call(t.address, &c, &r);
  CHECK(r.status == 401);
  reply_clear(&r);
  snprintf(path, sizeof path, "%s/api.sock", t.dir);
  CHECK(access(path, F_OK) != 0);
  CHECK(boxd_stop(&t, SIGTERM) == 0);
  remove_dir(t.dir);
}

/* --- restarts --- */

static void restart(int sig)
{
  struct box b;
  struct reply r;
  struct events e;
  char json[200];
  CHECK(box_create(&d, "{\"templateID\":\"base\",\"timeout\":600,\"metadata\":{\"r\":\"1\"},"
                       "\"envVars\":{\"KEPT\":\"yes\"}}", &b));
  long pid = box_spawn(&b, "while read l; do echo $l; [ $l = bye ] && exit 7; done", true);
  long gone = box_spawn(&b, "sleep 0.3; exit 5", false);
  CHECK(pid > 0 && gone > 0);
  int status = boxd_stop(&d, sig);
  CHECK(sig == SIGKILL ? status == 128 + SIGKILL : status == 0);
  CHECK(count_boxes(d.dir) == 1);
  usleep(600000); /* `gone` ends while nobody watches */
  CHECK(boxd_start(&d, NULL));
  CHECK(box_info(&d, b.id, &r) == 200);
  CHECK_STR(text_of(&r, "envdAccessToken"), b.token);
  CHECK_STR(json_string_value(json_object_get(json_object_get(r.json, "metadata"), "r")), "1");
  reply_clear(&r);
  /* the process is there, takes input and tells its exit */
  struct follower f;
  follower_start(&f, &b, pid);
  CHECK(send_input(&b, pid, "still\n") == 200);
  CHECK(send_input(&b, pid, "bye\n") == 200);
  pthread_join(f.thread, NULL);
  CHECK_STR(f.e.out.p, "still\nbye\n");
  CHECK(f.e.ended && f.e.exit == 7);
  events_clear(&f.e);
  /* the exit nobody saw is known */
  snprintf(json, sizeof json, "{\"process\":{\"pid\":%ld}}", gone);
  events_init(&e);
  box_stream(&b, "Connect", json, NULL, &e);
  CHECK(e.ended && e.exit == 5);
  events_clear(&e);
  box_run(&b, "echo $KEPT", &e);
  CHECK_STR(e.out.p, "yes\n");
  events_clear(&e);
  CHECK(box_kill(&b) == 204);
  CHECK(count_boxes(d.dir) == 0);
}

/* A folder that is no box, and a box that died while no daemon ran, are cleared away. */
static void leftovers(void)
{
  struct box b;
  struct reply r;
  char path[200];
  CHECK(box_create(&d, base, &b));
  CHECK(boxd_stop(&d, SIGTERM) == 0);
  snprintf(path, sizeof path, "%s/boxes/iabandoned", d.dir);
  CHECK(mkdir(path, 0711) == 0);
  /* the init's pid is in its socket's peer credentials */
  snprintf(path, sizeof path, "%s/boxes/%s/init.sock", d.dir, b.id);
  struct ucred cred = { 0, 0, 0 };
  socklen_t len = sizeof cred;
  int s = boxd_connect(path, SOCK_SEQPACKET);
  CHECK(getsockopt(s, SOL_SOCKET, SO_PEERCRED, &cred, &len) == 0 && cred.pid > 0);
  CHECK(kill(cred.pid, SIGKILL) == 0);
  close(s);
  CHECK(boxd_start(&d, NULL));
  CHECK(count_boxes(d.dir) == 0);
  CHECK(box_info(&d, b.id, &r) == 404);
  reply_clear(&r);
}

static void expiry(void)
{
  struct box b;
  struct reply r;
  char path[256];
  CHECK(box_create(&d, base, &b));
  snprintf(path, sizeof path, "/sandboxes/%s/timeout", b.id);
  CHECK(boxd_control(&d, "POST", path, "{\"timeout\":1}", &r) == 204);
  reply_clear(&r);
  double until = boxd_now() + 20;
  while (count_boxes(d.dir) > 0 && boxd_now() < until)
    boxd_nap();
  CHECK(count_boxes(d.dir) == 0);
  CHECK(box_info(&d, b.id, &r) == 404);
  reply_clear(&r);
  /* at once, and with no daemon to do it */
  CHECK(box_create(&d, base, &b));
  snprintf(path, sizeof path, "/sandboxes/%s/timeout", b.id);
  CHECK(boxd_control(&d, "POST", path, "{\"timeout\":0}", &r) == 204);
  reply_clear(&r);
  CHECK(box_info(&d, b.id, &r) == 404);
  reply_clear(&r);
  CHECK(box_create(&d, "{\"templateID\":\"base\",\"timeout\":1}", &b));
  CHECK(boxd_stop(&d, SIGKILL) == 128 + SIGKILL);
  snprintf(path, sizeof path, "%s/boxes/%s/init.sock", d.dir, b.id);
  until = boxd_now() + 20;
  bool dead = false;
  while (!dead && boxd_now() < until) {
    int s = boxd_connect(path, SOCK_SEQPACKET);
    dead = s < 0;
    if (!dead)
      close(s);
    boxd_nap();
  }
  CHECK(dead);
  CHECK(boxd_start(&d, NULL));
  CHECK(count_boxes(d.dir) == 0);
}

/* --- many --- */

enum { MANY = 20 };

struct maker {
  pthread_t thread;
  struct box b;
  char marker[32]; /* an argument of a process in it */
  bool made, ran, seen, killed;
};

static void *make_box(void *arg)
{
  struct maker *m = arg;
  struct events e;
  m->made = box_create(&d, base, &m->b);
  if (!m->made)
    return NULL;
  box_run(&m->b, "echo hi", &e);
  m->ran = e.ended && e.exit == 0 && e.out.p && strcmp(e.out.p, "hi\n") == 0;
  events_clear(&e);
  char command[64];
  snprintf(command, sizeof command, "setsid sleep %s", m->marker);
  m->seen = box_spawn(&m->b, command, false) > 0;
  double until = boxd_now() + 20;
  while (m->seen && !any_process_has(m->marker) && boxd_now() < until)
    boxd_nap();
  m->seen = m->seen && any_process_has(m->marker);
  m->killed = box_kill(&m->b) == 204;
  return NULL;
}

static void many(void)
{
  static struct maker m[MANY];
  for (int i = 0; i < MANY; i++) {
    snprintf(m[i].marker, sizeof m[i].marker, "86%02d.%d", i, (int)getpid());
    pthread_create(&m[i].thread, NULL, make_box, &m[i]);
  }
  int ok = 0;
  for (int i = 0; i < MANY; i++) {
    pthread_join(m[i].thread, NULL);
    ok += m[i].made && m[i].ran && m[i].seen && m[i].killed;
  }
  CHECK(ok == MANY);
  CHECK(count_boxes(d.dir) == 0);
  CHECK(!file_has("/proc/self/mountinfo", d.dir));
  for (int i = 0; i < MANY; i++)
    CHECK(!any_process_has(m[i].marker));
}

static void quota(void)
{
  struct boxd t = { .pid = 0 };
  struct box b;
  struct reply r;
  static const char *const extra[] = { "--max-boxes", "1", NULL };
  CHECK(make_dir(t.dir, sizeof t.dir));
  CHECK(boxd_start(&t, extra));
  CHECK(box_create(&t, base, &b));
  CHECK(boxd_control(&t, "POST", "/v2/sandboxes", base, &r) == 429);
  CHECK(strstr(text_of(&r, "message"), "maximum number of concurrent E2B sandboxes (1)") != NULL);
  reply_clear(&r);
  CHECK(box_kill(&b) == 204);
  CHECK(box_create(&t, base, &b));
  CHECK(box_kill(&b) == 204);
  CHECK(boxd_stop(&t, SIGTERM) == 0);
  remove_dir(t.dir);
}

static void template_mounts(void)
{
  struct box b;
  struct events e;
  char path[128];
  snprintf(path, sizeof path, "%s/templates", d.dir);
  mkdir(path, 0755);
  snprintf(path, sizeof path, "%s/tool", d.dir);
  mkdir(path, 0755);
  snprintf(path, sizeof path, "%s/tool/say", d.dir);
  FILE *f = fopen(path, "w");
  fputs("#!/bin/sh\necho said $WORD\n", f);
  fclose(f);
  chmod(path, 0755);
  snprintf(path, sizeof path, "%s/templates/tools.json", d.dir);
  f = fopen(path, "w");
  fprintf(f, "{\"mounts\":[{\"source\":\"%s/tool\",\"target\":\"/opt/tool\"}],"
             "\"path\":[\"/opt/tool\"],\"env\":{\"WORD\":\"it\"}}", d.dir);
  fclose(f);
  CHECK(box_create(&d, "{\"templateID\":\"tools\",\"timeout\":600}", &b));
  box_run(&b, "say; touch /opt/tool/x 2>/dev/null || echo read-only", &e);
  CHECK_STR(e.out.p, "said it\nread-only\n");
  events_clear(&e);
  CHECK(box_kill(&b) == 204);
}

/* A head that never ends: the connection is dropped by the daemon's own timer. */
static int half_open(void)
{
  int s = boxd_connect(d.address, SOCK_STREAM);
  CHECK(send(s, "GET /hea", 8, MSG_NOSIGNAL) == 8);
  return s;
}

static void check_dropped(int s)
{
  struct pollfd p = { s, POLLIN, 0 };
  char c;
  CHECK(poll(&p, 1, 30000) == 1);
  CHECK(recv(s, &c, 1, 0) <= 0);
  close(s);
}

int main(int argc, char **argv)
{
  const char *build = argc > 1 ? argv[1] : getenv("CREWBOX_BUILD");
  const char *slash = strrchr(argv[0], '/');
  struct box b;
  if (build && *build)
    snprintf(boxd_program, sizeof boxd_program, "%s/crewboxd", build);
  else /* this program is BUILD/test/boxd_test */
    snprintf(boxd_program, sizeof boxd_program, "%.*s../crewboxd",
             slash ? (int)(slash - argv[0]) + 1 : 0, argv[0]);
  signal(SIGPIPE, SIG_IGN);
  curl_global_init(CURL_GLOBAL_ALL);
  if (!make_dir(d.dir, sizeof d.dir) || !boxd_start(&d, NULL)) {
    fprintf(stderr, "crewboxd (%s) does not start\n", boxd_program);
    return 1;
  }
  int slow = half_open();
  program();
  health();
  unknown_and_missing();
  create_errors();
  smuggling();
  big_bodies();
  life();
  lists();
  if (box_create(&d, base, &b)) {
    processes(&b);
    input_and_signals(&b);
    back_pressure(&b);
    abandoned_streams(&b);
    keepalive(&b);
    files(&b);
    disk_full(&b);
    filesystem(&b);
    facts(&b);
    CHECK(box_kill(&b) == 204);
  } else {
    CHECK(!"a box can be made");
  }
  check_dropped(slow);
  abandoned_creates();
  template_mounts();
  tcp();
  quota();
  restart(SIGTERM);
  restart(SIGKILL);
  leftovers();
  expiry();
  many();
  CHECK(boxd_stop(&d, SIGTERM) == 0);
  if (check_failed == 0)
    remove_dir(d.dir);
  else
    fprintf(stderr, "kept for a look: %s and %s.log\n", d.dir, d.dir);
  return check_done();
}
