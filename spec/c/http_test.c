/* SPDX-License-Identifier: MIT
 * http_test.c: requests against a server that misbehaves in every way of http_peer.h. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "c/check.h"
#include "c/io_help.h"
#include "net/http.h"
#include "support/http_peer.h"

static char folder[64], socket_path[96], base[64];
static pid_t peers[2];

static pid_t start_peer(int listener)
{
  pid_t pid = fork();
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that crashes leaves no server behind */
    peer_serve(listener);
  }
  close(listener);
  return pid;
}

/* ---- one request, waited for -------------------------------------------------------------- */

enum when { NEVER, ON_HEAD, ON_DATA, ANOTHER_ON_DATA };

struct fetch {
  struct cb_http_req req;
  char url[256];
  enum when cancel, stop;
  struct cb_http *h;
  struct cb_io *io;
  sem_t finished;
  /* what came */
  int ends, status, heads;
  struct cb_err err;
  bool sent;
  char type[96];
  int64_t retry_after_ms;
  struct cb_buf body, pieces;
  char two[32];
  struct fetch *other;
  bool at_once; /* done came before cancel returned */
  sem_t cancelled;
};

static void done(void *arg, struct cb_http_res *res, const struct cb_err *err, bool sent)
{
  struct fetch *f = arg;
  size_t n;
  f->ends++;
  f->sent = sent;
  if (err)
    f->err = *err;
  if (res) {
    const char *two = cb_http_header(res, "x-two", &n);
    snprintf(f->two, sizeof f->two, "%.*s", two ? (int)n : 0, two ? two : "");
    snprintf(f->type, sizeof f->type, "%s", res->content_type);
    f->status = res->status;
    f->retry_after_ms = res->retry_after_ms;
    cb_buf_add(&f->body, res->body.p ? res->body.p : "", res->body.len);
  }
  sem_post(&f->finished);
}

static void start(struct cb_io *io, void *arg)
{
  struct fetch *f = arg;
  f->io = io;
  f->h = cb_http_start(io, &f->req, done, f, &f->err);
  if (!f->h)
    sem_post(&f->finished);
}

static void on_head(void *arg, int status, const char *type)
{
  struct fetch *f = arg;
  f->heads++;
  (void)status;
  (void)type;
  if (f->cancel == ON_HEAD)
    cb_http_cancel(f->h);
}

static bool on_data(void *arg, const char *p, size_t n)
{
  struct fetch *f = arg;
  cb_buf_add(&f->pieces, p, n);
  if (f->cancel == ANOTHER_ON_DATA && f->other && !f->other->h) {
    start(f->io, f->other); /* a request from inside of a callback */
    return true;
  }
  if (f->cancel == ON_DATA)
    cb_http_cancel(f->h);
  return f->stop != ON_DATA;
}

static void prepare(struct fetch *f, const char *path)
{
  memset(f, 0, sizeof *f);
  snprintf(f->url, sizeof f->url, "%s%s", base, path);
  f->req.url = f->url;
  f->req.timeout_ms = HELP_BOUND_S * 1000;
  sem_init(&f->finished, 0, 0);
  sem_init(&f->cancelled, 0, 0);
  cb_buf_init(&f->body, 1 << 20);
  cb_buf_init(&f->pieces, 1 << 20);
}

static void run(struct cb_io *io, struct fetch *f)
{
  CHECK(cb_io_post(io, start, f, NULL) == CB_OK);
  CHECK(help_wait(&f->finished));
  CHECK(f->ends == (f->h ? 1 : 0));
}

static void forget(struct fetch *f)
{
  cb_buf_clear(&f->body);
  cb_buf_clear(&f->pieces);
  sem_destroy(&f->finished);
}

/* ---- whole answers ----------------------------------------------------------------------- */

static void an_answer_comes_whole(struct cb_io *io)
{
  static const char *const headers[] = { "X-Mine: yes", NULL };
  struct fetch f;
  prepare(&f, "/echo?a=b");
  f.req.headers = headers;
  run(io, &f);
  CHECK(f.status == 200 && f.err.code == CB_OK && f.sent);
  CHECK(f.body.p && strstr(f.body.p, "GET /echo?a=b HTTP/1.1\r\n"));
  CHECK(f.body.p && strstr(f.body.p, "\r\nX-Mine: yes\r\n"));
  CHECK_STR(f.type, "text/plain");
  CHECK_STR(f.two, "a"); /* the first of that name */
  CHECK(f.retry_after_ms == -1);
  forget(&f);
}

