/* SPDX-License-Identifier: MIT
 * boxd_memory_test.c: no memory while the box server and the init read what they are given: a
 * code each time, nothing lost, nothing freed twice. */
#include "c/check.h"

#include <fcntl.h>
#include <stdlib.h>

#include "box/config.h"
#include "boxd/box_answer.h"
#include "boxd/create_spec.h"
#include "boxd/json.h"
#include "support/each_allocation.h"
#include "wire/record.h"

static const char create[] =
  "{\"templateID\":\"base\",\"timeout\":60,\"metadata\":{\"a\":\"b\",\"c\":\"d\"},\"envVars\":{\"X\":\"y\"},"
  "\"crewbox\":{\"network\":{\"mode\":\"allowlist\",\"allow\":[\"a.example:443\",\"*.b.example:80\"],"
  "\"forward\":[{\"port\":80,\"to\":\"127.0.0.1:8080\"}]}}}";
static int read_create(void *arg, struct cb_err *err)
{
  struct cb_create_spec s;
  int rc = cb_create_spec_read(&s, arg, true, AT_FDCWD, err); /* "base" needs no file */
  if (!rc) {
    CHECK(json_object_size(s.env) == 1 && json_array_size(s.allow) == 2);
    CHECK(json_object_size(s.metadata) == 2);
    cb_create_spec_clear(&s);
  }
  return rc;
}

static int read_config(void *arg, struct cb_err *err)
{
  struct cb_box_config c;
  struct cb_buf *text = arg;
  int rc = cb_box_config_parse(&c, text->p, text->len, err);
  CHECK(rc != CB_OK || (c.rule_count == 3 && c.bind_count == 1 && c.env.count == 2));
  cb_box_config_clear(&c);
  return rc;
}

static int read_answer(void *arg, struct cb_err *err)
{
  struct cb_box_parsed parsed;
  struct cb_buf *text = arg;
  char *copy = strdup(text->p); /* it is written to */
  int rc = cb_box_answer_parse(&parsed, copy, text->len, false);
  CHECK(rc != CB_OK || parsed.answer.proc_count == 2);
  if (rc)
    cb_err_set(err, (enum cb_code)rc, "no answer");
  cb_box_parsed_clear(&parsed);
  free(copy);
  return rc;
}

static int read_bytes(void *arg, struct cb_err *err)
{
  json_t *text = cb_json_text(arg, 5);
  int rc = text ? CB_OK : cb_err_no_memory(err);
  json_decref(text);
  return rc;
}

static void add(struct cb_buf *b, const char *name, const char *value)
{
  if (cb_record_addz(b, name, value))
    abort();
}

static void configurations(void)
{
  struct cb_buf b, mount;
  cb_buf_init(&b, 4096);
  cb_buf_init(&mount, 256);
  add(&b, "crewbox_box", "1");
  add(&b, "id", "a");
  add(&b, "uid", "1000");
  add(&b, "gid", "1000");
  add(&b, "dir", "/d");
  add(&b, "base", "/b");
  add(&b, "network", "allowlist");
  add(&b, "allow", "a.example:443");
  add(&b, "allow", "b.example:80");
  add(&b, "forward", "80 127.0.0.1:8080");
  add(&mount, "source", "/s");
  add(&mount, "target", "/t");
  add(&b, "mount", mount.p);
  add(&b, "path", "/p");
  add(&b, "env", "A=b");
  add(&b, "env", "C=d");
  CHECK(each_allocation("the configuration of a box", read_config, &b, CB_OK));
  cb_buf_clear(&b);
  cb_buf_clear(&mount);
}

static void answers(void)
{
  struct cb_buf b, proc;
  cb_buf_init(&b, 4096);
  cb_buf_init(&proc, 512);
  add(&proc, "pid", "7");
  add(&proc, "exited", "0");
  add(&proc, "deadline", "0");
  add(&proc, "cmd", "sh");
  add(&proc, "arg", "-c");
  add(&proc, "env", "A=b");
  add(&proc, "cwd", "/");
  add(&proc, "user", "user");
  add(&proc, "tag", "");
  add(&b, "proc", proc.p);
  add(&b, "proc", proc.p);
  CHECK(each_allocation("an answer of an init", read_answer, &b, CB_OK));
  cb_buf_clear(&b);
  cb_buf_clear(&proc);
}

int main(void)
{
  each_allocation_begin();
  /* Parsed beforehand: jansson's own parser asserts when memory fails within it. */
  json_t *body = json_loads(create, 0, NULL);
  CHECK(each_allocation("a create", read_create, body, CB_OK));
  json_decref(body);
  CHECK(each_allocation("bytes as text", read_bytes, (void *)"a\xff" "b\xc3", CB_OK));
  configurations();
  answers();
  return check_done();
}
