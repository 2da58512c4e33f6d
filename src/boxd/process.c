/* SPDX-License-Identifier: MIT
 * process.c: see process.h. */
#include "boxd/process.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/encode.h"
#include "base/fd.h"
#include "boxd/json.h"

enum {
  CHUNK = 32 * 1024,           /* raw bytes of one data event, as envd's */
  LAST_DRAIN = 256 * 1024,     /* of a signalled process whose pipes others keep open */
};

static const char keepalive[] = "{\"event\":{\"keepalive\":{}}}";
static const char stdin_closed[] = "error writing to stdin: stdin not enabled or closed";

struct pipe_end {
  struct cb_process *process;
  const char *name; /* of the data event's field */
  int fd;
  struct cb_watch watch;
};

struct input {
  struct input *next;
  char *p; /* NULL: close the pipe */
  size_t n, at;
  void (*done)(void *arg, const char *why);
  void *arg;
};

struct subscriber {
  struct subscriber *next;
  struct cb_stream *stream;
};

struct cb_process {
  struct cb_process *next;
  struct cb_envd_procs *owner;
  int64_t pid;
  json_t *config;
  char *tag; /* NULL: none */
  struct pipe_end out, err;
  int in;
  struct cb_watch in_watch;
  struct input *input, **input_end;
  size_t input_bytes;
  struct subscriber *subscribers;
  struct cb_stream *starter; /* its deadline is the process's; NULL once it is closed */
  bool attaching; /* descriptors are on their way */
  bool exited, ended, signalled, deadline, throttled;
  int status;
  struct cb_loop_timer retention;
};

void cb_envd_procs_init(struct cb_envd_procs *ps, struct cb_loop *loop)
{
  ps->loop = loop;
  ps->box = NULL;
  ps->first = NULL;
  ps->recovered = NULL;
}

static struct cb_loop *loop_of(const struct cb_process *p)
{
  return p->owner->loop;
}

static void close_pipe(struct pipe_end *e)
{
  cb_loop_del(loop_of(e->process), &e->watch);
  cb_close(&e->fd);
}

static void fail_inputs(struct cb_process *p, const char *why)
{
  while (p->input) {
    struct input *i = p->input;
    p->input = i->next;
    i->done(i->arg, i->p ? why : NULL);
    cb_free(i->p);
    cb_free(i);
  }
  p->input_end = &p->input;
  p->input_bytes = 0;
}

static void close_input(struct cb_process *p)
{
  cb_loop_del(loop_of(p), &p->in_watch);
  cb_close(&p->in);
}

static void free_process(struct cb_process *p)
{
  for (struct cb_process **at = &p->owner->first; *at; at = &(*at)->next)
    if (*at == p) {
      *at = p->next;
      break;
    }
  while (p->subscribers) {
    struct subscriber *sub = p->subscribers;
    p->subscribers = sub->next;
    cb_stream_feed(sub->stream, NULL, NULL);
    cb_stream_cut(sub->stream);
    cb_free(sub);
  }
  cb_loop_timer_stop(loop_of(p), &p->retention);
  close_pipe(&p->out);
  close_pipe(&p->err);
  close_input(p);
  fail_inputs(p, "error writing to stdin: the sandbox is gone");
  json_decref(p->config);
  cb_free(p->tag);
  cb_free(p);
}

void cb_envd_procs_clear(struct cb_envd_procs *ps)
{
  while (ps->first)
    free_process(ps->first);
  ps->box = NULL;
  ps->recovered = NULL;
}

/* --- events --- */

static void tell(struct cb_process *p, const char *json, size_t n)
{
  for (struct subscriber *sub = p->subscribers; sub; sub = sub->next)
    cb_stream_send(sub->stream, json, n);
}

