/* SPDX-License-Identifier: MIT
 * control.c: see control.h. */
#include "box/control.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fd.h"
#include "box/files.h"
#include "box/metrics.h"
#include "box/children.h"
#include "box/protocol.h"
#include "wire/record.h"

enum { WAITING_MANY = 64 };

struct message {
  struct message *next;
  char *bytes;
  size_t len;
  int fds[3];
  size_t nfds;
};

struct cb_control {
  struct cb_source peer; /* the daemon; fd -1 when there is none */
  int conn;
  int listener;
  struct message *first, **last;
  size_t queued;  /* bytes */
  size_t waiting; /* messages */
  int64_t pid_start;
  char *frame; /* the request being read: CB_BOX_FRAME_MAX bytes */
};

/* --- the connection --- */

static void free_message(struct message *m)
{
  for (size_t i = 0; i < m->nfds; i++)
    cb_close(&m->fds[i]);
  cb_free_wiped(m->bytes, m->len);
  cb_free(m);
}

static void detach(struct cb_init *init)
{
  struct cb_control *c = init->control;
  if (c->conn < 0)
    return;
  cb_init_unwatch(init, &c->peer);
  cb_close(&c->conn);
  while (c->first) {
    struct message *m = c->first;
    c->first = m->next;
    free_message(m);
  }
  c->last = &c->first;
  c->queued = c->waiting = 0;
  cb_child_attached(init, false);
}

/* Sends what is queued. False when the connection had to go. */
static bool flush(struct cb_init *init)
{
  struct cb_control *c = init->control;
  while (c->first) {
    struct message *m = c->first;
    int rc = cb_send_fds(c->conn, m->bytes, m->len, m->fds, m->nfds, NULL);
    if (rc == CB_BUSY) {
      cb_init_rewatch(init, &c->peer, EPOLLIN | EPOLLOUT);
      return true;
    }
    if (rc) {
      detach(init);
      return false;
    }
    c->first = m->next;
    if (!c->first)
      c->last = &c->first;
    c->queued -= m->len;
    c->waiting--;
    free_message(m);
  }
  cb_init_rewatch(init, &c->peer, EPOLLIN);
  return true;
}

void cb_frame_begin(struct cb_buf *m, const char *verb, int64_t n)
{
  cb_buf_init(m, CB_BOX_FRAME_MAX);
  if (cb_record_addz(m, "f", verb) || cb_record_addi(m, "n", n))
    cb_buf_reset(m); /* an empty message is never sent */
}

bool cb_control_ready(const struct cb_init *init)
{
  return init->control->conn >= 0 && init->control->waiting < WAITING_MANY;
}

bool cb_control_send(struct cb_init *init, struct cb_buf *b, const int *fds, size_t nfds)
{
  struct cb_control *c = init->control;
  struct message *m = NULL;

  if (c->conn >= 0 && b->len > 0 && c->queued + b->len <= CB_BOX_QUEUE_MAX)
    m = cb_calloc(1, sizeof *m);
  if (m) {
    m->bytes = cb_buf_take(b, &m->len);
    if (!m->bytes) {
      cb_free(m);
      m = NULL;
    }
  }
  cb_buf_clear_wiped(b);
  if (!m) {
    for (size_t i = 0; i < nfds; i++)
      if (fds[i] >= 0)
        close(fds[i]);
    detach(init); /* a daemon that missed one message must start over */
    return false;
  }
  m->nfds = nfds;
  if (nfds)
    memcpy(m->fds, fds, nfds * sizeof *fds);
  *c->last = m;
  c->last = &m->next;
  c->queued += m->len;
  c->waiting++;
  return flush(init);
}

/* --- requests --- */

/* Fields of requests that occur once. */
enum field { CMD, CWD, USER, TAG, PATH_F, TO, MODE, STDIN_F, DEADLINE, PID, SIG, DEPTH, AT, PORT, FIELDS };
static const char *const field_names[] = { "cmd",  "cwd",         "user", "tag", "path",
                                           "to",   "mode",        "stdin", "deadline_ms", "pid",
                                           "sig",  "depth",       "at_boot_ms", "port" };
_Static_assert(sizeof field_names / sizeof *field_names == FIELDS, "one name a field");

struct request {
  struct cb_init *init;
  int64_t n;
  char *field[FIELDS]; /* NULL: not given */
  struct cb_strings args, env;
};

static const char *text(const struct request *r, enum field f)
{
  return r->field[f] ? r->field[f] : "";
}

static bool number(const struct request *r, enum field f, int64_t *out)
{
  struct cb_record digits = { .value = text(r, f), .len = strlen(text(r, f)) };
  return cb_record_int(&digits, out);
}

