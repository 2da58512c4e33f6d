/* SPDX-License-Identifier: MIT
 * watch_test.c: leases and polls over real HTTP, against a scripted server that plays a box: a
 * state file, log segments, a control plane. */
#include "c/check.h"

#include <time.h>

#include "c/support/http_script.h"
#include "c/support/verbs.h"

#include "base/clock.h"
#include "watch/watch.h"
#include "base/encode.h"
#include "wire/frames.h"
#include "wire/state.h"

enum { SEGMENT = 64, WAIT_MS = 20000, LOG_MAX = 1 << 20 };
#define ID "i0001fakesandboxid000"

/* What the server plays. All under its lock. */
static struct world {
  pthread_mutex_t lock;
  bool box_gone, no_state, no_segments;
  int fail;          /* answers left that are 500 */
  int files_status;  /* not 0: what every file request gets */
  struct cb_state state;
  char raw[256];     /* not empty: the state file instead of state */
  char log[2][LOG_MAX];
  int64_t served;    /* log bytes given out */
  int now, most;     /* requests at once */
  int delay_ms;
  char hang[64];     /* requests for this box never get an answer */
  double end_at;     /* 0: as asked */
  int timeouts;      /* renewals asked for */
  int64_t last_asked;
  char look[64];     /* what a command prints */
} w = {.lock = PTHREAD_MUTEX_INITIALIZER};

static struct cb_io *io;
static struct cb_provider *p;
static struct cb_watch *watch;
static struct script *server;

/* Seconds of the last renewal that was asked for. */
static int64_t asked_for(void)
{
  pthread_mutex_lock(&w.lock);
  int64_t s = w.last_asked;
  pthread_mutex_unlock(&w.lock);
  return s;
}

static void reset_world(void)
{
  pthread_mutex_lock(&w.lock);


  w.box_gone = w.no_state = w.no_segments = false;
  w.fail = w.files_status = w.now = w.most = w.delay_ms = w.timeouts = 0;
  w.raw[0] = w.hang[0] = '\0';
  w.served = 0;
  w.end_at = 0;
  strcpy(w.look, "gone");
  cb_state_init(&w.state);
  strcpy(w.state.run, "r1");
  w.state.launch_seq = 1;
  w.state.phase = CB_PHASE_RUNNING;
  w.state.sup_pid = 40;
  w.state.pid = 41;
  w.state.pid_start = 9;
  w.state.segment = SEGMENT;
  for (int i = 0; i < LOG_MAX; i++) {
    w.log[0][i] = (char)('a' + i % 23);
    w.log[1][i] = (char)('A' + i % 19);
  }
  pthread_mutex_unlock(&w.lock);
}

static void send_range(const struct script_req *r, int fd, const char *p_, int64_t size)
{
  char value[64], extra[96];
  long long from = 0, to = size - 1;
  script_header(r, "range", value, sizeof value);
  sscanf(value, "bytes=%lld-%lld", &from, &to);
  if (from >= size) {
    snprintf(extra, sizeof extra, "Content-Range: bytes */%lld\r\n", (long long)size);
    script_send(fd, 416, "text/plain", extra, "", 0);
    return;
  }
  if (to >= size)
    to = size - 1;
  snprintf(extra, sizeof extra, "Content-Range: bytes %lld-%lld/%lld\r\n", from, to,
           (long long)size);
  script_send(fd, 206, "text/plain", extra, p_ + from, (size_t)(to - from + 1));
}

