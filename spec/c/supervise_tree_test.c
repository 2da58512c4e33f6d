/* SPDX-License-Identifier: MIT
 * supervise_tree_test.c: tree-apply and tree-collect of the real program, in folders where a job
 * has planted what it could. As root (where we are root) and as an ordinary user. */
#include "c/supervise_help.h"

#include "wire/manifest.h"
#include "wire/pack.h"

struct file {
  const char *path;
  enum cb_tree_mode mode;
  const char *content;
  size_t len; /* 0: strlen of content */
};
#define FILE_OF(path, content) { path, CB_TREE_FILE, content, 0 }
#define PROGRAM(path, content) { path, CB_TREE_PROGRAM, content, 0 }
#define LINK(path, text) { path, CB_TREE_LINK, text, 0 }

static size_t length_of(const struct file *f)
{
  return f->len ? f->len : strlen(f->content);
}

static int add_bytes(void *ctx, const void *p, size_t n, struct cb_err *err)
{
  (void)err;
  return cb_buf_add(ctx, p, n);
}

/* Files in the order of their paths. */
static void pack_of(const struct file *files, size_t count, struct cb_manifest *m,
                    struct cb_buf *out)
{
  struct cb_pack_writer w;
  char digest[65];
  cb_buf_init(out, FILE_MAX);
  for (size_t i = 0; i < count; i++) {
    cb_sha256_hex(files[i].content, length_of(&files[i]), digest);
    CHECK(cb_manifest_add(m, files[i].mode, length_of(&files[i]), digest, files[i].path,
                          strlen(files[i].path), NULL) == CB_OK);
  }
  CHECK(cb_manifest_sort(m, NULL) == CB_OK);
  CHECK(cb_pack_begin(&w, add_bytes, out, m, NULL) == CB_OK);
  for (size_t i = 0; i < m->count; i++) {
    size_t k = 0;
    while (strcmp(files[k].path, m->entries[i].path) != 0)
      k++;
    CHECK(cb_pack_file(&w, i, NULL) == CB_OK);
    CHECK(cb_pack_data(&w, files[k].content, length_of(&files[k]), NULL) == CB_OK);
  }
  CHECK(cb_pack_end(&w, NULL, NULL) == CB_OK);
}