static void tell_data(struct cb_process *p, const char *name, const char *data, size_t n)
{
  struct cb_buf b;
  if (!p->subscribers)
    return;
  cb_buf_init(&b, CB_BASE64_LEN(CHUNK) + 128);
  if (cb_buf_addf(&b, "{\"event\":{\"data\":{\"%s\":\"", name) == CB_OK &&
      cb_base64_add(&b, data, n) == CB_OK && cb_buf_addz(&b, "\"}}}") == CB_OK)
    tell(p, b.p, b.len);
  else /* a stream with a hole would be worse than none */
    for (struct subscriber *sub = p->subscribers; sub; sub = sub->next)
      cb_stream_cut(sub->stream);
  cb_buf_clear(&b);
}

static void start_text(const struct cb_process *p, char *out, size_t size)
{
  snprintf(out, size, "{\"event\":{\"start\":{\"pid\":%lld}}}", (long long)p->pid);
}

/* Zero values are left out: exitCode 0, exited false, no error. */
static void end_text(const struct cb_process *p, char *out, size_t size)
{
  if (WIFSIGNALED(p->status)) {
    char name[64];
    const char *said = sigdescr_np(WTERMSIG(p->status));
    snprintf(name, sizeof name, "%s", said ? said : "unknown");
    if (name[0] >= 'A' && name[0] <= 'Z')
      name[0] = (char)(name[0] - 'A' + 'a');
    const char *core = WCOREDUMP(p->status) ? " (core dumped)" : "";
    snprintf(out, size,
             "{\"event\":{\"end\":{\"exitCode\":-1,\"status\":\"signal: %s%s\","
             "\"error\":\"signal: %s%s\"}}}",
             name, core, name, core);
    return;
  }
  int code = WEXITSTATUS(p->status);
  if (code == 0)
    snprintf(out, size, "{\"event\":{\"end\":{\"exited\":true,\"status\":\"exit status 0\"}}}");
  else
    snprintf(out, size,
             "{\"event\":{\"end\":{\"exitCode\":%d,\"exited\":true,"
             "\"status\":\"exit status %d\",\"error\":\"exit status %d\"}}}",
             code, code, code);
}

/* --- output --- */

static void on_pipe(struct cb_watch *w, uint32_t events);

static void watch_pipe(struct cb_process *p, struct pipe_end *e)
{
  if (e->fd < 0 || e->watch.fd >= 0)
    return;
  if (cb_loop_add(loop_of(p), &e->watch, e->fd, EPOLLIN, on_pipe, e, NULL))
    close_pipe(e); /* out of memory: the process gets a closed pipe rather than a full one */
}

/* A throttled pipe leaves the loop altogether: its hang-up would be told over and over. */
static void update_throttle(struct cb_process *p)
{
  size_t most = 0;
  for (struct subscriber *sub = p->subscribers; sub; sub = sub->next)
    if (!cb_stream_ended(sub->stream) && cb_stream_queued(sub->stream) > most)
      most = cb_stream_queued(sub->stream);
  bool want = p->throttled ? most > CB_STREAM_LOW : most > CB_STREAM_HIGH;
  if (want == p->throttled)
    return;
  p->throttled = want;
  if (want) {
    cb_loop_del(loop_of(p), &p->out.watch);
    cb_loop_del(loop_of(p), &p->err.watch);
  } else {
    watch_pipe(p, &p->out);
    watch_pipe(p, &p->err);
  }
}

/* What is in a pipe now, at most LAST_DRAIN. */
static void drain(struct cb_process *p, struct pipe_end *e)
{
  char data[CHUNK];
  for (size_t total = 0; e->fd >= 0 && total < LAST_DRAIN;) {
    ssize_t n = read(e->fd, data, sizeof data);
    if (n < 0 && errno == EINTR)
      continue;
    if (n <= 0)
      break;
    total += (size_t)n;
    tell_data(p, e->name, data, (size_t)n);
  }
  close_pipe(e);
}

static void on_retention(struct cb_loop_timer *t)
{
  free_process(t->owner);
}