static void send_file(const struct script_req *r, int fd)
{
  const char *name = strrchr(r->target, '/');
  const char *base = strstr(r->target, "%2F");
  (void)name;
  for (const char *q = base; q; q = strstr(q + 3, "%2F"))
    base = q + 3;
  if (strncmp(base, "state", 5) == 0 && !w.no_state) {
    struct cb_buf b;
    cb_buf_init(&b, 65536);
    if (w.raw[0])
      cb_buf_addz(&b, w.raw);
    else
      cb_state_write(&w.state, &b, NULL);
    send_range(r, fd, b.p, (int64_t)b.len);
    cb_buf_clear(&b);
    return;
  }
  int which = strncmp(base, "out.", 4) == 0 ? 0 : 1;
  int64_t at = strtoll(base + 4, NULL, 10);
  int64_t end = which == 0 ? w.state.out.end : w.state.err.end;
  const struct cb_state_stream *s = which == 0 ? &w.state.out : &w.state.err;
  bool in_gap = at >= s->gap_from && at + SEGMENT <= s->gap_to;
  if (strncmp(base, "state", 5) == 0 || w.no_segments || in_gap || at >= end || at > LOG_MAX) {
    script_json(fd, 404, "{\"code\":404,\"message\":\"path does not exist\"}");
    return;
  }
  int64_t size = end - at < SEGMENT ? end - at : SEGMENT;
  char value[64];
  long long from = 0, to = 0;
  script_header(r, "range", value, sizeof value);
  sscanf(value, "bytes=%lld-%lld", &from, &to);
  w.served += (to < size ? to + 1 : size) - from;
  send_range(r, fd, w.log[which] + at, size);
}

static void send_info(int fd)
{
  char body[512];
  if (w.box_gone) {
    script_json(fd, 404, "{\"code\":404,\"message\":\"Sandbox \\\"x\\\" doesn't exist\"}");
    return;
  }
  time_t end = w.end_at > 0 ? (time_t)w.end_at : time(NULL) + w.last_asked;
  struct tm tm;
  char stamp[32];
  gmtime_r(&end, &tm);
  strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%SZ", &tm);
  snprintf(body, sizeof body,
           "{\"sandboxID\":\"" ID "\",\"state\":\"running\",\"startedAt\":\"%s\",\"endAt\":\"%s\","
           "\"envdVersion\":\"0.6.13\",\"envdAccessToken\":\"t\"}",
           stamp, stamp);
  script_json(fd, 200, body);
}

static void send_command(int fd)
{
  char text[256], b64[128];
  struct cb_buf b;
  cb_buf_init(&b, 4096);
  cb_base64(w.look, strlen(w.look), b64);
  snprintf(text, sizeof text, "{\"event\":{\"start\":{\"pid\":9}}}");
  cb_frame_add(&b, 0, text, strlen(text));
  snprintf(text, sizeof text, "{\"event\":{\"data\":{\"stdout\":\"%s\"}}}", b64);
  cb_frame_add(&b, 0, text, strlen(text));
  snprintf(text, sizeof text, "{\"event\":{\"end\":{\"exited\":true,\"status\":\"exit status 0\"}}}");
  cb_frame_add(&b, 0, text, strlen(text));
  cb_frame_add(&b, CB_FRAME_END, "{}", 2);
  script_send(fd, 200, "application/connect+json", NULL, b.p, b.len);
  cb_buf_clear(&b);
}

static bool play(struct script *s, const struct script_req *r, int fd)
{
  char box[64];
  (void)s;
  script_header(r, "e2b-sandbox-id", box, sizeof box);
  pthread_mutex_lock(&w.lock);
  if (w.hang[0] && strcmp(box, w.hang) == 0) {
    pthread_mutex_unlock(&w.lock);
    char c;
    while (recv(fd, &c, 1, 0) > 0)
      ;
    return false;
  }
  if (++w.now > w.most)
    w.most = w.now;
  int delay = w.delay_ms;
  pthread_mutex_unlock(&w.lock);
  if (delay)
    usleep((useconds_t)delay * 1000);
  pthread_mutex_lock(&w.lock);
  w.now--; /* before the answer: the client may send the next request at once */
  if (w.fail > 0) {
    w.fail--;
    script_json(fd, 500, "{\"code\":500,\"message\":\"rc 126\"}");
  } else if (strncmp(r->target, "/files", 6) == 0 && w.files_status) {
    script_json(fd, w.files_status, "{\"message\":\"no\"}");
  } else if (strncmp(r->target, "/files", 6) == 0) {
    send_file(r, fd);
  } else if (strstr(r->target, "Start")) {
    send_command(fd);
  } else if (strstr(r->target, "/timeout")) {
    json_t *body = json_loadb(r->body, r->body_len, 0, NULL);
    w.timeouts++;
    w.last_asked = json_integer_value(json_object_get(body, "timeout"));
    json_decref(body);
    if (w.box_gone)
      script_json(fd, 404, "{\"code\":404,\"message\":\"Sandbox \\\"x\\\" doesn't exist\"}");
    else
      script_no_content(fd);
  } else {
    send_info(fd);
  }
  pthread_mutex_unlock(&w.lock);
  return true;
}

