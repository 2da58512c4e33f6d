/* SPDX-License-Identifier: MIT
 * box_test.c: boxes, driven as crewboxd drives them. As root everything runs twice, the second
 * time as an ordinary user. The same program, uploaded into a box, tries to get out of it. */
#include <arpa/inet.h>
#include <dirent.h>
#include <grp.h>
#include <seccomp.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "base/drop_user.h"
#include "base/path.h"
#include "base/rand.h"
#include "box/config.h"
#include "box/dns.h"
#include "boxd/base_layer.h"
#include "boxd/box_answer.h"
#include "c/box_sync.h"
#include "c/escape_probes.h"
#include "wire/record.h"

enum { ORDINARY_UID = 54321 };

struct suite {
  struct sync_loop loop;
  struct cb_boxes *boxes;
  struct cb_boxes_config config;
  char dir[256];    /* private to the suite, removed at the end */
  char state[300];
  char self[300];   /* this program */
  struct cb_log log;
  struct cb_err err;
  int rc;
};

/* --- a server on the host's loopback that says "hello ECHO" --- */

struct server {
  int fd, port;
  pthread_t thread;
};

static void *serve(void *arg)
{
  struct server *s = arg;
  for (;;) {
    char bytes[65536];
    int c = accept(s->fd, NULL, NULL);
    if (c < 0)
      return NULL;
    dprintf(c, "hello ");
    for (;;) { /* to the half-close, and everything back */
      ssize_t k = read(c, bytes, sizeof bytes);
      if (k <= 0)
        break;
      if (write(c, bytes, (size_t)k) < 0)
        break;
    }
    close(c);
  }
}

static void server_start(struct server *s)
{
  struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
  socklen_t n = sizeof a;
  s->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  CHECK(bind(s->fd, (struct sockaddr *)&a, sizeof a) == 0 && listen(s->fd, 16) == 0);
  getsockname(s->fd, (struct sockaddr *)&a, &n);
  s->port = ntohs(a.sin_port);
  pthread_create(&s->thread, NULL, serve, s);
}

static void server_stop(struct server *s)
{
  shutdown(s->fd, SHUT_RDWR);
  pthread_join(s->thread, NULL);
  close(s->fd);
}

/* --- opening and closing what boxes share --- */

static void do_open(void *arg)
{
  struct suite *s = arg;
  s->rc = cb_boxes_open(&s->boxes, &s->config, &s->err);
}

static void do_close(void *arg)
{
  struct suite *s = arg;
  cb_boxes_close(s->boxes);
  s->boxes = NULL;
}

/* --- small helpers --- */

static bool has(const struct cb_buf *b, const char *text)
{
  return b->p && strstr(b->p, text);
}

#define CHECK_SH(box, user, script, status, wanted)                                  \
  do {                                                                               \
    int got_ = sync_sh(box, user, script, &out);                                     \
    CHECK(got_ == (status));                                                         \
    CHECK(has(&out, wanted));                                                        \
    if (got_ != (status) || !has(&out, wanted))                                      \
      fprintf(stderr, "  %s\n  -> %d: %s\n", script, got_, out.p ? out.p : "");      \
  } while (0)

static int put_file(struct sync_box *b, const char *path, const void *bytes, size_t n)
{
  struct sync_request r = { .b = b, .ask = ask_open, .path = path, .writing = true };
  int rc = sync_ask(&r);
  if (!rc)
    rc = cb_write_full(r.fds[0], bytes, n, NULL);
  cb_close(&r.fds[0]);
  return rc;
}

static int open_code(struct sync_box *b, const char *path, bool writing)
{
  struct sync_request r = { .b = b, .ask = ask_open, .path = path, .writing = writing };
  int rc = sync_ask(&r);
  cb_close(&r.fds[0]);
  return rc;
}

/* Processes of the host whose command line holds text. */
static int count_processes(const char *text)
{
  int n = 0;
  struct dirent *e;
  DIR *d = opendir("/proc");
  while (d && (e = readdir(d))) {
    char path[300], line[512];
    if (e->d_name[0] < '1' || e->d_name[0] > '9')
      continue;
    snprintf(path, sizeof path, "/proc/%s/cmdline", e->d_name);
    int fd = open(path, O_RDONLY);
    ssize_t k = fd < 0 ? -1 : read(fd, line, sizeof line - 1);
    cb_close(&fd);
    for (ssize_t i = 0; i < k; i++)
      if (line[i] == '\0')
        line[i] = ' ';
    if (k > 0) {
      line[k] = '\0';
      n += strstr(line, text) != NULL;
    }
  }
  if (d)
    closedir(d);
  return n;
}

/* Processes that run a program of that folder. An ordinary user cannot see it of every one. */
static int count_running(const char *dir)
{
  int n = 0;
  struct dirent *e;
  DIR *d = opendir("/proc");
  while (d && (e = readdir(d))) {
    char path[300], exe[512];
    if (e->d_name[0] < '1' || e->d_name[0] > '9')
      continue;
    snprintf(path, sizeof path, "/proc/%s/exe", e->d_name);
    ssize_t k = readlink(path, exe, sizeof exe - 1);
    if (k > 0) {
      exe[k] = '\0';
      n += strncmp(exe, dir, strlen(dir)) == 0;
    }
  }
  if (d)
    closedir(d);
  return n;
}

/* --- cases in one box --- */