static void a_body_may_hold_anything(struct cb_io *io)
{
  static const char body[] = "a\0b\r\n\r\nc";
  static const char *const methods[] = { "POST", "PUT", "PATCH", "DELETE" };
  for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
    struct fetch f;
    prepare(&f, "/echo");
    f.req.method = methods[i];
    f.req.body = body;
    f.req.body_len = sizeof body;
    run(io, &f);
    CHECK(f.status == 200 && f.body.len > sizeof body);
    CHECK(f.body.p && strncmp(f.body.p, methods[i], strlen(methods[i])) == 0);
    CHECK(f.body.p && memcmp(f.body.p + f.body.len - sizeof body, body, sizeof body) == 0);
    CHECK(f.body.p && !strstr(f.body.p, "Expect") && !strcasestr(f.body.p, "content-type"));
    forget(&f);
  }
  struct fetch f;
  prepare(&f, "/zero");
  run(io, &f);
  CHECK(f.body.len == 4 && memcmp(f.body.p, "a\0b\0", 4) == 0);
  forget(&f);
}

static void every_framing_is_read(struct cb_io *io)
{
  static const struct {
    const char *path, *body;
  } cases[] = { { "/chunked", "onetwothree" }, { "/trailer", "one" }, { "/interim", "late" },
                { "/status/404", "no" } };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct fetch f;
    prepare(&f, cases[i].path);
    f.req.on_head = on_head;
    run(io, &f);
    CHECK(f.err.code == CB_OK && f.heads == 1);
    CHECK(f.status == (i == 3 ? 404 : 200));
    CHECK_STR(f.body.p, cases[i].body);
    forget(&f);
  }
}

static void a_unix_socket_is_a_target(struct cb_io *io)
{
  struct fetch f;
  prepare(&f, "/echo");
  snprintf(f.url, sizeof f.url, "http://box/echo");
  f.req.unix_socket = socket_path;
  run(io, &f);
  CHECK(f.status == 200 && f.body.p && strstr(f.body.p, "\r\nHost: box\r\n"));
  forget(&f);
  prepare(&f, "/echo?token=zq9-FAKE");
  f.req.unix_socket = "/nowhere/at/all";
  run(io, &f);
  CHECK(f.err.code == CB_UNREACHABLE && !f.sent);
  CHECK(strstr(f.err.text, "/nowhere/at/all") && !strstr(f.err.text, "FAKE"));
  forget(&f);
}

