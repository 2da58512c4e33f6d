/* SPDX-License-Identifier: MIT
 * sudo_main.c: the side of the caller; see sudo.h. Takes the options people and scripts use. */
#include "box/sudo.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "box/children.h"
#include "box/protocol.h"
#include "wire/record.h"

extern char **environ;

struct request {
  const char *user;
  bool keep_env;  /* -E */
  bool shell;     /* -s, -i */
  bool login;     /* -i */
  bool nothing;   /* -v, -k, -K: about passwords, of which there are none */
  char **command; /* NULL-terminated */
};

static int complain(const char *what, const char *about)
{
  fprintf(stderr, "sudo: %s%s\n", what, about);
  return 1;
}

/* Words before the command. 0, or the exit status. */
static int parse(struct request *r, int argc, char **argv)
{
  static const char with_value[] = "ughpCTRDrt";
  int i = 1;
  for (; i < argc && argv[i][0] == '-' && argv[i][1]; i++) {
    if (strcmp(argv[i], "--") == 0) {
      i++;
      break;
    }
    if (strncmp(argv[i], "--", 2) == 0) {
      if (strncmp(argv[i], "--user=", 7) == 0)
        r->user = argv[i] + 7;
      else if (strcmp(argv[i], "--user") == 0 && i + 1 < argc)
        r->user = argv[++i];
      else if (strncmp(argv[i], "--preserve-env", 14) == 0)
        r->keep_env = true;
      else if (strcmp(argv[i], "--login") == 0)
        r->shell = r->login = true;
      else if (strcmp(argv[i], "--shell") == 0)
        r->shell = true;
      else if (strcmp(argv[i], "--non-interactive") != 0 && strcmp(argv[i], "--set-home") != 0 &&
               strcmp(argv[i], "--stdin") != 0)
        return complain("this box's sudo does not know ", argv[i]);
      continue;
    }
    for (const char *c = argv[i] + 1; *c; c++) {
      if (strchr(with_value, *c)) {
        const char *value = c[1] ? c + 1 : i + 1 < argc ? argv[++i] : NULL;
        if (!value)
          return complain("no value for an option", "");
        if (*c == 'u')
          r->user = value;
        break;
      }
      switch (*c) {
      case 'E':
        r->keep_env = true;
        break;
      case 'i':
        r->login = true;
        r->shell = true;
        break;
      case 's':
        r->shell = true;
        break;
      case 'v':
      case 'k':
      case 'K':
        r->nothing = true;
        break;
      case 'n':
      case 'H':
      case 'S':
      case 'b':
      case 'P':
        break;
      default:
        return complain("this box's sudo does not know ", argv[i]);
      }
    }
  }
  r->command = argv + i;
  for (; *r->command && strchr(*r->command, '=') && (*r->command)[0] != '='; r->command++) {
    if (strchr(*r->command, '/') && strchr(*r->command, '/') < strchr(*r->command, '='))
      break;
    if (putenv(*r->command)) /* NAME=VALUE before the command */
      return complain("out of memory", "");
  }
  return 0;
}

static void set_identity(const struct request *r)
{
  char id[24];
  setenv("SUDO_USER", getuid() == 0 ? "root" : "user", 1);
  snprintf(id, sizeof id, "%lu", (unsigned long)getuid());
  setenv("SUDO_UID", id, 1);
  snprintf(id, sizeof id, "%lu", (unsigned long)getgid());
  setenv("SUDO_GID", id, 1);
  setenv("USER", r->user, 1);
  setenv("LOGNAME", r->user, 1);
  if (!r->keep_env)
    setenv("HOME", cb_child_home(r->user), 1);
}

static int put_order(const struct request *r, struct cb_buf *order)
{
  char cwd[4096];
  int rc = cb_record_addz(order, "user", r->user);
  if (r->login)
    snprintf(cwd, sizeof cwd, "%s", cb_child_home(r->user));
  else if (!getcwd(cwd, sizeof cwd))
    snprintf(cwd, sizeof cwd, "/");
  if (!rc)
    rc = cb_record_addz(order, "cwd", cwd);
  for (char **a = r->command; *a && !rc; a++)
    rc = cb_record_addz(order, "arg", *a);
  for (char **e = environ; *e && !rc; e++)
    rc = cb_record_addz(order, "env", *e);
  return rc;
}