static void maybe_end(struct cb_process *p)
{
  char text[320];
  if (p->ended || !p->exited || p->attaching)
    return;
  if (p->out.fd >= 0 || p->err.fd >= 0) {
    if (!p->signalled && !p->deadline)
      return; /* as envd: the end comes when every holder of the pipes has closed them */
    drain(p, &p->out);
    drain(p, &p->err);
  }
  p->ended = true;
  end_text(p, text, sizeof text);
  while (p->subscribers) {
    struct subscriber *sub = p->subscribers;
    p->subscribers = sub->next;
    if (p->deadline && sub->stream == p->starter) {
      cb_stream_fail(sub->stream, "deadline_exceeded", "context deadline exceeded");
    } else {
      cb_stream_send(sub->stream, text, strlen(text));
      cb_stream_end(sub->stream);
    }
    cb_stream_feed(sub->stream, NULL, NULL);
    cb_free(sub);
  }
  p->starter = NULL;
  close_input(p);
  fail_inputs(p, stdin_closed);
  cb_loop_timer_start(loop_of(p), &p->retention, CB_PROCESS_RETENTION_MS, on_retention, p);
}

static void on_pipe(struct cb_watch *w, uint32_t events)
{
  struct pipe_end *e = w->owner;
  struct cb_process *p = e->process;
  char data[CHUNK];
  (void)events;
  ssize_t n = read(e->fd, data, sizeof data);
  if (n < 0 && (errno == EAGAIN || errno == EINTR))
    return;
  if (n <= 0) {
    close_pipe(e);
    maybe_end(p);
    return;
  }
  tell_data(p, e->name, data, (size_t)n);
  update_throttle(p);
}

/* --- life --- */

static struct cb_process *new_process(struct cb_envd_procs *ps, int64_t pid, json_t *config,
                                      const char *tag)
{
  struct cb_process *p = cb_calloc(1, sizeof *p);
  if (!p) {
    json_decref(config);
    return NULL;
  }
  p->owner = ps;
  p->pid = pid;
  p->config = config;
  p->tag = tag && *tag ? cb_strdup(tag) : NULL;
  p->out = (struct pipe_end){ p, "stdout", -1, CB_WATCH_INIT };
  p->err = (struct pipe_end){ p, "stderr", -1, CB_WATCH_INIT };
  p->in = p->in_watch.fd = -1;
  p->input_end = &p->input;
  p->next = ps->first;
  ps->first = p;
  return p;
}

static int steal(int *fd)
{
  int taken = *fd;
  *fd = -1;
  return taken;
}

static void take_pipes(struct cb_process *p, struct cb_box_answer *answer)
{
  p->in = steal(&answer->fds[0]);
  p->out.fd = steal(&answer->fds[1]);
  p->err.fd = steal(&answer->fds[2]);
  if (!p->throttled) {
    watch_pipe(p, &p->out);
    watch_pipe(p, &p->err);
  }
}

struct cb_process *cb_envd_procs_add(struct cb_envd_procs *ps, struct cb_box_answer *answer,
                                json_t *config, const char *tag, struct cb_stream *first)
{
  struct cb_process *p = new_process(ps, answer->pid, config, tag);
  if (!p)
    return NULL;
  take_pipes(p, answer);
  if (first) {
    p->starter = first;
    cb_process_subscribe(p, first);
  }
  return p;
}

void cb_envd_procs_exit(struct cb_envd_procs *ps, int64_t pid, int status, bool deadline)
{
  struct cb_process *p = ps->first;
  /* A pid may come again while an old exit is kept: the one that has not exited is meant. */
  while (p && (p->pid != pid || p->exited))
    p = p->next;
  if (!p)
    return;
  p->exited = true;
  p->status = status;
  p->deadline = deadline;
  maybe_end(p);
}

static json_t *config_of(const struct cb_box_proc *from)
{
  json_t *config = json_object();
  if (!config)
    return NULL;
  json_object_set_new(config, "cmd", cb_json_text(from->cmd, strlen(from->cmd)));
  if (from->arg_count) {
    json_t *args = json_array();
    for (size_t i = 0; i < from->arg_count; i++)
      json_array_append_new(args, cb_json_text(from->args[i], strlen(from->args[i])));
    json_object_set_new(config, "args", args);
  }
  if (from->env_count) {
    json_t *envs = json_object();
    for (size_t i = 0; i < from->env_count; i++) {
      const char *eq = strchr(from->env[i], '=');
      if (!eq)
        continue;
      char *name = cb_memdup(from->env[i], (size_t)(eq - from->env[i]));
      if (name)
        json_object_set_new(envs, name, cb_json_text(eq + 1, strlen(eq + 1)));
      cb_free(name);
    }
    json_object_set_new(config, "envs", envs);
  }
  if (from->cwd && *from->cwd)
    json_object_set_new(config, "cwd", cb_json_text(from->cwd, strlen(from->cwd)));
  return config;
}