static void files_are_uploaded_as_parts(struct cb_io *io)
{
  char source[96];
  struct fetch f;
  snprintf(source, sizeof source, "%s/source", folder);
  int fd = open(source, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  CHECK(write(fd, "from\0disk", 9) == 9);
  cb_close(&fd);
  struct cb_http_part parts[] = { { .filename = "/a b", .data = "in\0memory", .len = 9 },
                                  { .filename = "/c", .source = source } };
  prepare(&f, "/echo");
  f.req.parts = parts;
  f.req.part_count = 2;
  run(io, &f);
  CHECK(f.status == 200);
  CHECK(f.body.p && memmem(f.body.p, f.body.len, "in\0memory", 9));
  CHECK(f.body.p && memmem(f.body.p, f.body.len, "from\0disk", 9));
  CHECK(f.body.p && memmem(f.body.p, f.body.len, "name=\"file\"; filename=\"/a b\"", 28));
  forget(&f);
  parts[1].source = "/nowhere/at/all";
  prepare(&f, "/echo");
  f.req.parts = parts;
  f.req.part_count = 2;
  run(io, &f);
  CHECK(!f.h && f.err.code == CB_NOT_FOUND && f.ends == 0);
  forget(&f);
}

static void retry_after_is_read_and_clamped(struct cb_io *io)
{
  static const struct {
    const char *path;
    int64_t least, most;
  } cases[] = {
    { "/retry/1", 1000, 1000 },
    { "/retry/99999", 3600000, 3600000 },
    { "/retry/99999999999999999999999", 3600000, 3600000 },
    { "/retry/Wed,_21_Oct_2099_07:28:00_GMT", 3600000, 3600000 },
    { "/retry/Wed,_21_Oct_2015_07:28:00_GMT", 0, 0 },
    { "/retry/soon", -1, -1 },
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct fetch f;
    prepare(&f, cases[i].path);
    run(io, &f);
    CHECK(f.status == 429);
    CHECK(f.retry_after_ms >= cases[i].least && f.retry_after_ms <= cases[i].most);
    forget(&f);
  }
}

/* ---- answers that go wrong --------------------------------------------------------------- */

static void each_failure_has_its_code(struct cb_io *io)
{
  static const struct {
    const char *path;
    enum cb_code code;
    int status;
  } cases[] = {
    { "/close", CB_UNREACHABLE, 0 },   { "/reset", CB_UNREACHABLE, 0 },
    { "/torn", CB_UNREACHABLE, 200 },  { "/garbage", CB_PROTOCOL, 0 },
    { "/headers", CB_TOO_LARGE, 0 },   { "/line", CB_TOO_LARGE, 0 },
    { "/1xx", CB_TOO_LARGE, 0 },       { "/body", CB_TOO_LARGE, 200 },
    { "/badchunk", CB_UNREACHABLE, 200 },
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct fetch f;
    prepare(&f, cases[i].path);
    f.req.max_bytes = 100000;
    run(io, &f);
    CHECK(f.err.code == cases[i].code);
    CHECK(f.err.status == cases[i].status);
    CHECK(f.sent && f.status == 0);
    CHECK(strstr(f.err.text, "http://127.0.0.1:") && !strstr(f.err.text, cases[i].path));
    if (f.err.code != cases[i].code)
      fprintf(stderr, "  %s: %s: %s\n", cases[i].path, cb_code_name(f.err.code), f.err.text);
    forget(&f);
  }
}

static void time_runs_out(struct cb_io *io)
{
  struct fetch f;
  prepare(&f, "/slow");
  f.req.timeout_ms = 50;
  run(io, &f);
  CHECK(f.err.code == CB_TIMEOUT && f.sent && f.err.status == 0);
  forget(&f);
  prepare(&f, "/drip");
  f.req.timeout_ms = -1;
  f.req.idle_timeout_ms = 50;
  run(io, &f);
  CHECK(f.err.code == CB_TIMEOUT && f.err.status == 200);
  forget(&f);
}

static void nothing_was_sent_where_nobody_listens(struct cb_io *io)
{
  struct fetch f;
  int port = 0, fd = peer_listen(NULL, &port);
  close(fd); /* a port that was free a moment ago */
  prepare(&f, "");
  snprintf(f.url, sizeof f.url, "http://user:zq9-FAKE@127.0.0.1:%d/x?token=zq9-FAKE", port);
  run(io, &f);
  CHECK(f.err.code == CB_UNREACHABLE && !f.sent && f.err.sys == ECONNREFUSED);
  CHECK(!strstr(f.err.text, "FAKE"));
  forget(&f);
  prepare(&f, "");
  snprintf(f.url, sizeof f.url, "http://no-such-name.invalid/");
  run(io, &f);
  CHECK(f.err.code == CB_UNREACHABLE && !f.sent);
  forget(&f);
}

static void misuse_is_refused_before_anything_is_sent(struct cb_io *io)
{
  static const char *const bad[] = { "ftp://127.0.0.1/", "file:///etc/passwd", "http://", "", "x" };
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    struct fetch f;
    prepare(&f, "");
    snprintf(f.url, sizeof f.url, "%s", bad[i]);
    run(io, &f);
    CHECK(!f.h && f.ends == 0 && f.err.code == CB_INVALID);
    forget(&f);
  }
  static const char *const lines[] = { "X-Key: zq9-FAKE\r\nX-Other: 1", "zq9 no colon", ": v" };
  for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
    const char *headers[] = { lines[i], NULL };
    struct fetch f;
    prepare(&f, "/echo");
    f.req.headers = headers;
    run(io, &f);
    CHECK(!f.h && f.err.code == CB_INVALID && !strstr(f.err.text, "FAKE"));
    forget(&f);
  }
  struct fetch f;
  prepare(&f, "/echo");
  f.req.method = "GET /x HTTP/1.1\r\nX:";
  run(io, &f);
  CHECK(!f.h && f.err.code == CB_INVALID);
  forget(&f);
}

/* ---- sent once --------------------------------------------------------------------------- */

static int seconds_seen(struct cb_io *io)
{
  struct fetch f;
  prepare(&f, "/count");
  run(io, &f);
  int n = f.body.p ? (int)strtol(f.body.p, NULL, 10) : -1;
  forget(&f);
  return n;
}

