/* SPDX-License-Identifier: MIT
 * memory_test.c: no memory anywhere in the core where the tests of a room do not try it: orders,
 * references, processes of the host, the store. Each failing
 * allocation is a code or goes unnoticed; nothing waits for ever, leaks or is freed twice. */
#include "c/check.h"

#include <stdlib.h>
#include <unistd.h>

#include "c/io_help.h"
#include "net/process.h"
#include "secrets/resolve.h"
#include "store/store.h"
#include "support/each_allocation.h"
#include "wire/orders.h"
#include "wire/record.h"

static struct cb_io *io;

static int read_orders(void *arg, struct cb_err *err)
{
  struct cb_buf *text = arg;
  struct cb_orders o;
  char *copy = malloc(text->len + 1); /* read in place */
  memcpy(copy, text->p, text->len + 1);
  int rc = cb_orders_parse(&o, copy, text->len, err);
  if (rc == CB_OK) {
    CHECK(o.argc == 2 && o.env_count == 1 && o.secret_count == 1);
    cb_orders_clear(&o);
  }
  free(copy);
  return rc;
}

static void orders(void)
{
  static const char *const records[][2] = {
    { "crewbox_orders", "1" }, { "run", "r1" },      { "launch_seq", "1" },  { "kind", "agent" },
    { "run_dir", "/r" },       { "cwd", "/" },       { "user", "" },         { "argv", "sh" },
    { "argv", "-c" },          { "env", "A=b" },     { "secret", "S=value" }, { "findings", "" },
    { "end", "" },
  };
  struct cb_buf b;
  cb_buf_init(&b, 4096);
  for (size_t i = 0; i < sizeof records / sizeof *records; i++)
    CHECK(cb_record_addz(&b, records[i][0], records[i][1]) == CB_OK);
  CHECK(each_allocation("orders", read_orders, &b, CB_OK));
  cb_buf_clear(&b);
}

static const char *lookup(void *arg, const char *name, size_t n, size_t *len)
{
  (void)name, (void)n;
  *len = strlen(arg);
  return arg;
}

static int resolve(void *arg, struct cb_err *err)
{
  struct cb_buf out;
  cb_buf_init(&out, 4096);
  int rc = cb_resolve("a ${B} c ${D}", 13, lookup, NULL, arg, &out, err);
  cb_buf_clear(&out);
  return rc;
}

/* Waits for one completion and gives its code. */
static int end_of(struct cb_err *err)
{
  struct cb_completion *more = NULL, *c = help_next(io, &more);
  if (!c)
    return cb_err_set(err, CB_TIMEOUT, "no completion came");
  int rc = c->err.code;
  if (rc)
    *err = c->err;
  cb_completion_free(c);
  return rc;
}

static void start_child(struct cb_io *on, void *arg)
{
  char *const argv[] = { (char *)"/bin/echo", (char *)"word", NULL }, *const env[] = { NULL };
  struct cb_process_req req = { .argv = argv, .env = env, .input = "x", .input_len = 1 };
  struct cb_err err = CB_ERR_INIT;
  struct cb_op_ref *ref = arg;
  if (!cb_process_start(on, &req, cb_done_op, ref, &err))
    cb_done_op(ref, NULL, &err);
}

static int child(void *arg, struct cb_err *err)
{
  struct cb_op_ref *ref = cb_malloc(sizeof *ref);
  (void)arg;
  if (!ref)
    return cb_err_no_memory(err);
  ref->io = io;
  ref->op = cb_io_op(io, NULL, NULL);
  if (ref->op == 0) {
    cb_free(ref);
    return cb_err_no_memory(err);
  }
  uint64_t op = ref->op;
  int rc = cb_io_post(io, start_child, ref, err);
  if (rc) {
    struct cb_err own = CB_ERR_INIT;
    cb_err_set(&own, (enum cb_code)rc, "not started");
    cb_io_complete(io, op, NULL, &own, false);
    cb_free(ref);
  }
  return end_of(err);
}

static int query(void *arg, struct cb_err *err)
{
  struct cb_store *s = arg;
  uint64_t op;
  json_t *args = json_pack("{s:s, s:[s, i]}", "sql", "SELECT ?1 AS a, ?2 AS b", "params", "text", 7);
  if (!args)
    return cb_err_no_memory(err);
  int rc = cb_store_submit(s, CB_STORE_QUERY, args, &op, err);
  return rc ? rc : end_of(err);
}

static void store(void)
{
  char folder[] = "/tmp/crewbox-memory-XXXXXX", path[64];
  struct cb_store *s = NULL;
  CHECK(mkdtemp(folder) != NULL);
  snprintf(path, sizeof path, "%s/db", folder);
  CHECK(cb_store_open(&s, io, path, NULL) == CB_OK);
  struct cb_err err = CB_ERR_INIT;
  CHECK(query(s, &err) == CB_OK); /* connected */
  CHECK(each_allocation("a query", query, s, CB_OK));
  cb_store_close(s);
  char command[96];
  snprintf(command, sizeof command, "rm -rf %s", folder);
  CHECK(system(command) == 0);
}

int main(void)
{
  struct cb_err err = CB_ERR_INIT;
  each_allocation_begin();
  orders();
  CHECK(each_allocation("references", resolve, (void *)"value", CB_OK));
  int fds = help_fds();
  CHECK(cb_io_new(&io, &err) == CB_OK);
  CHECK(child(NULL, &err) == CB_OK);
  CHECK(each_allocation("a child process", child, NULL, CB_OK));
  store();
  cb_io_free(io);
  CHECK(help_threads_are(1));
  CHECK(help_fds() == fds);
  return check_done();
}
