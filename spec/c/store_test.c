/* SPDX-License-Identifier: MIT
 * store_test.c: the SQLite store: exact values, transactions, and every way to fail. */
#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "c/check.h"
#include "c/io_help.h"
#include "store/store.h"

static char folder[64];

struct here { /* a store, its io and the path of its file */
  struct cb_io *io;
  struct cb_store *store;
  char path[96];
};

static struct here open_at(const char *name)
{
  struct here h = { NULL, NULL, "" };
  struct cb_err err = CB_ERR_INIT;
  snprintf(h.path, sizeof h.path, "%s/%s", folder, name);
  CHECK(cb_io_new(&h.io, &err) == CB_OK);
  CHECK(cb_store_open(&h.store, h.io, h.path, &err) == CB_OK);
  return h;
}

static void close_all(struct here *h)
{
  cb_store_close(h->store);
  cb_io_free(h->io);
}

/* Submits (args taken) and waits. */
static struct cb_completion *ask(struct here *h, enum cb_store_verb verb, json_t *args)
{
  struct cb_completion *more = NULL, *c;
  struct cb_err err = CB_ERR_INIT;
  uint64_t op = 0;
  CHECK(cb_store_submit(h->store, verb, args, &op, &err) == CB_OK);
  c = help_next(h->io, &more);
  CHECK(c && c->op == op && !c->more && !more);
  return c;
}

static json_t *sql(const char *text, json_t *params)
{
  return json_pack("{s:s, s:o}", "sql", text, "params", params ? params : json_array());
}

static struct cb_completion *query(struct here *h, const char *text, json_t *params)
{
  return ask(h, CB_STORE_QUERY, sql(text, params));
}

static enum cb_code code(struct here *h, const char *text, json_t *params)
{
  struct cb_completion *c = query(h, text, params);
  enum cb_code got = c ? c->err.code : CB_SYSTEM;
  cb_completion_free(c);
  return got;
}

static json_int_t changes_of(struct cb_completion *c)
{
  return json_integer_value(json_object_get(c->value, "changes"));
}

static json_t *row(struct cb_completion *c, size_t i)
{
  return json_array_get(json_object_get(c->value, "rows"), i);
}

/* One integer out of the first row. */
static json_int_t one(struct here *h, const char *text)
{
  struct cb_completion *c = query(h, text, NULL);
  json_int_t n = json_integer_value(json_object_iter_value(json_object_iter(row(c, 0))));
  cb_completion_free(c);
  return n;
}

static void bug_q7_values_come_back_exactly(void)
{
  struct here h = open_at("values");
  CHECK(code(&h, "CREATE TABLE t(k INTEGER PRIMARY KEY, v)", NULL) == CB_OK);
  json_t *values = json_array();
  json_array_append_new(values, json_integer(9007199254740993));
  json_array_append_new(values, json_integer(INT64_MIN));
  json_array_append_new(values, json_real(0.1));
  json_array_append_new(values, json_string("123")); /* looks like a number, is text */
  json_array_append_new(values, json_string("caf\xc3\xa9"));
  json_array_append_new(values, json_stringn_nocheck("a\0b", 3));
  json_array_append_new(values, json_stringn_nocheck("\xff\xfe", 2));
  json_array_append_new(values, json_string(""));
  for (size_t i = 0; i < json_array_size(values); i++) {
    struct cb_completion *c = query(&h, "INSERT INTO t(v) VALUES(?)",
                                    json_pack("[O]", json_array_get(values, i)));
    CHECK(c->err.code == CB_OK && changes_of(c) == 1);
    cb_completion_free(c);
  }
  struct cb_completion *c = query(&h, "SELECT v FROM t ORDER BY k", NULL);
  for (size_t i = 0; i < json_array_size(values); i++)
    CHECK(json_equal(json_object_get(row(c, i), "v"), json_array_get(values, i)));
  cb_completion_free(c);
  c = query(&h, "SELECT typeof(:a) a, typeof(@b) b, typeof($c) c, typeof(:d) d, :e e, NULL f",
            json_pack("{s:{s:s}, s:s, s:n, s:f, s:b}", "a", "bytes", "x", "b", "x", "c", "d", 1.5,
                      "e", 1));
  CHECK_STR(json_string_value(json_object_get(row(c, 0), "a")), "blob");
  CHECK_STR(json_string_value(json_object_get(row(c, 0), "b")), "text");
  CHECK_STR(json_string_value(json_object_get(row(c, 0), "c")), "null");
  CHECK_STR(json_string_value(json_object_get(row(c, 0), "d")), "real");
  CHECK(json_integer_value(json_object_get(row(c, 0), "e")) == 1);
  CHECK(json_object_get(row(c, 0), "f") == NULL); /* NULL: absent */
  cb_completion_free(c);
  json_decref(values);
  close_all(&h);
}

