/* SPDX-License-Identifier: MIT
 * hostile_test.c: a provider that means harm, against the real client: every verb meets every
 * kind of hostile answer. Each ends with a code within its time, having taken no more bytes than
 * it bounds, with no memory, descriptor or thread left; in most cases the same client then works. */
#include "c/check.h"

#include "c/io_help.h"
#include "c/support/http_script.h"
#include "c/support/verbs.h"

#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <zlib.h>

#include "base/clock.h"
#include "wire/frames.h"

/* TAKEN_MAX: what all verbs at once, each trying up to three times, may take before they hang up,
 * with what lies in socket buffers. */
enum { TAKEN_MAX = 1 << 30, MEMORY_KIB_MAX = 400 << 10, DEEP = 10000, NOISE = 300 };

static struct cb_io *io;
static atomic_ullong sent;        /* bytes of the present case that went out */
static atomic_uint noise_seed;    /* of random answers */

/* False once the other side has hung up. */
static bool put(int fd, const void *p, size_t n)
{
  const char *at = p;
  while (n > 0) {
    ssize_t k = send(fd, at, n, MSG_NOSIGNAL);
    if (k <= 0)
      return false;
    atomic_fetch_add(&sent, (unsigned long long)k);
    at += k;
    n -= (size_t)k;
  }
  return true;
}

static bool say(int fd, const char *text)
{
  return put(fd, text, strlen(text));
}

static bool for_ever(int fd, const char *head, const void *piece, size_t n)
{
  bool go_on = say(fd, head);
  while (go_on)
    go_on = put(fd, piece, n);
  return false;
}

/* ---- the answers -------------------------------------------------------------------------- */

static char block[65536]; /* of blanks, which JSON may have everywhere */

static bool endless_headers(struct script *s, const struct script_req *r, int fd)
{
  (void)s, (void)r;
  return for_ever(fd, "HTTP/1.1 200 OK\r\n", "X-More: 0123456789\r\n", 20);
}

static bool endless_line(struct script *s, const struct script_req *r, int fd)
{
  (void)s, (void)r;
  return for_ever(fd, "HTTP/1.1 200 OK\r\nX-Long: ", block, sizeof block);
}