/* ---- jobs as ops -------------------------------------------------------------------------- */

struct job {
  uint64_t op;
  struct cb_watch_job *job;
  json_t *args;
  bool lease;
};

static void tell(void *arg, json_t *event, const struct cb_err *err, bool more)
{
  struct job *j = arg;
  if (!more)
    j->job = NULL;
  cb_io_complete(io, j->op, event, err, more);
}

static void begin(struct cb_io *io_, void *arg)
{
  struct job *j = arg;
  struct cb_err err = CB_ERR_INIT;
  j->job = (j->lease ? cb_watch_lease : cb_watch_run)(watch, p, j->args, tell, j, &err);
  if (!j->job)
    cb_io_complete(io_, j->op, NULL, &err, false);
}

static void start_job(struct job *j, bool lease, const char *text)
{
  struct cb_err err;
  memset(j, 0, sizeof *j);
  j->lease = lease;
  j->args = json_loads(text, 0, NULL);
  if (!j->args)
    abort();
  j->op = cb_io_op(io, NULL, NULL);
  cb_io_post(io, begin, j, &err);
}

static void free_job(struct job *j)
{
  json_decref(j->args);
}

static void cancel_now(struct cb_io *io_, void *arg)
{
  struct job *j = arg;
  (void)io_;
  if (j->job)
    cb_watch_cancel(j->job);
}

static void poke_now(struct cb_io *io_, void *arg)
{
  struct job *j = arg;
  (void)io_;
  if (j->job)
    cb_watch_poke(j->job);
}

/* Everything that was told so far and not taken yet, oldest first. */
static struct cb_completion *waiting;

/* The next event of a job, within a bound. NULL with *err at an end by error. */
static json_t *next_event(const struct job *j, bool *more, struct cb_err *err)
{
  int64_t until = cb_now_ms() + WAIT_MS;
  for (;;) {
    struct cb_completion **at = &waiting;
    for (; *at; at = (struct cb_completion **)(void *)&(*at)->link.next)
      if ((*at)->op == j->op) {
        struct cb_completion *c = *at;
        json_t *v = json_incref(c->value);
        *more = c->more;
        *err = c->err;
        *at = (struct cb_completion *)c->link.next;
        cb_completion_free(c);
        return v;
      }
    if (cb_now_ms() > until || cb_io_wait(io, WAIT_MS) <= 0) {
      fprintf(stderr, "no event came\n");
      exit(1);
    }
    *at = cb_io_drain(io);
  }
}

/* Events until one of that name. */
static json_t *until(const struct job *j, const char *name)
{
  for (;;) {
    bool more;
    struct cb_err err;
    json_t *v = next_event(j, &more, &err);
    if (v && strcmp(str(v, "event"), name) == 0)
      return v;
    if (!more) {
      fprintf(stderr, "ended with %s %s %s instead of %s\n", v ? str(v, "event") : "error",
              v ? str(v, "reason") : "", err.text, name);
      json_decref(v);
      return NULL;
    }
    json_decref(v);
  }
}

static void forget_waiting(void)
{
  struct cb_completion *c = waiting, *next;
  for (; c; c = next) {
    next = (struct cb_completion *)c->link.next;
    cb_completion_free(c);
  }
  waiting = NULL;
}

static void stop_job(struct job *j)
{
  struct cb_err err;
  bool more = true;
  cb_io_post(io, cancel_now, j, &err);
  while (more)
    json_decref(next_event(j, &more, &err));
  CHECK(err.code == CB_CANCELLED);
  free_job(j);
}

static void start_run(struct job *j, const char *more)
{
  char text[512];
  snprintf(text, sizeof text,
           "{\"box\":{\"id\":\"" ID "\",\"token\":\"t\"},\"run\":\"r1\",\"launch_seq\":1,"
           "\"run_dir\":\"/home/user/.crewbox/runs/r1\",\"interval_ms\":50%s}",
           more);
  start_job(j, false, text);
}

#define CHANGE(what)               \
  do {                             \
    pthread_mutex_lock(&w.lock);   \
    what;                          \
    pthread_mutex_unlock(&w.lock); \
  } while (0)

