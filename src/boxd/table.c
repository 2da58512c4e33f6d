/* SPDX-License-Identifier: MIT
 * table.c: see table.h. A row leaves the list only when nothing of its box is left on the host;
 * until then it is ENDING. */
#include "boxd/table.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/path.h"
#include "base/rand.h"
#include "boxd/network_rules.h"
#include "boxd/row_file.h"

struct cb_table {
  struct cb_table_config c;
  struct cb_row ring; /* head: only next and prev count */
  size_t alive, busy;
  size_t recovering;
  void (*ready)(void *arg);
  void *ready_arg;
};

static const struct cb_box_events box_events;

int cb_table_new(struct cb_table **out, const struct cb_table_config *config,
                 struct cb_err *err)
{
  *out = cb_calloc(1, sizeof **out);
  if (!*out)
    return cb_err_no_memory(err);
  (*out)->c = *config;
  (*out)->ring.next = (*out)->ring.prev = &(*out)->ring;
  if (mkdirat(config->state_dir, "boxes", 0711) < 0 && errno != EEXIST) {
    int rc = cb_err_errno(err, errno, "make the folder of the boxes");
    cb_free(*out);
    *out = NULL;
    return rc;
  }
  return CB_OK;
}

/* --- rows --- */

static struct cb_row *row_new(struct cb_table *t, const char *id)
{
  struct cb_row *row = cb_calloc(1, sizeof *row);
  if (!row)
    return NULL;
  row->table = t;
  row->refs = 1;
  snprintf(row->id, sizeof row->id, "%s", id);
  cb_envd_procs_init(&row->procs, t->c.loop);
  row->state = CB_ROW_STARTING;
  row->next = &t->ring;
  row->prev = t->ring.prev;
  row->prev->next = row;
  t->ring.prev = row;
  t->alive++;
  t->busy++;
  return row;
}

void cb_row_ref(struct cb_row *row)
{
  row->refs++;
}

void cb_row_unref(void *p)
{
  struct cb_row *row = p;
  if (--row->refs)
    return;
  json_decref(row->metadata);
  json_decref(row->allow);
  json_decref(row->forward);
  json_decref(row->env);
  cb_free(row);
}

static void set_state(struct cb_row *row, enum cb_row_state state)
{
  struct cb_table *t = row->table;
  if (row->state == state)
    return;
  if (row->state != CB_ROW_RUNNING && state == CB_ROW_RUNNING)
    t->busy--;
  if (row->state == CB_ROW_RUNNING)
    t->busy++;
  if (state == CB_ROW_ENDING)
    t->alive--;
  row->state = state;
}

static void row_settled(struct cb_row *row)
{
  struct cb_table *t = row->table;
  if (!row->recovering)
    return;
  row->recovering = false;
  if (--t->recovering == 0 && t->ready) {
    void (*ready)(void *) = t->ready;
    t->ready = NULL;
    ready(t->ready_arg);
  }
}

/* --- the end of a row --- */

static void on_removed(void *arg, const struct cb_err *err)
{
  struct cb_row *row = arg;
  struct cb_table *t = row->table;
  if (err)
    cb_log(t->c.log, CB_LOG_ERROR, "box", "%s: its folder could not be removed: %s", row->id,
           err->text);
  else
    cb_log(t->c.log, CB_LOG_INFO, "box", "%s is gone", row->id);
  row->prev->next = row->next;
  row->next->prev = row->prev;
  t->busy--;
  while (row->waiters) {
    struct cb_row_waiter *w = row->waiters;
    row->waiters = w->next;
    w->gone(w, err);
  }
  row_settled(row);
  cb_row_unref(row);
}

/* The box is dead (or never was): what is left is its folder. */
static void finish(struct cb_row *row)
{
  struct cb_table *t = row->table;
  set_state(row, CB_ROW_ENDING);
  cb_loop_timer_stop(t->c.loop, &row->expiry);
  cb_envd_procs_clear(&row->procs);
  if (row->box)
    cb_box_free(row->box);
  row->box = NULL;
  cb_boxes_remove(t->c.boxes, row->id, on_removed, row);
}