/* Runs the program; its stdout in *report (records). */
static int run_verb(const struct place *w, const char *const *args, struct cb_buf *report)
{
  char name[96];
  snprintf(name, sizeof name, "%s/report", w->root);
  int fd = open(name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  CHECK(fd >= 0);
  int status = wait_exit(start(w, args, -1, fd));
  CHECK(lseek(fd, 0, SEEK_SET) == 0);
  cb_buf_init(report, FILE_MAX);
  CHECK(cb_buf_read_all(report, fd, NULL) == CB_OK);
  close(fd);
  return status;
}

static char *said(const struct place *w)
{
  static char text[1024];
  char name[96];
  size_t len;
  snprintf(name, sizeof name, "%s/stderr", w->root);
  char *p = get_file(name, &len);
  snprintf(text, sizeof text, "%s", p);
  free(p);
  return text;
}

static int64_t number(const struct cb_buf *report, const char *name)
{
  struct cb_record rec;
  int64_t v;
  return cb_record_find(report->p, report->len, name, &rec) && cb_record_int(&rec, &v) ? v : -1;
}

static bool has_record(const struct cb_buf *report, const char *name, const char *value)
{
  struct cb_record_reader r;
  struct cb_record rec;
  cb_record_open(&r, report->p, report->len);
  while (cb_record_next(&r, &rec) == 1) {
    if (cb_record_is(&rec, name) &&
        (!value || (rec.len == strlen(value) && memcmp(rec.value, value, rec.len) == 0)))
      return true;
  }
  return false;
}

static int apply_bytes(const struct place *w, const char *p, size_t n, bool commit,
                       struct cb_buf *report)
{
  const char *const args[] = { "tree-apply", "--project", w->project, "--pack",
                               in_run(w, "tree.pack"), "--run-dir", w->run,
                               commit ? "--base-commit" : NULL, NULL };
  put_file(in_run(w, "tree.pack"), p, n, 0600);
  give_to(w, in_run(w, "tree.pack"));
  return run_verb(w, args, report);
}

/* Applies the files and checks what the report says of them. */
static void apply(const struct place *w, const struct file *files, size_t count, bool commit,
                  struct cb_buf *report)
{
  struct cb_manifest m = CB_MANIFEST_INIT;
  struct cb_buf pack;
  char digest[65];
  pack_of(files, count, &m, &pack);
  int status = apply_bytes(w, pack.p, pack.len, commit, report);
  if (status)
    fprintf(stderr, "%s", said(w));
  CHECK(status == 0);
  cb_manifest_digest(&m, digest);
  CHECK(has_record(report, "digest", digest) && number(report, "count") == (int64_t)count);
  cb_buf_clear(&pack);
  cb_manifest_clear(&m);
}
#define APPLY(w, files, report) apply(w, files, sizeof(files) / sizeof *(files), false, report)

/* On disk as the file says, and a link or a file as it says. */
static bool is_there(const struct place *w, const struct file *f)
{
  struct stat st;
  size_t len;
  const char *path = in_project(w, f->path);
  if (lstat(path, &st) < 0)
    return false;
  if (f->mode == CB_TREE_LINK) {
    char text[256];
    ssize_t n = readlink(path, text, sizeof text);
    return n == (ssize_t)length_of(f) && memcmp(text, f->content, (size_t)n) == 0;
  }
  if (!S_ISREG(st.st_mode) || (st.st_mode & 07777) != (f->mode & 0777) || st.st_uid != w->uid)
    return false;
  char *p = get_file(path, &len);
  bool same = len == length_of(f) && memcmp(p, f->content, len) == 0;
  free(p);
  return same;
}

static bool absent(const char *path)
{
  struct stat st;
  return lstat(path, &st) < 0 && (errno == ENOENT || errno == ENOTDIR);
}

static void plant(const struct place *w, const char *name, const char *content)
{
  const char *path = in_project(w, name);
  put_file(path, content, strlen(content), 0644);
  give_to(w, path);
}

static void plant_dir(const struct place *w, const char *name)
{
  const char *path = in_project(w, name);
  CHECK(mkdir(path, 0755) == 0);
  give_to(w, path);
}

static void plant_link(const struct place *w, const char *name, const char *text)
{
  const char *path = in_project(w, name);
  CHECK(symlink(text, path) == 0);
  give_to(w, path);
}

/* ---- tree-apply ----------------------------------------------------------------------------- */

/* bug-K3: names of any bytes arrive exactly. */
static const struct file odd[] = {
  FILE_OF(" lead", "1"), FILE_OF("-rf", "2"), FILE_OF("\"q\"", "3"), FILE_OF("a\nb", "4"),
  FILE_OF("caf\xc3\xa9.py", "5"), FILE_OF("\xff\xfe/\xc3", "6"), FILE_OF(":(top)*", "7"),
  PROGRAM("bin/run", "#!/bin/sh\n"), LINK("bin/link", "../caf\xc3\xa9.py"), FILE_OF("empty", ""),
  { "nul", CB_TREE_FILE, "a\0b\n", 4 },
};
enum { ODD = sizeof odd / sizeof *odd };

static void puts_a_tree_in_place(uid_t uid)
{
  struct place w;
  struct cb_buf report;
  struct stat before, after;
  make_place(&w, uid);
  plant(&w, "job.o", "built");
  APPLY(&w, odd, &report);
  CHECK(number(&report, "written") == ODD && number(&report, "deleted") == 0);
  cb_buf_clear(&report);
  for (size_t i = 0; i < ODD; i++) {
    if (!is_there(&w, &odd[i]))
      fprintf(stderr, "not there: %s\n", odd[i].path);
    CHECK(is_there(&w, &odd[i]));
  }
  CHECK(!absent(in_project(&w, "job.o")));
  /* Again: nothing is written, so nothing looks newer than what was built from it. */
  CHECK(stat(in_project(&w, "bin/run"), &before) == 0);
  CHECK(chmod(in_project(&w, "-rf"), 0777) == 0);
  APPLY(&w, odd, &report);
  CHECK(number(&report, "written") == 0 && number(&report, "unchanged") == ODD);
  cb_buf_clear(&report);
  CHECK(stat(in_project(&w, "bin/run"), &after) == 0);
  CHECK(before.st_ino == after.st_ino && before.st_ctim.tv_nsec == after.st_ctim.tv_nsec);
  CHECK(is_there(&w, &odd[1]));
  CHECK(absent(in_run(&w, "syncing.manifest")) && !absent(in_run(&w, "base.manifest")));
  drop_place(&w);
}

static void deletes_and_changes_types(uid_t uid)
{
  static const struct file first[] = {
    FILE_OF("a", "file"), FILE_OF("b/c/d", "deep"), FILE_OF("b/e", "beside"), LINK("l", "a"),
    FILE_OF("m", "x"), FILE_OF("gone/one", "1"), FILE_OF("gone/two", "2"), FILE_OF("kept/x", "x"),
    FILE_OF("to-link", "file"),
  };
  static const struct file second[] = {
    FILE_OF("a/now/folder", "deep"), FILE_OF("b", "now a file"), FILE_OF("l", "now a file"),
    PROGRAM("m", "x"), LINK("to-link", "m"),
  };
  struct place w;
  struct cb_buf report;
  make_place(&w, uid);
  APPLY(&w, first, &report);
  cb_buf_clear(&report);
  plant(&w, "kept/built.o", "of a job");
  APPLY(&w, second, &report);
  CHECK(number(&report, "deleted") == 6); /* b/c/d b/e gone/one gone/two kept/x, and a below */
  cb_buf_clear(&report);
  for (size_t i = 0; i < 5; i++)
    CHECK(is_there(&w, &second[i]));
  CHECK(absent(in_project(&w, "gone")) && absent(in_project(&w, "kept/x")));
  CHECK(!absent(in_project(&w, "kept/built.o")));
  static const struct file nothing[1];
  apply(&w, nothing, 0, false, &report); /* an empty tree is a tree */
  CHECK(number(&report, "deleted") == 5);
  cb_buf_clear(&report);
  CHECK(absent(in_project(&w, "a")) && !absent(w.project));
  drop_place(&w);
}

/* bug-L1, bug-L5: what was planted is replaced; what it points at is not touched. */
static void goes_through_no_planted_link(uid_t uid)
{
  static const struct file files[] = { FILE_OF("d/e/f", "new"), FILE_OF("fifo", "new"),
                                       FILE_OF("hard", "same"), FILE_OF("link", "new"),
                                       LINK("other", "d") };
  struct place w;
  struct cb_buf report;
  struct stat st;
  size_t len;
  char victim[160];
  make_place(&w, uid);
  CHECK(mkdir(in_home(&w, "out"), 0755) == 0 && mkdir(in_home(&w, "out/e"), 0755) == 0);
  snprintf(victim, sizeof victim, "%s/victim", w.home);
  put_file(victim, "same", 4, 0600);
  put_file(in_home(&w, "out/e/f"), "precious", 8, 0644);
  give_to(&w, victim);
  plant_link(&w, "d", "../out");
  plant_link(&w, "link", victim);
  CHECK(mkfifo(in_project(&w, "fifo"), 0644) == 0);
  CHECK(link(victim, in_project(&w, "hard")) == 0);
  plant_dir(&w, "other");
  plant_dir(&w, "other/empty");
  APPLY(&w, files, &report);
  cb_buf_clear(&report);
  for (size_t i = 0; i < 5; i++)
    CHECK(is_there(&w, &files[i]));
  char *p = get_file(victim, &len);
  CHECK_STR(p, "same");
  free(p);
  CHECK(stat(victim, &st) == 0 && (st.st_mode & 0777) == 0600 && st.st_nlink == 1);
  p = get_file(in_home(&w, "out/e/f"), &len);
  CHECK_STR(p, "precious");
  free(p);
  /* A folder of ours that became a link: deletions do not go through it either. */
  static const struct file fewer[] = { FILE_OF("x", "x") };
  remove_tree(in_project(&w, "d"));
  plant_link(&w, "d", "../out");
  APPLY(&w, fewer, &report);
  cb_buf_clear(&report);
  CHECK(!absent(in_home(&w, "out/e/f")));
  /* The project itself must not be one. */
  struct cb_manifest m = CB_MANIFEST_INIT;
  struct cb_buf pack;
  pack_of(fewer, 1, &m, &pack);
  remove_tree(w.project);
  CHECK(symlink("out", w.project) == 0);
  CHECK(apply_bytes(&w, pack.p, pack.len, false, &report) == 1);
  CHECK(absent(in_home(&w, "out/x")));
  cb_buf_clear(&report);
  cb_buf_clear(&pack);
  cb_manifest_clear(&m);
  drop_place(&w);
}

/* bug-K7: a job's file where the tree wants to be: nothing is written, and it is named. */
static void is_blocked_cleanly(uid_t uid)
{
  static const struct file first[] = { FILE_OF("a", "1"), FILE_OF("b/x", "1") };
  static const struct file second[] = { FILE_OF("a", "2"), FILE_OF("b", "2") };
  struct place w;
  struct cb_buf report, pack;
  struct cb_manifest m = CB_MANIFEST_INIT;
  make_place(&w, uid);
  APPLY(&w, first, &report);
  cb_buf_clear(&report);
  plant(&w, "b/cache", "of a job");
  pack_of(second, 2, &m, &pack);
  CHECK(apply_bytes(&w, pack.p, pack.len, false, &report) == 1);
  CHECK(strstr(said(&w), "b/cache is in the way") && strchr(said(&w), '\n')[1] == '\0');
  CHECK(report.len == 0);
  cb_buf_clear(&report);
  CHECK(is_there(&w, &first[0]) && is_there(&w, &first[1]));
  CHECK(unlink(in_project(&w, "b/cache")) == 0);
  CHECK(apply_bytes(&w, pack.p, pack.len, false, &report) == 0);
  CHECK(is_there(&w, &second[0]) && is_there(&w, &second[1]));
  cb_buf_clear(&report);
  cb_buf_clear(&pack);
  cb_manifest_clear(&m);
  drop_place(&w);
}

static void refuses_bad_packs(uid_t uid)
{
  static const struct file good[] = { FILE_OF("a", "alpha"), FILE_OF("b", "beta") };
  static const struct file git[] = { FILE_OF("sub/.GIT/hooks/post-checkout", "#!/bin/sh\n") };
  struct place w;
  struct cb_buf report, pack;
  struct cb_manifest m = CB_MANIFEST_INIT, n = CB_MANIFEST_INIT;
  make_place(&w, uid);
  pack_of(good, 2, &m, &pack);
  const size_t cuts[] = { 0, 10, pack.len / 2, pack.len - 1 };
  for (size_t i = 0; i < 4; i++) {
    CHECK(apply_bytes(&w, pack.p, cuts[i], false, &report) == 1);
    cb_buf_clear(&report);
  }
  char *alpha = memmem(pack.p, pack.len, "alpha", 5);
  alpha[0] = 'A';
  CHECK(apply_bytes(&w, pack.p, pack.len, false, &report) == 1);
  CHECK(strstr(said(&w), "corrupt: "));
  cb_buf_clear(&report);
  cb_buf_clear(&pack);
  /* One content is missing. */
  struct cb_pack_writer pw;
  cb_buf_init(&pack, FILE_MAX);
  CHECK(cb_pack_begin(&pw, add_bytes, &pack, &m, NULL) == CB_OK &&
        cb_pack_file(&pw, 1, NULL) == CB_OK && cb_pack_data(&pw, "beta", 4, NULL) == CB_OK &&
        cb_pack_end(&pw, NULL, NULL) == CB_OK);
  CHECK(apply_bytes(&w, pack.p, pack.len, false, &report) == 1);
  CHECK(strstr(said(&w), "no content for a"));
  cb_buf_clear(&report);
  cb_buf_clear(&pack);
  pack_of(git, 1, &n, &pack);
  CHECK(apply_bytes(&w, pack.p, pack.len, false, &report) == 1);
  cb_buf_clear(&report);
  cb_buf_clear(&pack);
  CHECK(absent(in_project(&w, "a")) && absent(in_project(&w, "b")) && absent(in_project(&w, "sub")));
  CHECK(absent(in_run(&w, "base.manifest")) && absent(in_run(&w, "syncing.manifest")));
  cb_manifest_clear(&m);
  cb_manifest_clear(&n);
  drop_place(&w);
}

/* A journal that is still there tells what a crashed apply may have written. */
static void cleans_up_behind_a_crash(uid_t uid)
{
  static const struct file first[] = { FILE_OF("a", "1") };
  static const struct file crashed[] = { FILE_OF("a", "2"), FILE_OF("half/x", "2") };
  static const struct file third[] = { FILE_OF("c", "3") };
  struct place w;
  struct cb_buf report, pack, text;
  struct cb_manifest m = CB_MANIFEST_INIT;
  make_place(&w, uid);
  APPLY(&w, first, &report);
  cb_buf_clear(&report);
  pack_of(crashed, 2, &m, &pack);
  cb_buf_init(&text, FILE_MAX);
  CHECK(cb_manifest_write(&m, &text, NULL) == CB_OK);
  put_file(in_run(&w, "syncing.manifest"), text.p, text.len, 0600);
  give_to(&w, in_run(&w, "syncing.manifest"));
  plant_dir(&w, "half");
  plant(&w, "half/x", "2");
  APPLY(&w, third, &report);
  CHECK(number(&report, "deleted") == 2);
  cb_buf_clear(&report);
  CHECK(absent(in_project(&w, "a")) && absent(in_project(&w, "half")) && is_there(&w, &third[0]));
  CHECK(absent(in_run(&w, "syncing.manifest")));
  cb_buf_clear(&text);
  cb_buf_clear(&pack);
  cb_manifest_clear(&m);
  drop_place(&w);
}

/* ---- with git ------------------------------------------------------------------------------- */

static bool have_git(void)
{
  return access("/usr/bin/git", X_OK) == 0 || access("/usr/local/bin/git", X_OK) == 0;
}

/* What git says in the project, as its owner sees it. Freed by the caller. */
static char *ask_git(const struct place *w, const char *words)
{
  char command[512];
  size_t len;
  char name[96];
  snprintf(name, sizeof name, "%s/git-says", w->root);
  snprintf(command, sizeof command,
           "cd '%s' && GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_COUNT=1 "
           "GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*' git %s >'%s' 2>&1",
           w->project, words, name);
  CHECK(system(command) == 0);
  return get_file(name, &len);
}

static void commits_the_base(uid_t uid)
{
  static const struct file files[] = {
    FILE_OF(".gitignore", "*.log\n"), FILE_OF("kept.log", "tracked though ignored"),
    FILE_OF(":(top)*", "magic"), FILE_OF("a\nb", "x"), PROGRAM("run", "#!/bin/sh\n"),
    LINK("to", "run"),
  };
  struct cb_record rec;
  struct cb_buf report;
  char id[2][64];
  for (int i = 0; i < 2; i++) {
    struct place w;
    struct stat st;
    make_place(&w, uid);
    plant(&w, "leavings", "of a job, not of the tree");
    apply(&w, files, 6, true, &report);
    CHECK(cb_record_find(report.p, report.len, "commit", &rec) && rec.len == 40);
    snprintf(id[i], sizeof id[i], "%.*s", (int)rec.len, rec.value);
    cb_buf_clear(&report);
    char *p = ask_git(&w, "status --porcelain");
    CHECK_STR(p, "?? leavings\n");
    free(p);
    p = ask_git(&w, "log --format=%H%n%D --all");
    char want[256];
    snprintf(want, sizeof want, "%s\nHEAD -> main\n", id[i]);
    CHECK_STR(p, want);
    free(p);
    p = ask_git(&w, "ls-files -z | tr '\\0' '!'");
    CHECK_STR(p, ".gitignore!:(top)*!a\nb!kept.log!run!to!");
    free(p);
    CHECK(lstat(in_project(&w, ".git/HEAD"), &st) == 0 && st.st_uid == w.uid);
    CHECK(absent(in_project(&w, ".git/hooks"))); /* no templates */
    apply(&w, files, 6, true, &report); /* a repository that is there is left alone */
    CHECK(has_record(&report, "note", NULL) && !has_record(&report, "commit", NULL));
    cb_buf_clear(&report);
    drop_place(&w);
  }
  CHECK_STR(id[0], id[1]); /* the same tree, the same commit */
}

static void does_without_git(uid_t uid)
{
  static const struct file files[] = { FILE_OF("a", "1") };
  struct place w;
  struct cb_buf report;
  make_place(&w, uid);
  w.path = "/nowhere";
  apply(&w, files, 1, true, &report);
  CHECK(has_record(&report, "note", "no base commit: git is not installed here"));
  CHECK(absent(in_project(&w, ".git")));
  cb_buf_clear(&report);
  plant(&w, "a", "2");
  plant(&w, "new", "not looked at");
  const char *const args[] = { "tree-collect", "--project", w.project, "--run-dir", w.run, "--out",
                               in_run(&w, "result.pack"), NULL };
  CHECK(run_verb(&w, args, &report) == 0);
  CHECK(number(&report, "count") == 1 && number(&report, "changed") == 1);
  CHECK(has_record(&report, "note", NULL));
  cb_buf_clear(&report);
  drop_place(&w);
}

/* ---- tree-collect --------------------------------------------------------------------------- */

static int collect(const struct place *w, const char *max, struct cb_buf *report)
{
  const char *const args[] = { "tree-collect", "--project", w->project, "--run-dir", w->run,
                               "--out", in_run(w, "result.pack"), max ? "--max" : NULL, max, NULL };
  return run_verb(w, args, report);
}

static int read_bytes(void *ctx, void *p, size_t max, size_t *n, struct cb_err *err)
{
  struct cb_buf *b = ctx;
  (void)err;
  *n = b->len < max ? b->len : max;
  if (*n) {
    memcpy(p, b->p, *n);
    cb_buf_drop_front(b, *n);
  }
  return CB_OK;
}

/* The result pack is whole; its manifest, and the contents it carries as "PATH=CONTENT;". */
static void read_result(const struct place *w, struct cb_manifest *m, struct cb_buf *contents)
{
  struct cb_pack_reader *r = calloc(1, sizeof *r);
  struct cb_buf b;
  size_t index, n;
  char piece[4096];
  cb_buf_init(&b, FILE_MAX);
  cb_buf_init(contents, FILE_MAX);
  int fd = open(in_run(w, "result.pack"), O_RDONLY | O_CLOEXEC);
  CHECK(fd >= 0 && cb_buf_read_all(&b, fd, NULL) == CB_OK);
  close(fd);
  int rc = cb_pack_open(r, read_bytes, &b, m, 1000, FILE_MAX, NULL);
  CHECK(rc == CB_OK);
  while (rc == CB_OK && (rc = cb_pack_next(r, &index, NULL)) == CB_OK && index != SIZE_MAX) {
    cb_buf_addf(contents, "%s=", m->entries[index].path);
    while ((rc = cb_pack_read(r, piece, sizeof piece, &n, NULL)) == CB_OK && n > 0)
      cb_buf_add(contents, piece, n);
    cb_buf_addz(contents, ";");
  }
  CHECK(rc == CB_OK && r->done);
  cb_buf_clear(&b);
  free(r);
}

static bool lists(const struct cb_manifest *m, const char *path)
{
  return cb_manifest_find(m, path, strlen(path)) != NULL;
}

static void packs_what_differs(uid_t uid)
{
  static const struct file base[] = {
    FILE_OF(".gitignore", "*.o\nbuild/\nsecret\n"), FILE_OF("changed", "1"), FILE_OF("deleted", "1"),
    FILE_OF("mode", "1"), FILE_OF("same", "1"), FILE_OF("tracked.o", "1"), FILE_OF("type", "1"),
    LINK("link", "same"),
  };
  struct place w;
  struct cb_buf report, contents;
  struct cb_manifest m = CB_MANIFEST_INIT;
  char digest[65];
  make_place(&w, uid);
  apply(&w, base, 8, true, &report);
  cb_buf_clear(&report);
  plant(&w, "changed", "22");
  CHECK(unlink(in_project(&w, "deleted")) == 0 && chmod(in_project(&w, "mode"), 0755) == 0);
  plant(&w, "tracked.o", "2"); /* ignored by its name, but it was sent */
  CHECK(unlink(in_project(&w, "type")) == 0);
  plant_dir(&w, "type");
  plant(&w, "type/below", "new");
  plant(&w, "caf\xc3\xa9\n\xff", "odd");
  plant(&w, "built.o", "ignored");
  plant_dir(&w, "build");
  plant(&w, "build/x", "ignored");
  plant(&w, "secret", "ignored");
  plant(&w, ".git/info-file", "of git");
  CHECK(collect(&w, NULL, &report) == 0);
  CHECK(number(&report, "crewbox_collect") == 1 && number(&report, "deleted") == 2);
  CHECK(number(&report, "changed") == 5 && !has_record(&report, "skipped", NULL));
  read_result(&w, &m, &contents);
  CHECK(number(&report, "count") == (int64_t)m.count && m.count == 8);
  CHECK(!lists(&m, "built.o") && !lists(&m, "secret") && !lists(&m, "build/x") &&
        !lists(&m, "deleted") && !lists(&m, "type") && lists(&m, "type/below") && lists(&m, "same"));
  CHECK_STR(contents.p, "caf\xc3\xa9\n\xff=odd;changed=22;mode=1;tracked.o=2;type/below=new;");
  cb_manifest_digest(&m, digest);
  CHECK(has_record(&report, "digest", digest));
  /* Nothing of ours is left but the pack. */
  CHECK(folder_entries(w.run) == 3); /* tree.pack base.manifest result.pack */
  cb_buf_clear(&contents);
  cb_buf_clear(&report);
  cb_manifest_clear(&m);
  drop_place(&w);
}

/* bug-L5 and the checkout's own git: nothing planted is run, read through or brought out. */
static void brings_out_nothing_planted(uid_t uid)
{
  static const struct file base[] = { FILE_OF("d/x", "1"), FILE_OF("fifo", "1"),
                                      FILE_OF("out", "1"), FILE_OF("s", "1") };
  struct place w;
  struct cb_buf report, contents;
  struct cb_manifest m = CB_MANIFEST_INIT;
  make_place(&w, uid);
  apply(&w, base, 4, true, &report);
  cb_buf_clear(&report);
  /* Programs and lists that only the checkout's own configuration names. */
  char text[1200], run_it[200];
  snprintf(run_it, sizeof run_it, "touch %s/ran", w.home);
  snprintf(text, sizeof text,
           "[core]\n\trepositoryformatversion = 0\n\tfsmonitor = %s\n\thooksPath = %s/project\n"
           "\texcludesFile = %s/project/excludes\n[filter \"x\"]\n\tclean = %s\n",
           run_it, w.home, w.home, run_it);
  plant(&w, ".git/config", text);
  plant(&w, ".gitattributes", "* filter=x\n");
  plant(&w, "excludes", "hidden\n");
  plant_dir(&w, ".git/info");
  plant(&w, ".git/info/exclude", "hidden\n");
  plant(&w, "hidden", "not ignored by the tree's own rules");
  CHECK(unlink(in_project(&w, "fifo")) == 0 && mkfifo(in_project(&w, "fifo"), 0600) == 0);
  CHECK(unlink(in_project(&w, "out")) == 0);
  plant_link(&w, "out", "/etc/passwd");
  CHECK(unlink(in_project(&w, "d/x")) == 0 && rmdir(in_project(&w, "d")) == 0);
  plant_link(&w, "d", "../..");
  plant_link(&w, "inside", "s");
  plant_dir(&w, "nested");
  plant_dir(&w, "nested/.git");
  plant(&w, "nested/.git/HEAD", "ref: refs/heads/main\n");
  plant_dir(&w, "nested/.git/objects");
  plant_dir(&w, "nested/.git/refs");
  plant(&w, "nested/file", "of another repository");
  CHECK(collect(&w, NULL, &report) == 0);
  CHECK(absent(in_home(&w, "ran")));
  CHECK(has_record(&report, "skipped", "special fifo"));
  CHECK(has_record(&report, "skipped", "leaves_project out"));
  CHECK(has_record(&report, "skipped", "leaves_project d"));
  CHECK(has_record(&report, "skipped", "nested_repo nested/"));
  read_result(&w, &m, &contents);
  CHECK(lists(&m, "hidden") && lists(&m, "inside") && lists(&m, "fifo") && lists(&m, "out"));
  CHECK(!lists(&m, "d") && !lists(&m, "d/x") && !lists(&m, "nested/file"));
  for (size_t i = 0; i < m.count; i++)
    CHECK(!strstr(m.entries[i].path, ".git/"));
  CHECK(!has_bytes(contents.p, contents.len, "root:"));
  CHECK(!has_bytes(contents.p, contents.len, "fifo=") && !has_bytes(contents.p, contents.len, "out="));
  cb_buf_clear(&contents);
  cb_buf_clear(&report);
  cb_manifest_clear(&m);
  drop_place(&w);
}

static void refuses_too_much(uid_t uid)
{
  static const struct file base[] = { FILE_OF("small", "1") };
  struct place w;
  struct cb_buf report;
  make_place(&w, uid);
  APPLY(&w, base, &report);
  cb_buf_clear(&report);
  for (int i = 0; i < 12; i++) {
    char name[16];
    snprintf(name, sizeof name, "f%02d", i);
    plant(&w, name, "");
    CHECK(truncate(in_project(&w, name), 1000 + i) == 0);
  }
  CHECK(truncate(in_project(&w, "f07"), (off_t)1 << 40) == 0); /* a sparse terabyte: not read */
  CHECK(collect(&w, "5000", &report) == 1);
  CHECK(strstr(said(&w), "too_large: ") && strstr(said(&w), "f07 (1099511627776), f11 (1011)"));
  CHECK(!strstr(said(&w), "f01") && strchr(said(&w), '\n')[1] == '\0');
  CHECK(absent(in_run(&w, "result.pack")));
  cb_buf_clear(&report);
  CHECK(unlink(in_project(&w, "f07")) == 0);
  CHECK(collect(&w, "20000", &report) == 0 && number(&report, "count") == 12);
  cb_buf_clear(&report);
  drop_place(&w);
}

static bool owned_by(const char *path, uid_t uid)
{
  struct stat st;
  return lstat(path, &st) == 0 && st.st_uid == uid && st.st_gid == uid;
}

/* Root at work in somebody's project: what it makes there is his, git runs as him. */
static void leaves_things_to_their_owner(void)
{
  static const struct file files[] = { FILE_OF("d/e", "1"), LINK("l", "d") };
  struct place w;
  struct cb_buf report;
  make_place(&w, 0);
  w.uid = ORDINARY;
  give_to(&w, w.run);
  give_to(&w, w.project);
  w.uid = 0;
  apply(&w, files, 2, have_git(), &report);
  cb_buf_clear(&report);
  CHECK(owned_by(in_project(&w, "d"), ORDINARY) && owned_by(in_project(&w, "d/e"), ORDINARY) &&
        owned_by(in_project(&w, "l"), ORDINARY));
  if (have_git())
    CHECK(owned_by(in_project(&w, ".git"), ORDINARY) &&
          owned_by(in_project(&w, ".git/index"), ORDINARY));
  CHECK(collect(&w, NULL, &report) == 0 && number(&report, "changed") == 0);
  cb_buf_clear(&report);
  CHECK(owned_by(in_run(&w, "result.pack"), ORDINARY) &&
        owned_by(in_run(&w, "base.manifest"), ORDINARY));
  drop_place(&w);
}

static void all_as(uid_t uid)
{
  puts_a_tree_in_place(uid);
  deletes_and_changes_types(uid);
  goes_through_no_planted_link(uid);
  is_blocked_cleanly(uid);
  refuses_bad_packs(uid);
  cleans_up_behind_a_crash(uid);
  does_without_git(uid);
  if (!have_git()) {
    fprintf(stderr, "not run: git is not installed\n");
    return;
  }
  commits_the_base(uid);
  packs_what_differs(uid);
  brings_out_nothing_planted(uid);
  refuses_too_much(uid);
}

int main(void)
{
  umask(022);
  all_as(geteuid());
  if (geteuid() == 0) {
    all_as(ORDINARY);
    leaves_things_to_their_owner();
  }
  return check_done();
}
