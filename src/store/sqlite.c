/* SPDX-License-Identifier: MIT
 * sqlite.c: the embedded database. One thread and one connection a store. WAL, so that readers
 * never wait for a writer; synchronous FULL, so that what was answered is on the disk. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/encode.h"
#include "base/fd.h"
#include "store/store.h"

enum {
  STATEMENTS_KEPT = 64,
  ROW_COST = 64, /* bytes a row counts beside its values */
  BUSY_STEP_MS = 5
};

struct request {
  struct request *next;
  uint64_t op;
  enum cb_store_verb verb;
  json_t *args;
};

struct statement {
  sqlite3_stmt *stmt;
  char *sql;
  size_t len;
  uint64_t used; /* for the least recently used */
};

struct sqlite {
  struct cb_store base; /* first */
  pid_t pid;
  char *path;
  pthread_t thread;
  atomic_bool closing; /* written under lock, read by the busy handler without */
  pthread_mutex_t lock; /* guards first, last */
  pthread_cond_t more;
  struct request *first, *last;

  /* the thread's own */
  sqlite3 *db;
  struct statement kept[STATEMENTS_KEPT];
  uint64_t uses;
  int64_t busy_since_ms;
};

/* ---- errors ------------------------------------------------------------------------------ */

static enum cb_code code_of(struct sqlite *s, int rc)
{
  switch (rc & 0xff) {
  case SQLITE_BUSY:
  case SQLITE_LOCKED:
    return CB_BUSY;
  case SQLITE_CONSTRAINT:
    return CB_CONFLICT;
  case SQLITE_FULL:
    return CB_DISK_FULL;
  case SQLITE_CORRUPT:
  case SQLITE_NOTADB:
    return CB_CORRUPT;
  case SQLITE_NOMEM:
    return CB_NO_MEMORY;
  case SQLITE_PERM:
  case SQLITE_READONLY:
  case SQLITE_CANTOPEN:
  case SQLITE_AUTH:
    return CB_DENIED;
  case SQLITE_TOOBIG:
    return CB_TOO_LARGE;
  case SQLITE_IOERR: {
    int sys = s->db ? sqlite3_system_errno(s->db) : 0;
    return sys == ENOSPC || sys == EDQUOT ? CB_DISK_FULL : CB_SYSTEM;
  }
  case SQLITE_ERROR:
  case SQLITE_RANGE:
  case SQLITE_MISMATCH:
    return CB_INVALID;
  default:
    return CB_SYSTEM;
  }
}

static int fail(struct sqlite *s, int rc, struct cb_err *err)
{
  return cb_err_set(err, code_of(s, rc), "database %s: %s", s->path,
                    s->db ? sqlite3_errmsg(s->db) : sqlite3_errstr(rc));
}

/* ---- the connection ---------------------------------------------------------------------- */

/* In place of sqlite3_busy_timeout: the same wait, but a store that closes does not sit it out. */
static int on_busy(void *arg, int tries)
{
  struct sqlite *s = arg;
  const struct timespec step = { 0, BUSY_STEP_MS * 1000000L };
  if (tries == 0)
    s->busy_since_ms = cb_now_ms();
  if (atomic_load(&s->closing) || cb_now_ms() - s->busy_since_ms >= CB_STORE_BUSY_MS)
    return 0;
  nanosleep(&step, NULL);
  return 1;
}

static void disconnect(struct sqlite *s)
{
  for (size_t i = 0; i < STATEMENTS_KEPT; i++) {
    sqlite3_finalize(s->kept[i].stmt);
    cb_free(s->kept[i].sql);
    s->kept[i] = (struct statement){ 0 };
  }
  sqlite3_close(s->db);
  s->db = NULL;
}