static void test_processes(struct sync_box *b)
{
  struct cb_buf out;
  cb_buf_init(&out, SYNC_OUTPUT_MAX);

  CHECK_SH(b, NULL, "id -u; id -un; pwd", 0, "1000\nuser\n/home/user\n");
  CHECK_SH(b, "root", "id -u; id -un; pwd", 0, "0\nroot\n/root\n");
  CHECK_SH(b, NULL, "exit 7", 7, "");
  CHECK_SH(b, NULL, "kill -9 $$", 137, "");
  CHECK_SH(b, NULL, "echo out; echo err >&2", 0, "err");
  CHECK_SH(b, NULL, "cat", 0, ""); /* stdin is empty, not inherited, not left open */
  CHECK(sync_sh(b, "nobody", "true", &out) == -CB_UNAUTHORIZED);

  /* environment: the box's, and nothing of the daemon's */
  CHECK_SH(b, NULL, "echo $PATH", 0, "/opt/tools/bin:/usr/local/sbin:/usr/local/bin:");
  CHECK_SH(b, NULL, "bash -lc 'echo $PATH'", 0, "/opt/tools/bin:/usr/local/sbin:");
  CHECK_SH(b, NULL, "echo $HOME $USER $LOGNAME $NPM_CONFIG_PREFIX $COLOUR", 0,
           "/home/user user user /usr/local blue");
  CHECK(sync_sh(b, NULL, "env", &out) == 0 && !has(&out, "CREWBOX_TEST_SECRET"));
  CHECK(sync_sh(b, "root", "cat /proc/1/environ /proc/*/environ", &out) >= 0 &&
        !has(&out, "CREWBOX_TEST_SECRET"));

  /* bug-O7: no descriptor of the daemon or of pid 1 comes along */
  for (int i = 0; i < 2; i++) { /* 3 is what ls itself opens */
    CHECK_SH(b, i ? "root" : NULL, "ls /proc/self/fd", 0, "0\n1\n2\n3\n");
    CHECK(strlen(out.p) == 8);
  }

  /* capabilities, core files, the out-of-memory order */
  CHECK_SH(b, NULL, "grep -c '^Cap.*:.0*$' /proc/self/status", 0, "5");
  CHECK_SH(b, "root", "grep CapEff /proc/self/status", 0, "00000000800004fb");
  CHECK_SH(b, NULL, "ulimit -c; cat /proc/self/oom_score_adj", 0, "0\n300\n");
  CHECK_SH(b, NULL, "hostname; cat /etc/hostname; cat /etc/resolv.conf", 0,
           "box\nbox\nnameserver 127.0.0.1");

  /* cwd and missing commands */
  const char *args[] = { "-c", "pwd" };
  struct cb_box_command c = { .cmd = "sh", .args = args, .arg_count = 2, .cwd = "/nope" };
  struct sync_request r = { .b = b, .ask = ask_start, .command = &c };
  CHECK(sync_ask(&r) == CB_INVALID);
  CHECK_STR(r.err.text, "cwd '/nope' does not exist");
  CHECK_SH(b, NULL, "mkdir -p ~/project/sub", 0, "");
  c.cwd = "~/project";
  CHECK(sync_ask(&r) == CB_OK);
  cb_buf_reset(&out);
  sync_read_all(r.fds[1], r.fds[2], &out);
  CHECK_STR(out.p, "/home/user/project\n");
  sync_await_exit(b, r.pid);
  struct cb_box_command missing = { .cmd = "no-such-program" };
  r.command = &missing;
  CHECK(sync_ask(&r) == CB_OK);
  cb_buf_reset(&out);
  sync_read_all(r.fds[1], r.fds[2], &out);
  CHECK(has(&out, "no-such-program: command not found"));
  CHECK(WEXITSTATUS(sync_await_exit(b, r.pid).status) == 127);

  /* input, end of input, signals, deadlines */
  struct cb_box_command cat = { .cmd = "cat", .stdin_open = true };
  r.command = &cat;
  CHECK(sync_ask(&r) == CB_OK && r.fds[0] >= 0);
  CHECK(write(r.fds[0], "over", 4) == 4);
  cb_close(&r.fds[0]);
  struct sync_request close_in = { .b = b, .ask = ask_close_stdin, .pid = r.pid };
  CHECK(sync_ask(&close_in) == CB_OK);
  cb_buf_reset(&out);
  sync_read_all(r.fds[1], r.fds[2], &out);
  CHECK_STR(out.p, "over");
  CHECK(sync_await_exit(b, r.pid).status == 0);

  const char *sleep_args[] = { "1000" };
  struct cb_box_command sleeper = { .cmd = "sleep", .args = sleep_args, .arg_count = 1 };
  r.command = &sleeper;
  CHECK(sync_ask(&r) == CB_OK);
  struct sync_request term = { .b = b, .ask = ask_signal, .pid = r.pid, .number = SIGTERM };
  CHECK(sync_ask(&term) == CB_OK);
  int status = sync_await_exit(b, r.pid).status;
  CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
  CHECK(sync_ask(&term) == CB_NOT_FOUND);
  cb_close(&r.fds[1]);
  cb_close(&r.fds[2]);
  sleeper.deadline_ms = 50;
  CHECK(sync_ask(&r) == CB_OK);
  struct sync_exit e = sync_await_exit(b, r.pid);
  CHECK(e.deadline && WIFSIGNALED(e.status) && WTERMSIG(e.status) == SIGKILL);
  cb_close(&r.fds[1]);
  cb_close(&r.fds[2]);

  /* bug-B1: pid 1 reaps what others leave to it */
  CHECK_SH(b, NULL,
           "(sleep 0.05 & ) ; for i in $(seq 200); do n=$(pgrep -c sleep); "
           "[ \"$n\" = 0 ] && break; sleep 0.02; done; ps -e -o stat= | grep -c Z",
           1, "0");
  cb_buf_clear(&out);
}

static void test_view(struct sync_box *b, struct suite *s)
{
  struct cb_buf out;
  char script[700];
  cb_buf_init(&out, SYNC_OUTPUT_MAX);

  CHECK_SH(b, NULL, "echo x > /usr/local/bin/tool && echo x > /etc/made && echo x > /usr/lib/made "
                    "&& mkdir -p /usr/share/made/deep && echo user >> /etc/hosts && cat /etc/hosts",
           0, "user");
  CHECK_SH(b, "root", "cat /usr/local/bin/tool && rm /usr/bin/cmp && ! command -v cmp && "
                      "cp /bin/true /tmp/t && mv /tmp/t /usr/bin/diff && diff a b",
           0, "x");
  CHECK(access("/usr/local/bin/tool", F_OK) < 0 && access("/etc/made", F_OK) < 0);
  CHECK_SH(b, NULL, "git --version", 0, "git version");
  if (access("/usr/bin/node", X_OK) == 0)
    CHECK_SH(b, NULL, "node -e 'console.log(6 * 7)' && npm --version", 0, "42");
  CHECK_SH(b, NULL, "cat /etc/passwd", 0, "user:x:1000:1000:");
  CHECK_SH(b, NULL, "ls -A /sys | wc -l; stat -f -c %T /tmp /dev/shm", 0, "0\ntmpfs\ntmpfs");
  CHECK_SH(b, NULL, "echo a > /tmp/a && echo b > /var/tmp/b && echo c > /dev/shm/c && "
                    "echo d > /var/log/d && echo ok", 0, "ok");
  CHECK_SH(b, NULL, "python3 -c 'import pty; pty.spawn([\"true\"])' && echo tty", 0, "tty");

  /* the host is not there */
  snprintf(script, sizeof script, "ls -d %.250s", s->dir);
  CHECK_SH(b, "root", script, 2, "No such file");
  CHECK_SH(b, NULL, "ls -A /home; ls -A /mnt /media /srv | tr -d '\\n'", 0, "user");
  CHECK(sync_sh(b, "root", "cat /proc/mounts", &out) == 0 &&
        !has(&out, s->dir));
  CHECK_SH(b, NULL, "touch /x", 1, "Read-only file system");

  /* the template's mounts and folders */
  CHECK_SH(b, NULL, "tool-of-template && cat /opt/note && ls /opt/tools/bin", 0,
           "from the template\na note\ntool-of-template");
  CHECK_SH(b, "root", "touch /opt/tools/bin/x", 1, "Read-only file system");

  /* sudo: another id, the caller's stdio, folder and environment; its end is the command's */
  CHECK_SH(b, NULL, "sudo id -u", 0, "0");
  CHECK_SH(b, NULL, "cd /tmp && echo in | WORD=w sudo -n -E sh -c 'cat; pwd; echo $WORD; exit 5'",
           5, "in\n/tmp\nw\n");
  CHECK_SH(b, NULL, "sudo -H -u root -- sh -c 'echo $HOME $USER'", 0, "/root root");
  CHECK_SH(b, NULL, "sudo A=b env", 0, "A=b");
  CHECK_SH(b, NULL, "sudo sh -c 'kill -TERM $$'", 143, "");
  CHECK_SH(b, NULL, "sudo no-such-program", 127, "not found");
  CHECK_SH(b, NULL, "sudo -u stranger true", 1, "unknown user");
  CHECK_SH(b, "root", "sudo id -u; sudo -u user id -u", 0, "0\n1000\n");
  CHECK_SH(b, NULL, "sudo install -d -o root -m 700 /usr/local/own && stat -c %a /usr/local/own", 0,
           "700");
  CHECK_SH(b, NULL,
           "sudo sleep 98765 & p=$!; for i in $(seq 200); do pgrep -x sleep >/dev/null && break; "
           "sleep 0.02; done; pgrep -f '^sleep 98765'; kill -9 $p; for i in $(seq 200); do "
           "pgrep -f '^sleep 98765' >/dev/null || { echo ended; break; }; sleep 0.02; done",
           0, "ended");
  cb_buf_clear(&out);
}

static void look_entry(struct sync_request *r, const struct cb_box_answer *a)
{
  r->count = (int64_t)a->entry_count;
  r->text[0] = '\0';
  for (size_t i = 0; i < a->entry_count && i < 8; i++) {
    size_t n = strlen(r->text);
    snprintf(r->text + n, sizeof r->text - n, "%s %c %lld %o %s%s%s|", a->entries[i].path,
             a->entries[i].type, (long long)a->entries[i].size, a->entries[i].mode,
             a->entries[i].owner, a->entries[i].link ? " -> " : "",
             a->entries[i].link ? a->entries[i].link : "");
  }
}

