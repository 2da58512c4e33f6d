/* SPDX-License-Identifier: MIT
 * redact.c: the redactor with every form on, beside what only looks for the plain values, over one
 * agent's log that is made here: libhyperscan (with HAVE_HYPERSCAN), memmem once per value, and
 * ripgrep, if installed, over the same bytes in a file. CPU time; each takes its turn several
 * times, and the median counts. The ratio of two runs in one process is worth more than either.
 *
 *   redact [VALUES [MEGABYTES]]      64 and 64; prints rows for scripts/bench */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifdef HAVE_HYPERSCAN
#include <hs/hs.h>
#endif

#include "base/encode.h"
#include "secrets/redact.h"

enum { ROUNDS = 7, PIECE = 64 * 1024, VALUES_MAX = 1024, FORMS = 8, VALUE_MAX = 64 };

static struct cb_secret secrets[VALUES_MAX];
static size_t count = 64;
static struct cb_buf text;

static void die(const char *what)
{
  fprintf(stderr, "redact: %s\n", what);
  exit(1);
}

static double cpu(void)
{
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static uint64_t rnd(void) /* the same bytes each time */
{
  static uint64_t s = 88172645463325252u;
  s ^= s << 13;
  s ^= s >> 7;
  return s ^= s << 17;
}

/* ---- values and text ---------------------------------------------------------------------- */

static void make_values(void)
{
  static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
  static const char *const begins[] = { "", "", "ghp_", "sk-ant-", "", "key/" };
  static char values[VALUES_MAX][VALUE_MAX + 1], names[VALUES_MAX][16];
  for (size_t i = 0; i < count; i++) {
    size_t len = 16 + rnd() % (VALUE_MAX - 16 + 1);
    for (size_t k = 0; k < len; k++)
      values[i][k] = letters[rnd() % 64];
    memcpy(values[i], begins[i % 6], strlen(begins[i % 6]));
    snprintf(names[i], sizeof names[i], "VALUE_%zu", i);
    secrets[i] = (struct cb_secret){ names[i], values[i], len };
  }
}

static int add_value(struct cb_buf *b, const struct cb_secret *s)
{
  switch (rnd() % 4) {
  case 0: return cb_base64_add(b, s->value, s->len);
  case 1: return cb_percent_add(b, s->value, s->len);
  default: return cb_buf_add(b, s->value, s->len);
  }
}

/* One line as agents and their tools write them: events in JSON with source code in a string,
 * compilers, tests, package managers, git. */
static int add_line(struct cb_buf *b)
{
  static const char *const words[] = {
    "function", "return", "const", "the", "value", "if", "result", "error", "path", "await", "test",
    "config", "request", "src/index.ts", "node_modules", "import", "length", "string", "number",
    "should", "handle", "file", "from", "with", "update", "token", "user", "a", "to", "in",
  };
  const size_t n = sizeof words / sizeof *words;
  unsigned a = (unsigned)rnd(), c = a % 1000;
  int rc;
  switch (rnd() % 8) {
  case 0:
    return cb_buf_addf(b, "PASS src/%s/%s_%u.test.ts (%u.%u s)\n", words[a % n], words[c % n], c, c % 9, c);
  case 1:
    return cb_buf_addf(b, "gcc -O2 -Wall -Isrc -MMD -c src/%s/%s.c -o build/obj/%s_%u.o\n", words[a % n],
                       words[c % n], words[(a + c) % n], c);
  case 2:
    return cb_buf_addf(b, "2026-11-30T21:%02u:%02u.%03uZ INFO  [%s] %s %s status=200 duration_ms=%u id=%08x-%04x\n", a % 60,
                       c % 60, c, words[a % n], words[c % n], words[(a >> 8) % n], c, a, c);
  case 3:
    return cb_buf_addf(b, "npm http fetch GET 200 https://registry.example.com/%s/-/%s-%u.%u.%u.tgz %ums (cache miss)\n",
                       words[a % n], words[a % n], c % 20, c % 7, c % 11, c);
  default:
    rc = cb_buf_addf(b, "{\"type\":\"assistant\",\"message\":{\"id\":\"msg_%08x%08x\",\"role\":\"assistant\",\"content\":[{"
                        "\"type\":\"tool_use\",\"name\":\"Edit\",\"input\":{\"file_path\":\"/home/user/project/src/%s.ts\","
                        "\"new_string\":\"",
                     a, c * 7919u, words[a % n]);
    for (unsigned i = 0; rc == CB_OK && i < 12 + a % 60; i++)
      rc = cb_buf_addf(b, i % 11 == 10 ? "\\n  %s.%s(\\\"%s\\\");" : "%s %s%s ", words[rnd() % n], i % 3 ? words[rnd() % n] : "",
                       i % 4 ? "" : " = ");
    return rc ? rc : cb_buf_addf(b, "\"}}],\"usage\":{\"input_tokens\":%u,\"output_tokens\":%u}}}\n", c * 3, c);
  }
}

/* About one value in 32 KiB. */
static void make_text(size_t bytes)
{
  size_t next = 32768;
  cb_buf_init(&text, bytes + 65536);
  while (text.len < bytes) {
    int rc = add_line(&text);
    if (rc == CB_OK && text.len > next) {
      rc = cb_buf_addz(&text, "export KEY=");
      rc = rc ? rc : add_value(&text, &secrets[rnd() % count]);
      rc = rc ? rc : cb_buf_addz(&text, "\n");
      next = text.len + 16384 + rnd() % 32768;
    }
    if (rc)
      die("no memory for the text");
  }
}

/* ---- who takes part ------------------------------------------------------------------------ */

static double redactor_s(size_t piece)
{
  struct cb_redactor *r;
  struct cb_redact_stream *s;
  struct cb_err err = CB_ERR_INIT;
  struct cb_buf out;
  cb_buf_init(&out, 4 << 20);
  if (cb_redactor_new(&r, secrets, count, &err) || cb_redact_stream_new(&s, r, &err))
    die(err.text);
  double t = cpu();
  for (size_t at = 0; at < text.len; at += piece) {
    if (cb_redact_feed(s, text.p + at, text.len - at < piece ? text.len - at : piece, &out, NULL, &err))
      die(err.text);
    cb_buf_reset(&out);
  }
  if (cb_redact_finish(s, &out, &err))
    die(err.text);
  t = cpu() - t;
  cb_redact_stream_free(s);
  cb_redactor_free(r);
  cb_buf_clear(&out);
  return t;
}

static double whole_s(void) { return redactor_s(PIECE); }
static double small_s(void) { return redactor_s(4096); }

/* A part of the text is enough for the slow one. */
static double memmem_s(void)
{
  size_t n = text.len / 8;
  volatile size_t found = 0;
  double t = cpu();
  for (size_t i = 0; i < count; i++) {
    const char *p = text.p, *end = text.p + n;
    while ((p = memmem(p, (size_t)(end - p), secrets[i].value, secrets[i].len))) {
      found++;
      p += secrets[i].len;
    }
  }
  return (cpu() - t) * 8;
}

#ifdef HAVE_HYPERSCAN
static hs_database_t *db_values, *db_forms;
static hs_scratch_t *scratch;

static int on_match(unsigned id, unsigned long long from, unsigned long long to, unsigned flags,
                    void *arg)
{
  (void)id, (void)from, (void)to, (void)flags;
  ++*(size_t *)arg;
  return 0;
}

static void compile(hs_database_t **db, const char *const *list, const size_t *len, unsigned n)
{
  hs_compile_error_t *e = NULL;
  unsigned *flags = calloc(n, sizeof *flags), *ids = calloc(n, sizeof *ids);
  for (unsigned i = 0; flags && ids && i < n; i++)
    ids[i] = i;
  if (!flags || !ids || hs_compile_lit_multi(list, flags, ids, len, n, HS_MODE_BLOCK, NULL, db, &e))
    die(e ? e->message : "libhyperscan: no memory");
  if (hs_alloc_scratch(*db, &scratch))
    die("libhyperscan: no memory");
  free(flags);
  free(ids);
}

/* The forms that are one fixed text each: raw, base64 at three alignments without the characters
 * other bytes have a share in, hex in both cases, percent, UTF-16. Escapes chosen byte by byte,
 * line breaks and the shapes are left out: no list of literals has them. */
static void compile_both(void)
{
  static const char *list[VALUES_MAX * FORMS];
  static size_t len[VALUES_MAX * FORMS];
  unsigned n = 0;
  for (size_t i = 0; i < count; i++) {
    list[i] = secrets[i].value;
    len[i] = secrets[i].len;
  }
  compile(&db_values, list, len, (unsigned)count);
  for (size_t i = 0; i < count; i++) {
    const struct cb_secret *s = &secrets[i];
    for (int form = 0; form < FORMS; form++) {
      struct cb_buf b;
      char padded[VALUE_MAX + 2] = "";
      size_t skip = 0, drop = 0;
      cb_buf_init(&b, 4096);
      int rc = CB_OK;
      switch (form) {
      case 0: rc = cb_buf_add(&b, s->value, s->len); break;
      case 1: case 2: case 3: {
        size_t before = (size_t)form - 1;
        memcpy(padded + before, s->value, s->len);
        rc = cb_base64_add(&b, padded, s->len + before);
        while (b.len > 0 && b.p[b.len - 1] == '=')
          b.len--;
        skip = (before * 8 + 5) / 6;
        drop = (s->len + before) * 8 % 6 ? 1 : 0;
        break;
      }
      case 4: case 5:
        for (size_t k = 0; rc == CB_OK && k < s->len; k++)
          rc = cb_buf_addf(&b, form == 4 ? "%02x" : "%02X", (unsigned char)s->value[k]);
        break;
      case 6: rc = cb_percent_add(&b, s->value, s->len); break;
      default:
        for (size_t k = 0; rc == CB_OK && k < s->len; k++)
          rc = cb_buf_add(&b, (const char[]){ s->value[k], 0 }, 2);
      }
      if (rc)
        die("no memory");
      size_t whole;
      len[n] = b.len - skip - drop;
      list[n++] = cb_buf_take(&b, &whole) + skip; /* lives as long as the process */
    }
  }
  compile(&db_forms, list, len, n);
}

static double hyperscan_s(const hs_database_t *db)
{
  size_t found = 0;
  double t = cpu();
  for (size_t at = 0; at < text.len; at += PIECE)
    if (hs_scan(db, text.p + at, (unsigned)(text.len - at < PIECE ? text.len - at : PIECE), 0, scratch,
                on_match, &found))
      die("libhyperscan: the scan failed");
  t = cpu() - t;
  if (found == 0)
    die("libhyperscan found nothing");
  return t;
}

static double values_s(void) { return hyperscan_s(db_values); }
static double forms_s(void) { return hyperscan_s(db_forms); }
#endif

static char folder[] = "/tmp/crewbox-bench-XXXXXX";
static char text_file[64], values_file[64];

static void write_file(const char *path, const char *p, size_t n)
{
  FILE *f = fopen(path, "w");
  if (!f || fwrite(p, 1, n, f) != n || fclose(f))
    die("the text for ripgrep cannot be written");
}

static double children_s(void)
{
  struct rusage u;
  getrusage(RUSAGE_CHILDREN, &u);
  return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
         (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

/* Negative: it cannot be run. */
static double ripgrep_s(void)
{
  double before = children_s();
  int status;
  pid_t pid = fork();
  if (pid == 0) {
    if (!freopen("/dev/null", "w", stdout) || !freopen("/dev/null", "w", stderr))
      _exit(127);
    execlp("rg", "rg", "-j1", "-a", "-c", "-F", "-f", values_file, text_file, (char *)NULL);
    _exit(127);
  }
  if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
    return -1;
  return children_s() - before;
}

static void write_for_ripgrep(void)
{
  struct cb_buf list;
  cb_buf_init(&list, 1 << 20);
  if (!mkdtemp(folder))
    die("no folder below /tmp");
  snprintf(text_file, sizeof text_file, "%s/text", folder);
  snprintf(values_file, sizeof values_file, "%s/values", folder);
  for (size_t i = 0; i < count; i++)
    if (cb_buf_addf(&list, "%s\n", secrets[i].value))
      die("no memory");
  write_file(values_file, list.p, list.len);
  write_file(text_file, text.p, text.len);
  cb_buf_clear(&list);
}

/* ---- the run ------------------------------------------------------------------------------- */

static struct entrant {
  const char *name;
  double (*run)(void); /* CPU seconds for the whole text; NULL: not there */
  double took[ROUNDS];
} entrants[] = {
  { "crewbox", whole_s, { 0 } },
  { "crewbox, pieces of 4 KiB", small_s, { 0 } },
#ifdef HAVE_HYPERSCAN
  { "libhyperscan, plain values", values_s, { 0 } },
  { "libhyperscan, 8 fixed forms", forms_s, { 0 } },
#else
  { "libhyperscan, plain values", NULL, { 0 } },
  { "libhyperscan, 8 fixed forms", NULL, { 0 } },
#endif
  { "memmem per value", memmem_s, { 0 } },
  { "ripgrep -F, plain values", ripgrep_s, { 0 } },
};

static int by_size(const void *a, const void *b)
{
  const double *x = a, *y = b;
  return *x < *y ? -1 : *x > *y;
}

static double gb_per_s(struct entrant *e)
{
  qsort(e->took, ROUNDS, sizeof *e->took, by_size);
  return e->took[0] <= 0 ? -1 : (double)text.len / e->took[ROUNDS / 2] / 1e9;
}

int main(int argc, char **argv)
{
  const size_t n = sizeof entrants / sizeof *entrants;
  size_t mb = argc > 2 ? strtoul(argv[2], NULL, 10) : 64;
  count = argc > 1 ? strtoul(argv[1], NULL, 10) : count;
  if (count < 1 || count > VALUES_MAX || mb < 1 || mb > 1024)
    die("1 to 1024 values, 1 to 1024 MB");
  make_values();
  make_text(mb << 20);
  write_for_ripgrep();
#ifdef HAVE_HYPERSCAN
  compile_both();
#endif
  for (int round = 0; round < ROUNDS; round++)
    for (size_t i = 0; i < n; i++)
      entrants[i].took[round] = entrants[i].run ? entrants[i].run() : -1;
  unlink(text_file);
  unlink(values_file);
  rmdir(folder);

  double ours = gb_per_s(&entrants[0]);
  printf("row\tredact\t%zu values, in pieces of 4 KiB\t%.2f GB/s\t-\t-\t-\n", count,
         gb_per_s(&entrants[1]));
  for (size_t i = 2; i < n; i++) {
    double theirs = gb_per_s(&entrants[i]);
    printf("row\tredact\t%zu values, every form and shape\t%.2f GB/s\t%s\t", count, ours,
           entrants[i].name);
    if (theirs > 0)
      printf("%.2f GB/s\t%.2f\n", theirs, ours / theirs);
    else
      printf("not measured\t-\n");
  }
  printf("note\tredact: CPU time; the peers only look, crewbox also decodes, masks and writes the clean "
         "text. %zu MB of an agent's log that is made up, medians of %d\n", mb, (int)ROUNDS);
  return 0;
}