static int set_up(struct sqlite *s)
{
  static const char *const settings[] = {
    "PRAGMA journal_mode=WAL", "PRAGMA synchronous=FULL", "PRAGMA foreign_keys=ON",
    "PRAGMA trusted_schema=OFF",
  };
  int rc = SQLITE_OK;
  sqlite3_extended_result_codes(s->db, 1);
  sqlite3_busy_handler(s->db, on_busy, s);
  sqlite3_db_config(s->db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
  sqlite3_db_config(s->db, SQLITE_DBCONFIG_DQS_DML, 0, NULL); /* "text" is never a string */
  sqlite3_db_config(s->db, SQLITE_DBCONFIG_DQS_DDL, 0, NULL);
  sqlite3_limit(s->db, SQLITE_LIMIT_ATTACHED, 0);
  for (size_t i = 0; rc == SQLITE_OK && i < sizeof settings / sizeof *settings; i++)
    rc = sqlite3_exec(s->db, settings[i], NULL, NULL, NULL);
  return rc;
}

static int connect_db(struct sqlite *s, struct cb_err *err)
{
  if (s->db)
    return CB_OK;
  int rc = sqlite3_open_v2(s->path, &s->db,
                           SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX,
                           NULL);
  if (rc == SQLITE_OK)
    rc = set_up(s);
  if (rc == SQLITE_OK)
    return CB_OK;
  int code = fail(s, rc, err);
  disconnect(s); /* the next request tries again */
  return code;
}

/* ---- statements -------------------------------------------------------------------------- */

static bool only_blanks(const char *p)
{
  return p[strspn(p, " \t\r\n;")] == '\0';
}

/* A prepared statement, kept for the next time; reset it after use. */
static int prepare(struct sqlite *s, const json_t *sql, sqlite3_stmt **out, struct cb_err *err)
{
  const char *text = json_string_value(sql), *tail = NULL;
  size_t len = json_string_length(sql);
  struct statement *oldest = &s->kept[0];
  if (!text || strlen(text) != len)
    return cb_err_set(err, CB_INVALID, "a statement is SQL text");
  for (size_t i = 0; i < STATEMENTS_KEPT; i++) {
    struct statement *k = &s->kept[i];
    if (k->stmt && k->len == len && memcmp(k->sql, text, len) == 0) {
      k->used = ++s->uses;
      *out = k->stmt;
      return CB_OK;
    }
    if (k->used < oldest->used)
      oldest = k;
  }
  sqlite3_stmt *stmt = NULL;
  int rc = sqlite3_prepare_v3(s->db, text, -1, SQLITE_PREPARE_PERSISTENT, &stmt, &tail);
  if (rc != SQLITE_OK)
    return fail(s, rc, err);
  char *copy = stmt && only_blanks(tail) ? cb_memdup(text, len) : NULL;
  if (!copy) {
    bool one = stmt && only_blanks(tail);
    sqlite3_finalize(stmt);
    return one ? cb_err_no_memory(err)
               : cb_err_set(err, CB_INVALID, "one statement at a time: put several into a batch");
  }
  sqlite3_finalize(oldest->stmt);
  cb_free(oldest->sql);
  *oldest = (struct statement){ .stmt = stmt, .sql = copy, .len = len, .used = ++s->uses };
  *out = stmt;
  return CB_OK;
}

static int bind_text(sqlite3_stmt *stmt, int at, const json_t *v, bool blob)
{
  const char *p = json_string_value(v);
  size_t n = json_string_length(v);
  if (blob || memchr(p, '\0', n) || !cb_utf8_valid(p, n))
    return sqlite3_bind_blob64(stmt, at, p, n, SQLITE_STATIC);
  return sqlite3_bind_text64(stmt, at, p, n, SQLITE_STATIC, SQLITE_UTF8);
}

/* Values are borrowed (SQLITE_STATIC): the arguments outlive the step, and bindings are
 * cleared after it. */
static int bind_one(sqlite3_stmt *stmt, int at, const json_t *v)
{
  switch (json_typeof(v)) {
  case JSON_STRING:
    return bind_text(stmt, at, v, false);
  case JSON_INTEGER:
    return sqlite3_bind_int64(stmt, at, json_integer_value(v));
  case JSON_REAL:
    return sqlite3_bind_double(stmt, at, json_real_value(v));
  case JSON_TRUE:
  case JSON_FALSE:
    return sqlite3_bind_int(stmt, at, json_is_true(v));
  case JSON_NULL:
    return sqlite3_bind_null(stmt, at);
  case JSON_OBJECT:
    v = json_object_size(v) == 1 ? json_object_get(v, "bytes") : NULL;
    return json_is_string(v) ? bind_text(stmt, at, v, true) : SQLITE_MISMATCH;
  case JSON_ARRAY:
    break;
  }
  return SQLITE_MISMATCH;
}

static int bind(struct sqlite *s, sqlite3_stmt *stmt, const json_t *params, struct cb_err *err)
{
  int want = sqlite3_bind_parameter_count(stmt);
  size_t given = json_is_array(params) ? json_array_size(params) : json_object_size(params);
  if ((size_t)want != given)
    return cb_err_set(err, CB_INVALID, "the statement takes %d parameters, %zu were given", want,
                      given);
  for (int at = 1; at <= want; at++) {
    const char *name = sqlite3_bind_parameter_name(stmt, at);
    const json_t *v = json_is_array(params) ? json_array_get(params, (size_t)at - 1)
                      : name                ? json_object_get(params, name + 1)
                                            : NULL;
    if (!v)
      return cb_err_set(err, CB_INVALID, "parameter %d (%s) was not given", at, name ? name : "?");
    int rc = bind_one(stmt, at, v);
    if (rc == SQLITE_MISMATCH)
      return cb_err_set(err, CB_INVALID, "parameter %d: a list or an object is no value", at);
    if (rc != SQLITE_OK)
      return fail(s, rc, err);
  }
  return CB_OK;
}

static json_t *column(sqlite3_stmt *stmt, int i, size_t *cost)
{
  switch (sqlite3_column_type(stmt, i)) {
  case SQLITE_INTEGER:
    return json_integer(sqlite3_column_int64(stmt, i));
  case SQLITE_FLOAT: {
    double d = sqlite3_column_double(stmt, i);
    json_t *v = json_real(d);
    return v ? v : json_string(d > 0 ? "inf" : "-inf"); /* JSON has no infinity */
  }
  default: {
    const char *p = sqlite3_column_blob(stmt, i);
    size_t n = (size_t)sqlite3_column_bytes(stmt, i);
    *cost += n;
    return json_stringn_nocheck(p ? p : "", n);
  }
  }
}

/* The current row. NULL when memory runs out. */
static json_t *row_of(sqlite3_stmt *stmt, size_t *cost)
{
  json_t *row = json_object();
  int count = sqlite3_column_count(stmt);
  *cost += ROW_COST;
  for (int i = 0; row && i < count; i++) {
    if (sqlite3_column_type(stmt, i) == SQLITE_NULL)
      continue;
    *cost += ROW_COST;
    json_t *v = column(stmt, i, cost);
    if (!v || json_object_set_new_nocheck(row, sqlite3_column_name(stmt, i), v) < 0) {
      json_decref(row);
      return NULL;
    }
  }
  return row;
}

static int step_all(struct sqlite *s, sqlite3_stmt *stmt, json_t *rows, size_t *cost,
                    struct cb_err *err)
{
  int rc;
  while ((rc = sqlite3_step(stmt)) == SQLITE_ROW) {
    json_t *row = row_of(stmt, cost);
    if (!row || json_array_append_new(rows, row) < 0)
      return cb_err_no_memory(err);
    if (*cost > CB_STORE_RESULT_MAX)
      return cb_err_set(err, CB_TOO_LARGE,
                        "the answer is over %d MiB: ask for less with LIMIT",
                        CB_STORE_RESULT_MAX >> 20);
  }
  return rc == SQLITE_DONE ? CB_OK : fail(s, rc, err);
}

/* Carries out one statement: {rows, changes}. */
static int run(struct sqlite *s, const json_t *statement, size_t *cost, json_t **out,
               struct cb_err *err)
{
  sqlite3_stmt *stmt = NULL;
  json_t *rows = NULL;
  int rc = prepare(s, json_object_get(statement, "sql"), &stmt, err);
  if (rc)
    return rc;
  rc = bind(s, stmt, json_object_get(statement, "params"), err);
  if (rc)
    goto out;
  rows = json_array();
  if (!rows) {
    rc = cb_err_no_memory(err);
    goto out;
  }
  /* sqlite3_changes keeps the figure of an earlier statement over one that changes no rows. */
  sqlite3_int64 before = sqlite3_total_changes64(s->db);
  rc = step_all(s, stmt, rows, cost, err);
  if (rc)
    goto out;
  sqlite3_int64 changes =
      sqlite3_total_changes64(s->db) == before ? 0 : sqlite3_changes64(s->db);
  *out = json_pack("{s:O, s:I}", "rows", rows, "changes", (json_int_t)changes);
  if (!*out)
    rc = cb_err_no_memory(err);
out:
  sqlite3_reset(stmt);
  sqlite3_clear_bindings(stmt);
  json_decref(rows);
  return rc;
}

/* ---- requests ---------------------------------------------------------------------------- */

static void roll_back(struct sqlite *s)
{
  if (!sqlite3_get_autocommit(s->db))
    sqlite3_exec(s->db, "ROLLBACK", NULL, NULL, NULL);
}

static int query(struct sqlite *s, const json_t *statement, json_t **out, struct cb_err *err)
{
  size_t cost = 0;
  int rc = run(s, statement, &cost, out, err);
  if (rc == CB_OK && !sqlite3_get_autocommit(s->db)) {
    json_decref(*out);
    *out = NULL;
    rc = cb_err_set(err, CB_INVALID, "a transaction over several requests: use a batch");
  }
  roll_back(s);
  return rc;
}

static int command(struct sqlite *s, const char *sql, struct cb_err *err)
{
  int rc = sqlite3_exec(s->db, sql, NULL, NULL, NULL);
  return rc == SQLITE_OK ? CB_OK : fail(s, rc, err);
}

/* Runs the statements of an open transaction. *failed: index of the one whose changes differ. */
static int run_batch(struct sqlite *s, const json_t *list, json_t *results, size_t *failed,
                     struct cb_err *err)
{
  size_t cost = 0, i;
  const json_t *statement;
  json_array_foreach(list, i, statement) {
    const json_t *want = json_object_get(statement, "changes");
    json_t *result = NULL;
    int rc = run(s, statement, &cost, &result, err);
    if (rc == CB_OK && sqlite3_get_autocommit(s->db)) {
      json_decref(result);
      rc = cb_err_set(err, CB_INVALID, "it ends the batch's transaction");
    }
    if (rc) {
      cb_err_wrap(err, "statement %zu", i + 1);
      return rc;
    }
    bool as_wanted = !want || json_integer_value(want) ==
                                  json_integer_value(json_object_get(result, "changes"));
    if (json_array_append_new(results, result) < 0)
      return cb_err_no_memory(err);
    if (!as_wanted) {
      *failed = i + 1;
      return CB_OK;
    }
  }
  return CB_OK;
}

static int batch(struct sqlite *s, const json_t *list, json_t **out, struct cb_err *err)
{
  size_t failed = 0;
  json_t *results = json_array();
  int rc = results ? command(s, "BEGIN IMMEDIATE", err) : cb_err_no_memory(err);
  if (rc == CB_OK)
    rc = run_batch(s, list, results, &failed, err);
  if (rc == CB_OK && !failed)
    rc = command(s, "COMMIT", err);
  roll_back(s); /* nothing to do after a COMMIT */
  if (rc == CB_OK) {
    *out = failed ? json_pack("{s:I}", "failed", (json_int_t)failed)
                  : json_pack("{s:O}", "results", results);
    if (!*out)
      rc = cb_err_no_memory(err);
  }
  json_decref(results);
  return rc;
}

static int data_version(struct sqlite *s, json_t **out, struct cb_err *err)
{
  json_t *statement = json_pack("{s:s}", "sql", "PRAGMA data_version"), *result = NULL;
  size_t cost = 0;
  int rc = statement ? run(s, statement, &cost, &result, err) : cb_err_no_memory(err);
  if (rc == CB_OK)
    *out = json_incref(json_object_get(json_array_get(json_object_get(result, "rows"), 0),
                                       "data_version"));
  json_decref(result);
  json_decref(statement);
  return rc;
}

static void carry_out(struct sqlite *s, struct request *r)
{
  struct cb_err err = CB_ERR_INIT;
  json_t *value = NULL;
  int rc = connect_db(s, &err);
  if (rc == CB_OK) {
    switch (r->verb) {
    case CB_STORE_QUERY:
      rc = query(s, r->args, &value, &err);
      break;
    case CB_STORE_BATCH:
      rc = batch(s, r->args, &value, &err);
      break;
    case CB_STORE_DATA_VERSION:
      rc = data_version(s, &value, &err);
      break;
    }
  }
  cb_io_complete(s->base.io, r->op, value, rc ? &err : NULL, false);
}

static void *loop(void *arg)
{
  struct sqlite *s = arg;
  struct cb_err closed = CB_ERR_INIT;
  cb_err_set(&closed, CB_CLOSED, "the store was closed");
  pthread_setname_np(pthread_self(), "crewbox-store");
  pthread_mutex_lock(&s->lock);
  for (;;) {
    while (!s->first && !atomic_load(&s->closing))
      pthread_cond_wait(&s->more, &s->lock);
    struct request *r = s->first;
    if (!r)
      break;
    s->first = r->next;
    if (!s->first)
      s->last = NULL;
    bool closing = atomic_load(&s->closing);
    pthread_mutex_unlock(&s->lock);
    if (closing)
      cb_io_complete(s->base.io, r->op, NULL, &closed, false);
    else
      carry_out(s, r);
    json_decref(r->args);
    cb_free(r);
    pthread_mutex_lock(&s->lock);
  }
  pthread_mutex_unlock(&s->lock);
  disconnect(s);
  return NULL;
}

/* ---- the driver -------------------------------------------------------------------------- */

static int submit(struct cb_store *base, uint64_t op, enum cb_store_verb verb, json_t *args,
                  struct cb_err *err)
{
  struct sqlite *s = (struct sqlite *)base;
  struct request *r = cb_calloc(1, sizeof *r);
  if (!r) {
    json_decref(args);
    return cb_err_no_memory(err);
  }
  r->op = op;
  r->verb = verb;
  r->args = args;
  pthread_mutex_lock(&s->lock);
  if (s->last)
    s->last->next = r;
  else
    s->first = r;
  s->last = r;
  pthread_cond_signal(&s->more);
  pthread_mutex_unlock(&s->lock);
  return CB_OK;
}

/* The file is born with mode 0600 (SQLite gives its -wal and -shm the same). An existing one is
 * not opened here: closing that descriptor would drop the POSIX locks of every other connection
 * of this process to the file. */
static int make_file(const char *path, struct cb_err *err)
{
  struct stat st;
  if (lstat(path, &st) == 0) {
    if (S_ISREG(st.st_mode) && (st.st_mode & 077) && st.st_uid == geteuid())
      (void)chmod(path, 0600);
    return CB_OK;
  }
  int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0 && errno != EEXIST)
    return cb_err_errno(err, errno, "make the database %s", path);
  cb_close(&fd);
  return CB_OK;
}