static void finish_run(void)
{
  CHANGE(w.state.phase = CB_PHASE_FINISHED; w.state.why = CB_WHY_EXITED; w.state.exit_status = 3;
         w.state.beat++);
}

/* Collects a run to its end: bytes and gaps into the arguments, the last event returned. */
static json_t *collect(struct job *j, struct cb_buf *out, struct cb_buf *err_out, json_t *gaps)
{
  for (;;) {
    bool more;
    struct cb_err err;
    json_t *v = next_event(j, &more, &err);
    if (!more)
      return v;
    if (strcmp(str(v, "event"), "progress") == 0) {
      cb_buf_add(out, str(v, "out"), json_string_length(json_object_get(v, "out")));
      cb_buf_add(err_out, str(v, "err"), json_string_length(json_object_get(v, "err")));
      json_array_extend(gaps, json_object_get(v, "gaps"));
    }
    json_decref(v);
  }
}

/* ---- runs -------------------------------------------------------------------------------- */

static void follows_a_run_from_before_its_start_to_its_end(void)
{
  struct job j;
  struct cb_buf out, err_out;
  json_t *gaps = json_array();
  reset_world();
  CHANGE(w.no_state = true);
  cb_buf_init(&out, LOG_MAX);
  cb_buf_init(&err_out, LOG_MAX);
  start_run(&j, ",\"max_bytes\":200");
  while (script_count(server) < 6)
    usleep(1000);
  CHANGE(w.no_state = false; w.state.out.end = 1000; w.state.err.end = 130);
  usleep(200000);
  CHANGE(w.state.out.end = 5003; w.state.beat++);
  finish_run();
  json_t *last = collect(&j, &out, &err_out, gaps);
  CHECK_STR(str(last, "event"), "finished");
  CHECK(num(json_object_get(last, "state"), "exit") == 3);
  CHECK_STR(str(json_object_get(last, "state"), "why"), "exited");
  CHECK(out.len == 5003 && memcmp(out.p, w.log[0], 5003) == 0);
  CHECK(err_out.len == 130 && memcmp(err_out.p, w.log[1], 130) == 0);
  CHECK(json_array_size(gaps) == 0);
  CHECK(w.served == 5133); /* bug-C19: each byte once, however many turns */
  json_decref(last);
  cb_buf_clear(&out);
  cb_buf_clear(&err_out);
  json_decref(gaps);
  free_job(&j);
}

static void goes_on_from_offsets(void) /* bug-C19: after a restart of the host */
{
  struct job j;
  struct cb_buf out, err_out;
  json_t *gaps = json_array();
  reset_world();
  cb_buf_init(&out, LOG_MAX);
  cb_buf_init(&err_out, LOG_MAX);
  CHANGE(w.state.out.end = 300; w.state.err.end = 64);
  finish_run();
  start_run(&j, ",\"out_offset\":100,\"err_offset\":64,\"segment\":64");
  json_t *last = collect(&j, &out, &err_out, gaps);
  CHECK_STR(str(last, "event"), "finished");
  CHECK(out.len == 200 && memcmp(out.p, w.log[0] + 100, 200) == 0);
  CHECK(err_out.len == 0 && w.served == 200);
  json_decref(last);
  json_decref(gaps);
  cb_buf_clear(&out);
  cb_buf_clear(&err_out);
  free_job(&j);
}

static void steps_over_gaps(void)
{
  struct job j;
  struct cb_buf out, err_out;
  json_t *gaps = json_array();
  reset_world();
  cb_buf_init(&out, LOG_MAX);
  cb_buf_init(&err_out, LOG_MAX);
  CHANGE(w.state.out = ((struct cb_state_stream){1000, 128, 640}));
  finish_run();
  start_run(&j, "");
  json_t *last = collect(&j, &out, &err_out, gaps);
  CHECK_STR(str(last, "event"), "finished");
  CHECK(out.len == 488 && memcmp(out.p, w.log[0], 128) == 0 &&
        memcmp(out.p + 128, w.log[0] + 640, 360) == 0);
  CHECK(json_array_size(gaps) == 1);
  CHECK_STR(str(json_array_get(gaps, 0), "stream"), "out");
  CHECK(num(json_array_get(gaps, 0), "from") == 128 && num(json_array_get(gaps, 0), "to") == 640);
  json_decref(last);
  json_decref(gaps);
  cb_buf_clear(&out);
  cb_buf_clear(&err_out);
  free_job(&j);
}