static void pump_input(struct cb_process *p);

static void on_attached(void *arg, struct cb_box_answer *answer)
{
  struct cb_process *p = arg;
  p->attaching = false;
  if (!answer->err)
    take_pipes(p, answer);
  pump_input(p);
  maybe_end(p);
}

static void on_listed(void *arg, struct cb_box_answer *answer)
{
  struct cb_envd_procs *ps = arg;
  for (size_t i = 0; !answer->err && i < answer->proc_count; i++) {
    const struct cb_box_proc *from = &answer->procs[i];
    struct cb_process *p = new_process(ps, from->pid, config_of(from), from->tag);
    if (!p)
      continue;
    if (from->exited) {
      cb_envd_procs_exit(ps, from->pid, from->status, from->deadline);
      continue;
    }
    p->attaching = true;
    if (cb_box_attach(ps->box, p->pid, on_attached, p, NULL, NULL))
      p->attaching = false;
  }
  void (*recovered)(void *) = ps->recovered;
  ps->recovered = NULL;
  if (recovered)
    recovered(ps->recovered_arg);
}

void cb_envd_procs_recover(struct cb_envd_procs *ps, void (*recovered)(void *arg), void *arg)
{
  ps->recovered = recovered;
  ps->recovered_arg = arg;
  if (cb_box_list(ps->box, on_listed, ps, NULL, NULL)) {
    ps->recovered = NULL;
    recovered(arg);
  }
}

/* --- asking --- */

struct cb_process *cb_envd_procs_find(struct cb_envd_procs *ps, int64_t pid, const char *tag)
{
  struct cb_process *ended = NULL;
  for (struct cb_process *p = ps->first; p; p = p->next) {
    bool same = pid ? p->pid == pid : p->tag && tag && strcmp(p->tag, tag) == 0;
    if (same && !p->exited)
      return p;
    if (same && !ended)
      ended = p;
  }
  return ended;
}

json_t *cb_envd_procs_list(struct cb_envd_procs *ps)
{
  json_t *list = json_array();
  for (struct cb_process *p = ps->first; p && list; p = p->next) {
    if (p->exited)
      continue;
    json_t *one = json_pack("{s:O,s:I}", "config", p->config, "pid", (json_int_t)p->pid);
    if (one && p->tag)
      json_object_set_new(one, "tag", cb_json_text(p->tag, strlen(p->tag)));
    json_array_append_new(list, one);
  }
  return list;
}

int64_t cb_process_pid(const struct cb_process *p)
{
  return p->pid;
}

bool cb_process_exited(const struct cb_process *p)
{
  return p->exited;
}

/* --- subscribers --- */

static void on_drained(void *owner, struct cb_stream *s)
{
  (void)s;
  update_throttle(owner);
}

static void on_closed(void *owner, struct cb_stream *s)
{
  struct cb_process *p = owner;
  for (struct subscriber **at = &p->subscribers; *at; at = &(*at)->next)
    if ((*at)->stream == s) {
      struct subscriber *gone = *at;
      *at = gone->next;
      cb_free(gone);
      break;
    }
  if (p->starter == s)
    p->starter = NULL;
  update_throttle(p);
}