static void changes_are_those_of_the_statement_itself(void)
{
  struct here h = open_at("changes");
  struct cb_completion *c;
  CHECK(code(&h, "CREATE TABLE t(v)", NULL) == CB_OK);
  c = query(&h, "INSERT INTO t VALUES(1),(2),(3)", NULL);
  CHECK(changes_of(c) == 3);
  cb_completion_free(c);
  c = query(&h, "CREATE INDEX i ON t(v)", NULL);
  CHECK(changes_of(c) == 0);
  cb_completion_free(c);
  c = query(&h, "SELECT * FROM t", NULL);
  CHECK(changes_of(c) == 0);
  cb_completion_free(c);
  c = query(&h, "DELETE FROM t WHERE v > 1 RETURNING v", NULL);
  CHECK(changes_of(c) == 2 && json_array_size(json_object_get(c->value, "rows")) == 2);
  cb_completion_free(c);
  close_all(&h);
}

static json_t *expect(json_t *statement, json_int_t changes)
{
  json_object_set_new(statement, "changes", json_integer(changes));
  return statement;
}

static void a_batch_is_all_or_nothing(void)
{
  struct here h = open_at("batch");
  struct cb_completion *c;
  CHECK(code(&h, "CREATE TABLE t(k PRIMARY KEY, v)", NULL) == CB_OK);
  c = ask(&h, CB_STORE_BATCH,
          json_pack("[o,o]", sql("INSERT INTO t VALUES(1,'a')", NULL),
                    expect(sql("UPDATE t SET v='b' WHERE k=1", NULL), 1)));
  CHECK(c->err.code == CB_OK && json_array_size(json_object_get(c->value, "results")) == 2);
  cb_completion_free(c);
  c = ask(&h, CB_STORE_BATCH,
          json_pack("[o,o,o]", sql("INSERT INTO t VALUES(2,'a')", NULL),
                    expect(sql("UPDATE t SET v='c' WHERE k=9", NULL), 1),
                    sql("INSERT INTO t VALUES(3,'a')", NULL)));
  CHECK(json_integer_value(json_object_get(c->value, "failed")) == 2);
  cb_completion_free(c);
  c = ask(&h, CB_STORE_BATCH, json_pack("[o,o]", sql("INSERT INTO t VALUES(4,'a')", NULL),
                                        sql("INSERT INTO t VALUES(1,'a')", NULL)));
  CHECK(c->err.code == CB_CONFLICT && strncmp(c->err.text, "statement 2: ", 13) == 0);
  cb_completion_free(c);
  c = ask(&h, CB_STORE_BATCH, json_pack("[o,o]", sql("INSERT INTO t VALUES(5,'a')", NULL),
                                        sql("COMMIT", NULL)));
  CHECK(c->err.code == CB_INVALID);
  cb_completion_free(c);
  CHECK(one(&h, "SELECT count(*) FROM t WHERE k < 5") == 1);
  close_all(&h);
}

static void mistakes_are_invalid_and_leave_nothing_open(void)
{
  struct here h = open_at("mistakes");
  CHECK(code(&h, "SELEC 1", NULL) == CB_INVALID);
  CHECK(code(&h, "SELECT 1; SELECT 2", NULL) == CB_INVALID);
  CHECK(code(&h, "", NULL) == CB_INVALID);
  CHECK(code(&h, "SELECT ?", NULL) == CB_INVALID);
  CHECK(code(&h, "SELECT ?", json_pack("[i,i]", 1, 2)) == CB_INVALID);
  CHECK(code(&h, "SELECT ?", json_pack("[[]]")) == CB_INVALID);
  CHECK(code(&h, "SELECT :a", json_pack("{s:i}", "b", 1)) == CB_INVALID);
  CHECK(code(&h, "SELECT \"text\"", NULL) == CB_INVALID); /* not a string */
  CHECK(code(&h, "BEGIN", NULL) == CB_INVALID);
  CHECK(code(&h, "ATTACH ':memory:' AS other", NULL) != CB_OK);
  CHECK(code(&h, "CREATE TABLE t(v CHECK(v > 0))", NULL) == CB_OK); /* no transaction was left */
  CHECK(code(&h, "INSERT INTO t VALUES(0)", NULL) == CB_CONFLICT);
  CHECK(code(&h, "SELECT 1 ;\n", NULL) == CB_OK);
  close_all(&h);
}