static void is_not_held_up_by_a_box_that_lies_about_its_log(void)
{
  struct job j;
  struct cb_buf out, err_out;
  json_t *gaps = json_array();
  reset_world();
  cb_buf_init(&out, LOG_MAX);
  cb_buf_init(&err_out, LOG_MAX);
  CHANGE(w.no_segments = true; w.state.out.end = INT64_C(1) << 50);
  finish_run();
  start_run(&j, "");
  json_t *last = collect(&j, &out, &err_out, gaps);
  CHECK_STR(str(last, "event"), "finished");
  CHECK(out.len == 0 && json_array_size(gaps) == 9);
  CHECK(num(json_array_get(gaps, 8), "to") == INT64_C(1) << 50);
  json_decref(last);
  json_decref(gaps);
  cb_buf_clear(&out);
  cb_buf_clear(&err_out);
  free_job(&j);
}

static void tells_why_a_run_is_lost(void)
{
  struct job j;
  json_t *v;
  reset_world(); /* bug-C9, bug-E1381: the box is gone before its time */
  start_run(&j, "");
  json_decref(until(&j, "progress"));
  CHANGE(w.box_gone = true; w.files_status = 502);
  v = until(&j, "lost");
  CHECK_STR(str(v, "reason"), "box_lost");
  json_decref(v);
  free_job(&j);

  reset_world();
  start_run(&j, "");
  json_decref(until(&j, "progress"));
  CHANGE(w.no_state = true);
  v = until(&j, "lost");
  CHECK_STR(str(v, "reason"), "supervisor_lost");
  json_decref(v);
  free_job(&j);

  static const char *const nonsense[] = {"garbage", "crewbox_state 1\n1\nrun 2\nr1\n"};
  for (size_t i = 0; i < 2; i++) {
    reset_world();
    CHANGE(strcpy(w.raw, nonsense[i]));
    start_run(&j, "");
    v = until(&j, "lost");
    CHECK_STR(str(v, "reason"), "supervisor_lost");
    json_decref(v);
    free_job(&j);
  }

  reset_world();
  CHANGE(w.state.launch_seq = 2);
  start_run(&j, "");
  v = until(&j, "lost");
  CHECK_STR(str(v, "reason"), "supervisor_lost");
  json_decref(v);
  free_job(&j);

  reset_world();
  CHANGE(w.state.beat = 9);
  start_run(&j, "");
  json_decref(until(&j, "progress"));
  CHANGE(w.state.beat = 3);
  v = until(&j, "lost");
  CHECK_STR(str(v, "reason"), "supervisor_lost");
  json_decref(v);
  free_job(&j);

  reset_world();
  CHANGE(w.no_state = true);
  start_run(&j, ",\"start_deadline_ms\":300");
  v = until(&j, "lost");
  CHECK_STR(str(v, "reason"), "start_failed");
  json_decref(v);
  free_job(&j);

  reset_world(); /* a beat that stands still, and a supervisor that is proven dead */
  start_run(&j, "");
  json_decref(until(&j, "stalled"));
  v = until(&j, "lost");
  CHECK_STR(str(v, "reason"), "supervisor_lost");
  json_decref(v);
  free_job(&j);
}

static void reports_what_proves_nothing(void) /* bug-B7 */
{
  struct job j;
  reset_world();
  start_run(&j, "");
  json_decref(until(&j, "progress"));
  CHANGE(w.files_status = 500);
  json_t *v = until(&j, "unreachable");
  CHECK_STR(str(json_object_get(v, "err"), "code"), "provider");
  CHECK(num(json_object_get(v, "err"), "status") == 500);
  json_decref(v);
  for (int i = 0; i < 6; i++) /* many of them, but not for long */
    json_decref(until(&j, "unreachable"));
  CHANGE(w.files_status = 0; w.state.beat++);
  json_decref(until(&j, "progress"));
  CHANGE(w.state.stopped = true; w.state.beat++); /* bug-B5 */
  v = until(&j, "stalled");
  CHECK_STR(str(v, "why"), "stopped");
  json_decref(v);
  finish_run();
  json_decref(until(&j, "finished"));
  free_job(&j);

  reset_world();
  CHANGE(w.state.quiet_ms = 5000);
  start_run(&j, ",\"stall_ms\":4000");
  v = until(&j, "stalled");
  CHECK_STR(str(v, "why"), "quiet");
  json_decref(v);
  stop_job(&j);
}

