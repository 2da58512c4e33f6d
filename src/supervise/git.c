/* SPDX-License-Identifier: MIT */
#include "supervise/git.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/path.h"
#include "supervise/spawn.h"

enum { TIMEOUT_MS = 120000, SAID_BYTES = 240 };

/* Settings a checkout or a machine could use to run a program or to change what is listed. */
static const char *const pinned[] = {
  "core.fsmonitor=false",        "core.hooksPath=/dev/null",      "core.excludesFile=/dev/null",
  "core.untrackedCache=false",   "core.attributesFile=/dev/null", "core.autocrlf=false",
  "core.precomposeUnicode=false", "commit.gpgSign=false",         "gc.auto=0",
  "protocol.allow=never",
  /* What this writes lives no longer than its box: not squeezed, not synced. Half the time. */
  "core.looseCompression=0",     "core.fsync=none",
};
enum { PINNED = sizeof pinned / sizeof *pinned };

/* A file in memory: input of any size without a second thread of control. */
static int memory_file(const void *p, size_t n, int *fd, struct cb_err *err)
{
  *fd = memfd_create("git", MFD_CLOEXEC);
  if (*fd < 0)
    return cb_err_errno(err, errno, "memfd_create");
  int rc = n ? cb_write_full(*fd, p, n, err) : CB_OK;
  if (rc == CB_OK && lseek(*fd, 0, SEEK_SET) < 0)
    rc = cb_err_errno(err, errno, "lseek");
  return rc;
}

static int read_output(int fd, struct cb_buf *out, struct cb_err *err)
{
  int64_t deadline = cb_now_ms() + TIMEOUT_MS;
  for (;;) {
    char bytes[16384];
    struct pollfd p = { .fd = fd, .events = POLLIN };
    int64_t left = deadline - cb_now_ms();
    if (left <= 0)
      return cb_err_set(err, CB_TIMEOUT, "git: not done after %d s", TIMEOUT_MS / 1000);
    if (poll(&p, 1, (int)left) <= 0)
      continue;
    ssize_t n = read(fd, bytes, sizeof bytes);
    if (n < 0 && errno == EINTR)
      continue;
    if (n < 0)
      return cb_err_errno(err, errno, "read from git");
    if (n == 0)
      return CB_OK;
    int rc = out ? cb_buf_add(out, bytes, (size_t)n) : CB_OK;
    if (rc)
      return cb_err_set(err, (enum cb_code)rc, "git: its output does not fit");
  }
}

static int failed(int said_fd, int status, struct cb_err *err)
{
  char said[SAID_BYTES];
  ssize_t n = pread(said_fd, said, sizeof said - 1, 0);
  if (n < 0)
    n = 0;
  said[n] = '\0';
  for (ssize_t i = 0; i < n; i++) {
    if (said[i] < 0x20 || said[i] > 0x7e)
      said[i] = ' ';
  }
  return cb_err_set(err, CB_PROVIDER, "git failed with status %d: %s",
                    WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), said);
}

int cb_sup_git_run(const struct cb_sup_git *g, const char *const *args, const void *input,
                   size_t len, struct cb_buf *out, struct cb_err *err)
{
  static const char date[] = "2000-01-01T00:00:00Z"; /* the same tree gives the same commit */
  char git_dir[CB_PATH_MAX_BYTES + 16], path[CB_PATH_MAX_BYTES + 16],
      safe[CB_PATH_MAX_BYTES + 32], author_date[64], committer_date[64];
  const char *argv[2 * PINNED + CB_SUP_GIT_ARGS + 8];
  struct cb_drop_user to = { g->uid, g->gid, -1 };
  struct cb_sup_spawn spawn = { .stdio = { -1, -1, -1 }, .cwd = g->work_tree };
  int ends[2] = { -1, -1 }, sys = 0, status = 0;
  size_t n = 0;
  pid_t pid = 0;

  const char *our_path = getenv("PATH");
  if (!our_path || !*our_path)
    our_path = "/usr/local/bin:/usr/bin:/bin";
  snprintf(path, sizeof path, "PATH=%.4000s", our_path);
  snprintf(safe, sizeof safe, "GIT_CONFIG_VALUE_0=%s", g->work_tree);
  snprintf(author_date, sizeof author_date, "GIT_AUTHOR_DATE=%s", date);
  snprintf(committer_date, sizeof committer_date, "GIT_COMMITTER_DATE=%s", date);
  const char *env[] = { path, "HOME=/nonexistent", "LC_ALL=C", "GIT_CONFIG_NOSYSTEM=1",
                        "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null",
                        "GIT_TERMINAL_PROMPT=0", "GIT_OPTIONAL_LOCKS=0", "GIT_CONFIG_COUNT=1",
                        "GIT_CONFIG_KEY_0=safe.directory", safe, "GIT_AUTHOR_NAME=crewbox",
                        "GIT_AUTHOR_EMAIL=crewbox@localhost", "GIT_COMMITTER_NAME=crewbox",
                        "GIT_COMMITTER_EMAIL=crewbox@localhost", author_date, committer_date,
                        NULL };
  argv[n++] = "git";
  for (size_t i = 0; i < PINNED; i++) {
    argv[n++] = "-c";
    argv[n++] = pinned[i];
  }
  if (g->git_dir) {
    snprintf(git_dir, sizeof git_dir, "--git-dir=%s", g->git_dir);
    argv[n++] = git_dir;
    argv[n++] = "--work-tree=.";
  }
  for (size_t i = 0; args[i]; i++) {
    assert(i < CB_SUP_GIT_ARGS);
    argv[n++] = args[i];
  }
  argv[n] = NULL;

  int rc = memory_file(input, len, &spawn.stdio[0], err);
  if (!rc)
    rc = memory_file(NULL, 0, &spawn.stdio[2], err);
  if (!rc)
    rc = cb_pipe(ends, err);
  if (rc)
    goto out;
  spawn.stdio[1] = ends[1];
  spawn.argv = (char *const *)(uintptr_t)argv;
  spawn.env = (char *const *)(uintptr_t)env;
  if (geteuid() == 0 && g->uid != 0)
    spawn.to = &to;
  rc = cb_sup_spawn(&spawn, &pid, &sys, err);
  if (rc) {
    if (sys == ENOENT)
      rc = cb_err_set(err, CB_UNSUPPORTED, "git is not installed here");
    goto out;
  }
  cb_close(&ends[1]);
  rc = read_output(ends[0], out, err);
  if (rc)
    kill(-pid, SIGKILL);
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
    ;
  if (rc == CB_OK && status != 0)
    rc = failed(spawn.stdio[2], status, err);
out:
  cb_close(&ends[0]);
  cb_close(&ends[1]);
  cb_close(&spawn.stdio[0]);
  cb_close(&spawn.stdio[2]);
  return rc;
}