void cb_row_kill(struct cb_row *row, struct cb_row_waiter *w)
{
  if (w) {
    w->next = row->waiters;
    row->waiters = w;
  }
  if (row->state == CB_ROW_ENDING)
    return;
  set_state(row, CB_ROW_ENDING);
  cb_loop_timer_stop(row->table->c.loop, &row->expiry);
  cb_box_kill(row->box); /* on_gone goes on */
}

static void on_expiry(struct cb_loop_timer *timer)
{
  struct cb_row *row = timer->owner;
  cb_log(row->table->c.log, CB_LOG_INFO, "box", "%s has expired", row->id);
  cb_row_kill(row, NULL);
}

/* --- what the box tells --- */

static void on_procs_recovered(void *arg)
{
  row_settled(arg);
}

static void on_ready(void *arg, struct cb_box *box, const struct cb_err *err)
{
  struct cb_row *row = arg;
  struct cb_table *t = row->table;
  bool fresh = !row->recovering;
  (void)box;
  if (err) {
    cb_log(t->c.log, fresh ? CB_LOG_WARN : CB_LOG_INFO, "box", "%s did not come up: %s", row->id,
           err->text);
    if (row->started)
      row->started(row->started_arg, row, err);
    finish(row);
    return;
  }
  row->procs.box = row->box;
  if (row->state == CB_ROW_ENDING) /* killed meanwhile */
    return;
  if (row->unknown) { /* alive, but nobody knows what it was for */
    cb_log(t->c.log, CB_LOG_WARN, "box", "%s has no readable box.json: it is ended", row->id);
    cb_row_kill(row, NULL);
    return;
  }
  set_state(row, CB_ROW_RUNNING);
  if (fresh) {
    row->started_at_ms = cb_wall_ms();
    struct cb_err why = CB_ERR_INIT;
    if (cb_row_set_end(row, cb_boot_ms() + row->timeout_s * 1000, &why)) {
      row->started(row->started_arg, row, &why);
      cb_row_kill(row, NULL);
      return;
    }
    cb_log(t->c.log, CB_LOG_INFO, "box", "%s is up", row->id);
    row->started(row->started_arg, row, NULL);
    return;
  }
  cb_log(t->c.log, CB_LOG_INFO, "box", "%s is taken up again", row->id);
  cb_loop_timer_start_at(t->c.loop, &row->expiry, row->end_boot_ms, on_expiry, row);
  cb_envd_procs_recover(&row->procs, on_procs_recovered, row);
}

static void on_exit_event(void *arg, struct cb_box *box, int64_t pid, int status, bool deadline)
{
  struct cb_row *row = arg;
  (void)box;
  cb_envd_procs_exit(&row->procs, pid, status, deadline);
}

static void on_gone(void *arg, struct cb_box *box)
{
  (void)box;
  finish(arg);
}

static const struct cb_box_events box_events = { on_ready, on_exit_event, on_gone };

/* --- making --- */

/* "NAME=VALUE" strings for the init: the template's and the client's variables, and those E2B
 * sets in every box, which nobody can override box-wide. */
static int env_strings(const struct cb_row *row, char ***out, size_t *count, struct cb_err *err)
{
  const char *key;
  json_t *value;
  size_t n = 0;
  char **env = cb_calloc(json_object_size(row->env) + 4, sizeof *env);
  *out = env;
  *count = 0;
  if (!env)
    return cb_err_no_memory(err);
  struct cb_buf b;
  json_object_foreach(row->env, key, value)
  {
    cb_buf_init(&b, CB_WEB_BODY_MAX);
    cb_buf_addf(&b, "%s=%s", key, json_string_value(value));
    env[n++] = cb_buf_take(&b, NULL);
  }
  const char *own[][2] = { { "E2B_SANDBOX", "true" },
                           { "E2B_SANDBOX_ID", row->id },
                           { "E2B_TEMPLATE_ID", row->template } };
  for (size_t i = 0; i < 3; i++) {
    cb_buf_init(&b, 256);
    cb_buf_addf(&b, "%s=%s", own[i][0], own[i][1]);
    env[n++] = cb_buf_take(&b, NULL);
  }
  *count = n;
  for (size_t i = 0; i < n; i++)
    if (!env[i])
      return cb_err_no_memory(err);
  return CB_OK;
}