static void test_files(struct sync_box *b)
{
  struct cb_buf out;
  struct sync_request r = { .b = b, .look = look_entry };
  cb_buf_init(&out, SYNC_OUTPUT_MAX);

  CHECK(put_file(b, "~/deep/er/file", "content", 7) == CB_OK);
  CHECK_SH(b, NULL, "cat ~/deep/er/file; stat -c '%a %U' ~/deep/er/file ~/deep", 0,
           "content644 user\n755 user");
  CHECK(put_file(b, "deep/er/file", "short", 5) == CB_OK);
  r.ask = ask_open;
  r.path = "/home/user/../user//deep/./er/file";
  CHECK(sync_ask(&r) == CB_OK && r.size == 5);
  cb_buf_reset(&out);
  CHECK(cb_buf_read_all(&out, r.fds[0], NULL) == CB_OK && strcmp(out.p, "short") == 0);
  cb_close(&r.fds[0]);
  CHECK(open_code(b, "~/none", false) == CB_NOT_FOUND);
  CHECK(open_code(b, "~/deep", false) == CB_INVALID);
  CHECK(open_code(b, "~/deep", true) == CB_INVALID);
  CHECK(open_code(b, "~/deep/er/file/x", true) == CB_INVALID);
  CHECK(open_code(b, "/x", true) == CB_DENIED);
  r.path = "x";
  r.user = "stranger";
  CHECK(sync_ask(&r) == CB_UNAUTHORIZED);
  r.user = NULL;

  /* what a hostile box plants under a name that the daemon will ask for */
  CHECK_SH(b, NULL,
           "cd ~; ln -s /proc/self/environ l1; ln -s /proc/1/environ l2; "
           "ln -s /proc/self/root/etc/passwd l3; ln -s /proc/1/oom_score_adj l4; mkfifo f; "
           "ln -s /proc/self/fd d; ln -s /dev/null n; ln -s self loop; ln -s loop self; "
           "ln -s /etc/passwd fine; ln -s /proc p; ln -s /home/user/later dangling; echo ok",
           0, "ok");
  static const char *const planted[] = { "l1", "l2", "l3", "l4", "f", "d/0", "d/3", "n", "loop",
                                         "p/self/environ", "p/1/environ", "p/version",
                                         "/proc/1/environ", "/proc/self/status", "/dev/null",
                                         "/dev/ptmx", "/proc/self/cwd/deep/er/file" };
  for (size_t i = 0; i < sizeof planted / sizeof *planted; i++) {
    int reading = open_code(b, planted[i], false), writing = open_code(b, planted[i], true);
    bool refused = (reading == CB_INVALID || reading == CB_DENIED) &&
                   (writing == CB_INVALID || writing == CB_DENIED);
    CHECK(refused);
    if (!refused)
      fprintf(stderr, "  planted %s: %s, %s\n", planted[i], cb_code_name(reading),
              cb_code_name(writing));
  }
  CHECK(open_code(b, "fine", false) == CB_OK);
  CHECK(put_file(b, "dangling", "x", 1) == CB_OK); /* as a shell would */
  CHECK_SH(b, NULL, "cat ~/later", 0, "x");

  r.ask = ask_stat;
  r.path = "deep/er/file";
  CHECK(sync_ask(&r) == CB_OK);
  CHECK_STR(r.text, "/home/user/deep/er/file f 5 644 user|");
  r.path = "fine";
  CHECK(sync_ask(&r) == CB_OK && strstr(r.text, " f ") && strstr(r.text, "-> /etc/passwd"));
  r.path = "loop";
  CHECK(sync_ask(&r) == CB_OK && strstr(r.text, " l "));
  r.path = "/proc/1/exe";
  CHECK(sync_ask(&r) == CB_INVALID);
  r.path = "/";
  CHECK(sync_ask(&r) == CB_OK && strncmp(r.text, "/ d ", 4) == 0);

  r.ask = ask_mkdir;
  r.path = "~/a/b/c";
  CHECK(sync_ask(&r) == CB_OK);
  CHECK(sync_ask(&r) == CB_EXISTS);
  r.path = "~/deep/er/file";
  CHECK(sync_ask(&r) == CB_INVALID);
  r.ask = ask_move;
  r.path = "~/deep/er/file";
  r.to = "~/moved/to";
  CHECK(sync_ask(&r) == CB_OK);
  r.path = "~/moved/to"; /* to another file system */
  r.to = "/tmp/there";
  CHECK(sync_ask(&r) == CB_OK);
  CHECK_SH(b, NULL, "cat /tmp/there; ls ~/moved | wc -l", 0, "short0");
  r.path = "~/none";
  CHECK(sync_ask(&r) == CB_NOT_FOUND);

  r.ask = ask_list_dir;
  r.number = 2;
  r.path = "~/a";
  CHECK(sync_ask(&r) == CB_OK && r.count == 2);
  CHECK_STR(r.text, "/home/user/a/b d 4096 755 user|/home/user/a/b/c d 4096 755 user|");
  r.path = "/proc/1";
  CHECK(sync_ask(&r) == CB_INVALID);
  r.path = "~/none";
  CHECK(sync_ask(&r) == CB_NOT_FOUND);
  r.path = "fine";
  CHECK(sync_ask(&r) == CB_INVALID);
  CHECK_SH(b, NULL, "mkdir ~/many && cd ~/many && seq -f 'a-name-of-some-length-%05g' 5000 | xargs touch",
           0, ""); /* an answer of several messages */
  r.path = "~/many";
  CHECK(sync_ask(&r) == CB_OK && r.count == 5000);

  CHECK_SH(b, NULL, "mkdir -p ~/tree/x && chmod 000 ~/tree/x && ln -s /etc ~/tree/etc", 0, "");
  r.ask = ask_remove;
  r.path = "~/tree";
  CHECK(sync_ask(&r) == CB_OK);
  CHECK(sync_ask(&r) == CB_OK); /* absent is fine */
  r.path = "/";
  CHECK(sync_ask(&r) == CB_DENIED);
  CHECK_SH(b, NULL, "ls -d ~/tree /etc/passwd", 2, "/etc/passwd");
  cb_buf_clear(&out);
}

static void look_metrics(struct sync_request *r, const struct cb_box_answer *a)
{
  r->count = a->metrics && a->metrics->cpu_count > 0 && a->metrics->mem_total > 0 &&
             a->metrics->disk_total > a->metrics->disk_used && a->metrics->processes >= 1;
}