static void free_sqlite(struct sqlite *s)
{
  pthread_cond_destroy(&s->more);
  pthread_mutex_destroy(&s->lock);
  cb_io_drop(s->base.io);
  cb_free(s->path);
  cb_free(s);
}

static int open_sqlite(struct cb_store **out, struct cb_io *io, const char *target,
                       struct cb_err *err)
{
  sigset_t all, before;
  int rc = make_file(target, err);
  if (rc)
    return rc;
  struct sqlite *s = cb_calloc(1, sizeof *s);
  if (!s)
    return cb_err_no_memory(err);
  s->base.ops = &cb_store_sqlite;
  s->base.io = cb_io_keep(io);
  s->pid = getpid();
  pthread_mutex_init(&s->lock, NULL);
  pthread_cond_init(&s->more, NULL);
  s->path = cb_strdup(target);
  if (!s->path) {
    free_sqlite(s);
    return cb_err_no_memory(err);
  }
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int sys = pthread_create(&s->thread, NULL, loop, s);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (sys) {
    free_sqlite(s);
    return cb_err_errno(err, sys, "start the thread of a store");
  }
  *out = &s->base;
  return CB_OK;
}

static void close_sqlite(struct cb_store *base)
{
  struct sqlite *s = (struct sqlite *)base;
  /* A forked child has neither the thread nor a right to the connection (SQLite forbids its
   * use after a fork, closing included): it leaves both alone. */
  if (s->pid != getpid()) {
    cb_io_drop(s->base.io);
    cb_free(s->path);
    cb_free(s);
    return;
  }
  pthread_mutex_lock(&s->lock);
  atomic_store(&s->closing, true);
  pthread_cond_signal(&s->more);
  pthread_mutex_unlock(&s->lock);
  pthread_join(s->thread, NULL);
  free_sqlite(s);
}

const struct cb_store_ops cb_store_sqlite = {
  .kind = "sqlite",
  .open = open_sqlite,
  .submit = submit,
  .close = close_sqlite,
};
