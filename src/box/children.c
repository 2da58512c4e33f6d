/* SPDX-License-Identifier: MIT
 * children.c: see children.h. */
#include "box/children.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/drop_user.h"
#include "base/fd.h"
#include "base/signals.h"
#include "box/control.h"
#include "box/protocol.h"
#include "wire/record.h"

enum { FACTS_MAX = 96 * 1024, DRAIN_STEP = 64 * 1024, ENV_MAX = 4096 };

const char *cb_child_home(const char *user)
{
  if (strcmp(user, "user") == 0)
    return "/home/user";
  return strcmp(user, "root") == 0 ? "/root" : NULL;
}

/* --- environment --- */

static size_t name_len(const char *assignment)
{
  return strcspn(assignment, "=");
}

/* Adds NAME=VALUE, replacing one of the same name. */
static int put_env(struct cb_strings *env, const char *assignment)
{
  size_t n = name_len(assignment);
  for (size_t i = 0; i < env->count; i++) {
    if (strncmp(env->at[i], assignment, n) != 0 || env->at[i][n] != '=')
      continue;
    char *copy = cb_strdup(assignment);
    if (!copy)
      return CB_NO_MEMORY;
    cb_free(env->at[i]);
    env->at[i] = copy;
    return CB_OK;
  }
  if (env->count >= ENV_MAX)
    return CB_TOO_LARGE;
  return cb_strings_add(env, assignment, strlen(assignment));
}

static int put_env_pair(struct cb_strings *env, const char *name, const char *value)
{
  struct cb_buf b;
  cb_buf_init(&b, 128 * 1024);
  int rc = cb_buf_addf(&b, "%s=%s", name, value);
  if (!rc)
    rc = put_env(env, b.p);
  cb_buf_clear(&b);
  return rc;
}

/* The folders of the template in front of the default; also in CREWBOX_PATH, from which a login
 * shell's profile (base_layer.c) builds PATH again after resetting it. */
static int put_path(struct cb_strings *env, const struct cb_strings *front)
{
  struct cb_buf b;
  int rc = CB_OK;
  cb_buf_init(&b, 64 * 1024);
  for (size_t i = 0; i < front->count && !rc; i++)
    rc = cb_buf_addf(&b, "%s%s", i ? ":" : "", front->at[i]);
  if (!rc && front->count)
    rc = put_env_pair(env, "CREWBOX_PATH", b.p);
  if (!rc)
    rc = cb_buf_addf(&b, "%s%s", front->count ? ":" : "", CB_BOX_DEFAULT_PATH);
  if (!rc)
    rc = put_env_pair(env, "PATH", b.p);
  cb_buf_clear(&b);
  return rc;
}

static int make_env(const struct cb_init *init, const struct cb_command *c,
                    struct cb_strings *env)
{
  const struct cb_box_config *config = init->config;
  int rc = CB_OK;
  if (!c->whole_env) {
    rc = put_path(env, &config->path);
    if (!rc)
      rc = put_env_pair(env, "HOME", cb_child_home(c->user));
    if (!rc)
      rc = put_env_pair(env, "USER", c->user);
    if (!rc)
      rc = put_env_pair(env, "LOGNAME", c->user);
    if (!rc)
      rc = put_env(env, "SHELL=/bin/bash");
    if (!rc) /* files of the host's own npm cannot be changed in place, those here can */
      rc = put_env(env, "NPM_CONFIG_PREFIX=/usr/local");
    for (size_t i = 0; i < config->env.count && !rc; i++)
      rc = put_env(env, config->env.at[i]);
  }
  for (size_t i = 0; i < c->env.count && !rc; i++)
    rc = put_env(env, c->env.at[i]);
  return rc;
}

static const char *env_get(const struct cb_strings *env, const char *name)
{
  size_t n = strlen(name);
  for (size_t i = 0; i < env->count; i++)
    if (strncmp(env->at[i], name, n) == 0 && env->at[i][n] == '=')
      return env->at[i] + n + 1;
  return NULL;
}

/* --- the child --- */

struct launch {
  char **argv, **envp;
  const char *path; /* PATH of the environment to come */
  char *cwd;        /* absolute */
  bool as_user;
  int stdio[3];
};

/* What went wrong between fork and exec; end-of-file instead of it means that exec happened. */
struct launch_failure {
  int sys;
  bool cwd;
  char step[56];
};