static void test_network(struct sync_box *b, int port)
{
  struct cb_buf out;
  char script[300];
  cb_buf_init(&out, SYNC_OUTPUT_MAX);

  CHECK_SH(b, NULL, "ls /sys/class/net 2>/dev/null; cut -d: -f1 /proc/net/dev | tail -n +3", 0, "lo");
  CHECK_SH(b, NULL, "getent ahostsv4 allowed.test | head -1", 0, "198.18.0.");
  CHECK_SH(b, NULL, "getent ahostsv4 Allowed.TEST | head -1", 0, "198.18.0.");
  CHECK_SH(b, NULL, "getent ahostsv4 a.b.wild.test | head -1", 0, "198.18.0.");
  CHECK_SH(b, NULL, "getent hosts wild.test", 2, "");
  CHECK_SH(b, NULL, "getent hosts example.com", 2, "");
  CHECK_SH(b, NULL, "getent ahostsv6 allowed.test | grep -v ffff", 1, "");
  CHECK_SH(b, NULL, "getent hosts localhost", 0, "::1");

  /* a forward: the host's loopback, both ways, with half-close */
  snprintf(script, sizeof script,
           "exec 3<>/dev/tcp/127.0.0.1/18080 && printf there >&3 && head -c 11 <&3");
  CHECK_SH(b, NULL, script, 0, "hello there");
  snprintf(script, sizeof script,
           "python3 -c 'import socket; s = socket.create_connection((\"127.0.0.1\", 18080)); "
           "s.sendall(b\"x\" * 3000000); s.shutdown(1); n = 0\n"
           "while True:\n  k = len(s.recv(65536)); n += k\n  if not k: break\nprint(n)'");
  CHECK_SH(b, NULL, script, 0, "3000006");
  /* without a rule the same port of the host is not there */
  snprintf(script, sizeof script, "exec 3<>/dev/tcp/127.0.0.1/%d", port);
  CHECK_SH(b, NULL, script, 1, "refused");
  /* an allowed name that does not exist, one that is this very machine, a listed port only */
  CHECK_SH(b, NULL, "exec 3<>/dev/tcp/allowed.test/80; head -c 1 <&3", 1, "reset");
  CHECK_SH(b, NULL, "exec 3<>/dev/tcp/allowed.test/81", 1, "refused");
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  snprintf(script, sizeof script, "exec 3<>/dev/tcp/%.120s/%d; head -c 1 <&3", name, port);
  CHECK_SH(b, NULL, script, 1, "");
  CHECK(!has(&out, "hello"));

  /* a port of the box, from the daemon */
  struct cb_box_command c = { .cmd = "python3", .args = (const char *[]){ "-c",
      "import socket\ns = socket.create_server((\"127.0.0.1\", 3000))\nprint(1, flush=True)\n"
      "c, _ = s.accept()\nc.sendall(b\"inside\")\n" }, .arg_count = 2 };
  struct sync_request r = { .b = b, .ask = ask_start, .command = &c };
  CHECK(sync_ask(&r) == CB_OK);
  char one[8] = "";
  struct pollfd p = { r.fds[1], POLLIN, 0 };
  CHECK(poll(&p, 1, SYNC_WAIT_MS) == 1 && read(r.fds[1], one, 1) == 1);
  struct sync_request dial = { .b = b, .ask = ask_dial, .number = 3000 };
  CHECK(sync_ask(&dial) == CB_OK && dial.fds[0] >= 0);
  p.fd = dial.fds[0];
  CHECK(poll(&p, 1, SYNC_WAIT_MS) == 1 && read(dial.fds[0], one, 6) == 6 &&
        strncmp(one, "inside", 6) == 0);
  cb_close(&dial.fds[0]);
  sync_await_exit(b, r.pid);
  cb_close(&r.fds[1]);
  cb_close(&r.fds[2]);
  CHECK(sync_ask(&dial) == CB_UNREACHABLE);
  struct sync_request m = { .b = b, .ask = ask_measure, .look = look_metrics };
  CHECK(sync_ask(&m) == CB_OK && m.count == 1);
  cb_buf_clear(&out);
}

static void test_probes(struct sync_box *b, struct suite *s, int port)
{
  struct cb_buf self, out;
  struct sockaddr_un a = { .sun_family = AF_UNIX, .sun_path = "\0crewbox-box-test" };
  char script[900];
  cb_buf_init(&self, 64 << 20);
  cb_buf_init(&out, SYNC_OUTPUT_MAX);

  int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  snprintf(a.sun_path + 1, sizeof a.sun_path - 1, "crewbox-box-test-%d", getpid());
  CHECK(bind(listener, (struct sockaddr *)&a,
             (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(a.sun_path + 1))) == 0 &&
        listen(listener, 1) == 0);
  int fd = open(s->self, O_RDONLY | O_CLOEXEC);
  CHECK(fd >= 0 && cb_buf_read_all(&self, fd, NULL) == CB_OK);
  cb_close(&fd);
  CHECK(put_file(b, "~/probe", self.p, self.len) == CB_OK);
  snprintf(script, sizeof script, "chmod 755 ~/probe && ~/probe probes %d %s/state/box_uid %d %s",
           getpid(), s->dir, port, a.sun_path + 1);
  for (int root = 0; root < 2; root++) {
    if (root)
      snprintf(script, sizeof script,
               "/home/user/probe probes %d %s/state/box_uid %d %s", getpid(), s->dir, port,
               a.sun_path + 1);
    int rc = sync_sh(b, root ? "root" : NULL, script, &out);
    CHECK(rc == 0 && has(&out, "BLOCKED x32 calls"));
    int blocked = 0;
    for (char *line = out.p ? strtok(out.p, "\n") : NULL; line; line = strtok(NULL, "\n")) {
      blocked += strncmp(line, "BLOCKED", 7) == 0;
      if (strncmp(line, "BLOCKED", 7) != 0)
        fprintf(stderr, "  escape probe (%s): %s\n", root ? "root" : "user", line);
    }
    fprintf(stderr, "box_test: %d escape probes blocked as %s\n", blocked, root ? "root" : "user");
    CHECK(blocked >= 75);
  }
  close(listener);
  cb_buf_clear(&self);
  cb_buf_clear(&out);
}

static void look_procs(struct sync_request *r, const struct cb_box_answer *a)
{
  r->count = 0;
  r->text[0] = '\0';
  for (size_t i = 0; i < a->proc_count; i++) {
    const struct cb_box_proc *p = &a->procs[i];
    if (p->pid != r->pid)
      continue;
    r->count++;
    snprintf(r->text, sizeof r->text, "%s %s %s %s %s exited=%d", p->cmd,
             p->arg_count ? p->args[0] : "", p->env_count ? p->env[0] : "", p->tag, p->user,
             p->exited);
  }
}

/* The daemon goes and another comes: nothing in the box notices. */
static void test_restart(struct suite *s, struct sync_box *b)
{
  struct cb_buf out;
  cb_buf_init(&out, SYNC_OUTPUT_MAX);
  const struct cb_box_spec *spec = b->spec;
  const char *args[] = { "-c", "head -c 3000000 /dev/zero; touch /tmp/written; read line; "
                               "echo got $line; exit 3" };
  struct cb_box_command c = { .cmd = "bash", .args = args, .arg_count = 2, .tag = "t1",
                              .env = (const char *[]){ "K=v" }, .env_count = 1,
                              .stdin_open = true };
  struct sync_request r = { .b = b, .ask = ask_start, .command = &c };
  CHECK(sync_ask(&r) == CB_OK);
  int64_t pid = r.pid;
  for (int i = 0; i < 3; i++)
    cb_close(&r.fds[i]);
  sync_box_free(b);
  on_loop(&s->loop, do_close, s);

  on_loop(&s->loop, do_open, s);
  CHECK(s->rc == CB_OK);
  CHECK(sync_box_start(b, &s->loop, s->boxes, spec, true) == CB_OK);
  struct sync_request list = { .b = b, .ask = ask_list, .look = look_procs, .pid = pid };
  CHECK(sync_ask(&list) == CB_OK && list.count == 1);
  CHECK(strncmp(list.text, "bash -c K=v t1 user", 19) == 0);
  struct sync_request attach = { .b = b, .ask = ask_attach, .pid = pid };
  CHECK(sync_ask(&attach) == CB_OK && attach.fds[0] >= 0 && attach.fds[1] >= 0);
  CHECK(write(attach.fds[0], "back\n", 5) == 5);
  cb_close(&attach.fds[0]);
  sync_read_all(attach.fds[1], attach.fds[2], &out);
  CHECK(out.len >= 9 && memcmp(out.p + out.len - 9, "got back\n", 9) == 0);
  CHECK(WEXITSTATUS(sync_await_exit(b, pid).status) == 3);
  CHECK_SH(b, NULL, "ls /tmp/written", 0, "/tmp/written");
  list.pid = pid;
  CHECK(sync_ask(&list) == CB_OK && strstr(list.text, "exited=1")); /* kept for 30 s */

  /* without a daemon the init reads the output itself: nobody blocks */
  const char *flood[] = { "-c", "head -c 3000000 /dev/zero; touch /tmp/flooded; sleep 1000" };
  c = (struct cb_box_command){ .cmd = "bash", .args = flood, .arg_count = 2 };
  r.command = &c;
  CHECK(sync_ask(&r) == CB_OK);
  cb_close(&r.fds[1]);
  cb_close(&r.fds[2]);
  sync_box_free(b);
  CHECK(sync_box_start(b, &s->loop, s->boxes, spec, true) == CB_OK);
  sync_box_free(b); /* attached and gone again while it writes */
  bool flooded = false;
  for (int i = 0; i < 300 && !flooded; i++) {
    CHECK(sync_box_start(b, &s->loop, s->boxes, spec, true) == CB_OK);
    flooded = sync_sh(b, NULL, "ls /tmp/flooded", &out) == 0;
    if (!flooded) {
      sync_box_free(b);
      usleep(20000);
    }
  }
  CHECK(flooded);
  cb_buf_clear(&out);
}

