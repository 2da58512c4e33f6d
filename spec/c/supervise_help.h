/* SPDX-License-Identifier: MIT
 * supervise_help.h: what the tests of crewbox-supervise share: a temporary place with a run
 * folder, orders, starting the real program (as root or as somebody ordinary), bounded waits. */
#ifndef CB_SPEC_SUPERVISE_HELP_H
#define CB_SPEC_SUPERVISE_HELP_H
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "c/check.h"
#include "wire/record.h"
#include "wire/state.h"

enum { WAIT_MS = 30000, ORDINARY = 65534, FILE_MAX = 64 << 20 };

/* A place of its own for one case. */
struct place {
  char root[64];
  char program[96]; /* a copy anybody can run */
  char run[96], home[96], project[96], orders[128];
  uid_t uid;    /* who runs the program */
  const char *path; /* its PATH; NULL: the usual one */
  const char *group; /* file of a control group to join; NULL: stay */
  bool own_ids; /* as root of a user namespace that has this one id, as in a local box */
};

static inline int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
  (void)st, (void)type, (void)at;
  return remove(path);
}

static inline void remove_tree(const char *path)
{
  nftw(path, remove_one, 32, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
}

static inline void put_file(const char *path, const void *p, size_t n, mode_t mode)
{
  int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  CHECK(fd >= 0 && write(fd, p, n) == (ssize_t)n && fchmod(fd, mode) == 0);
  if (fd >= 0)
    close(fd);
}

/* The content of a file, "" and *len 0 when it is not there. Freed by the caller. */
static inline char *get_file(const char *path, size_t *len)
{
  struct cb_buf b;
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  cb_buf_init(&b, FILE_MAX);
  if (fd >= 0) {
    CHECK(cb_buf_read_all(&b, fd, NULL) == CB_OK);
    close(fd);
  }
  return cb_buf_take(&b, len);
}

static inline bool has_bytes(const char *p, size_t n, const char *what)
{
  return memmem(p, n, what, strlen(what)) != NULL;
}

static inline void give_to(const struct place *w, const char *path)
{
  CHECK(lchown(path, w->uid, w->uid) == 0);
}

static inline void make_place(struct place *w, uid_t uid)
{
  const char *build = getenv("CREWBOX_BUILD");
  char from[4096];
  size_t len;
  memset(w, 0, sizeof *w);
  w->uid = uid;
  strcpy(w->root, "/tmp/cb-sup-XXXXXX");
  CHECK(mkdtemp(w->root) != NULL && chmod(w->root, 0755) == 0);
  snprintf(w->program, sizeof w->program, "%s/crewbox-supervise", w->root);
  snprintf(w->run, sizeof w->run, "%s/run", w->root);
  snprintf(w->home, sizeof w->home, "%s/home", w->root);
  snprintf(w->project, sizeof w->project, "%s/home/project", w->root);
  snprintf(w->orders, sizeof w->orders, "%s/orders-dir/orders", w->root);
  snprintf(from, sizeof from, "%s/crewbox-supervise", build ? build : "build");
  char *bytes = get_file(from, &len);
  CHECK(len > 0);
  put_file(w->program, bytes, len, 0755);
  free(bytes);
  give_to(w, w->root);
  CHECK(mkdir(w->run, 0700) == 0 && mkdir(w->home, 0755) == 0 && mkdir(w->project, 0755) == 0);
  give_to(w, w->run);
  give_to(w, w->home);
  give_to(w, w->project);
}

static inline void drop_place(struct place *w)
{
  remove_tree(w->root);
  struct stat st;
  CHECK(lstat(w->root, &st) < 0); /* nothing left that could not be removed */
}

static inline const char *in_run(const struct place *w, const char *name)
{
  static char path[4][200];
  static int turn;
  turn = (turn + 1) % 4;
  snprintf(path[turn], sizeof path[turn], "%s/%s", w->run, name);
  return path[turn];
}

static inline const char *in_project(const struct place *w, const char *name)
{
  static char path[4][300];
  static int turn;
  turn = (turn + 1) % 4;
  snprintf(path[turn], sizeof path[turn], "%s/%s", w->project, name);
  return path[turn];
}

static inline const char *in_home(const struct place *w, const char *name)
{
  static char path[4][200];
  static int turn;
  turn = (turn + 1) % 4;
  snprintf(path[turn], sizeof path[turn], "%s/%s", w->home, name);
  return path[turn];
}

/* Orders with what every run needs; the agent is `sh -c SCRIPT` when script is not NULL. */
static inline void begin_orders(const struct place *w, struct cb_buf *b, int seq,
                                const char *script)
{
  char env[256];
  cb_buf_init(b, 1 << 22);
  cb_record_addi(b, "crewbox_orders", 1);
  cb_record_addz(b, "run", "rtest");
  cb_record_addi(b, "launch_seq", seq);
  cb_record_addz(b, "kind", "agent");
  cb_record_addz(b, "run_dir", w->run);
  cb_record_addz(b, "cwd", w->project);
  cb_record_addz(b, "env", "PATH=/usr/local/bin:/usr/bin:/bin");
  snprintf(env, sizeof env, "HOME=%s", w->home);
  cb_record_addz(b, "env", env);
  cb_record_addi(b, "beat_ms", 30);
  cb_record_addi(b, "grace_ms", 300);
  if (script) {
    cb_record_addz(b, "argv", "sh");
    cb_record_addz(b, "argv", "-c");
    cb_record_addz(b, "argv", script);
  }
}

/* Puts them where the program is told to look, as an engine would. Clears b. */
static inline void write_orders(const struct place *w, struct cb_buf *b)
{
  char folder[128];
  snprintf(folder, sizeof folder, "%s/orders-dir", w->root);
  CHECK(mkdir(folder, 0700) == 0);
  give_to(w, folder);
  cb_record_addz(b, "end", "");
  put_file(w->orders, b->p, b->len, 0600);
  give_to(w, w->orders);
  cb_buf_clear(b);
}

static inline bool be_root_of_one_id(void)
{
  char map[32];
  snprintf(map, sizeof map, "0 %u 1", (unsigned)geteuid());
  /* Who has just changed its user is not dumpable, and its maps then belong to root. */
  if (unshare(CLONE_NEWUSER) < 0 || prctl(PR_SET_DUMPABLE, 1) < 0)
    return false;
  static const char *const files[] = { "/proc/self/setgroups", "/proc/self/gid_map",
                                       "/proc/self/uid_map" };
  for (int i = 0; i < 3; i++) {
    int fd = open(files[i], O_WRONLY);
    const char *text = i ? map : "deny";
    bool done = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    if (fd >= 0)
      close(fd);
    if (!done)
      return false;
  }
  return true;
}

/* Starts the program with these arguments (NULL-terminated) as the place's user. in: its stdin,
 * out: its stdout, -1: /dev/null. stderr goes to ROOT/stderr. */
static inline pid_t start(const struct place *w, const char *const *args, int in, int out)
{
  char *argv[16];
  char said[96];
  char path[200];
  char *env[] = { path, NULL };
  snprintf(path, sizeof path, "PATH=%s", w->path ? w->path : "/usr/local/bin:/usr/bin:/bin");
  size_t n = 0;
  snprintf(said, sizeof said, "%s/stderr", w->root);
  argv[n++] = (char *)(uintptr_t)w->program;
  for (; *args; args++)
    argv[n++] = (char *)(uintptr_t)*args;
  argv[n] = NULL;
  pid_t pid = fork();
  if (pid == 0) {
    int null = open("/dev/null", O_RDWR);
    int err = open(said, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    dup2(in >= 0 ? in : null, 0);
    dup2(out >= 0 ? out : null, 1);
    dup2(err, 2);
    for (int fd = 3; fd < 64; fd++)
      close(fd);
    if (w->group) {
      int fd = open(w->group, O_WRONLY);
      if (fd < 0 || write(fd, "0", 1) != 1)
        _exit(96);
      close(fd);
    }
    if (w->uid != geteuid() && (setgid(w->uid) < 0 || setuid(w->uid) < 0))
      _exit(99);
    if (w->own_ids && !be_root_of_one_id())
      _exit(97); /* not allowed here */
    execve(w->program, argv, env);
    _exit(98);
  }
  CHECK(pid > 0);
  return pid;
}

static inline pid_t start_run(const struct place *w)
{
  const char *const args[] = { "run", w->orders, NULL };
  return start(w, args, -1, -1);
}

/* Exit status of a child, -1 when it does not end in time (it is killed then). */
static inline int wait_exit(pid_t pid)
{
  int64_t deadline = cb_now_ms() + WAIT_MS;
  int status;
  while (cb_now_ms() < deadline) {
    pid_t got = waitpid(pid, &status, WNOHANG);
    if (got == pid)
      return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    usleep(5000);
  }
  kill(pid, SIGKILL);
  waitpid(pid, &status, 0);
  return -1;
}

static inline bool read_state(const struct place *w, struct cb_state *s)
{
  size_t len;
  char *p = get_file(in_run(w, "state"), &len);
  bool good = len > 0 && cb_state_parse(s, p, len, NULL) == CB_OK;
  free(p);
  return good;
}

/* Waits until what() holds of the state. */
static inline bool wait_state(const struct place *w, struct cb_state *s,
                              bool (*what)(const struct cb_state *))
{
  int64_t deadline = cb_now_ms() + WAIT_MS;
  while (cb_now_ms() < deadline) {
    if (read_state(w, s) && what(s))
      return true;
    usleep(5000);
  }
  return false;
}

static inline bool wait_file(const char *path)
{
  int64_t deadline = cb_now_ms() + WAIT_MS;
  struct stat st;
  while (cb_now_ms() < deadline) {
    if (stat(path, &st) == 0 && st.st_size > 0)
      return true;
    usleep(5000);
  }
  return false;
}

/* One file of a stream, by offset. Freed by the caller. */
static inline char *segment_at(const struct place *w, const char *prefix, int64_t offset,
                               size_t *len)
{
  char name[64];
  snprintf(name, sizeof name, "%s.%016lld", prefix, (long long)offset);
  return get_file(in_run(w, name), len);
}

/* A whole stream without gaps. */
static inline char *stream_of(const struct place *w, const char *prefix, size_t *len)
{
  struct cb_buf all;
  cb_buf_init(&all, FILE_MAX);
  for (;;) {
    size_t n;
    char *p = segment_at(w, prefix, (int64_t)all.len, &n);
    cb_buf_add(&all, p, n);
    free(p);
    if (n == 0)
      return cb_buf_take(&all, len);
  }
}

/* How many names a folder has, without . and .. */
static inline int folder_entries(const char *path)
{
  DIR *d = opendir(path);
  int n = -2;
  while (d && readdir(d))
    n++;
  if (d)
    closedir(d);
  return n;
}

/* Gone, or a zombie that waits for the machine's init. */
static inline bool is_dead(pid_t pid)
{
  char path[64], text[512];
  snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    return true;
  ssize_t n = read(fd, text, sizeof text - 1);
  close(fd);
  if (n <= 0)
    return true;
  text[n] = '\0';
  char *end = strrchr(text, ')');
  return end && end[2] == 'Z';
}

/* Every number in a file, one a line; how many. */
static inline size_t pids_in(const char *path, pid_t *out, size_t max)
{
  size_t len, n = 0;
  char *p = get_file(path, &len);
  for (char *at = strtok(p, "\n"); at && n < max; at = strtok(NULL, "\n"))
    out[n++] = (pid_t)atol(at);
  free(p);
  return n;
}
#endif
