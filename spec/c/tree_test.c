/* SPDX-License-Identifier: MIT
 * Trees: what a Lua spec cannot reach. Files that change while they are read, a write that
 * fails half way, cancelling, failing allocations, names that mean .git elsewhere. */
#include "tree/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/path.h"
#include "check.h"
#include "tree/never.h"
#include "wire/pack.h"

static char root[64]; /* a fresh folder for each case */

static const char *at(const char *name)
{
  static char paths[4][512];
  static int next;
  char *p = paths[next++ % 4];
  snprintf(p, sizeof paths[0], "%s/%s", root, name);
  return p;
}

static void begin(void)
{
  strcpy(root, "/tmp/crewbox-tree-XXXXXX");
  CHECK(mkdtemp(root) != NULL);
  CHECK(mkdir(at("co"), 0755) == 0);
}

static void end(void)
{
  int tmp = open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  CHECK(cb_rmtree_beneath(tmp, root + 5, NULL) == CB_OK);
  cb_close(&tmp);
}

static void put(const char *name, const char *content)
{
  int dir = open(at("co"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  struct cb_err err = CB_ERR_INIT;
  char folder[512];
  snprintf(folder, sizeof folder, "%s", name);
  char *slash = strrchr(folder, '/');
  if (slash) {
    *slash = '\0';
    CHECK(cb_mkdirs_beneath(dir, folder, &err) == CB_OK);
  }
  CHECK(cb_write_file_beneath(dir, name, content, strlen(content), 0644, false, &err) == CB_OK);
  cb_close(&dir);
}

static bool holds(const char *name, const char *content)
{
  int dir = open(at("co"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  struct cb_buf b;
  cb_buf_init(&b, 1 << 20);
  int rc = cb_read_file_beneath(dir, name, &b, NULL);
  bool same = content ? rc == CB_OK && b.len == strlen(content) && memcmp(b.p ? b.p : "", content, b.len) == 0
                      : rc == CB_NOT_FOUND;
  cb_buf_clear(&b);
  cb_close(&dir);
  return same;
}

static int to_fd(void *ctx, const void *p, size_t n, struct cb_err *err)
{
  return cb_write_full(*(int *)ctx, p, n, err);
}

/* A full pack of name, content pairs. */
static void make_pack(const char *file, const char *const list[][2], size_t count)
{
  struct cb_manifest m = CB_MANIFEST_INIT;
  struct cb_err err = CB_ERR_INIT;
  struct cb_pack_writer w;
  char digest[CB_SHA256_HEX + 1];
  for (size_t i = 0; i < count; i++) {
    cb_sha256_hex(list[i][1], strlen(list[i][1]), digest);
    CHECK(cb_manifest_add(&m, CB_TREE_FILE, strlen(list[i][1]), digest, list[i][0],
                          strlen(list[i][0]), &err) == CB_OK);
  }
  CHECK(cb_manifest_sort(&m, &err) == CB_OK);
  int fd = open(file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  CHECK(cb_pack_begin(&w, to_fd, &fd, &m, &err) == CB_OK);
  for (size_t i = 0; i < m.count; i++) {
    size_t k = 0;
    while (strcmp(list[k][0], m.entries[i].path) != 0)
      k++;
    CHECK(cb_pack_file(&w, i, &err) == CB_OK);
    CHECK(cb_pack_data(&w, list[k][1], strlen(list[k][1]), &err) == CB_OK);
  }
  CHECK(cb_pack_end(&w, NULL, &err) == CB_OK);
  cb_close(&fd);
  cb_manifest_clear(&m);
}

static json_t *freeze_args(const char *const *paths)
{
  json_t *list = json_array();
  for (; *paths; paths++)
    json_array_append_new(list, json_string(*paths));
  return json_pack("{s:s, s:o, s:s}", "root", at("co"), "paths", list, "pack", at("pack"));
}

static json_t *apply_args(void)
{
  return json_pack("{s:s, s:s, s:s}", "root", at("co"), "base", at("base"), "result", at("result"));
}

static bool is_gone(const char *path)
{
  struct stat st;
  return lstat(path, &st) < 0 && errno == ENOENT;
}

/* ---- names --------------------------------------------------------------------------------- */

static void names_of_git(void)
{
  static const char *const git[] = { ".git", ".GIT", "a/.git/b", "git~1", "GIT~1/x", ".git.", ".git ", ".git . .",
                                     ".git::$DATA", ".g\xe2\x80\x8cit", "\xef\xbb\xbf.git", ".gi\xe2\x80\xaet" };
  static const char *const fine[] = { "git", ".gitignore", "a.git", ".git2", "x/git~2", ".gitx .", "..git", ".g it" };
  for (size_t i = 0; i < sizeof git / sizeof *git; i++)
    CHECK(cb_tree_names_git(git[i], strlen(git[i])));
  for (size_t i = 0; i < sizeof fine / sizeof *fine; i++)
    CHECK(!cb_tree_names_git(fine[i], strlen(fine[i])));
  CHECK(cb_tree_matches("*.LOG", "a/b.log") && cb_tree_matches("a/*", "A/b") && !cb_tree_matches("b", "a/bb"));
}

/* ---- files that move ----------------------------------------------------------------------- */

static atomic_bool writing;

static void *writer(void *arg)
{
  int fd = open(arg, O_WRONLY | O_CLOEXEC);
  while (atomic_load(&writing) && pwrite(fd, "x", 1, 0) == 1)
    sched_yield();
  cb_close(&fd);
  return NULL;
}

/* A file that is written to all the time: an answer, with its name, and no pack. */
static void changes_while_read(void)
{
  static const char *const paths[] = { "busy", "calm", NULL };
  struct cb_err err = CB_ERR_INIT;
  pthread_t thread;
  json_t *out = NULL;
  begin();
  put("busy", "");
  put("calm", "1");
  CHECK(truncate(at("co/busy"), 32 << 20) == 0); /* takes long enough to read */
  atomic_store(&writing, true);
  char busy[128];
  snprintf(busy, sizeof busy, "%s", at("co/busy"));
  struct stat first, now = { 0 };
  CHECK(stat(busy, &first) == 0);
  CHECK(pthread_create(&thread, NULL, writer, busy) == 0);
  int64_t deadline = cb_now_ms() + 20000;
  do { /* until it is really at work */
    sched_yield();
    if (stat(busy, &now) < 0)
      break;
  } while (now.st_blocks == first.st_blocks && cb_now_ms() < deadline);
  CHECK(now.st_blocks != first.st_blocks);
  json_t *args = freeze_args(paths);
  int rc = cb_tree_freeze(args, NULL, &out, &err);
  atomic_store(&writing, false);
  pthread_join(thread, NULL);
  CHECK(rc == CB_CONFLICT);
  CHECK_STR(json_string_value(json_object_get(out, "reason")), "changed_while_reading");
  CHECK_STR(json_string_value(json_object_get(out, "path")), "busy");
  CHECK(strstr(err.text, "busy") && is_gone(at("pack")));
  json_decref(out);
  CHECK(cb_tree_freeze(args, NULL, &out, &err) == CB_OK); /* now it holds still */
  CHECK(json_integer_value(json_object_get(out, "count")) == 2);
  json_decref(out);
  json_decref(args);
  end();
}

static void cancelled(void)
{
  static const char *const paths[] = { "a", NULL };
  static const char *const base[][2] = { { "a", "1" } }, *const result[][2] = { { "a", "2" } };
  struct cb_err err = CB_ERR_INIT;
  atomic_bool stop = true;
  json_t *out = NULL;
  begin();
  put("a", "1");
  json_t *args = freeze_args(paths);
  CHECK(cb_tree_freeze(args, &stop, &out, &err) == CB_CANCELLED && out == NULL);
  CHECK(is_gone(at("pack")));
  json_decref(args);
  make_pack(at("base"), base, 1);
  make_pack(at("result"), result, 1);
  args = apply_args();
  CHECK(cb_tree_apply(args, &stop, &out, &err) == CB_CANCELLED);
  CHECK(holds("a", "1"));
  json_decref(out);
  json_decref(args);
  end();
}

/* ---- failures half way --------------------------------------------------------------------- */

static const char *const before[][2] = {
  { "a/first", "1" }, { "b/gone", "2" }, { "d/x", "3" }, { "locked/file", "4" }, { "z", "5" },
};
static const char *const after[][2] = {
  { "a/first", "1b" }, { "a/new/deep", "n" }, { "d", "now a file" }, { "locked/file", "4b" },
  { "locked/new", "6" }, { "z", "5b" },
};

static void check_untouched(void)
{
  for (size_t i = 0; i < sizeof before / sizeof *before; i++)
    CHECK(holds(before[i][0], before[i][1]));
  CHECK(is_gone(at("co/a/new")) && is_gone(at("co/locked/new")));
  /* No private folder stays behind. */
  struct cb_err err = CB_ERR_INIT;
  int dir = open(at("co"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  CHECK(cb_mkdirs_beneath(dir, "probe", &err) == CB_OK);
  cb_close(&dir);
  rmdir(at("co/probe"));
}

static void count_entries(size_t *n)
{
  char command[256], text[32] = "";
  snprintf(command, sizeof command, "ls -A %s | wc -l", at("co"));
  FILE *f = popen(command, "r");
  CHECK(f && fgets(text, sizeof text, f) != NULL);
  pclose(f);
  *n = (size_t)strtoul(text, NULL, 10);
}

/* A folder that nobody may write into stops the move after others were made. Root may always:
 * then a child that is not root does it. */
static void undoes_what_it_did(void)
{
  begin();
  for (size_t i = 0; i < sizeof before / sizeof *before; i++)
    put(before[i][0], before[i][1]);
  make_pack(at("base"), before, sizeof before / sizeof *before);
  make_pack(at("result"), after, sizeof after / sizeof *after);
  size_t entries, then;
  count_entries(&entries);
  CHECK(chmod(at("co/locked"), 0555) == 0);
  if (geteuid() == 0) {
    char command[256];
    snprintf(command, sizeof command, "chown -R 65534:65534 %s", root);
    CHECK(system(command) == 0);
  }
  fflush(NULL);
  pid_t child = fork();
  if (child == 0) {
    struct cb_err err = CB_ERR_INIT;
    json_t *out = NULL;
    check_passed = check_failed = 0;
    if (geteuid() == 0 && (setgid(65534) < 0 || setuid(65534) < 0))
      _exit(2);
    int rc = cb_tree_apply(apply_args(), NULL, &out, &err);
    CHECK(rc == CB_DENIED && out == NULL);
    CHECK(strstr(err.text, "nothing was changed") && strstr(err.text, "locked/"));
    _exit(check_failed ? 1 : 0);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
  check_untouched();
  count_entries(&then);
  CHECK(entries == then);
  CHECK(chmod(at("co/locked"), 0755) == 0);
  struct cb_err err = CB_ERR_INIT;
  json_t *out = NULL, *args = apply_args();
  CHECK(cb_tree_apply(args, NULL, &out, &err) == CB_OK); /* the same packs, later */
  for (size_t i = 0; i < sizeof after / sizeof *after; i++)
    CHECK(holds(after[i][0], after[i][1]));
  CHECK(holds("b/gone", NULL) && is_gone(at("co/b")));
  json_decref(out);
  json_decref(args);
  end();
}

/* Every allocation fails once: an error, and the checkout as it was, or the whole change. */
static void failing_allocations(void)
{
  static const char *const paths[] = { "a/first", "b/gone", "z", NULL };
  begin();
  for (size_t i = 0; i < sizeof before / sizeof *before; i++)
    put(before[i][0], before[i][1]);
  make_pack(at("base"), before, sizeof before / sizeof *before);
  make_pack(at("result"), after, sizeof after / sizeof *after);
  for (unsigned long n = 1;; n++) {
    struct cb_err err = CB_ERR_INIT;
    json_t *out = NULL, *args = freeze_args(paths);
    cb_alloc_fail_at(n);
    int rc = cb_tree_freeze(args, NULL, &out, &err);
    cb_alloc_fail_at(0);
    json_decref(args);
    json_decref(out);
    if (rc == CB_OK)
      break;
    CHECK(rc == CB_NO_MEMORY);
    CHECK(is_gone(at("pack")));
    CHECK(n < 1000);
  }
  for (unsigned long n = 1;; n++) {
    struct cb_err err = CB_ERR_INIT;
    json_t *out = NULL, *args = apply_args();
    cb_alloc_fail_at(n);
    int rc = cb_tree_apply(args, NULL, &out, &err);
    cb_alloc_fail_at(0);
    json_decref(args);
    json_decref(out);
    if (rc == CB_OK)
      break;
    CHECK(rc == CB_NO_MEMORY);
    check_untouched();
    CHECK(n < 1000);
  }
  CHECK(holds("d", "now a file"));
  end();
}

int main(void)
{
  umask(022);
  names_of_git();
  changes_while_read();
  cancelled();
  undoes_what_it_did();
  failing_allocations();
  return check_done();
}