/* --- boxes and their ends --- */

static void test_ends(struct suite *s)
{
  struct sync_box b, again;
  struct cb_buf out;
  char path[600];
  cb_buf_init(&out, SYNC_OUTPUT_MAX);

  /* bug-O3: two options that contradict each other are an error */
  const char *allow[] = { "x.test:1" };
  struct cb_box_spec spec = { .id = "ends", .allow = allow, .allow_count = 1 };
  CHECK(sync_box_start(&b, &s->loop, s->boxes, &spec, false) == CB_INVALID);
  spec.allow_count = 0;
  struct cb_box_mount nowhere = { "/no/such/folder", "/opt/x" };
  spec.mounts = &nowhere;
  spec.mount_count = 1;
  CHECK(sync_box_start(&b, &s->loop, s->boxes, &spec, false) == CB_INVALID);
  CHECK(strstr(b.err.text, "/no/such/folder"));
  sync_box_free(&b);
  CHECK(sync_box_remove(&b, "ends") == CB_OK);
  struct cb_box_mount inside = { "/usr", "/proc/x" };
  spec.mounts = &inside;
  CHECK(sync_box_start(&b, &s->loop, s->boxes, &spec, false) == CB_INVALID);
  spec.mount_count = 0;

  CHECK(sync_box_start(&b, &s->loop, s->boxes, &spec, true) == CB_NOT_FOUND);
  sync_box_free(&b);

  /* the end of pid 1 is the end of everything */
  CHECK(sync_box_start(&b, &s->loop, s->boxes, &spec, false) == CB_OK);
  CHECK_SH(&b, NULL, "setsid sleep 7654321 >/dev/null 2>&1 & setsid setsid sleep 7654321 "
                     ">/dev/null 2>&1 & sudo sh -c 'sleep 7654321 >/dev/null 2>&1 &'; echo ok",
           0, "ok");
  CHECK(count_processes("sleep 7654321") >= 2);
  CHECK(sync_box_start(&again, &s->loop, s->boxes, &spec, false) == CB_EXISTS); /* harmed nothing */
  sync_box_free(&again);
  CHECK_SH(&b, NULL, "echo alive", 0, "alive");
  CHECK(kill(cb_box_pid(b.box), SIGKILL) == 0);
  sync_wait(&b.gone);
  CHECK(count_processes("sleep 7654321") == 0);
  CHECK(sync_sh(&b, NULL, "true", &out) == -CB_CLOSED);
  CHECK(sync_box_start(&again, &s->loop, s->boxes, &spec, true) == CB_NOT_FOUND);
  sync_box_free(&again);
  sync_box_free(&b);
  CHECK(sync_box_remove(&b, "ends") == CB_OK);
  snprintf(path, sizeof path, "%s/boxes/ends", s->state);
  CHECK(access(path, F_OK) < 0);

  /* expiry, moved while it runs; no daemon is needed for it */
  CHECK(sync_box_start(&b, &s->loop, s->boxes, &spec, false) == CB_OK);
  struct sync_request expire = { .b = &b, .ask = ask_expire, .pid = cb_boot_ms() + 3600000 };
  CHECK(sync_ask(&expire) == CB_OK);
  expire.pid = cb_boot_ms() + 200;
  CHECK(sync_ask(&expire) == CB_OK);
  sync_wait(&b.gone);
  sync_box_free(&b);
  CHECK(sync_box_remove(&b, "ends") == CB_OK);
  spec.expires_boot_ms = cb_boot_ms() + 1500;
  CHECK(sync_box_start(&b, &s->loop, s->boxes, &spec, false) == CB_OK);
  pid_t pid = cb_box_pid(b.box);
  sync_box_free(&b);
  int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
  if (pidfd >= 0) {
    struct pollfd p = { pidfd, POLLIN, 0 };
    CHECK(poll(&p, 1, SYNC_WAIT_MS) == 1);
    cb_close(&pidfd);
  }
  CHECK(sync_box_remove(&b, "ends") == CB_OK);
  spec.expires_boot_ms = 0;

  /* killed and freed while it starts: nothing is left */
  for (int i = 0; i < 6; i++) {
    memset(&b, 0, sizeof b);
    b.loop = &s->loop;
    b.boxes = s->boxes;
    b.spec = &spec;
    sem_init(&b.ready, 0, 0);
    on_loop(&s->loop, sync_do_start, &b);
    usleep((useconds_t)i * 3000);
    if (i % 2 == 0) {
      on_loop(&s->loop, sync_do_kill, &b);
      sync_wait(&b.ready);
    }
    sync_box_free(&b);
    for (int k = 0; k < 500; k++) { /* a box that came up in the last moment is on its own */
      CHECK(sync_box_start(&again, &s->loop, s->boxes, &spec, true) == CB_NOT_FOUND ||
            again.err.code == CB_OK);
      if (again.err.code == CB_OK) {
        on_loop(&s->loop, sync_do_kill, &again);
        sync_wait(&again.gone);
      }
      sync_box_free(&again);
      if (again.err.code == CB_NOT_FOUND)
        break;
    }
    CHECK(sync_box_remove(&b, "ends") == CB_OK);
  }
  cb_buf_clear(&out);
}

static int compare_ms(const void *a, const void *b)
{
  return *(const int *)a - *(const int *)b;
}

static void measure(struct suite *s)
{
  enum { ROUNDS = 15 };
  int ms[ROUNDS];
  struct cb_box_spec spec = { .id = "timed", .network = true };
  for (int i = 0; i < ROUNDS; i++) {
    struct sync_box b;
    int64_t at = cb_boot_ms();
    CHECK(sync_box_start(&b, &s->loop, s->boxes, &spec, false) == CB_OK);
    ms[i] = (int)(cb_boot_ms() - at);
    CHECK(sync_box_end(&b) == CB_OK);
  }
  qsort(ms, ROUNDS, sizeof *ms, compare_ms);
  fprintf(stderr, "box_test: as %s a box is up in %d ms (median of %d)\n",
          geteuid() == 0 ? "root" : "an ordinary user", ms[ROUNDS / 2], ROUNDS);
}

static void do_check(void *arg);
struct check {
  struct suite *s;
  sem_t done;
  struct cb_isolation result;
};

static void on_checked(void *arg, const struct cb_isolation *result)
{
  struct check *c = arg;
  c->result = *result;
  sem_post(&c->done);
}

static void do_check(void *arg)
{
  struct check *c = arg;
  cb_isolation_check(c->s->boxes, on_checked, c);
}

static void check_isolation(struct suite *s, struct cb_isolation *out)
{
  struct check c = { .s = s };
  sem_init(&c.done, 0, 0);
  on_loop(&s->loop, do_check, &c);
  sync_wait(&c.done);
  *out = c.result;
}