static _Noreturn void give_up(int status_fd, const char *step, int sys, bool cwd)
{
  struct launch_failure f = { .sys = sys, .cwd = cwd };
  snprintf(f.step, sizeof f.step, "%s", step);
  (void)cb_write_full(status_fd, &f, sizeof f, NULL);
  _exit(127);
}

/* execve along PATH. A missing program is the ordinary exit status of a shell, not our error. */
static _Noreturn void exec_command(const struct launch *l)
{
  char file[4096];
  const char *cmd = l->argv[0], *dir = l->path;
  int sys = ENOENT;

  if (strchr(cmd, '/')) {
    execve(cmd, l->argv, l->envp);
    sys = errno;
  } else {
    for (;;) {
      size_t n = strcspn(dir, ":");
      if (snprintf(file, sizeof file, "%.*s%s%s", (int)n, dir, n ? "/" : "", cmd) <
          (int)sizeof file) {
        execve(file, l->argv, l->envp);
        if (errno != ENOENT && errno != ENOTDIR)
          sys = errno;
      }
      if (dir[n] == '\0')
        break;
      dir += n + 1;
    }
  }
  dprintf(2, "crewbox: %s: %s\n", cmd, sys == ENOENT ? "command not found" : strerror(sys));
  _exit(sys == ENOENT || sys == ENOTDIR ? 127 : 126);
}

static _Noreturn void child(const struct launch *l, int status_fd)
{
  struct cb_drop_user to = { CB_BOX_USER_UID, CB_BOX_USER_UID, -1 };
  struct cb_drop_failure why;

  setsid();
  /* Above the standard three, then in place: any of the five may have a low number. */
  int fds[4] = { l->stdio[0], l->stdio[1], l->stdio[2], status_fd };
  for (int i = 0; i < 4; i++) {
    fds[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, 10);
    if (fds[i] < 0)
      _exit(127);
  }
  for (int i = 0; i < 3; i++)
    if (dup2(fds[i], i) < 0)
      give_up(fds[3], "dup", errno, false);
  if (dup3(fds[3], 3, O_CLOEXEC) < 0)
    give_up(fds[3], "dup", errno, false);
  /* All of pid 1's descriptors go before anything below makes this process inspectable. */
  if (syscall(SYS_close_range, 4, ~0u, 0) < 0)
    give_up(3, "close descriptors", errno, false);
  cb_signals_default();
  umask(022);
  if (l->as_user && cb_drop_user(&to, &why) < 0)
    give_up(3, why.step, why.sys, false);
  if (chdir(l->cwd) < 0)
    give_up(3, "cwd", errno, true);
  exec_command(l);
}

/* --- starting --- */

static int absolute_cwd(const struct cb_command *c, char **out)
{
  const char *home = cb_child_home(c->user);
  struct cb_buf b;
  cb_buf_init(&b, 4096);
  int rc;
  if (!c->cwd || !*c->cwd || strcmp(c->cwd, "~") == 0)
    rc = cb_buf_addz(&b, home);
  else if (c->cwd[0] == '/')
    rc = cb_buf_addz(&b, c->cwd);
  else
    rc = cb_buf_addf(&b, "%s/%s", home, strncmp(c->cwd, "~/", 2) == 0 ? c->cwd + 2 : c->cwd);
  if (!rc) {
    *out = cb_buf_take(&b, NULL);
    rc = *out ? CB_OK : CB_NO_MEMORY;
  }
  cb_buf_clear(&b);
  return rc;
}

static int keep_facts(struct cb_child *p, const struct cb_command *c, const char *cwd)
{
  int rc = cb_record_addz(&p->facts, "cmd", c->cmd);
  for (size_t i = 0; i < c->args.count && !rc; i++)
    rc = cb_record_addz(&p->facts, "arg", c->args.at[i]);
  for (size_t i = 0; i < c->env.count && !rc; i++)
    rc = cb_record_addz(&p->facts, "env", c->env.at[i]);
  if (!rc)
    rc = cb_record_addz(&p->facts, "cwd", cwd);
  if (!rc)
    rc = cb_record_addz(&p->facts, "user", c->user);
  if (!rc)
    rc = cb_record_addz(&p->facts, "tag", c->tag ? c->tag : "");
  return rc;
}

static void free_proc(struct cb_init *init, struct cb_child *p)
{
  for (int i = 0; i < 2; i++) {
    cb_init_unwatch(init, &p->drain[i]);
    cb_close(&p->out[i]);
  }
  cb_close(&p->in);
  cb_buf_clear_wiped(&p->facts);
  cb_free(p);
}