static bool endless_body(struct script *s, const struct script_req *r, int fd)
{
  (void)s, (void)r;
  return for_ever(fd, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n", block, sizeof block);
}

static bool gibibyte(struct script *s, const struct script_req *r, int fd)
{
  (void)s, (void)r;
  return for_ever(fd, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
                      "Content-Length: 1073741824\r\n\r\n", block, sizeof block);
}

static bool more_than_there_is(struct script *s, const struct script_req *r, int fd)
{
  (void)s, (void)r;
  say(fd, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
          "Content-Length: 18446744073709551615\r\n\r\n{}");
  return false;
}

static bool endless_error(struct script *s, const struct script_req *r, int fd)
{
  (void)s, (void)r;
  return for_ever(fd, "HTTP/1.1 404 No\r\nContent-Type: application/json\r\n\r\n", block, sizeof block);
}

static bool endless_chunks(struct script *s, const struct script_req *r, int fd)
{
  (void)s, (void)r;
  return for_ever(fd, "HTTP/1.1 200 OK\r\nContent-Type: application/connect+json\r\n"
                      "Transfer-Encoding: chunked\r\n\r\n", "1\r\n \r\n", 6);
}

/* 64 MiB of blanks in about 64 KiB. */
static bool gzip_bomb(struct script *s, const struct script_req *r, int fd)
{
  enum { TIMES = 1024 };
  static unsigned char out[256 << 10];
  static atomic_int made;
  static size_t len;
  (void)s, (void)r;
  if (!atomic_exchange(&made, 1)) {
    z_stream z;
    memset(&z, 0, sizeof z);
    deflateInit2(&z, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
    z.next_out = out;
    z.avail_out = sizeof out;
    for (int i = 0; i <= TIMES; i++) {
      z.next_in = (unsigned char *)block;
      z.avail_in = i < TIMES ? sizeof block : 0;
      deflate(&z, i < TIMES ? Z_NO_FLUSH : Z_FINISH);
    }
    len = z.total_out;
    deflateEnd(&z);
  }
  char head[160];
  snprintf(head, sizeof head, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
                              "Content-Encoding: gzip\r\nContent-Length: %zu\r\n\r\n", len);
  return say(fd, head) && put(fd, out, len);
}

static bool deep(int fd, const char *type, const char *before, const char *open, const char *shut)
{
  struct cb_buf b;
  cb_buf_init(&b, 16 * DEEP);
  int rc = cb_buf_addz(&b, before);
  for (int i = 0; i < DEEP; i++)
    rc |= cb_buf_addz(&b, open);
  for (int i = 0; i < DEEP && *shut; i++)
    rc |= cb_buf_addz(&b, shut);
  if (!rc)
    script_send(fd, 200, type, NULL, b.p, b.len);
  cb_buf_clear(&b);
  return true;
}

static bool deep_lists(struct script *s, const struct script_req *r, int fd)
{
  (void)s, (void)r;
  return deep(fd, "application/json", "", "[", "]");
}

static bool deep_objects(struct script *s, const struct script_req *r, int fd)
{
  (void)s, (void)r;
  return deep(fd, "application/json", "", "{\"a\":", "");
}

static bool wrong_types(struct script *s, const struct script_req *r, int fd)
{
  (void)s, (void)r;
  script_json(fd, 200, "{\"sandboxID\":[],\"envdVersion\":1e999,\"endAt\":{},\"state\":null,\"metadata\":7,"
                       "\"entries\":{\"0\":1},\"entry\":\"x\"}");
  return true;
}

static bool not_text(struct script *s, const struct script_req *r, int fd)
{
  (void)s, (void)r;
  script_send(fd, 200, "application/json", NULL, "{\"sandboxID\":\"\xff\xfe\0\\u0000\"}", 24);
  return true;
}

static bool stream(int fd, const char *bytes, size_t n)
{
  script_send(fd, 200, "application/connect+json", NULL, bytes, n);
  return true;
}

/* A frame that says four gibibytes, one that is cut in its head, one cut in its body. */
static bool huge_frame(struct script *s, const struct script_req *r, int fd)
{
  (void)s, (void)r;
  return stream(fd, "\0\xff\xff\xff\xff{}", 7);
}

static bool torn_head(struct script *s, const struct script_req *r, int fd)
{
  (void)s, (void)r;
  return stream(fd, "\0\0\0", 3);
}

static bool torn_body(struct script *s, const struct script_req *r, int fd)
{
  (void)s, (void)r;
  return stream(fd, "\0\0\0\0\x20{\"event\":{\"start\":{\"pid\":7", 30);
}

static bool odd_flags(struct script *s, const struct script_req *r, int fd)
{
  (void)s, (void)r;
  return stream(fd, "\x7f\0\0\0\x02{}\x01\0\0\0\x02{}", 14);
}

static bool frame_of(int fd, const char *json, int flags)
{
  struct cb_buf b;
  cb_buf_init(&b, 1 << 20);
  if (cb_frame_add(&b, flags, json, strlen(json)) == CB_OK)
    stream(fd, b.p, b.len);
  cb_buf_clear(&b);
  return true;
}

static bool wrong_events(struct script *s, const struct script_req *r, int fd)
{
  (void)s, (void)r;
  return frame_of(fd, "{\"event\":{\"data\":{\"stdout\":{\"a\":1},\"stderr\":\"%%%\"},\"start\":[],"
                      "\"end\":{\"exited\":\"yes\",\"status\":-1}}}", 0);
}

static bool wrong_end(struct script *s, const struct script_req *r, int fd)
{
  (void)s, (void)r;
  return frame_of(fd, "{\"error\":{\"code\":[1],\"message\":{}}}", CB_FRAME_END);
}

/* Events without end: each is right, none is the last. */
static bool endless_events(struct script *s, const struct script_req *r, int fd)
{
  static const char event[] = "{\"event\":{\"data\":{\"stdout\":\"QUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFB\"}}}";
  struct cb_buf b;
  (void)s, (void)r;
  cb_buf_init(&b, 1 << 20);
  for (int i = 0; i < 64; i++)
    (void)cb_frame_add(&b, 0, event, sizeof event - 1);
  bool go_on = for_ever(fd, "HTTP/1.1 200 OK\r\nContent-Type: application/connect+json\r\n\r\n", b.p, b.len);
  cb_buf_clear(&b);
  return go_on;
}

static bool redirect(struct script *s, const struct script_req *r, int fd)
{
  (void)s, (void)r;
  script_send(fd, 302, "text/plain", "Location: http://169.254.169.254/latest\r\n", "", 0);
  return true;
}

static bool silence(struct script *s, const struct script_req *r, int fd)
{
  char c;
  (void)s, (void)r;
  while (recv(fd, &c, 1, 0) > 0) {
  }
  return false;
}

static unsigned next_random(unsigned *seed)
{
  *seed = *seed * 1664525u + 1013904223u;
  return *seed >> 16;
}

/* A right answer of some kind with some of its bytes changed, and perhaps cut. */
static bool noise(struct script *s, const struct script_req *r, int fd)
{
  static const char *const right[] = {
    "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 66\r\n\r\n"
    "{\"sandboxID\":\"i1\",\"envdVersion\":\"0.6.1\",\"envdAccessToken\":\"t\",\"a\":1}",
    "HTTP/1.1 200 OK\r\nContent-Type: application/connect+json\r\nTransfer-Encoding: chunked\r\n\r\n"
    "29\r\n" "     {\"event\":{\"start\":{\"pid\":7}}}         " "\r\n0\r\n\r\n",
    "HTTP/1.1 429 Slow\r\nRetry-After: 0\r\nContent-Length: 2\r\n\r\n{}",
    "HTTP/1.1 206 Part\r\nContent-Range: bytes 0-3/9\r\nContent-Length: 4\r\n\r\nabcd",
    "HTTP/1.1 204 No\r\n\r\n",
    "HTTP/1.1 200 OK\r\nX-Next-Token: abc\r\nContent-Length: 2\r\n\r\n[]",
  };
  char bytes[512];
  (void)s, (void)r;
  unsigned seed = atomic_fetch_add(&noise_seed, 1) * 2654435761u + 1;
  const char *from = right[next_random(&seed) % (sizeof right / sizeof *right)];
  size_t n = strlen(from);
  memcpy(bytes, from, n);
  for (unsigned i = next_random(&seed) % 6; i > 0; i--)
    bytes[next_random(&seed) % n] = (char)next_random(&seed);
  if (next_random(&seed) % 3 == 0)
    n = next_random(&seed) % (n + 1);
  put(fd, bytes, n);
  return false;
}

/* ---- the client --------------------------------------------------------------------------- */

#define BOX "\"box\":{\"id\":\"i1\",\"token\":\"t\"},\"wait_ms\":2000"

static const struct {
  const char *name, *args;
} verbs[] = {
  { "create", "{\"nonce\":\"n1\",\"template\":\"base\",\"timeout_s\":60,\"wait_ms\":2000}" },
  { "connect", "{\"id\":\"i1\",\"timeout_s\":60,\"wait_ms\":2000}" },
  { "info", "{\"id\":\"i1\",\"wait_ms\":2000}" },
  { "list", "{\"metadata\":{\"a\":\"b\"},\"wait_ms\":2000}" },
  { "timeout", "{\"id\":\"i1\",\"timeout_s\":60,\"wait_ms\":2000}" },
  { "kill", "{\"id\":\"i1\",\"wait_ms\":2000}" },
  { "exec", "{" BOX ",\"cmd\":\"true\"}" },
  { "start", "{" BOX ",\"cmd\":\"true\"}" },
  { "signal", "{" BOX ",\"pid\":7,\"signal\":\"TERM\"}" },
  { "upload", "{" BOX ",\"files\":[{\"path\":\"/x\",\"data\":\"y\"}]}" },
  { "read", "{" BOX ",\"path\":\"/x\",\"max_bytes\":100}" },
  { "ls", "{" BOX ",\"path\":\"/x\"}" },
  { "remove", "{" BOX ",\"path\":\"/x\"}" },
};
enum { VERBS = sizeof verbs / sizeof *verbs };

static struct cb_provider *open_provider(int port)
{
  struct cb_provider *p = NULL;
  struct cb_err err = CB_ERR_INIT;
  json_t *settings = json_pack("{s:s, s:o, s:o, s:i}", "api_key", "e2b_00", "api_url",
                               json_sprintf("http://127.0.0.1:%d", port), "sandbox_url",
                               json_sprintf("http://127.0.0.1:%d/", port), "keepalive_s", 1);
  if (cb_provider_open(&p, io, "e2b", settings, &err)) {
    fprintf(stderr, "open: %s\n", err.text);
    exit(1);
  }
  json_decref(settings);
  return p;
}

/* What came of a verb is a value, or a code and one line of text. */
static bool is_an_end(const struct cb_completion *c)
{
  return c->value || (c->err.code != CB_OK && c->err.text[0] && !strpbrk(c->err.text, "\r\n"));
}

/* All verbs at once; how many ended as they must. */
static size_t all_end(struct cb_provider *p)
{
  struct cb_completion *more = NULL, *c;
  size_t good = 0, ended = 0;
  for (size_t i = 0; i < VERBS; i++)
    verb_start(p, verbs[i].name, json_loads(verbs[i].args, 0, NULL));
  for (; ended < VERBS && (c = help_next(io, &more)) != NULL; ended++) {
    good += is_an_end(c);
    cb_completion_free(c);
  }
  return good;
}

struct hostile {
  const char *what;
  bool (*answer)(struct script *, const struct script_req *, int);
  bool bounded; /* bytes are: not where each message is right and there may be more for ever */
};

static void meets(const struct hostile *h)
{
  struct script *s = script_start(h->answer);
  struct cb_provider *p = open_provider(s->port);
  struct rusage use;
  size_t good = all_end(p);
  unsigned long long took = atomic_load(&sent);
  getrusage(RUSAGE_SELF, &use);
  if (good != VERBS || took > TAKEN_MAX)
    fprintf(stderr, "%s: %zu of %d verbs ended, %llu bytes\n", h->what, good, VERBS, took);
  CHECK(good == VERBS);
  CHECK(!h->bounded || took <= TAKEN_MAX);
  /* A sanitizer keeps what was freed. */
  CHECK(use.ru_maxrss < MEMORY_KIB_MAX || getenv("CREWBOX_SANITIZED"));
  cb_provider_close(p);
  script_stop(s);
}

/* Right answers with random mistakes in them. */
static void random_answers(void)
{
  struct script *s = script_start(noise);
  struct cb_provider *p = open_provider(s->port);
  for (int i = 0; i < NOISE / VERBS; i++)
    CHECK(all_end(p) == VERBS);
  cb_provider_close(p);
  script_stop(s);
}

/* One case in a process of its own, all at the same time: most of them wait. */
static pid_t in_a_process(const struct hostile *h)
{
  pid_t pid = fork();
  if (pid != 0)
    return pid;
  struct cb_err err = CB_ERR_INIT;
  int fds = help_fds();
  check_passed = check_failed = 0;
  CHECK(cb_io_new(&io, &err) == CB_OK);
  if (h)
    meets(h);
  else
    random_answers();
  cb_io_free(io);
  CHECK(help_threads_are(1));
  CHECK(help_fds() == fds);
  exit(check_failed ? 1 : 0);
}

int main(void)
{
  static const struct hostile cases[] = {
    { "headers without end", endless_headers, true },
    { "a line without end", endless_line, true },
    { "a body without end", endless_body, true },
    { "a gibibyte", gibibyte, true },
    { "a length of 2^64 - 1", more_than_there_is, true },
    { "an error without end", endless_error, true },
    { "chunks without end", endless_chunks, true },
    { "a gzip bomb", gzip_bomb, true },
    { "lists 10,000 deep", deep_lists, true },
    { "objects 10,000 deep", deep_objects, true },
    { "wrong types", wrong_types, true },
    { "what is not text", not_text, true },
    { "a frame of 4 GiB", huge_frame, true },
    { "a torn frame head", torn_head, true },
    { "a torn frame", torn_body, true },
    { "odd flags", odd_flags, true },
    { "wrong events", wrong_events, true },
    { "a wrong end", wrong_end, true },
    { "events without end", endless_events, false },
    { "a redirect", redirect, true },
    { "silence", silence, true },
  };
  enum { CASES = sizeof cases / sizeof *cases };
  pid_t pids[CASES + 1];
  memset(block, ' ', sizeof block);
  for (size_t i = 0; i <= CASES; i++)
    pids[i] = in_a_process(i < CASES ? &cases[i] : NULL);
  for (size_t i = 0; i <= CASES; i++) {
    int status = -1;
    CHECK(pids[i] > 0 && waitpid(pids[i], &status, 0) == pids[i]);
    if (status != 0)
      fprintf(stderr, "%s: status %d\n", i < CASES ? cases[i].what : "random answers", status);
    CHECK(status == 0);
  }
  return check_done();
}