/* bug-O1: where namespaces are not to be had, no box, and the reason */
static void test_refusal(struct suite *s)
{
  struct sync_box b;
  struct cb_box_spec spec = { .id = "never" };
  struct cb_isolation i;
  pid_t pid = fork();
  if (pid == 0) {
    alarm(120);
    check_passed = check_failed = 0;
    /* The loop's thread does not come along into a fork. */
    struct suite mine = { .config = s->config };
    sync_start(&mine.loop);
    mine.config.loop = mine.loop.loop;
    mine.log = (struct cb_log){ -1, CB_LOG_ERROR };
    mine.config.log = &mine.log;
    scmp_filter_ctx f = seccomp_init(SCMP_ACT_ALLOW);
    seccomp_rule_add(f, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0);
    seccomp_rule_add(f, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(clone), 1,
                     SCMP_A0(SCMP_CMP_MASKED_EQ, CLONE_NEWUSER, CLONE_NEWUSER));
    seccomp_attr_set(f, SCMP_FLTATR_CTL_TSYNC, 1);
    CHECK(seccomp_load(f) == 0);
    seccomp_release(f);
    on_loop(&mine.loop, do_open, &mine);
    CHECK(mine.rc == CB_OK);
    check_isolation(&mine, &i);
    CHECK(!i.ok && i.known && i.err.code == CB_ISOLATION);
    CHECK(strstr(i.err.text, "make the namespaces") && strstr(i.err.text, "user namespaces"));
    CHECK(sync_box_start(&b, &mine.loop, mine.boxes, &spec, false) == CB_ISOLATION);
    sync_box_free(&b);
    on_loop(&mine.loop, do_close, &mine);
    sync_stop(&mine.loop);
    fflush(NULL);
    _exit(check_failed);
  }
  int status = -1;
  waitpid(pid, &status, 0);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void test_base_layer(struct suite *s)
{
  char state[400];
  struct cb_err err = CB_ERR_INIT;
  snprintf(state, sizeof state, "%s/layers", s->dir);
  CHECK(cb_mkdirs(state, 0700, NULL) == CB_OK);
  struct cb_base_layer_source from = { state, s->config.init_path, geteuid() ? geteuid() : 65000,
                                       geteuid() ? getegid() : 65000 };
  pid_t pids[3];
  for (int i = 0; i < 3; i++) { /* three daemons at once */
    pids[i] = fork();
    if (pids[i] == 0) {
      struct cb_base_layer l;
      _exit(cb_base_layer_get(&from, &l, NULL) == CB_OK ? 0 : 1);
    }
  }
  for (int i = 0; i < 3; i++) {
    int status = -1;
    waitpid(pids[i], &status, 0);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  struct cb_base_layer layer;
  CHECK(cb_base_layer_get(&from, &layer, &err) == CB_OK);
  char path[500], other[560];
  snprintf(path, sizeof path, "%s/base/%s", state, layer.key);
  snprintf(other, sizeof other, "%s/base", state);
  int n = 0;
  DIR *d = opendir(other);
  for (struct dirent *e; d && (e = readdir(d));)
    n += strlen(e->d_name) == CB_BASE_KEY_LEN || e->d_name[1] == 'n'; /* .new-: half-built */
  if (d)
    closedir(d);
  CHECK(n == 1);
  struct stat st;
  snprintf(other, sizeof other, "%s/usr/local/bin/sudo", path);
  CHECK(stat(other, &st) == 0 && st.st_uid == from.uid && (st.st_mode & 07777) == 0755);
  snprintf(other, sizeof other, "%s/etc/passwd", path);
  CHECK(stat(other, &st) == 0 && st.st_uid == from.uid && st.st_gid == from.gid);
  cb_base_layer_collect(state, NULL); /* held: stays */
  CHECK(access(path, F_OK) == 0);
  cb_base_layer_release(&layer);
  cb_base_layer_collect(state, layer.key); /* the current one: stays */
  CHECK(access(path, F_OK) == 0);
  cb_base_layer_collect(state, NULL);
  CHECK(access(path, F_OK) < 0);
}

static int run_suite(const char *dir, const char *init, const char *self)
{
  struct suite s = { .log = { 2, CB_LOG_WARN } };
  struct server server;
  struct sync_box b;
  struct cb_isolation isolation;
  char tools[400], note[400], script[500];

  snprintf(s.dir, sizeof s.dir, "%s", dir);
  snprintf(s.state, sizeof s.state, "%s/state", dir);
  snprintf(s.self, sizeof s.self, "%s", self);
  CHECK(cb_mkdirs(s.state, 0700, NULL) == CB_OK); /* below it everything is closed to the box's id */
  snprintf(tools, sizeof tools, "%s/private/tools/bin", dir);
  CHECK(cb_mkdirs(tools, 0755, NULL) == CB_OK);
  snprintf(script, sizeof script, "%s/tool-of-template", tools);
  int fd = open(script, O_WRONLY | O_CREAT | O_CLOEXEC, 0755);
  dprintf(fd, "#!/bin/sh\necho from the template\n");
  close(fd);
  snprintf(note, sizeof note, "%s/private/note", dir);
  fd = open(note, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  dprintf(fd, "a note\n");
  close(fd);
  snprintf(script, sizeof script, "%s/private", dir);
  CHECK(chmod(script, 0700) == 0);
  snprintf(tools, sizeof tools, "%s/private/tools", dir);
  setenv("CREWBOX_TEST_SECRET", "hunter2hunter2", 1);

  server_start(&server);
  sync_start(&s.loop);
  s.config = (struct cb_boxes_config){ s.loop.loop, s.state, init, &s.log };
  on_loop(&s.loop, do_open, &s);
  CHECK(s.rc == CB_OK);
  int64_t at = cb_boot_ms();
  check_isolation(&s, &isolation);
  CHECK(isolation.ok);
  if (!isolation.ok) {
    fprintf(stderr, "box_test: no isolation here, nothing else can be tested: %s\n",
            isolation.err.text);
    return check_done();
  }
  fprintf(stderr, "box_test: first isolation check with its base layer: %d ms\n",
          (int)(cb_boot_ms() - at));

  char host[300], to[40];
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  snprintf(host, sizeof host, "%.200s:%d", name, server.port);
  snprintf(to, sizeof to, "127.0.0.1:%d", server.port);
  const char *allow[] = { "allowed.test:80", "*.wild.test:443", host };
  struct cb_egress_forward forward = { 18080, to };
  struct cb_box_mount mounts[] = { { tools, "/opt/tools" }, { note, "/opt/note" } };
  const char *path[] = { "/opt/tools/bin" }, *env[] = { "COLOUR=blue" };
  struct cb_box_spec spec = { .id = "box1", .network = true, .allow = allow, .allow_count = 3,
                              .forward = &forward, .forward_count = 1, .mounts = mounts,
                              .mount_count = 2, .path = path, .path_count = 1, .env = env,
                              .env_count = 1 };
  if (sync_box_start(&b, &s.loop, s.boxes, &spec, false) == CB_OK) {
    test_processes(&b);
    test_view(&b, &s);
    test_files(&b);
    test_network(&b, server.port);
    test_probes(&b, &s, server.port);
    test_restart(&s, &b);
    CHECK(sync_box_end(&b) == CB_OK);
  } else {
    CHECK(b.err.code == CB_OK);
    fprintf(stderr, "box_test: no box: %s\n", b.err.text);
  }
  test_ends(&s);
  measure(&s);
  test_refusal(&s);
  on_loop(&s.loop, do_close, &s);
  sync_stop(&s.loop);
  server_stop(&server);
  test_base_layer(&s);
  struct cb_buf mounts_now;
  cb_buf_init(&mounts_now, 1 << 20);
  fd = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);
  CHECK(cb_buf_read_all(&mounts_now, fd, NULL) == CB_OK && !has(&mounts_now, dir));
  close(fd);
  cb_buf_clear(&mounts_now);
  snprintf(script, sizeof script, "%.*s", (int)(strrchr(init, '/') - init), init);
  CHECK(count_running(script) == 1); /* this program */
  return check_done();
}

/* --- odd hosts: in a mount namespace of its own, in which the caller has mounted a tmpfs with a
 * file `mark` at `below` and an overlay at DIR/ovl --- */

static int run_odd(const char *dir, const char *init, const char *below)
{
  struct suite s = { .log = { 2, CB_LOG_ERROR } }, on_overlay = { .log = { -1, CB_LOG_ERROR } };
  struct cb_box_spec spec = { .id = "odd" };
  struct cb_isolation i;
  struct sync_box b;
  struct cb_buf out;
  char script[300], state[300];

  cb_buf_init(&out, SYNC_OUTPUT_MAX);
  sync_start(&s.loop);
  snprintf(state, sizeof state, "%s/ovl/state", dir);
  on_overlay.loop = s.loop;
  on_overlay.config = (struct cb_boxes_config){ s.loop.loop, state, init, &on_overlay.log };
  CHECK(cb_mkdirs(state, 0700, NULL) == CB_OK);
  on_loop(&s.loop, do_open, &on_overlay);
  check_isolation(&on_overlay, &i);
  CHECK(i.err.code == CB_ISOLATION && strstr(i.err.text, "overlay file system"));
  on_loop(&s.loop, do_close, &on_overlay);

  /* a path that no socket address could hold */
  snprintf(s.state, sizeof s.state, "%s/%0150d", dir, 7);
  CHECK(cb_mkdirs(s.state, 0700, NULL) == CB_OK);
  s.config = (struct cb_boxes_config){ s.loop.loop, s.state, init, &s.log };
  on_loop(&s.loop, do_open, &s);
  CHECK(sync_box_start(&b, &s.loop, s.boxes, &spec, false) == CB_OK);
  if (b.err.code == CB_OK) {
    snprintf(script, sizeof script, "cat %s/mark; touch /usr/local/x && echo writable", below);
    CHECK_SH(&b, NULL, script, 0, "marked\nwritable");
    CHECK(sync_box_end(&b) == CB_OK);
  } else {
    fprintf(stderr, "box_test: odd host: %s\n", b.err.text);
    sync_box_free(&b);
  }
  on_loop(&s.loop, do_close, &s);
  sync_stop(&s.loop);
  cb_buf_clear(&out);
  return check_done();
}

/* In a child that is root. */
static bool make_odd(const char *dir, const char *below)
{
  char path[400], options[1200];
  static const char *const parts[] = { "low", "up", "work", "ovl" };
  for (size_t i = 0; i < 4; i++) {
    snprintf(path, sizeof path, "%s/%s", dir, parts[i]);
    if (mkdir(path, 0777) < 0 || chmod(path, 0777) < 0)
      return false;
  }
  snprintf(options, sizeof options, "lowerdir=%s/low,upperdir=%s/up,workdir=%s/work", dir, dir, dir);
  if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
      mount("overlay", path, "overlay", 0, options) < 0 ||
      mount("tmpfs", below, "tmpfs", 0, NULL) < 0)
    return false;
  snprintf(path, sizeof path, "%s/mark", below);
  int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  return fd >= 0 && dprintf(fd, "marked\n") > 0 && close(fd) == 0;
}

/* --- pure parts --- */

static void test_rules(void)
{
  static const char *const bad[] = { "x", "x:", "x:0", "x:65536", "x:8o", ":80", "*:80", "*.:80",
                                     "a..b:80", ".a:80", "a.:80", "a b:80", "1.2.3:80",
                                     "*.1.2.3.4:80", "1.2.3.4.5:80", "[::1]:80", "a/b:80" };
  struct cb_egress_rules *r = NULL;
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    struct cb_err err = CB_ERR_INIT;
    CHECK(cb_egress_rules_new(&r, &bad[i], 1, NULL, 0, &err) == CB_INVALID);
  }
  const char *good[] = { "Example.COM:443", "*.wild.test:80", "10.0.0.5:8080" };
  struct cb_egress_forward f[] = { { 1, "127.0.0.1:2" }, { 3, "[::1]:4" } };
  CHECK(cb_egress_rules_new(&r, good, 3, f, 2, NULL) == CB_OK);
  CHECK(cb_egress_allows(r, "example.com", 443) && cb_egress_allows(r, "EXAMPLE.com", 443));
  CHECK(!cb_egress_allows(r, "example.com", 80) && !cb_egress_allows(r, "a.example.com", 443));
  CHECK(cb_egress_allows(r, "a.b.wild.test", 80) && !cb_egress_allows(r, "wild.test", 80));
  CHECK(!cb_egress_allows(r, "notwild.test", 80) && cb_egress_allows(r, "10.0.0.5", 8080));
  CHECK_STR(cb_egress_forward_to(r, 3), "[::1]:4");
  CHECK(cb_egress_forward_to(r, 2) == NULL);
  cb_egress_rules_free(r);
  f[1].port = 1;
  CHECK(cb_egress_rules_new(&r, NULL, 0, f, 2, NULL) == CB_INVALID);
}