static void free_strings(char **env, size_t count)
{
  for (size_t i = 0; env && i < count; i++)
    if (env[i])
      cb_free_wiped(env[i], strlen(env[i]));
  cb_free(env);
}

static int make_folder(struct cb_table *t, struct cb_row *row, struct cb_err *err)
{
  char path[CB_ROW_ID_MAX + 32];
  snprintf(path, sizeof path, "boxes/%s", row->id);
  if (mkdirat(t->c.state_dir, path, 0711) < 0)
    return cb_err_errno(err, errno, "make the folder of a box");
  return cb_row_file_write(t->c.state_dir, row, err);
}

static int start_box(struct cb_table *t, struct cb_row *row, const struct cb_create_spec *spec,
                     struct cb_err *err)
{
  struct cb_network_rules rules = { NULL, 0, NULL, 0 };
  char **env = NULL;
  size_t env_count = 0;
  int rc = cb_network_rules_read(&rules, row->allow, row->forward, err);
  if (!rc)
    rc = env_strings(row, &env, &env_count, err);
  if (!rc) {
    struct cb_box_spec box = {
      .id = row->id,
      .network = rules.allow_count || rules.forward_count,
      .allow = rules.allow,
      .allow_count = rules.allow_count,
      .forward = rules.forward,
      .forward_count = rules.forward_count,
      .mounts = spec->template.mounts,
      .mount_count = spec->template.mount_count,
      .path = spec->template.path,
      .path_count = spec->template.path_count,
      .env = (const char *const *)env,
      .env_count = env_count,
      /* Only against a daemon that dies right now: set anew once the box is up. */
      .expires_boot_ms = row->end_boot_ms,
    };
    rc = cb_box_start(&row->box, t->c.boxes, &box, &box_events, row, err);
  }
  free_strings(env, env_count);
  cb_network_rules_clear(&rules);
  return rc;
}

int cb_table_create(struct cb_table *t, const struct cb_create_spec *spec,
                    void (*started)(void *arg, struct cb_row *row, const struct cb_err *err),
                    void *arg, struct cb_err *err)
{
  char id[32] = "i";
  if (t->alive >= t->c.max)
    return cb_err_set(err, CB_QUOTA,
                      "you have reached the maximum number of concurrent E2B sandboxes (%zu)",
                      t->c.max);
  cb_random_id(id + 1, 20);
  struct cb_row *row = row_new(t, id);
  if (!row)
    return cb_err_no_memory(err);
  snprintf(row->template, sizeof row->template, "%s", spec->template.name);
  row->metadata = json_incref(spec->metadata);
  row->env = json_incref(spec->env);
  row->allow = json_incref(spec->allow);
  row->forward = json_incref(spec->forward);
  row->timeout_s = spec->timeout_s;
  row->started_at_ms = cb_wall_ms();
  row->end_boot_ms = cb_boot_ms() + (spec->timeout_s + 120) * 1000;
  int rc = make_folder(t, row, err);
  if (!rc)
    rc = start_box(t, row, spec, err);
  if (rc) {
    finish(row); /* started is not called: the caller has the error */
    return rc;
  }
  row->started = started;
  row->started_arg = arg;
  return CB_OK;
}

/* --- ends --- */

static void on_expire_set(void *arg, struct cb_box_answer *answer)
{
  const struct cb_table *t = arg;
  if (answer->err && answer->err->code != CB_CLOSED)
    cb_log(t->c.log, CB_LOG_WARN, "box", "an init did not take its expiry: %s",
           answer->err->text);
}