void cb_process_subscribe(struct cb_process *p, struct cb_stream *s)
{
  static const struct cb_stream_feeder feeder = { on_drained, on_closed };
  char text[320];
  start_text(p, text, sizeof text);
  cb_stream_send(s, text, strlen(text));
  if (p->ended) {
    end_text(p, text, sizeof text);
    cb_stream_send(s, text, strlen(text));
    cb_stream_end(s);
    return;
  }
  struct subscriber *sub = cb_calloc(1, sizeof *sub);
  if (!sub) {
    cb_stream_fail(s, "resource_exhausted", "out of memory");
    return;
  }
  sub->stream = s;
  sub->next = p->subscribers;
  p->subscribers = sub;
  cb_stream_feed(s, &feeder, p);
}

void cb_process_signalled(struct cb_process *p)
{
  p->signalled = true;
  maybe_end(p);
}

struct cb_stream *cb_process_stream(struct cb_request *req, struct cb_loop *loop)
{
  return cb_stream_new(req, loop, keepalive);
}

/* --- input --- */

static void on_closed_in_box(void *arg, struct cb_box_answer *answer)
{
  (void)arg; /* best effort: a process that has ended has no stdin either */
  (void)answer;
}

static void finish_input(struct cb_process *p, const char *why)
{
  struct input *i = p->input;
  p->input = i->next;
  if (!p->input)
    p->input_end = &p->input;
  p->input_bytes -= i->n;
  i->done(i->arg, why);
  cb_free(i->p);
  cb_free(i);
}

static void on_writable(struct cb_watch *w, uint32_t events);

static void pump_input(struct cb_process *p)
{
  if (p->attaching)
    return;
  while (p->input) {
    struct input *i = p->input;
    if (!i->p) {
      close_input(p);
      cb_box_close_stdin(p->owner->box, p->pid, on_closed_in_box, NULL, NULL, NULL);
      finish_input(p, NULL);
      continue;
    }
    if (p->in < 0) {
      finish_input(p, stdin_closed);
      continue;
    }
    ssize_t k = i->at < i->n ? write(p->in, i->p + i->at, i->n - i->at) : 0;
    if (k < 0 && errno == EINTR)
      continue;
    if (k < 0 && errno == EAGAIN) {
      if (p->in_watch.fd < 0 &&
          cb_loop_add(loop_of(p), &p->in_watch, p->in, EPOLLOUT, on_writable, p, NULL))
        finish_input(p, "error writing to stdin: out of memory");
      else
        return;
      continue;
    }
    if (k < 0) {
      finish_input(p, errno == EPIPE ? "error writing to stdin: broken pipe"
                                     : "error writing to stdin");
      continue;
    }
    i->at += (size_t)k;
    if (i->at == i->n)
      finish_input(p, NULL);
  }
  cb_loop_del(loop_of(p), &p->in_watch);
}

static void on_writable(struct cb_watch *w, uint32_t events)
{
  (void)events;
  pump_input(w->owner);
}

static void add_input(struct cb_process *p, char *data, size_t n,
                      void (*done)(void *arg, const char *why), void *arg)
{
  struct input *i = cb_calloc(1, sizeof *i);
  if (!i) {
    cb_free(data);
    done(arg, "error writing to stdin: out of memory");
    return;
  }
  *i = (struct input){ NULL, data, n, 0, done, arg };
  p->input_bytes += n;
  *p->input_end = i;
  p->input_end = &i->next;
  if (p->in_watch.fd < 0)
    pump_input(p);
}

void cb_process_write(struct cb_process *p, const void *data, size_t n,
                      void (*done)(void *arg, const char *why), void *arg)
{
  if (p->in < 0 && !p->attaching) {
    done(arg, stdin_closed);
    return;
  }
  if (n > CB_PROCESS_INPUT_MAX - p->input_bytes) {
    done(arg, "error writing to stdin: too much is waiting to be read");
    return;
  }
  char *copy = cb_memdup(data, n);
  if (!copy) {
    done(arg, "error writing to stdin: out of memory");
    return;
  }
  add_input(p, copy, n, done, arg);
}

void cb_process_close_stdin(struct cb_process *p, void (*done)(void *arg, const char *why),
                            void *arg)
{
  if (p->in < 0 && !p->attaching) {
    done(arg, NULL);
    return;
  }
  add_input(p, NULL, 0, done, arg);
}