static void test_addresses(void)
{
  static const struct {
    const char *text;
    bool ok, literal_ok;
  } cases[] = {
    { "1.1.1.1", true, true },           { "127.0.0.1", false, false },
    { "127.255.0.1", false, false },     { "0.0.0.0", false, false },
    { "10.1.2.3", false, true },         { "172.16.0.1", false, true },
    { "172.32.0.1", true, true },        { "192.168.1.1", false, true },
    { "100.64.0.1", false, true },       { "169.254.169.254", false, false },
    { "198.18.0.1", false, false },      { "224.0.0.1", false, false },
    { "255.255.255.255", false, false }, { "168.63.129.16", false, false },
    { "2606:4700::1", true, true },      { "::1", false, false },
    { "::", false, false },              { "::ffff:1.1.1.1", false, false },
    { "::ffff:10.0.0.1", false, false }, { "fe80::1", false, false },
    { "fd00:ec2::254", false, false },   { "fc00::1", false, false },
    { "ff02::1", false, false },         { "64:ff9b::a00:1", false, false },
    { "64:ff9b::101:101", true, true },  { "2002:7f00:1::", false, false },
    { "2001::1", false, false },         { "2001:db8::1", false, false },
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct sockaddr_storage s = { 0 };
    struct sockaddr_in *v4 = (struct sockaddr_in *)&s;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&s;
    s.ss_family = strchr(cases[i].text, ':') ? AF_INET6 : AF_INET;
    CHECK(inet_pton(s.ss_family, cases[i].text,
                    s.ss_family == AF_INET ? (void *)&v4->sin_addr : (void *)&v6->sin6_addr) == 1);
    bool ok = cb_egress_address_ok((struct sockaddr *)&s, false);
    bool literal = cb_egress_address_ok((struct sockaddr *)&s, true);
    CHECK(ok == cases[i].ok && literal == cases[i].literal_ok);
    if (ok != cases[i].ok || literal != cases[i].literal_ok)
      fprintf(stderr, "  address %s\n", cases[i].text);
  }
}