static void foreign_keys_and_triggers_are_on(void)
{
  struct here h = open_at("keys");
  CHECK(code(&h, "CREATE TABLE a(k INTEGER PRIMARY KEY)", NULL) == CB_OK);
  CHECK(code(&h, "CREATE TABLE b(k REFERENCES a(k), state)", NULL) == CB_OK);
  CHECK(code(&h, "INSERT INTO b VALUES(7, 'x')", NULL) == CB_CONFLICT);
  CHECK(code(&h, "CREATE TRIGGER f BEFORE UPDATE ON b WHEN old.state = 'done' "
                 "BEGIN SELECT raise(ABORT, 'final'); END", NULL) == CB_OK);
  CHECK(code(&h, "INSERT INTO a VALUES(1)", NULL) == CB_OK);
  CHECK(code(&h, "INSERT INTO b VALUES(1, 'done')", NULL) == CB_OK);
  CHECK(code(&h, "UPDATE b SET state = 'again'", NULL) == CB_CONFLICT);
  close_all(&h);
}

static void answers_are_bounded(void)
{
  struct here h = open_at("bounded");
  CHECK(code(&h, "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) "
                 "SELECT n, hex(randomblob(100000)) v FROM c", NULL) == CB_TOO_LARGE);
  CHECK(code(&h, "SELECT 1", NULL) == CB_OK);
  close_all(&h);
}

static void a_full_disk_is_told(void)
{
  struct here h = open_at("full");
  CHECK(code(&h, "CREATE TABLE t(v)", NULL) == CB_OK);
  CHECK(code(&h, "PRAGMA max_page_count = 8", NULL) == CB_OK);
  CHECK(code(&h, "INSERT INTO t VALUES(zeroblob(1000000))", NULL) == CB_DISK_FULL);
  CHECK(one(&h, "SELECT count(*) FROM t") == 0);
  close_all(&h);
}

static void a_file_that_is_no_database_is_corrupt(void)
{
  char path[96];
  snprintf(path, sizeof path, "%s/corrupt", folder);
  int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  for (int i = 0; i < 400; i++)
    CHECK(write(fd, "this is no database\n", 20) == 20);
  cb_close(&fd);
  struct here h = open_at("corrupt");
  CHECK(code(&h, "SELECT 1 FROM sqlite_schema", NULL) == CB_CORRUPT);
  CHECK(code(&h, "SELECT 1 FROM sqlite_schema", NULL) == CB_CORRUPT); /* and again, not worse */
  close_all(&h);
}

static void what_cannot_be_made_is_told_at_once(void)
{
  struct cb_io *io = NULL;
  struct cb_store *s = NULL;
  struct cb_err err = CB_ERR_INIT;
  CHECK(cb_io_new(&io, NULL) == CB_OK);
  CHECK(cb_store_open(&s, io, "/nowhere/at/all/db", &err) == CB_NOT_FOUND && !s);
  cb_store_close(NULL);
  cb_io_free(io);
}

static void files_are_private(void)
{
  static const char *const ends[] = { "", "-wal", "-shm" };
  mode_t before = umask(0);
  struct here h = open_at("private");
  CHECK(code(&h, "CREATE TABLE t(v)", NULL) == CB_OK);
  umask(before);
  for (size_t i = 0; i < 3; i++) {
    char name[128];
    struct stat st;
    snprintf(name, sizeof name, "%s%s", h.path, ends[i]);
    CHECK(stat(name, &st) == 0 && (st.st_mode & 0777) == 0600);
  }
  close_all(&h);
}