static const char *user_of(const struct request *r)
{
  return r->field[USER] && *r->field[USER] ? r->field[USER] : "user";
}

static void answer_ok(struct request *r)
{
  struct cb_buf m;
  cb_frame_begin(&m, "ok", r->n);
  cb_control_send(r->init, &m, NULL, 0);
}

static void answer_error(struct request *r, const struct cb_err *err)
{
  struct cb_buf m;
  cb_frame_begin(&m, "error", r->n);
  if (cb_record_addz(&m, "code", cb_code_name(err->code)) ||
      cb_record_addz(&m, "text", err->text))
    cb_buf_reset(&m);
  cb_control_send(r->init, &m, NULL, 0);
}

static int send_pipes(struct request *r, const struct cb_child *p, struct cb_err *err)
{
  struct cb_buf m;
  const int ours[3] = { p->in, p->out[0], p->out[1] };
  int fds[3];
  size_t n = 0;
  cb_frame_begin(&m, "ok", r->n);
  int rc = cb_record_addi(&m, "pid", p->pid);
  /* Which of the three are there: an attach may come after some have ended. */
  static const char *const names[3] = { "stdin", "stdout", "stderr" };
  for (int i = 0; i < 3 && !rc; i++) {
    if (ours[i] < 0)
      continue;
    fds[n] = fcntl(ours[i], F_DUPFD_CLOEXEC, 3);
    if (fds[n] < 0) {
      rc = cb_err_errno(err, errno, "pass a pipe");
      break;
    }
    rc = cb_record_addi(&m, names[i], (int64_t)n++);
  }
  if (rc) {
    cb_buf_clear(&m);
    while (n > 0)
      cb_close(&fds[--n]);
    return rc;
  }
  cb_control_send(r->init, &m, fds, n);
  return CB_OK;
}

static int on_start(struct request *r, struct cb_err *err)
{
  struct cb_command c = { .cmd = text(r, CMD), .args = r->args, .env = r->env,
                          .cwd = text(r, CWD), .user = user_of(r), .tag = text(r, TAG),
                          .stdin_open = strcmp(text(r, STDIN_F), "1") == 0 };
  struct cb_child *p;
  if (r->field[DEADLINE] && !number(r, DEADLINE, &c.deadline_ms))
    return cb_err_set(err, CB_INVALID, "deadline_ms is not a number");
  int rc = cb_child_start(r->init, &c, &p, err);
  return rc ? rc : send_pipes(r, p, err);
}

static struct cb_child *find(struct request *r, struct cb_err *err)
{
  int64_t pid;
  struct cb_child *p = number(r, PID, &pid) ? cb_child_find(r->init, pid) : NULL;
  if (!p)
    cb_err_set(err, CB_NOT_FOUND, "process with pid %.20s not found", text(r, PID));
  return p;
}

static int on_attach(struct request *r, struct cb_err *err)
{
  struct cb_child *p = find(r, err);
  return p ? send_pipes(r, p, err) : CB_NOT_FOUND;
}

static int on_signal(struct request *r, struct cb_err *err)
{
  int64_t sig;
  struct cb_child *p = find(r, err);
  if (!p)
    return CB_NOT_FOUND;
  if (!number(r, SIG, &sig) || sig < 1 || sig > 64)
    return cb_err_set(err, CB_INVALID, "no such signal");
  if (p->exited)
    return cb_err_set(err, CB_NOT_FOUND, "process with pid %d has ended", p->pid);
  if (kill(p->pid, (int)sig) < 0)
    return cb_err_errno(err, errno, "signal process %d", p->pid);
  answer_ok(r);
  return CB_OK;
}

static int on_close_stdin(struct request *r, struct cb_err *err)
{
  struct cb_child *p = find(r, err);
  if (!p)
    return CB_NOT_FOUND;
  cb_close(&p->in);
  answer_ok(r);
  return CB_OK;
}

/* Answers of several messages: all but the last carry `more`. */
struct series {
  struct request *r;
  struct cb_buf m;
};

static int series_add(struct series *s, const char *name, const struct cb_buf *item,
                      struct cb_err *err)
{
  int rc = cb_record_add(&s->m, name, item->p, item->len);
  if (rc != CB_TOO_LARGE)
    return rc ? cb_err_no_memory(err) : CB_OK;
  /* The ceiling was lowered below by what this record needs. */
  s->m.max = CB_BOX_FRAME_MAX;
  if (cb_record_addi(&s->m, "more", 1))
    return cb_err_no_memory(err);
  if (!cb_control_send(s->r->init, &s->m, NULL, 0))
    return cb_err_set(err, CB_CLOSED, "the daemon went away");
  cb_frame_begin(&s->m, "ok", s->r->n);
  s->m.max = CB_BOX_FRAME_MAX - 32;
  rc = cb_record_add(&s->m, name, item->p, item->len);
  return rc ? cb_err_set(err, rc, "an entry is too large for an answer") : CB_OK;
}