int cb_row_set_end(struct cb_row *row, int64_t end_boot_ms, struct cb_err *err)
{
  struct cb_table *t = row->table;
  int64_t before = row->end_boot_ms;
  row->end_boot_ms = end_boot_ms;
  if (end_boot_ms <= cb_boot_ms()) {
    cb_row_kill(row, NULL);
    return CB_OK;
  }
  int rc = cb_row_file_write(t->c.state_dir, row, err);
  if (!rc)
    rc = cb_box_expire(row->box, end_boot_ms, on_expire_set, t, NULL, err);
  if (rc) {
    row->end_boot_ms = before;
    return rc;
  }
  cb_loop_timer_start_at(t->c.loop, &row->expiry, end_boot_ms, on_expiry, row);
  return CB_OK;
}

int64_t cb_row_end_wall_ms(const struct cb_row *row)
{
  return cb_wall_ms() + (row->end_boot_ms - cb_boot_ms());
}

/* --- looking --- */

struct cb_row *cb_table_find_any(struct cb_table *t, const char *id)
{
  for (struct cb_row *row = t->ring.next; row != &t->ring; row = row->next)
    if (strcmp(row->id, id) == 0)
      return row;
  return NULL;
}

struct cb_row *cb_table_find(struct cb_table *t, const char *id)
{
  struct cb_row *row = cb_table_find_any(t, id);
  return row && row->state == CB_ROW_RUNNING ? row : NULL;
}

struct cb_row *cb_table_first(struct cb_table *t)
{
  return t->ring.next == &t->ring ? NULL : t->ring.next;
}

struct cb_row *cb_table_next(struct cb_row *row)
{
  return row->next == &row->table->ring ? NULL : row->next;
}

size_t cb_table_busy(const struct cb_table *t)
{
  return t->busy;
}

/* --- a new daemon --- */

static bool id_ok(const char *name)
{
  size_t n = strlen(name);
  return n > 0 && n <= CB_ROW_ID_MAX &&
         strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789") == n;
}

static int recover_one(struct cb_table *t, const char *id, struct cb_err *err)
{
  struct cb_network_rules rules = { NULL, 0, NULL, 0 };
  struct cb_err why = CB_ERR_INIT;
  struct cb_row *row = row_new(t, id);
  if (!row)
    return cb_err_no_memory(err);
  row->recovering = true;
  t->recovering++;
  int rc = cb_row_file_read(t->c.state_dir, row, &why);
  if (rc && rc != CB_CLOSED) {
    row->unknown = true;
    rc = CB_OK;
  }
  if (!rc)
    rc = cb_network_rules_read(&rules, row->allow, row->forward, &why);
  if (!rc) {
    struct cb_box_spec box = { .id = row->id,
                               .network = rules.allow_count || rules.forward_count,
                               .allow = rules.allow,
                               .allow_count = rules.allow_count,
                               .forward = rules.forward,
                               .forward_count = rules.forward_count };
    rc = cb_box_reattach(&row->box, t->c.boxes, &box, &box_events, row, &why);
  }
  cb_network_rules_clear(&rules);
  if (rc) {
    cb_log(t->c.log, CB_LOG_INFO, "box", "%s is not taken up: %s", row->id, why.text);
    finish(row);
  }
  return CB_OK;
}

int cb_table_recover(struct cb_table *t, void (*ready)(void *arg), void *arg,
                     struct cb_err *err)
{
  int fd = openat(t->c.state_dir, "boxes", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR *dir = fd < 0 ? NULL : fdopendir(fd);
  if (!dir) {
    int rc = cb_err_errno(err, errno, "read the folder of the boxes");
    cb_close(&fd);
    return rc;
  }
  t->ready = ready;
  t->ready_arg = arg;
  t->recovering = 1; /* our own, so that none of them makes it zero before the last is there */
  int rc = CB_OK;
  const struct dirent *e;
  while (!rc && (e = readdir(dir)))
    if (id_ok(e->d_name))
      rc = recover_one(t, e->d_name, err);
  closedir(dir);
  if (--t->recovering == 0 && t->ready) {
    t->ready = NULL;
    ready(arg);
  }
  return rc;
}