static void others_are_waited_for_and_noticed(void)
{
  struct here h = open_at("shared"), other = open_at("shared");
  struct cb_completion *more = NULL, *c;
  sqlite3 *raw = NULL;
  uint64_t op;
  CHECK(code(&h, "CREATE TABLE t(v)", NULL) == CB_OK);
  c = ask(&h, CB_STORE_DATA_VERSION, NULL);
  json_int_t version = json_integer_value(c->value);
  cb_completion_free(c);
  CHECK(code(&h, "INSERT INTO t VALUES(1)", NULL) == CB_OK);
  c = ask(&h, CB_STORE_DATA_VERSION, NULL);
  CHECK(json_integer_value(c->value) == version); /* our own write */
  cb_completion_free(c);
  CHECK(code(&other, "INSERT INTO t VALUES(2)", NULL) == CB_OK);
  c = ask(&h, CB_STORE_DATA_VERSION, NULL);
  CHECK(json_integer_value(c->value) != version);
  cb_completion_free(c);

  /* Somebody holds the write lock: a writer waits, a reader does not. */
  CHECK(sqlite3_open(h.path, &raw) == SQLITE_OK);
  CHECK(sqlite3_exec(raw, "BEGIN IMMEDIATE; INSERT INTO t VALUES(3)", NULL, NULL, NULL) == 0);
  CHECK(cb_store_submit(h.store, CB_STORE_QUERY, sql("INSERT INTO t VALUES(4)", NULL), &op,
                        NULL) == CB_OK);
  CHECK(one(&other, "SELECT count(*) FROM t") == 2);
  CHECK(cb_io_wait(h.io, 0) == 0);
  CHECK(sqlite3_exec(raw, "COMMIT", NULL, NULL, NULL) == 0);
  c = help_next(h.io, &more);
  CHECK(c && c->op == op && c->err.code == CB_OK);
  cb_completion_free(c);

  /* A store that closes does not sit the wait out, and what never began is told so. */
  CHECK(sqlite3_exec(raw, "BEGIN IMMEDIATE", NULL, NULL, NULL) == 0);
  for (int i = 0; i < 3; i++)
    CHECK(cb_store_submit(h.store, CB_STORE_QUERY, sql("INSERT INTO t VALUES(5)", NULL), &op,
                          NULL) == CB_OK);
  cb_store_close(h.store);
  CHECK(cb_io_ops(h.io) == 0);
  for (int i = 0; i < 3; i++) {
    c = help_next(h.io, &more);
    CHECK(c && (c->err.code == CB_CLOSED || (i == 0 && c->err.code == CB_BUSY)));
    cb_completion_free(c);
  }
  sqlite3_exec(raw, "ROLLBACK", NULL, NULL, NULL);
  sqlite3_close(raw);
  cb_io_free(h.io);
  close_all(&other);
}

static void many_statements_are_kept_apart(void)
{
  struct here h = open_at("many");
  bool right = true;
  for (int round = 0; round < 2; round++) {
    for (int i = 0; i < 200; i++) { /* more than are kept prepared */
      char text[48];
      snprintf(text, sizeof text, "SELECT %d AS n", i);
      right = right && one(&h, text) == i;
    }
  }
  CHECK(right);
  close_all(&h);
}

static void the_io_may_end_first(void)
{
  struct here h = open_at("first");
  struct cb_err err = CB_ERR_INIT;
  uint64_t op;
  CHECK(cb_store_submit(h.store, CB_STORE_QUERY, sql("SELECT 1", NULL), &op, &err) == CB_OK);
  cb_io_free(h.io);
  CHECK(cb_store_submit(h.store, CB_STORE_QUERY, sql("SELECT 1", NULL), &op, &err) == CB_CLOSED);
  cb_store_close(h.store);
}

static void bug_q3_a_store_from_before_a_fork_is_left_alone(void)
{
  struct here h = open_at("fork");
  CHECK(code(&h, "CREATE TABLE t(v)", NULL) == CB_OK);
  pid_t pid = fork();
  if (pid == 0) {
    struct cb_err err = CB_ERR_INIT;
    uint64_t op;
    bool ok = cb_store_submit(h.store, CB_STORE_QUERY, sql("SELECT 1", NULL), &op, &err) ==
              CB_CLOSED;
    close_all(&h); /* joins nobody */
    _exit(ok ? 0 : 1);
  }
  int status = -1;
  CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
  CHECK(code(&h, "INSERT INTO t VALUES(1)", NULL) == CB_OK);
  close_all(&h);
}

int main(void)
{
  char command[96];
  strcpy(folder, "/tmp/crewbox-store-XXXXXX");
  if (!mkdtemp(folder))
    return 1;
  int fds = help_fds(), threads = help_threads();
  bug_q7_values_come_back_exactly();
  changes_are_those_of_the_statement_itself();
  a_batch_is_all_or_nothing();
  mistakes_are_invalid_and_leave_nothing_open();
  foreign_keys_and_triggers_are_on();
  answers_are_bounded();
  a_full_disk_is_told();
  a_file_that_is_no_database_is_corrupt();
  what_cannot_be_made_is_told_at_once();
  files_are_private();
  others_are_waited_for_and_noticed();
  many_statements_are_kept_apart();
  the_io_may_end_first();
  bug_q3_a_store_from_before_a_fork_is_left_alone();
  CHECK(help_fds() == fds);
  CHECK(help_threads_are(threads));
  snprintf(command, sizeof command, "rm -rf %s", folder);
  CHECK(system(command) == 0);
  return check_done();
}