static void series_begin(struct series *s, struct request *r)
{
  s->r = r;
  cb_frame_begin(&s->m, "ok", r->n);
  s->m.max = CB_BOX_FRAME_MAX - 32; /* room for `more` */
}

static int series_end(struct series *s, int rc)
{
  if (rc == CB_OK)
    cb_control_send(s->r->init, &s->m, NULL, 0);
  cb_buf_clear(&s->m);
  return rc;
}

static int on_list(struct request *r, struct cb_err *err)
{
  struct series s;
  int rc = CB_OK;
  series_begin(&s, r);
  for (const struct cb_child *p = r->init->children; p && !rc; p = p->next) {
    struct cb_buf item;
    if (!p->listed)
      continue;
    cb_buf_init(&item, CB_BOX_FRAME_MAX - 4096);
    rc = cb_record_addi(&item, "pid", p->pid);
    if (!rc)
      rc = cb_record_addi(&item, "exited", p->exited);
    if (!rc && p->exited)
      rc = cb_record_addi(&item, "status", p->status);
    if (!rc)
      rc = cb_record_addi(&item, "deadline", p->deadline_hit);
    if (!rc)
      rc = cb_buf_add(&item, p->facts.p, p->facts.len);
    rc = rc ? cb_err_no_memory(err) : series_add(&s, "proc", &item, err);
    cb_buf_clear_wiped(&item);
  }
  return series_end(&s, rc);
}

static int add_entry(void *arg, const struct cb_buf *entry, struct cb_err *err)
{
  return series_add(arg, "entry", entry, err);
}

static int on_list_dir(struct request *r, struct cb_err *err)
{
  char path[CB_FILES_PATH_MAX + 1];
  struct series s;
  int64_t depth = 1;
  if (r->field[DEPTH] && !number(r, DEPTH, &depth))
    return cb_err_set(err, CB_INVALID, "depth is not a number");
  int rc = cb_files_absolute(text(r, PATH_F), user_of(r), path, err);
  if (rc)
    return rc;
  series_begin(&s, r);
  rc = cb_files_list(path, user_of(r), depth > CB_BOX_DEPTH_MAX ? CB_BOX_DEPTH_MAX : (int)depth,
                     add_entry, &s, err);
  return series_end(&s, rc);
}

static int on_open(struct request *r, struct cb_err *err)
{
  char path[CB_FILES_PATH_MAX + 1];
  bool writing = strcmp(text(r, MODE), "write") == 0;
  int fd = -1;
  int64_t size;
  struct cb_buf m;
  if (!writing && strcmp(text(r, MODE), "read") != 0)
    return cb_err_set(err, CB_INVALID, "mode is neither read nor write");
  int rc = cb_files_absolute(text(r, PATH_F), user_of(r), path, err);
  if (!rc)
    rc = cb_files_open(path, writing, &fd, &size, err);
  if (rc)
    return rc;
  cb_frame_begin(&m, "ok", r->n);
  if (cb_record_addi(&m, "size", size) || cb_record_addz(&m, "path", path))
    cb_buf_reset(&m);
  cb_control_send(r->init, &m, &fd, 1);
  return CB_OK;
}

static int answer_entry(struct request *r, const char *path, struct cb_err *err)
{
  struct cb_buf m;
  cb_frame_begin(&m, "ok", r->n);
  int rc = cb_files_stat(path, user_of(r), &m, err);
  if (rc)
    cb_buf_clear(&m);
  else
    cb_control_send(r->init, &m, NULL, 0);
  return rc;
}

static int on_stat(struct request *r, struct cb_err *err)
{
  char path[CB_FILES_PATH_MAX + 1];
  int rc = cb_files_absolute(text(r, PATH_F), user_of(r), path, err);
  return rc ? rc : answer_entry(r, path, err);
}

static int on_mkdir(struct request *r, struct cb_err *err)
{
  char path[CB_FILES_PATH_MAX + 1];
  int rc = cb_files_absolute(text(r, PATH_F), user_of(r), path, err);
  if (!rc)
    rc = cb_files_mkdir(path, err);
  return rc ? rc : answer_entry(r, path, err);
}