/* The first request leaves its connection open; on it the second is read and never answered.
 * Another sending would be a second box, a second command. */
static void a_post_is_never_repeated(void)
{
  static const struct {
    const char *method, *body;
    bool parts;
  } cases[] = { { "POST", "x", false }, { "PATCH", "x", false }, { "POST", NULL, false },
                { "POST", NULL, true } };
  struct cb_http_part part = { .filename = "/a", .data = "x", .len = 1 };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct cb_io *io = NULL; /* of its own: no other connection is kept */
    struct fetch f;
    CHECK(cb_io_new(&io, NULL) == CB_OK);
    prepare(&f, "/second");
    run(io, &f);
    CHECK(f.status == 200);
    forget(&f);
    int before;
    {
      struct cb_io *apart = NULL;
      CHECK(cb_io_new(&apart, NULL) == CB_OK);
      before = seconds_seen(apart);
      prepare(&f, "/second");
      f.req.method = cases[i].method;
      f.req.body = cases[i].body;
      f.req.body_len = cases[i].body ? 1 : 0;
      if (cases[i].parts) {
        f.req.parts = &part;
        f.req.part_count = 1;
      }
      run(io, &f);
      /* Sent on the kept connection and lost, or sent once on a new one. */
      CHECK(f.status == 200 || (f.err.code == CB_UNREACHABLE && f.sent));
      forget(&f);
      CHECK(seconds_seen(apart) == before + 1);
      cb_io_free(apart);
    }
    cb_io_free(io);
  }
}

static void a_new_connection_is_taken_when_asked(struct cb_io *io)
{
  for (int i = 0; i < 2; i++) {
    struct fetch f;
    prepare(&f, "/second"); /* answers only the first request of a connection */
    f.req.method = "POST";
    f.req.body = "x";
    f.req.body_len = 1;
    f.req.fresh = true;
    run(io, &f);
    CHECK(f.status == 200);
    forget(&f);
  }
}

/* ---- streams, cancel, close -------------------------------------------------------------- */

static void a_stream_may_be_ended_by_its_reader(struct cb_io *io)
{
  struct fetch f;
  prepare(&f, "/body");
  f.req.on_data = on_data;
  f.req.on_head = on_head;
  f.stop = ON_DATA;
  run(io, &f);
  CHECK(f.err.code == CB_OK && f.status == 200 && f.heads == 1);
  CHECK(f.pieces.len > 0 && f.body.len == 0);
  forget(&f);
}

static void a_transfer_may_be_cancelled_from_its_own_callbacks(struct cb_io *io)
{
  static const enum when moments[] = { ON_HEAD, ON_DATA };
  for (size_t i = 0; i < 2; i++) {
    struct fetch f;
    prepare(&f, "/body");
    f.req.on_data = on_data;
    f.req.on_head = on_head;
    f.cancel = moments[i];
    run(io, &f);
    CHECK(f.err.code == CB_CANCELLED && f.err.status == 200 && f.heads == 1);
    forget(&f);
  }
}

static void a_request_may_be_started_from_a_callback(struct cb_io *io)
{
  struct fetch f, other;
  prepare(&f, "/chunked");
  prepare(&other, "/zero");
  f.req.on_data = on_data;
  f.cancel = ANOTHER_ON_DATA;
  f.other = &other;
  run(io, &f);
  CHECK(f.status == 200);
  CHECK(help_wait(&other.finished));
  CHECK(other.status == 200 && other.ends == 1);
  forget(&f);
  forget(&other);
}

static void cancel_now(struct cb_io *io, void *arg)
{
  struct fetch *f = arg;
  (void)io;
  int before = f->ends;
  cb_http_cancel(f->h);
  f->at_once = before == 0 && f->ends == 1;
  sem_post(&f->cancelled);
}

static void cancel_tells_at_once(struct cb_io *io)
{
  struct fetch f;
  prepare(&f, "/slow");
  CHECK(cb_io_post(io, start, &f, NULL) == CB_OK);
  CHECK(cb_io_post(io, cancel_now, &f, NULL) == CB_OK);
  CHECK(help_wait(&f.finished));
  CHECK(help_wait(&f.cancelled));
  CHECK(f.err.code == CB_CANCELLED && f.ends == 1 && f.at_once);
  forget(&f);
}