/* pipes of a new process: ours in p, the child's in theirs. */
static int make_stdio(struct cb_child *p, const struct cb_command *c, int theirs[3],
                      struct cb_err *err)
{
  int ends[2];
  int rc = CB_OK;
  if (c->stdin_open) {
    rc = cb_pipe(ends, err);
    if (rc)
      return rc;
    theirs[0] = ends[0];
    p->in = ends[1];
    rc = cb_nonblock(p->in, true, err);
  } else {
    theirs[0] = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (theirs[0] < 0)
      rc = cb_err_errno(err, errno, "open /dev/null");
  }
  for (int i = 0; i < 2 && !rc; i++) {
    rc = cb_pipe(ends, err);
    if (rc)
      break;
    p->out[i] = ends[0];
    theirs[1 + i] = ends[1];
    rc = cb_nonblock(p->out[i], true, err);
  }
  return rc;
}

static int launch(const struct launch *l, pid_t *out, struct cb_err *err)
{
  int status[2] = { -1, -1 };
  struct launch_failure f = { 0 };
  int rc = cb_pipe(status, err);
  if (rc)
    return rc;
  pid_t pid = fork();
  if (pid == 0)
    child(l, status[1]);
  int sys = errno;
  cb_close(&status[1]);
  if (pid < 0) {
    rc = cb_err_errno(err, sys, "start a process");
    if (sys == EAGAIN)
      rc = cb_err_set(err, CB_QUOTA, "start a process: the box has too many processes");
  } else if (cb_read_full(status[0], &f, sizeof f, NULL) == CB_OK) {
    waitpid(pid, NULL, 0);
    f.step[sizeof f.step - 1] = '\0';
    if (f.cwd && (f.sys == ENOENT || f.sys == ENOTDIR))
      rc = cb_err_set(err, CB_INVALID, "cwd '%s' does not exist", l->cwd);
    else if (f.cwd)
      rc = cb_err_errno(err, f.sys, "enter cwd '%s'", l->cwd);
    else
      rc = cb_err_errno(err, f.sys, "start a process: %s", f.step);
  }
  cb_close(&status[0]);
  if (!rc)
    *out = pid;
  return rc;
}

int cb_child_start(struct cb_init *init, const struct cb_command *c, struct cb_child **out,
                   struct cb_err *err)
{
  struct launch l = { .stdio = { -1, -1, -1 } };
  struct cb_strings argv = { 0 }, env = { 0 };
  struct cb_child *p = NULL;
  int rc = CB_OK;

  if (!cb_child_home(c->user))
    return cb_err_set(err, CB_UNAUTHORIZED, "invalid username: '%.64s'", c->user);
  if (!c->cmd || !*c->cmd)
    return cb_err_set(err, CB_INVALID, "no command given");
  if (init->child_count >= CB_BOX_PROCS_MAX)
    return cb_err_set(err, CB_QUOTA, "the box has %d started processes already",
                      CB_BOX_PROCS_MAX);
  p = cb_calloc(1, sizeof *p);
  if (!p)
    return cb_err_no_memory(err);
  p->in = p->out[0] = p->out[1] = p->drain[0].fd = p->drain[1].fd = -1;
  cb_buf_init(&p->facts, FACTS_MAX);
  rc = cb_strings_add(&argv, c->cmd, strlen(c->cmd));
  for (size_t i = 0; i < c->args.count && !rc; i++)
    rc = cb_strings_add(&argv, c->args.at[i], strlen(c->args.at[i]));
  if (!rc)
    rc = make_env(init, c, &env);
  if (!rc)
    rc = absolute_cwd(c, &l.cwd);
  if (!rc && !c->stdio) /* those of sudo are never listed */
    rc = keep_facts(p, c, l.cwd);
  if (rc) {
    rc = rc == CB_TOO_LARGE ? cb_err_set(err, rc, "the command or its environment is too large")
                            : cb_err_no_memory(err);
    goto out;
  }
  if (c->stdio)
    memcpy(l.stdio, c->stdio, sizeof l.stdio);
  else
    rc = make_stdio(p, c, l.stdio, err);
  if (rc)
    goto out;
  char *nothing[] = { NULL };
  l.argv = argv.at;
  l.envp = env.count ? env.at : nothing;
  l.path = env_get(&env, "PATH");
  if (!l.path)
    l.path = CB_BOX_DEFAULT_PATH;
  l.as_user = strcmp(c->user, "user") == 0;
  rc = launch(&l, &p->pid, err);
  if (rc)
    goto out;
  p->listed = !c->stdio;
  p->deadline_ms = c->deadline_ms > 0 ? cb_boot_ms() + c->deadline_ms : 0;
  p->next = init->children;
  init->children = p;
  init->child_count++;
  *out = p;
  p = NULL;
out:
  if (!c->stdio)
    for (int i = 0; i < 3; i++)
      cb_close(&l.stdio[i]);
  cb_free(l.cwd);
  cb_strings_clear(&argv);
  cb_strings_clear(&env);
  if (p)
    free_proc(init, p);
  return rc;
}