static int send_order(int sock, const struct request *r)
{
  struct cb_buf order, head;
  struct cb_err err = CB_ERR_INIT;
  int memory = memfd_create("sudo", MFD_CLOEXEC);
  cb_buf_init(&order, CB_SUDO_ORDER_MAX);
  cb_buf_init(&head, 256);
  int rc = memory < 0 ? cb_err_errno(&err, errno, "make a memory file") : CB_OK;
  if (!rc && put_order(r, &order))
    rc = cb_err_set(&err, CB_TOO_LARGE, "the command and its environment are too large");
  if (!rc)
    rc = cb_write_full(memory, order.p, order.len, &err);
  if (!rc)
    rc = cb_record_addi(&head, "crewbox_sudo", 1);
  if (!rc) {
    const int fds[4] = { 0, 1, 2, memory };
    rc = cb_send_fds(sock, head.p, head.len, fds, 4, &err);
  }
  cb_buf_clear_wiped(&order);
  cb_buf_clear(&head);
  cb_close(&memory);
  return rc ? complain(err.text, "") : 0;
}

static void pass_signal(int sock, int signals)
{
  struct signalfd_siginfo info;
  struct cb_buf m;
  if (read(signals, &info, sizeof info) != (ssize_t)sizeof info)
    return;
  cb_buf_init(&m, 64);
  if (!cb_record_addi(&m, "signal", info.ssi_signo))
    (void)cb_send_fds(sock, m.p, m.len, NULL, 0, NULL);
  cb_buf_clear(&m);
}

/* Waits for the end of the command; its exit status. */
static int await(int sock, int signals)
{
  char m[2048];
  struct cb_record rec;
  int64_t status;
  for (;;) {
    struct pollfd p[2] = { { sock, POLLIN, 0 }, { signals, POLLIN, 0 } };
    if (poll(p, 2, -1) < 0 && errno != EINTR)
      return complain("poll: ", strerror(errno));
    if (p[1].revents & POLLIN)
      pass_signal(sock, signals);
    if (p[0].revents == 0)
      continue;
    ssize_t k = recv(sock, m, sizeof m, 0);
    if (k <= 0)
      return complain("the box's init does not answer", "");
    if (cb_record_find(m, (size_t)k, "error", &rec)) {
      fprintf(stderr, "sudo: %.*s\n", (int)rec.len, rec.value);
      return 1;
    }
    if (!cb_record_find(m, (size_t)k, "status", &rec) || !cb_record_int(&rec, &status))
      return complain("the box's init gave no status", "");
    int st = (int)status;
    return WIFEXITED(st) ? WEXITSTATUS(st) : 128 + WTERMSIG(st);
  }
}

static int open_signals(void)
{
  static const int passed[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM };
  sigset_t set;
  sigemptyset(&set);
  for (size_t i = 0; i < sizeof passed / sizeof *passed; i++)
    sigaddset(&set, passed[i]);
  sigprocmask(SIG_BLOCK, &set, NULL);
  return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

int cb_sudo_main(int argc, char **argv)
{
  static char shell[] = "/bin/bash", login[] = "-l", dash_c[] = "-c";
  struct request r = { .user = "root" };
  struct cb_err err = CB_ERR_INIT;
  char *words[4] = { shell, NULL, NULL, NULL };
  char line[8192] = "";
  int sock = -1;

  int rc = parse(&r, argc, argv);
  if (rc)
    return rc;
  if (strcmp(r.user, "0") == 0 || strcmp(r.user, "#0") == 0)
    r.user = "root";
  if (!cb_child_home(r.user))
    return complain("unknown user: ", r.user);
  if (r.shell) {
    size_t used = 0, n = 0;
    for (char **a = r.command; *a; a++)
      used += (size_t)snprintf(line + (used < sizeof line ? used : sizeof line - 1),
                               used < sizeof line ? sizeof line - used : 1, "%s%s",
                               used ? " " : "", *a);
    if (used >= sizeof line)
      return complain("the command is too long for a shell", "");
    n = 1;
    if (r.login)
      words[n++] = login;
    if (used) {
      words[n++] = dash_c;
      words[n++] = line;
    }
    if (n > 3)
      words[1] = dash_c, words[2] = line, words[3] = NULL;
    r.command = words;
  }
  if (!*r.command)
    return r.nothing ? 0 : complain("usage: sudo [-nEHis] [-u USER] COMMAND...", "");
  set_identity(&r);
  bool am_root = getuid() == 0, want_root = strcmp(r.user, "root") == 0;
  if (am_root == want_root) { /* already who is wanted */
    execvp(r.command[0], r.command);
    fprintf(stderr, "sudo: %s: %s\n", r.command[0],
            errno == ENOENT ? "command not found" : strerror(errno));
    return 1;
  }
  int signals = open_signals(); /* before the start, so that none is lost */
  if (signals < 0 || cb_unix_connect(CB_BOX_SUDO_SOCKET, SOCK_SEQPACKET, &sock, &err))
    return complain("the box's init cannot be reached: ", err.text);
  rc = send_order(sock, &r);
  if (rc == 0)
    rc = await(sock, signals);
  cb_close(&sock);
  cb_close(&signals);
  return rc;
}