static void test_dns(void)
{
  static const uint8_t query[] = "\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00"
                                 "\x03" "Abc" "\x04" "test" "\x00\x00\x01\x00\x01";
  const size_t n = sizeof query - 1;
  struct cb_dns_query q;
  uint8_t out[CB_DNS_MAX], bytes[CB_DNS_MAX];
  struct in_addr address = { htonl(0xc6120002) };
  CHECK(cb_dns_parse(&q, query, n) == CB_DNS_OK && q.type == 1 && q.question_end == n);
  CHECK_STR(q.name, "abc.test");
  CHECK(cb_dns_answer(query, n, CB_DNS_OK, &address, out) == n + 16);
  CHECK(memcmp(out, query, 2) == 0 && (out[2] & 0x80) && out[7] == 1 && out[n + 12] == 198);
  CHECK(cb_dns_answer(query, n, CB_DNS_NO_SUCH_NAME, NULL, out) == n && (out[3] & 15) == 3);
  for (size_t cut = 0; cut < n; cut++) { /* a cut at every byte is refused, never overread */
    uint8_t *exact = malloc(cut ? cut : 1);
    memcpy(exact, query, cut);
    CHECK(cb_dns_parse(&q, exact, cut) != CB_DNS_OK);
    free(exact);
  }
  memcpy(bytes, query, n);
  bytes[12] = 0xc0; /* a compressed name in a question */
  CHECK(cb_dns_parse(&q, bytes, n) == CB_DNS_FORMAT_ERROR);
  memcpy(bytes, query, n);
  bytes[2] = 0x81; /* an answer is not answered */
  CHECK(cb_dns_parse(&q, bytes, n) == -1);
}

static void test_formats(void)
{
  struct cb_box_config config;
  struct cb_box_parsed parsed;
  static const char *const broken[] = { "", "x 1\n1\n", "crewbox_box 1\n2\n", "crewbox_box 1\n1\n",
                                        "crewbox_box 1\n1\nuid 1\n0\n", "crewbox_box 1\n1\nallow 3\nx:y\n" };
  for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
    CHECK(cb_box_config_parse(&config, broken[i], strlen(broken[i]), NULL) == CB_INVALID);
    cb_box_config_clear(&config);
  }
  static const char *const answers[] = { "entry 3\nx y\n", "entry 11\nname 1\na\nx\n", "proc 2\nx \n",
                                         "entry 9\npath 1\na\n\n", "proc 8\npid 1\n1\n\n" };
  for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
    char *copy = strdup(answers[i]);
    CHECK(cb_box_answer_parse(&parsed, copy, strlen(copy), false) == CB_PROTOCOL);
    cb_box_parsed_clear(&parsed);
    free(copy);
  }
  char error[] = "code 9\nnot_found\ntext 4\ngone\n";
  CHECK(cb_box_answer_parse(&parsed, error, sizeof error - 1, true) == CB_OK &&
        parsed.answer.err->code == CB_NOT_FOUND);
  CHECK_STR(parsed.answer.err->text, "gone");
  cb_box_parsed_clear(&parsed);
}

/* Where all ids exist, as in a virtual machine: plain changes of id. In a box: test_processes. */
static void test_drop_user(void)
{
  uid_t uid = geteuid() ? geteuid() : ORDINARY_UID;
  gid_t gid = geteuid() ? getegid() : ORDINARY_UID;
  pid_t pid = fork();
  if (pid == 0) {
    struct cb_drop_user to = { uid, gid, -1 };
    struct cb_drop_failure why = { "", 0 };
    uid_t r, e, v;
    if (geteuid() == 0 && setgroups(1, (gid_t[]){ 0 }) < 0)
      _exit(2);
    if (cb_drop_user(&to, &why) < 0) {
      fprintf(stderr, "drop_user: %s: %s\n", why.step, strerror(why.sys));
      _exit(3);
    }
    getresuid(&r, &e, &v);
    if (r != uid || e != uid || v != uid || getegid() != gid || setuid(uid + 1) == 0 ||
        (uid == ORDINARY_UID && getgroups(0, NULL) != 0) || open("/proc/1/mem", O_RDWR) >= 0)
      _exit(4);
    _exit(0);
  }
  int status = -1;
  waitpid(pid, &status, 0);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* --- the program --- */

static int copy_file(const char *from, const char *to)
{
  struct cb_buf b;
  cb_buf_init(&b, 256 << 20);
  int in = open(from, O_RDONLY | O_CLOEXEC), rc = -1;
  int out = in < 0 ? -1 : open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0755);
  if (out >= 0 && cb_buf_read_all(&b, in, NULL) == CB_OK &&
      cb_write_full(out, b.p, b.len, NULL) == CB_OK && fchmod(out, 0755) == 0)
    rc = 0;
  cb_close(&in);
  cb_close(&out);
  cb_buf_clear(&b);
  return rc;
}

/* Adds the figures of a suite that ran in another process. */
static void run_as(uid_t uid, const char *dir, const char *init, const char *self,
                   const char *below)
{
  int ends[2], passed = 0, failed = 1, status;
  struct cb_buf out;
  cb_buf_init(&out, 1 << 20);
  CHECK(pipe(ends) == 0);
  pid_t pid = fork();
  if (pid == 0) {
    if (below && !make_odd(dir, below))
      _exit(9);
    if (uid != geteuid() &&
        (setgroups(0, NULL) || setresgid(uid, uid, uid) || setresuid(uid, uid, uid)))
      _exit(9);
    dup2(ends[1], 1);
    close(ends[0]);
    close(ends[1]);
    execl(self, self, below ? "odd" : "suite", dir, init, below ? below : self, (char *)NULL);
    _exit(9);
  }
  close(ends[1]);
  CHECK(cb_buf_read_all(&out, ends[0], NULL) == CB_OK);
  close(ends[0]);
  waitpid(pid, &status, 0);
  CHECK(out.p && sscanf(out.p, "%d passed, %d failed", &passed, &failed) == 2);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == (failed > 0)); /* leaks have a status too */
  check_passed += passed;
  check_failed += failed;
  cb_buf_clear(&out);
}

int main(int argc, char **argv)
{
  char dir[256], self[300], init[300], from[4200], part[320];
  const char *tmp = getenv("TMPDIR");

  if (argc == 6 && strcmp(argv[1], "probes") == 0) {
    struct probe_host h = { (pid_t)strtol(argv[2], NULL, 10), argv[3],
                            (int)strtol(argv[4], NULL, 10), argv[5] };
    return escape_probes(&h, getuid() == 0);
  }
  if (argc == 5 && strcmp(argv[1], "suite") == 0)
    return run_suite(argv[2], argv[3], argv[4]);
  if (argc == 5 && strcmp(argv[1], "odd") == 0)
    return run_odd(argv[2], argv[3], argv[4]);

  test_rules();
  test_addresses();
  test_dns();
  test_formats();
  test_drop_user();

  ssize_t n = readlink("/proc/self/exe", from, sizeof from - 32);
  if (n <= 0)
    return 2;
  from[n] = '\0';
  snprintf(dir, sizeof dir, "%.200s/crewbox-box-XXXXXX", tmp && *tmp ? tmp : "/tmp");
  if (!mkdtemp(dir) || chmod(dir, 0755) < 0)
    return 2;
  snprintf(self, sizeof self, "%s/box_test", dir);
  CHECK(copy_file(from, self) == 0); /* build folders may be closed to an ordinary user */
  char *slash = strrchr(from, '/');
  snprintf(slash, 32, "/../crewbox-init");
  snprintf(init, sizeof init, "%s/crewbox-init", dir);
  CHECK(copy_file(getenv("CREWBOX_INIT") ? getenv("CREWBOX_INIT") : from, init) == 0);
  for (int i = 0; i < (geteuid() == 0 ? 4 : 1); i++) {
    uid_t uid = i % 2 == 0 ? geteuid() : ORDINARY_UID;
    snprintf(part, sizeof part, "%s/%d", dir, i);
    CHECK(mkdir(part, 0755) == 0 && chown(part, uid, uid == geteuid() ? getegid() : uid) == 0);
    run_as(uid, part, init, self, i < 2 ? NULL : "/usr/share/doc");
  }
  const char *base = strrchr(dir, '/') + 1;
  *strrchr(dir, '/') = '\0';
  int parent = open(*dir ? dir : "/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  CHECK(cb_rmtree_beneath(parent, base, NULL) == CB_OK);
  close(parent);
  return check_done();
}
