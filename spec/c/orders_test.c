/* SPDX-License-Identifier: MIT
 * orders_test.c: orders are taken whole or not at all, and no error text holds a value. */
#include "wire/orders.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "c/check.h"
#include "wire/record.h"

#define SECRET "zq9-FAKE+tok/en=77$x"

static void good(struct cb_buf *b)
{
  cb_buf_init(b, 1 << 24);
  CHECK(cb_record_addi(b, "crewbox_orders", 1) == CB_OK);
  CHECK(cb_record_addz(b, "run", "r0123456789ab") == CB_OK);
  CHECK(cb_record_addi(b, "launch_seq", 2) == CB_OK);
  CHECK(cb_record_addz(b, "kind", "agent") == CB_OK);
  CHECK(cb_record_addz(b, "run_dir", "/home/user/.crewbox/runs/r0123456789ab") == CB_OK);
  CHECK(cb_record_addz(b, "cwd", "/home/user/project") == CB_OK);
  CHECK(cb_record_addz(b, "argv", "agent") == CB_OK);
  CHECK(cb_record_addz(b, "argv", "") == CB_OK);
  CHECK(cb_record_addz(b, "env", "A=1\n2=3") == CB_OK);
  CHECK(cb_record_addz(b, "env", "B=") == CB_OK);
  CHECK(cb_record_addz(b, "secret", "TOKEN=" SECRET) == CB_OK);
  CHECK(cb_record_addz(b, "stdin", "brief") == CB_OK);
}

static int parse(struct cb_buf *b, struct cb_orders *o, struct cb_err *err)
{
  CHECK(cb_record_addz(b, "end", "") == CB_OK);
  return cb_orders_parse(o, b->p, b->len, err);
}

static void reads_all_and_fills_in_defaults(void)
{
  struct cb_buf b;
  struct cb_orders o;
  good(&b);
  CHECK(cb_record_addz(&b, "from_the_future", "x") == CB_OK);
  CHECK(parse(&b, &o, NULL) == CB_OK);
  CHECK_STR(o.run, "r0123456789ab");
  CHECK(o.launch_seq == 2 && o.argc == 2 && o.env_count == 2 && o.secret_count == 1);
  CHECK_STR(o.argv[0], "agent");
  CHECK_STR(o.argv[1], "");
  CHECK(o.argv[2] == NULL && o.env[2] == NULL);
  CHECK_STR(o.env[0], "A=1\n2=3");
  CHECK_STR(o.env[1], "B=");
  CHECK_STR(o.secrets[0].name, "TOKEN");
  CHECK_STR(o.secrets[0].value, SECRET);
  CHECK(o.secrets[0].len == strlen(SECRET));
  CHECK_STR(o.stdin_path, "brief");
  CHECK_STR(o.user, "");
  CHECK_STR(o.findings, "");
  CHECK(!o.merged && o.log_max == 64 << 20 && o.segment == 256 << 10 && o.grace_ms == 5000);
  CHECK(o.start_deadline_ms == 0 && o.guard_ms == 0 && o.beat_ms == 1000);
  cb_orders_clear(&o);
  cb_buf_clear(&b);
}

static void every_cut_is_refused(void)
{
  struct cb_buf b;
  good(&b);
  CHECK(cb_record_addz(&b, "end", "") == CB_OK);
  for (size_t n = 0; n < b.len; n++) {
    struct cb_orders o;
    struct cb_err err = CB_ERR_INIT;
    char *copy = malloc(n + 1); /* exact size, so that a checker sees a read past the end */
    memcpy(copy, b.p, n);
    int rc = cb_orders_parse(&o, copy, n, &err);
    CHECK(rc == CB_PROTOCOL && o.argv == NULL); /* also between two records */
    CHECK(!strstr(err.text, "zq9"));
    free(copy);
  }
  cb_buf_clear(&b);
}

static void refuses_broken_rules_without_telling_values(void)
{
  static const struct {
    const char *name, *value;
    size_t n;
  } cases[] = {
    { "run", "R0", 2 },           { "run", "../x", 4 },
    { "run", "", 0 },             { "launch_seq", "0", 1 },
    { "launch_seq", "-1", 2 },    { "launch_seq", "99999999999999999999", 20 },
    { "run_dir", "relative", 8 }, { "cwd", "", 0 },
    { "cwd", "/a\0b", 4 },        { "argv", "a\0b", 3 },
    { "env", SECRET, 3 },         { "env", "=" SECRET, 21 },
    { "env", "A=" SECRET "\0x", 24 }, { "secret", SECRET, 8 },
    { "secret", "=" SECRET, 21 }, { "stdin", "../brief", 8 },
    { "stdin", "a//b", 4 },       { "streams", "both", 4 },
    { "streams", "merged\0", 7 }, { "log_max", "1", 1 },
    { "log_max", "300000", 6 },   { "segment", "0", 1 },
    { "segment", "1e6", 3 },      { "grace_ms", "-5", 2 },
    { "beat_ms", "0", 1 },        { "guard_ms", "9999999999999999", 16 },
    { "findings", "findings.md", 11 },
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct cb_buf b;
    struct cb_orders o;
    struct cb_err err = CB_ERR_INIT;
    good(&b);
    CHECK(cb_record_add(&b, cases[i].name, cases[i].value, cases[i].n) == CB_OK);
    int rc = parse(&b, &o, &err);
    if (rc != CB_INVALID)
      fprintf(stderr, "case %zu: %s\n", i, cases[i].name);
    CHECK(rc == CB_INVALID && strstr(err.text, cases[i].name) && !strstr(err.text, "FAKE"));
    CHECK(o.argv == NULL);
    cb_buf_clear(&b);
  }
}

static void bounds_hold(void)
{
  struct cb_buf b;
  struct cb_orders o;
  good(&b);
  for (int i = 0; i < CB_ORDERS_MAX_LIST; i++)
    CHECK(cb_record_addz(&b, "argv", "x") == CB_OK);
  CHECK(parse(&b, &o, NULL) == CB_TOO_LARGE);
  cb_buf_clear(&b);
  good(&b);
  static char big[CB_ORDERS_MAX_BYTES];
  memset(big, 'x', sizeof big);
  CHECK(cb_record_add(&b, "other", big, sizeof big) == CB_OK);
  CHECK(parse(&b, &o, NULL) == CB_TOO_LARGE);
  cb_buf_clear(&b);
  cb_buf_init(&b, 1 << 20);
  CHECK(cb_record_addi(&b, "crewbox_orders", 2) == CB_OK);
  CHECK(parse(&b, &o, NULL) == CB_PROTOCOL);
  cb_buf_clear(&b);
}

int main(void)
{
  reads_all_and_fills_in_defaults();
  every_cut_is_refused();
  refuses_broken_rules_without_telling_values();
  bounds_hold();
  return check_done();
}
