/* SPDX-License-Identifier: MIT
 * record_test.c: the flat record format, whole and broken. */
#include "base/alloc.h"
#include "c/check.h"
#include "wire/record.h"

static void records_come_back_byte_for_byte(void)
{
  struct cb_buf b;
  struct cb_record_reader r;
  struct cb_record rec;
  int64_t v;
  cb_buf_init(&b, 1000);
  CHECK(cb_record_addi(&b, "crewbox_orders", 1) == CB_OK);
  CHECK(cb_record_add(&b, "env", "A=\0\n x", 6) == CB_OK);
  CHECK(cb_record_addz(&b, "env", "") == CB_OK);
  CHECK(cb_record_addi(&b, "n", INT64_MIN) == CB_OK);
  CHECK(cb_record_kind(b.p, b.len, "crewbox_orders", 1));
  CHECK(!cb_record_kind(b.p, b.len, "crewbox_orders", 2));
  CHECK(!cb_record_kind(b.p, b.len, "env", 1));
  cb_record_open(&r, b.p, b.len);
  CHECK(cb_record_next(&r, &rec) == 1 && cb_record_is(&rec, "crewbox_orders"));
  CHECK(cb_record_next(&r, &rec) == 1 && rec.len == 6 && memcmp(rec.value, "A=\0\n x", 6) == 0);
  CHECK(cb_record_next(&r, &rec) == 1 && rec.len == 0);
  CHECK(cb_record_next(&r, &rec) == 1 && cb_record_int(&rec, &v) && v == INT64_MIN);
  CHECK(cb_record_next(&r, &rec) == 0);
  CHECK(cb_record_find(b.p, b.len, "env", &rec) && rec.len == 6); /* the first of that name */
  CHECK(!cb_record_find(b.p, b.len, "nothing", &rec));
  cb_buf_clear(&b);
}

static void broken_bytes_are_refused_for_good(void)
{
  static const char *const bad[] = {
    "a",         "a 1",       "a 1\n",       "a 1\nx",     "a 2\nx\n",    "a 1\nxy",  "A 1\nx\n",
    "1a 1\nx\n", " 1\nx\n",   "a  1\nx\n",   "a 01\nx\n",  "a -1\nx\n",   "a \nx\n",  "a1\nx\n",
    "a 1 \nx\n", "a 1\r\nx\n", "_a 1\nx\n",  "a-b 1\nx\n", "a 99999999999\nx\n",
    "a 18446744073709551615\nx\n", "\n",
    "abcdefghijklmnopqrstuvwxyzabcdefg 1\nx\n", /* 33 letters */
  };
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    struct cb_record_reader r;
    struct cb_record rec;
    cb_record_open(&r, bad[i], strlen(bad[i]));
    CHECK(cb_record_next(&r, &rec) == -1);
    CHECK(cb_record_next(&r, &rec) == -1);
  }
}

/* Cut at any byte, a file gives its whole records and then says that it is broken. */
static void a_cut_is_seen_at_every_byte(void)
{
  static const char text[] = "crewbox_state 1\n1\nphase 7\nrunning\nbeat 2\n42\n";
  static const size_t ends[] = { 0, 18, 34, 44 };
  for (size_t n = 0; n < sizeof text; n++) {
    struct cb_record_reader r;
    struct cb_record rec;
    size_t whole = 0;
    bool at_end = false;
    int rc;
    cb_record_open(&r, text, n);
    while ((rc = cb_record_next(&r, &rec)) == 1)
      whole++;
    for (size_t i = 0; i < 4; i++)
      at_end = at_end || n == ends[i];
    CHECK(rc == (at_end ? 0 : -1));
    CHECK(whole <= 3 && n >= ends[whole]);
  }
}

static void numbers_are_checked(void)
{
  static const struct {
    const char *text;
    bool ok;
    int64_t value;
  } cases[] = {
    { "0", true, 0 },
    { "-1", true, -1 },
    { "9223372036854775807", true, INT64_MAX },
    { "-9223372036854775808", true, INT64_MIN },
    { "9223372036854775808", false, 0 },
    { "-9223372036854775809", false, 0 },
    { "", false, 0 },
    { "-", false, 0 },
    { "1x", false, 0 },
    { " 1", false, 0 },
    { "+1", false, 0 },
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct cb_record rec = { .name = "n", .value = cases[i].text, .len = strlen(cases[i].text) };
    int64_t v = 0;
    CHECK(cb_record_int(&rec, &v) == cases[i].ok);
    CHECK(v == cases[i].value);
  }
}

static void a_record_that_does_not_fit_leaves_nothing(void)
{
  struct cb_buf b;
  cb_buf_init(&b, 20);
  CHECK(cb_record_addz(&b, "a", "b") == CB_OK);
  size_t before = b.len;
  CHECK(cb_record_addz(&b, "long", "0123456789") == CB_TOO_LARGE);
  CHECK(b.len == before);
  for (unsigned long n = 1; n < 3; n++) {
    struct cb_buf c;
    cb_buf_init(&c, 100);
    cb_alloc_fail_at(n);
    int rc = cb_record_addz(&c, "a", "b");
    cb_alloc_fail_at(0);
    CHECK(rc == (n == 1 ? CB_NO_MEMORY : CB_OK));
    CHECK(c.len == (n == 1 ? 0u : 6u));
    cb_buf_clear(&c);
  }
  cb_buf_clear(&b);
}

int main(void)
{
  records_come_back_byte_for_byte();
  broken_bytes_are_refused_for_good();
  a_cut_is_seen_at_every_byte();
  numbers_are_checked();
  a_record_that_does_not_fit_leaves_nothing();
  return check_done();
}