static void keeps_to_its_bound(void)
{
  enum { JOBS = 20 };
  struct job jobs[JOBS];
  reset_world();
  CHANGE(w.delay_ms = 20);
  for (int i = 0; i < JOBS; i++)
    start_run(&jobs[i], "");
  for (int round = 0; round < 2; round++)
    for (int i = 0; i < JOBS; i++)
      json_decref(until(&jobs[i], "progress"));
  CHECK(w.most <= 4);
  for (int i = 0; i < JOBS; i++)
    stop_job(&jobs[i]);
}

static void does_not_wait_for_a_slow_box(void)
{
  struct job slow, quick;
  reset_world();
  CHANGE(strcpy(w.hang, "islow"));
  start_job(&slow, false,
            "{\"box\":{\"id\":\"islow\",\"token\":\"t\"},\"run\":\"r1\",\"launch_seq\":1,"
            "\"run_dir\":\"/r\",\"interval_ms\":50,\"wait_ms\":600000}");
  start_run(&quick, "");
  for (int i = 0; i < 5; i++) {
    CHANGE(w.state.beat++);
    json_decref(until(&quick, "progress"));
  }
  stop_job(&quick);
  stop_job(&slow); /* with its request still in flight */
}

static void does_not_wait_for_many_slow_boxes(void)
{
  enum { SLOW = 8 };
  struct job slow[SLOW], quick;
  reset_world();
  CHANGE(strcpy(w.hang, "islow"));
  for (int i = 0; i < SLOW; i++)
    start_job(&slow[i], false,
              "{\"box\":{\"id\":\"islow\",\"token\":\"t\"},\"run\":\"r1\",\"launch_seq\":1,"
              "\"run_dir\":\"/r\",\"interval_ms\":50,\"wait_ms\":300}");
  for (int i = 0; i < SLOW; i++)
    json_decref(until(&slow[i], "unreachable"));
  start_run(&quick, "");
  for (int i = 0; i < 20; i++) {
    CHANGE(w.state.beat++);
    json_decref(until(&quick, "progress"));
  }
  stop_job(&quick);
  for (int i = 0; i < SLOW; i++)
    stop_job(&slow[i]);
}

static void polls_when_poked(void)
{
  struct job j;
  struct cb_err err;
  reset_world();
  start_run(&j, ",\"interval_ms\":3600000");
  json_decref(until(&j, "progress"));
  CHANGE(w.state.out.end = 10; w.state.beat++);
  cb_io_post(io, poke_now, &j, &err);
  json_t *v = until(&j, "progress");
  CHECK(num(v, "out_offset") == 10);
  json_decref(v);
  stop_job(&j);
}

static void refuses_bad_arguments(void)
{
  static const char *const bad[] = {
    "{\"run\":\"r1\",\"launch_seq\":1,\"run_dir\":\"/r\",\"interval_ms\":50}",
    "{\"box\":{\"id\":\"../x\"},\"run\":\"r1\",\"launch_seq\":1,\"run_dir\":\"/r\",\"interval_ms\":50}",
    "{\"box\":{\"id\":\"i1\"},\"launch_seq\":1,\"run_dir\":\"/r\",\"interval_ms\":50}",
    "{\"box\":{\"id\":\"i1\"},\"run\":\"r1\",\"run_dir\":\"/r\",\"interval_ms\":50}",
    "{\"box\":{\"id\":\"i1\"},\"run\":\"r1\",\"launch_seq\":1,\"run_dir\":\"/r\"}",
  };
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    struct job j;
    bool more;
    struct cb_err err;
    start_job(&j, false, bad[i]);
    json_t *v = next_event(&j, &more, &err);
    CHECK(v == NULL && !more && err.code == CB_INVALID);
    free_job(&j);
  }
}

/* ---- leases ------------------------------------------------------------------------------ */