static void bug_q5_closing_ends_what_is_in_flight(void)
{
  enum { MANY = 40 };
  struct cb_io *io = NULL;
  struct fetch *f = cb_calloc(MANY, sizeof *f);
  CHECK(cb_io_new(&io, NULL) == CB_OK);
  for (int i = 0; i < MANY; i++) {
    prepare(&f[i], i % 4 == 0 ? "/drip" : i % 4 == 1 ? "/body" : i % 4 == 2 ? "/slow" : "/echo");
    f[i].req.idle_timeout_ms = 60000;
    f[i].req.on_data = on_data;
    CHECK(cb_io_post(io, start, &f[i], NULL) == CB_OK);
  }
  CHECK(help_wait(&f[3].finished)); /* some are on their way by now */
  cb_io_free(io);
  for (int i = 0; i < MANY; i++) {
    CHECK(f[i].h == NULL ? f[i].err.code == CB_CLOSED : f[i].ends == 1);
    CHECK(f[i].err.code == CB_CLOSED || f[i].status == 200);
    forget(&f[i]);
  }
  cb_free(f);
}

static void many_run_at_once(struct cb_io *io)
{
  enum { MANY = 100 };
  struct fetch *f = cb_calloc(MANY, sizeof *f);
  for (int i = 0; i < MANY; i++) {
    prepare(&f[i], "/zero");
    CHECK(cb_io_post(io, start, &f[i], NULL) == CB_OK);
  }
  for (int i = 0; i < MANY; i++) {
    CHECK(help_wait(&f[i].finished));
    CHECK(f[i].status == 200 && f[i].body.len == 4 && f[i].ends == 1);
    forget(&f[i]);
  }
  cb_free(f);
}

/* The n-th allocation of a start fails: a code, or an answer; never a crash, never silence. */
static void memory_that_runs_out_is_told(struct cb_io *io)
{
  bool went_through = false;
  for (unsigned long n = 1; n < 40 && !went_through; n++) {
    struct fetch f;
    prepare(&f, "/echo");
    f.req.body = "x";
    f.req.body_len = 1;
    cb_alloc_fail_at(n);
    if (cb_io_post(io, start, &f, NULL) == CB_OK) {
      CHECK(help_wait(&f.finished));
      CHECK(f.status == 200 || f.err.code != CB_OK);
      went_through = f.status == 200 && n > 8;
    }
    cb_alloc_fail_at(0);
    forget(&f);
  }
  CHECK(went_through);
}

int main(void)
{
  char command[128];
  int port = 0;
  strcpy(folder, "/tmp/crewbox-http-XXXXXX");
  if (!mkdtemp(folder))
    return 1;
  snprintf(socket_path, sizeof socket_path, "%s/s", folder);
  peers[0] = start_peer(peer_listen(NULL, &port));
  peers[1] = start_peer(peer_listen(socket_path, NULL));
  snprintf(base, sizeof base, "http://127.0.0.1:%d", port);
  setenv("http_proxy", "http://127.0.0.1:1", 1); /* must not be used for the loopback */

  int fds = help_fds(), threads = help_threads();
  struct cb_io *io = NULL;
  CHECK(cb_io_new(&io, NULL) == CB_OK);
  an_answer_comes_whole(io);
  a_body_may_hold_anything(io);
  every_framing_is_read(io);
  a_unix_socket_is_a_target(io);
  files_are_uploaded_as_parts(io);
  retry_after_is_read_and_clamped(io);
  each_failure_has_its_code(io);
  time_runs_out(io);
  nothing_was_sent_where_nobody_listens(io);
  misuse_is_refused_before_anything_is_sent(io);
  a_post_is_never_repeated();
  a_new_connection_is_taken_when_asked(io);
  a_stream_may_be_ended_by_its_reader(io);
  a_transfer_may_be_cancelled_from_its_own_callbacks(io);
  a_request_may_be_started_from_a_callback(io);
  cancel_tells_at_once(io);
  bug_q5_closing_ends_what_is_in_flight();
  many_run_at_once(io);
  memory_that_runs_out_is_told(io);
  cb_io_free(io);
  CHECK(help_fds() == fds);
  CHECK(help_threads_are(threads));
  for (int i = 0; i < 2; i++) {
    kill(peers[i], SIGKILL);
    waitpid(peers[i], NULL, 0);
  }
  snprintf(command, sizeof command, "rm -rf %s", folder);
  CHECK(system(command) == 0);
  return check_done();
}