/* --- afterwards --- */

struct cb_child *cb_child_find(struct cb_init *init, int64_t pid)
{
  for (struct cb_child *p = init->children; p; p = p->next)
    if (p->listed && p->pid == pid)
      return p;
  return NULL;
}

static void tell_exit(struct cb_init *init, const struct cb_child *p)
{
  struct cb_buf m;
  cb_frame_begin(&m, "exit", 0);
  if (cb_record_addi(&m, "pid", p->pid) || cb_record_addi(&m, "status", p->status) ||
      cb_record_addi(&m, "deadline", p->deadline_hit))
    cb_buf_clear(&m);
  else
    cb_control_send(init, &m, NULL, 0);
}

void cb_child_reap(struct cb_init *init)
{
  int status;
  pid_t pid;
  while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
    struct cb_child *p = init->children;
    while (p && (p->pid != pid || p->exited))
      p = p->next;
    if (!p) /* an orphan the box left to us */
      continue;
    p->exited = true;
    p->status = status;
    p->exited_ms = cb_boot_ms();
    cb_close(&p->in);
    if (p->on_exit)
      p->on_exit(init, p, p->on_exit_arg);
    p->on_exit = NULL;
    if (p->listed)
      tell_exit(init, p);
  }
}

static int64_t due(const struct cb_child *p)
{
  if (!p->exited)
    return p->deadline_hit ? 0 : p->deadline_ms;
  return p->listed || (p->out[0] < 0 && p->out[1] < 0) ? p->exited_ms + CB_BOX_KEEP_EXITED_MS : 0;
}

int64_t cb_child_next_due(const struct cb_init *init)
{
  int64_t first = 0;
  for (const struct cb_child *p = init->children; p; p = p->next) {
    int64_t at = due(p);
    if (at != 0 && (first == 0 || at < first))
      first = at;
  }
  return first;
}

static void on_output(struct cb_init *init, struct cb_source *src, uint32_t events)
{
  char bytes[DRAIN_STEP];
  struct cb_child *p = src->owner;
  int which = src == &p->drain[1];
  (void)events;
  ssize_t k = read(src->fd, bytes, sizeof bytes);
  if (k > 0 || (k < 0 && (errno == EAGAIN || errno == EINTR)))
    return;
  cb_init_unwatch(init, src);
  cb_close(&p->out[which]);
}

static void drain(struct cb_init *init, struct cb_child *p)
{
  for (int i = 0; i < 2; i++)
    if (p->out[i] >= 0 && p->drain[i].fd < 0)
      (void)cb_init_watch(init, &p->drain[i], p->out[i], EPOLLIN, on_output, p);
}

void cb_child_attached(struct cb_init *init, bool attached)
{
  for (struct cb_child *p = init->children; p; p = p->next) {
    if (!attached)
      drain(init, p);
    for (int i = 0; i < 2 && attached && p->listed; i++)
      cb_init_unwatch(init, &p->drain[i]);
  }
}

void cb_child_due(struct cb_init *init, int64_t now)
{
  struct cb_child **at = &init->children;
  while (*at) {
    struct cb_child *p = *at;
    if (!p->exited && p->deadline_ms != 0 && !p->deadline_hit && now >= p->deadline_ms) {
      p->deadline_hit = true;
      (void)kill(p->pid, SIGKILL);
    }
    if (p->exited && p->listed && now >= p->exited_ms + CB_BOX_KEEP_EXITED_MS) {
      p->listed = false;
      drain(init, p); /* children it left behind may still write; they must not get stuck */
    }
    if (p->exited && !p->listed && p->out[0] < 0 && p->out[1] < 0) {
      *at = p->next;
      init->child_count--;
      free_proc(init, p);
      continue;
    }
    at = &p->next;
  }
}