static int on_remove(struct request *r, struct cb_err *err)
{
  char path[CB_FILES_PATH_MAX + 1];
  int rc = cb_files_absolute(text(r, PATH_F), user_of(r), path, err);
  if (!rc)
    rc = cb_files_remove(path, err);
  if (!rc)
    answer_ok(r);
  return rc;
}

static int on_move(struct request *r, struct cb_err *err)
{
  char from[CB_FILES_PATH_MAX + 1], to[CB_FILES_PATH_MAX + 1];
  int rc = cb_files_absolute(text(r, PATH_F), user_of(r), from, err);
  if (!rc)
    rc = cb_files_absolute(text(r, TO), user_of(r), to, err);
  if (!rc)
    rc = cb_files_move(from, to, err);
  return rc ? rc : answer_entry(r, to, err);
}

static int on_expire(struct request *r, struct cb_err *err)
{
  int64_t at;
  if (!number(r, AT, &at) || at < 0)
    return cb_err_set(err, CB_INVALID, "at_boot_ms is not a time");
  r->init->expires_ms = at;
  answer_ok(r);
  return CB_OK;
}

static int on_metrics(struct request *r, struct cb_err *err)
{
  struct cb_buf m;
  cb_frame_begin(&m, "ok", r->n);
  if (cb_metrics_put(r->init, &m)) {
    cb_buf_clear(&m);
    return cb_err_no_memory(err);
  }
  cb_control_send(r->init, &m, NULL, 0);
  return CB_OK;
}

/* A connection to a port inside, made here because only here is that network. Loopback answers
 * at once or not at all, so this does not wait. */
static int on_connect(struct request *r, struct cb_err *err)
{
  int64_t port;
  struct cb_buf m;
  int fd = -1, sys = 0;
  if (!number(r, PORT, &port) || port < 1 || port > 65535)
    return cb_err_set(err, CB_INVALID, "port is not a port");
  struct sockaddr_in v4 = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port),
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
  struct sockaddr_in6 v6 = { .sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port),
                             .sin6_addr = IN6ADDR_LOOPBACK_INIT };
  for (int i = 0; i < 2 && fd < 0; i++) {
    const struct sockaddr *a = i ? (struct sockaddr *)&v6 : (struct sockaddr *)&v4;
    fd = socket(a->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || (connect(fd, a, i ? sizeof v6 : sizeof v4) < 0 && errno != EINPROGRESS)) {
      sys = sys ? sys : errno;
      cb_close(&fd);
      continue;
    }
    struct pollfd p = { fd, POLLOUT, 0 };
    socklen_t n = sizeof sys;
    int late = 0;
    if (poll(&p, 1, 100) != 1 || getsockopt(fd, SOL_SOCKET, SO_ERROR, &late, &n) < 0 || late) {
      sys = late ? late : ETIMEDOUT;
      cb_close(&fd);
    }
  }
  if (fd < 0)
    return cb_err_set(err, CB_UNREACHABLE, "port %d of the box: %s", (int)port, strerror(sys));
  cb_frame_begin(&m, "ok", r->n);
  cb_control_send(r->init, &m, &fd, 1);
  return CB_OK;
}

static int on_stop(struct request *r, struct cb_err *err)
{
  (void)r;
  (void)err;
  _exit(0);
}

static const struct {
  const char *verb;
  int (*run)(struct request *r, struct cb_err *err);
} verbs[] = {
  { "start", on_start },       { "attach", on_attach }, { "list", on_list },
  { "signal", on_signal },     { "close_stdin", on_close_stdin },
  { "open", on_open },         { "stat", on_stat },     { "mkdir", on_mkdir },
  { "remove", on_remove },     { "move", on_move },     { "list_dir", on_list_dir },
  { "expire", on_expire },     { "metrics", on_metrics }, { "connect", on_connect },
  { "stop", on_stop },
};

static int take_record(struct request *r, const struct cb_record *rec, struct cb_err *err)
{
  if (memchr(rec->value, '\0', rec->len))
    return cb_err_set(err, CB_INVALID, "%s holds a NUL byte", rec->name);
  if (cb_record_is(rec, "arg"))
    return cb_strings_add(&r->args, rec->value, rec->len) ? cb_err_no_memory(err) : CB_OK;
  if (cb_record_is(rec, "env")) {
    if (!memchr(rec->value, '=', rec->len) || rec->value[0] == '=')
      return cb_err_set(err, CB_INVALID, "an environment entry is not NAME=VALUE");
    return cb_strings_add(&r->env, rec->value, rec->len) ? cb_err_no_memory(err) : CB_OK;
  }
  for (int i = 0; i < FIELDS; i++) {
    if (!cb_record_is(rec, field_names[i]) || r->field[i])
      continue;
    r->field[i] = cb_memdup(rec->value, rec->len);
    return r->field[i] ? CB_OK : cb_err_no_memory(err);
  }
  return CB_OK;
}

