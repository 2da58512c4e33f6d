/* SPDX-License-Identifier: MIT
 * References, layers of an environment, what is a secret, values for headers. */
#include "secrets/resolve.h"

#include "check.h"

static const char *lookup(void *arg, const char *name, size_t n, size_t *len)
{
  static const char *const values[][2] = {
    { "A", "value" }, { "EMPTY", "" }, { "NESTED", "has ${A} in it" }, { "_x1", "S3$USER!" },
  };
  (void)arg;
  for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
    if (strlen(values[i][0]) == n && memcmp(values[i][0], name, n) == 0) {
      *len = strlen(values[i][1]);
      return values[i][1];
    }
  }
  return NULL;
}

static void missing(void *arg, const char *name, size_t n)
{
  struct cb_buf *b = arg;
  CHECK(cb_buf_add(b, name, n) == CB_OK && cb_buf_addc(b, ' ') == CB_OK);
}

static void references(void)
{
  static const struct {
    const char *in, *out, *missing;
  } cases[] = {
    { "", "", "" },
    { "plain", "plain", "" },
    { "${A}", "value", "" },
    { "<${A}${A}>", "<valuevalue>", "" },
    { "Bearer ${NOPE}", "Bearer ", "NOPE " },               /* bug-G3 */
    { "${EMPTY}${NOPE}${NOPE}", "", "EMPTY NOPE NOPE " },
    { "${NESTED}", "has ${A} in it", "" },                  /* resolved once */
    { "${_x1}", "S3$USER!", "" },                           /* bug-G1 */
    { "S3$USER! $A $$", "S3$USER! $A $$", "" },
    /* bug-G5: the eight odd ones */
    { "${A:-default}", "${A:-default}", "" },
    { "${env:A}", "${env:A}", "" },
    { "$$", "$$", "" },
    { "${}", "${}", "" },
    { "${A B}", "${A B}", "" },
    { "${A${A}}", "${Avalue}", "" },
    { "${A", "${A", "" },
    { "$${A}", "$value", "" },
    { "${1A} ${1:-x} ${line#host=}", "${1A} ${1:-x} ${line#host=}", "" },
    { "${", "${", "" },
    { "$", "$", "" },
    { "${A}$", "value$", "" },
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct cb_buf out, names;
    struct cb_err err = CB_ERR_INIT;
    cb_buf_init(&out, 4096);
    cb_buf_init(&names, 4096);
    CHECK(cb_resolve(cases[i].in, strlen(cases[i].in), lookup, missing, &names, &out, &err) == CB_OK);
    CHECK_STR(out.p ? out.p : "", cases[i].out);
    CHECK_STR(names.p ? names.p : "", cases[i].missing);
    cb_buf_clear(&out);
    cb_buf_clear(&names);
  }
  struct cb_buf small;
  struct cb_err err = CB_ERR_INIT;
  cb_buf_init(&small, 6);
  CHECK(cb_resolve("${A}${A}", 8, lookup, NULL, NULL, &small, &err) == CB_TOO_LARGE);
  cb_buf_clear(&small);
}

static void merge(void) /* bug-G9 */
{
#define V(n, v) { n, sizeof n - 1, v, sizeof v - 1 }
  struct cb_env_var vars[] = { V("KEY", "llm"), V("B", "1"), V("KEY", "identity"), V("A", "2"),
                               V("KEY", "step"), V("KE", "short"), V("KEY", "role"), V("KEY", "otel") };
  CHECK(cb_env_merge(vars, 8) == 4);
  CHECK_STR(vars[0].name, "A");
  CHECK_STR(vars[1].name, "B");
  CHECK_STR(vars[2].value, "short");
  CHECK_STR(vars[3].value, "otel");
  CHECK(cb_env_merge(NULL, 0) == 0);
  CHECK(cb_env_name_ok("_A1", 3) && !cb_env_name_ok("1A", 2) && !cb_env_name_ok("", 0) &&
        !cb_env_name_ok("A-B", 3) && !cb_env_name_ok("A=B", 3));
}

static void secrets(void)
{
  static const char *const yes[] = {
    "12345678", "hunter22", "correct-horse", "/aB3cD4eF5gH6iJ7kL8mN9/pQ+rS", "https://u:pw@host/x",
    "https://token@host/", "https://host/path?token=x", "https://hooks.example.com/services/T0/B0/aB3cD4eF5gH6iJ7kL8",
    "/path with/blank", "@Handle-Up", "name@nodot", "sk-ant-123456",
  };
  static const char *const no[] = {
    "", "1234567", "/usr/local/bin", "./some/file.txt", "../x/y/z.lua", "~/.config/file",
    "https://api.example.com/v1", "http://127.0.0.1:8080", "postgres://db.internal:5432/app",
    "@backend-dev", "agent@crewlet.local", "first.last+tag@example.co.uk",
  };
  for (size_t i = 0; i < sizeof yes / sizeof *yes; i++) {
    if (!cb_secret_is(yes[i], strlen(yes[i])))
      fprintf(stderr, "should be a secret: %s\n", yes[i]);
    CHECK(cb_secret_is(yes[i], strlen(yes[i])));
  }
  for (size_t i = 0; i < sizeof no / sizeof *no; i++) {
    if (cb_secret_is(no[i], strlen(no[i])))
      fprintf(stderr, "should be none: %s\n", no[i]);
    CHECK(!cb_secret_is(no[i], strlen(no[i])));
  }
}

static void headers(void) /* bug-G7 */
{
  struct cb_err err = CB_ERR_INIT;
  const char *v = " zq9-FAKE\r\n";
  size_t n = strlen(v);
  CHECK(cb_header_value("E2B_API_KEY", &v, &n, &err) == CB_OK);
  CHECK(n == 8 && memcmp(v, "zq9-FAKE", 8) == 0);
  v = "zq9\nX-Evil: 1";
  n = strlen(v);
  CHECK(cb_header_value("E2B_API_KEY", &v, &n, &err) == CB_INVALID);
  CHECK(strstr(err.text, "E2B_API_KEY") && !strstr(err.text, "zq9"));
  v = "\n";
  n = 1;
  CHECK(cb_header_value("K", &v, &n, &err) == CB_OK && n == 0);
}

int main(void)
{
  references();
  merge();
  secrets();
  headers();
  return check_done();
}