#define LEASE "{\"box\":{\"id\":\"" ID "\",\"token\":\"t\"},\"lease_s\":4"

static void renews_a_lease_before_it_ends(void)
{
  struct job j;
  reset_world();
  start_job(&j, true, LEASE "}");
  for (int i = 0; i < 3; i++) {
    json_t *v = until(&j, "renewed");
    CHECK(num(v, "end_at") >= time(NULL));
    json_decref(v);
  }
  CHECK(asked_for() == 4);
  stop_job(&j);
}

static void tells_a_cap_and_an_end(void)
{
  struct job j;
  reset_world();
  CHANGE(w.end_at = (double)time(NULL) + 30);
  start_job(&j, true, "{\"box\":{\"id\":\"" ID "\",\"token\":\"t\"},\"lease_s\":900}");
  json_t *v = until(&j, "capped");
  CHECK(num(v, "end_at") == (json_int_t)w.end_at);
  json_decref(v);
  stop_job(&j);

  reset_world();
  start_job(&j, true, LEASE "}");
  json_decref(until(&j, "renewed"));
  CHANGE(w.box_gone = true);
  v = until(&j, "gone");
  CHECK(v != NULL);
  json_decref(v);
  free_job(&j);
}

static void never_moves_a_deadline(void)
{
  struct job j;
  char text[256];
  reset_world();
  snprintf(text, sizeof text, LEASE ",\"deadline_at\":%.3f}", (double)cb_wall_ms() / 1000 + 2.5);
  start_job(&j, true, text);
  json_decref(until(&j, "renewed"));
  CHECK(asked_for() == 2);
  json_t *v = until(&j, "deadline");
  CHECK(v != NULL);
  json_decref(v);
  free_job(&j);
}

static void goes_on_renewing_through_trouble(void)
{
  struct job j;
  reset_world();
  CHANGE(w.fail = 6);
  start_job(&j, true, LEASE "}");
  json_t *v = until(&j, "unreachable");
  CHECK_STR(str(json_object_get(v, "err"), "code"), "provider");
  json_decref(v);
  json_decref(until(&j, "renewed"));
  stop_job(&j);
}

static void ends_all_when_it_is_closed(void)
{
  struct job a, b;
  bool more = true;
  struct cb_err err;
  reset_world();
  CHANGE(strcpy(w.hang, ID));
  start_run(&a, "");
  start_job(&b, true, LEASE "}");
  json_decref(until(&b, "renewed"));
  cb_watch_free(watch);
  watch = NULL;
  while (more)
    json_decref(next_event(&a, &more, &err));
  CHECK(err.code == CB_CLOSED);
  for (more = true; more;)
    json_decref(next_event(&b, &more, &err));
  CHECK(err.code == CB_CLOSED);
  free_job(&a);
  free_job(&b);
}

int main(void)
{
  struct cb_err err = CB_ERR_INIT;
  char settings[256];
  server = script_start(play);
  snprintf(settings, sizeof settings,
           "{\"api_url\":\"http://127.0.0.1:%d\",\"sandbox_url\":\"http://127.0.0.1:%d\"}",
           server->port, server->port);
  json_t *s = json_loads(settings, 0, NULL);
  if (cb_io_new(&io, &err) || cb_provider_open(&p, io, "e2b", s, &err) ||
      cb_watch_new(&watch, io, 4, &err)) {
    fprintf(stderr, "%s\n", err.text);
    return 1;
  }
  json_decref(s);
  follows_a_run_from_before_its_start_to_its_end();
  goes_on_from_offsets();
  steps_over_gaps();
  is_not_held_up_by_a_box_that_lies_about_its_log();
  tells_why_a_run_is_lost();
  reports_what_proves_nothing();
  keeps_to_its_bound();
  does_not_wait_for_a_slow_box();
  does_not_wait_for_many_slow_boxes();
  polls_when_poked();
  refuses_bad_arguments();
  renews_a_lease_before_it_ends();
  tells_a_cap_and_an_end();
  never_moves_a_deadline();
  goes_on_renewing_through_trouble();
  ends_all_when_it_is_closed();
  forget_waiting();
  cb_provider_close(p);
  cb_io_free(io);
  script_stop(server);
  return check_done();
}