/* One request. False when the bytes are not the protocol: the connection then ends. */
static bool serve(struct cb_init *init, const char *p, size_t len)
{
  struct cb_record_reader reader;
  struct cb_record f, rec;
  struct request r = { .init = init };
  struct cb_err err = CB_ERR_INIT;
  int rc = CB_OK, more;

  cb_record_open(&reader, p, len);
  if (cb_record_next(&reader, &f) != 1 || !cb_record_is(&f, "f") ||
      cb_record_next(&reader, &rec) != 1 || !cb_record_is(&rec, "n") ||
      !cb_record_int(&rec, &r.n))
    return false;
  while ((more = cb_record_next(&reader, &rec)) == 1 && !rc)
    rc = take_record(&r, &rec, &err);
  if (more < 0)
    rc = cb_err_set(&err, CB_PROTOCOL, "broken records");
  if (!rc) {
    rc = cb_err_set(&err, CB_UNSUPPORTED, "the box does not know '%.*s'",
                    (int)(f.len < 40 ? f.len : 40), f.value);
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++) {
      if (strlen(verbs[i].verb) != f.len || memcmp(verbs[i].verb, f.value, f.len) != 0)
        continue;
      rc = verbs[i].run(&r, &err);
      break;
    }
  }
  if (rc)
    answer_error(&r, &err);
  for (int i = 0; i < FIELDS; i++)
    cb_free(r.field[i]);
  cb_strings_clear(&r.args);
  cb_strings_clear(&r.env);
  return true;
}

static void on_peer(struct cb_init *init, struct cb_source *src, uint32_t events)
{
  struct cb_control *c = init->control;
  int fds[CB_FDS_MAX];
  size_t n, nfds;
  (void)src;

  if ((events & EPOLLOUT) && !flush(init))
    return;
  if (!(events & (EPOLLIN | EPOLLHUP | EPOLLERR)))
    return;
  int rc = cb_recv_fds(c->conn, c->frame, CB_BOX_FRAME_MAX, &n, fds, &nfds, NULL);
  for (size_t i = 0; i < nfds; i++) /* no request carries any */
    cb_close(&fds[i]);
  if (rc == CB_BUSY)
    return;
  if (rc || n == 0 || !serve(init, c->frame, n))
    detach(init);
}

static void hello(struct cb_init *init)
{
  struct cb_buf m;
  cb_frame_begin(&m, "hello", 0);
  if (cb_record_addi(&m, "version", CB_BOX_VERSION) ||
      cb_record_addz(&m, "box", init->config->id) ||
      cb_record_addi(&m, "pid_start", init->control->pid_start))
    cb_buf_reset(&m);
  cb_control_send(init, &m, NULL, 0);
}

static void on_listener(struct cb_init *init, struct cb_source *src, uint32_t events)
{
  struct cb_control *c = init->control;
  (void)events;
  int conn = accept4(src->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (conn < 0)
    return;
  detach(init);
  if (cb_init_watch(init, &c->peer, conn, EPOLLIN, on_peer, NULL) < 0) {
    cb_close(&conn);
    return;
  }
  c->conn = conn;
  cb_child_attached(init, true);
  hello(init);
}

/* Field 22 of our own stat: with it a daemon tells this pid 1 from a later process of its pid. */
static int64_t own_start(void)
{
  char stat[1024];
  unsigned long long start = 0;
  int fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
  ssize_t k = fd < 0 ? -1 : read(fd, stat, sizeof stat - 1);
  cb_close(&fd);
  if (k <= 0)
    return 0;
  stat[k] = '\0';
  const char *after = strrchr(stat, ')');
  if (after)
    (void)sscanf(after + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d"
                            " %*d %*d %llu", &start);
  return (int64_t)start;
}

int cb_control_new(struct cb_init *init, int listener, struct cb_step *s)
{
  struct cb_control *c = cb_calloc(1, sizeof *c);
  if (c)
    c->frame = cb_malloc(CB_BOX_FRAME_MAX);
  if (!c || !c->frame)
    return cb_step_host(s, ENOMEM, "make the init", "");
  c->peer.fd = c->conn = -1;
  c->listener = listener;
  c->last = &c->first;
  c->pid_start = own_start();
  init->control = c;
  return 0;
}

void cb_control_listen(struct cb_init *init)
{
  if (cb_init_watch(init, &init->listener, init->control->listener, EPOLLIN, on_listener, NULL) < 0)
    _exit(1); /* nobody could ever reach this box */
}
