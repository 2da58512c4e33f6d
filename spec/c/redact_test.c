/* SPDX-License-Identifier: MIT
 * The redactor: every form, every cut, shapes, JSON and UTF-8, limits, failing allocations, and
 * a slow reference written another way. */
#include "secrets/redact.h"

#include <stdint.h>
#include <stdlib.h>
#include <jansson.h>

#include "base/alloc.h"
#include "base/encode.h"
#include "check.h"

#define S "zq9-FAKE+tok/en=77$x"
#define T "ghp_EXAMPLE00000000000000000000000000EXAMPLE"
#define RED(name) "[REDACTED:" name "]"

static struct cb_redactor *make(const char *const pairs[][2], size_t count)
{
  struct cb_secret list[64];
  struct cb_redactor *r = NULL;
  struct cb_err err = CB_ERR_INIT;
  for (size_t i = 0; i < count; i++)
    list[i] = (struct cb_secret){ pairs[i][0], pairs[i][1], strlen(pairs[i][1]) };
  CHECK(cb_redactor_new(&r, list, count, &err) == CB_OK);
  return r;
}

static struct cb_redactor *make1(const char *name, const char *value)
{
  const char *const pairs[][2] = { { name, value } };
  return make(pairs, 1);
}

static void mask(const struct cb_redactor *r, const char *p, size_t n, struct cb_buf *out)
{
  struct cb_err err = CB_ERR_INIT;
  cb_buf_reset(out);
  CHECK(cb_redact_mask(r, p, n, out, &err) == CB_OK);
  if (!out->p)
    CHECK(cb_buf_reserve(out, 0) == CB_OK);
}

/* Feeds p in pieces that end at the given offsets. */
static void mask_cut(const struct cb_redactor *r, const char *p, size_t n, size_t a, size_t b,
                     struct cb_buf *out)
{
  struct cb_redact_stream *s;
  struct cb_err err = CB_ERR_INIT;
  cb_buf_reset(out);
  CHECK(cb_redact_stream_new(&s, r, &err) == CB_OK);
  int rc = cb_redact_feed(s, p, a, out, NULL, &err);
  rc = rc ? rc : cb_redact_feed(s, p + a, b - a, out, NULL, &err);
  rc = rc ? rc : cb_redact_feed(s, p + b, n - b, out, NULL, &err);
  rc = rc ? rc : cb_redact_finish(s, out, &err);
  CHECK(rc == CB_OK && cb_redact_held(s) == 0);
  cb_redact_stream_free(s);
}

static bool same(const struct cb_buf *a, const struct cb_buf *b)
{
  return a->len == b->len && (a->len == 0 || memcmp(a->p, b->p, a->len) == 0);
}

/* Every cut in two, in three (every third offset), and byte by byte give what one piece gives. */
static void check_cuts(const struct cb_redactor *r, const char *p, size_t n, const char *what)
{
  struct cb_buf whole, got;
  struct cb_redact_stream *s;
  struct cb_err err = CB_ERR_INIT;
  int bad = 0;
  cb_buf_init(&whole, 1 << 24);
  cb_buf_init(&got, 1 << 24);
  mask(r, p, n, &whole);
  for (size_t a = 0; a <= n; a++) {
    mask_cut(r, p, n, a, n, &got);
    bad += !same(&whole, &got);
    for (size_t b = a; b <= n; b += n > 200 ? 17 : 3) {
      mask_cut(r, p, n, a, b, &got);
      bad += !same(&whole, &got);
    }
  }
  cb_buf_reset(&got);
  CHECK(cb_redact_stream_new(&s, r, &err) == CB_OK);
  for (size_t i = 0; i < n; i++)
    CHECK(cb_redact_feed(s, p + i, 1, &got, NULL, &err) == CB_OK);
  CHECK(cb_redact_finish(s, &got, &err) == CB_OK);
  cb_redact_stream_free(s);
  bad += !same(&whole, &got);
  if (bad)
    fprintf(stderr, "%d cuts of \"%s\" differ (%s)\n", bad, p, what);
  CHECK(bad == 0);
  cb_buf_clear(&whole);
  cb_buf_clear(&got);
}

static void expect(const struct cb_redactor *r, const char *in, const char *want)
{
  struct cb_buf out;
  cb_buf_init(&out, 1 << 20);
  mask(r, in, strlen(in), &out);
  CHECK_STR(out.p, want);
  if (strlen(in) < 400)
    check_cuts(r, in, strlen(in), want);
  cb_buf_clear(&out);
}

/* bug-F1, bug-F5, bug-F17: one value in its forms. */
static void forms_of_one_value(void)
{
  static const struct {
    const char *in, *out;
  } cases[] = {
    { "", "" },
    { "nothing here\n", "nothing here\n" },
    { S, RED("S") },
    { "a " S " b " S "\n", "a " RED("S") " b " RED("S") "\n" },
    { S S, RED("S") RED("S") },
    { "zq9-FAKE+tok/en=77$y", "zq9-FAKE+tok/en=77$y" },
    { "zq9-FAKE+tok/en=77$", "zq9-FAKE+tok/en=77$" },
    { "?t=zq9-FAKE%2Btok%2Fen%3D77%24x&", "?t=" RED("S") "&" },
    { "?t=zq9-FAKE%2btok%2fen%3d77%24x&", "?t=" RED("S") "&" },
    { "?t=zq9-FAKE%2btok%2Fen=77%24x&", "?t=" RED("S") "&" },
    { "?t=zq9-FAKE%2Btok/en%3D77%24x&", "?t=" RED("S") "&" },
    { "?t=%7a%71%39%2d%46%41%4b%45%2b%74%6f%6b%2f%65%6e%3d%37%37%24%78&", "?t=" RED("S") "&" },
    { "?t=%7A%71%39%2D%46%41%4B%45%2B%74%6F%6B%2F%65%6E%3D%37%37%24%78", "?t=" RED("S") },
    { "{\"k\":\"zq9-FAKE+tok\\/en=77$x\"}", "{\"k\":\"" RED("S") "\"}" },
    { "{\"k\":\"zq9-FAKE\\u002btok\\u002Fen\\u003d77\\u0024x\"}", "{\"k\":\"" RED("S") "\"}" },
    { "7a71392d46414b452b746f6b2f656e3d37372478", RED("S") },
    { "0x7A71392D46414B452B746F6B2F656E3D37372478;", "0x" RED("S") ";" },
    { "\"zq9-FAKE+tok/en=77\\$x\"", "\"" RED("S") "\"" },
    { "zq9-FAKE+tok/en\\=77\\$x", RED("S") },
    { "KEY: " S "\nkey=" S "\n", "KEY: " RED("S") "\nkey=" RED("S") "\n" },
  };
  struct cb_redactor *r = make1("S", S);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    expect(r, cases[i].in, cases[i].out);
  cb_redactor_free(r);
}

/* bug-F3: base64 at every alignment, both alphabets, padded, unpadded, wrapped. */
static void base64_of_a_value(void)
{
  struct cb_redactor *r = make1("S", S);
  struct cb_buf text, line, out;
  cb_buf_init(&text, 4096);
  cb_buf_init(&line, 4096);
  cb_buf_init(&out, 4096);
  for (size_t before = 0; before < 8; before++) {
    for (size_t after = 0; after < 5; after++) {
      for (int how = 0; how < 6; how++) {
        cb_buf_reset(&text);
        cb_buf_reset(&line);
        CHECK(cb_buf_add(&text, "user:xx", before) == CB_OK && cb_buf_addz(&text, S) == CB_OK &&
              cb_buf_add(&text, "\nyyyy", after) == CB_OK);
        CHECK(cb_base64_add(&line, text.p, text.len) == CB_OK);
        while (how % 2 && line.len && line.p[line.len - 1] == '=')
          line.p[--line.len] = '\0';
        for (size_t i = 0; how >= 2 && i < line.len; i++)
          line.p[i] = line.p[i] == '+' ? '-' : line.p[i] == '/' ? '_' : line.p[i];
        if (how >= 4) { /* wrapped in its middle */
          char rest[64];
          size_t at = 3 + before + after + (size_t)(how - 4) * 5;
          snprintf(rest, sizeof rest, "%s", line.p + at);
          line.len = at;
          CHECK(cb_buf_addf(&line, "%s%s", how == 4 ? "\n" : "\\n", rest) == CB_OK);
        }
        mask(r, line.p, line.len, &out);
        CHECK(strstr(out.p, RED("S")) != NULL);
        /* Only the characters of other bytes stay, and the one that is shared in front. */
        size_t head = (before * 8 + 5) / 6, tail = after ? (after * 8 + 5) / 6 + 2 : 0;
        /* ... and up to three in front of a line break. */
        CHECK(out.len <= head + strlen(RED("S")) + tail + (how >= 4 ? 5 : 0));
        check_cuts(r, line.p, line.len, "base64");
      }
    }
  }
  cb_buf_clear(&text);
  cb_buf_clear(&line);
  cb_buf_clear(&out);
  cb_redactor_free(r);
}

/* bug-F7: JSON lines stay JSON with the same keys, whatever the value is made of. */
static void json_stays_json(void)
{
  static const char *const values[] = {
    "pass\"word\\with/slash", "back\\\\slash\\", "\\u0041bcdefgh", "nabcdefgh", "u0041xyzw",
    "tab\tand\nline\r\x01 end", "caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80!", "it's a 'quoted' one",
    "12345678901", "0041abcdef", "bfnrtu00e9", "/////////",
  };
  for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
    struct cb_redactor *r = make1("V", values[i]);
    for (int how = 0; how < 8; how++) {
      struct cb_buf out;
      size_t flags = (how & 1 ? JSON_ENSURE_ASCII : 0) | (how & 2 ? JSON_ESCAPE_SLASH : 0);
      json_t *v = json_pack("{s:s, s:{s:s+}, s:[s, s], s:s}", "k", values[i], "in", "x\ty",
                            "before ", values[i], "list", values[i], "plain", "last", "\n");
      CHECK(v != NULL);
      if (how & 4) { /* a JSON document as a string of another */
        char *inner = json_dumps(v, flags | JSON_COMPACT | JSON_SORT_KEYS);
        json_decref(v);
        v = json_pack("{s:s, s:s}", "text", inner, "k2", values[i]);
        free(inner);
      }
      char *line = json_dumps(v, flags | JSON_COMPACT | JSON_SORT_KEYS);
      cb_buf_init(&out, 1 << 16);
      mask(r, line, strlen(line), &out);
      json_error_t je;
      json_t *back = json_loads(out.p, 0, &je);
      if (!back)
        fprintf(stderr, "value %zu, %d: %s: %s\n", i, how, je.text, out.p);
      CHECK(back != NULL);
      CHECK(back && json_object_size(back) == json_object_size(v));
      json_t *masked = json_object_get(back, how & 4 ? "k2" : "k");
      if (!(how & 4) || strcmp(values[i], "12345678901") == 0)
        CHECK_STR(json_string_value(masked), RED("V"));
      if (back && (how & 4)) {
        json_t *in = json_loads(json_string_value(json_object_get(back, "text")), 0, &je);
        if (!in)
          fprintf(stderr, "value %zu, %d: inner: %s: %s\n", i, how, je.text, out.p);
        CHECK(in && json_object_size(in) == 4);
        CHECK(in && strstr(json_string_value(json_object_get(in, "k")), "REDACTED"));
        if (in && !strstr(json_string_value(json_object_get(in, "k")), "REDACTED"))
          fprintf(stderr, "value %zu, %d: %s\n", i, how, out.p);
        json_decref(in);
      }
      check_cuts(r, line, strlen(line), "json");
      json_decref(back);
      json_decref(v);
      free(line);
      cb_buf_clear(&out);
    }
    cb_redactor_free(r);
  }
  struct cb_redactor *r = make1("PIN", "12345678");
  expect(r, "{\"pin\":12345678,\"b\": 12345678}\n",
         "{\"pin\":\"" RED("PIN") "\",\"b\": \"" RED("PIN") "\"}\n");
  expect(r, "{\"t\":\"{\\\"pin\\\":12345678}\"}", "{\"t\":\"{\\\"pin\\\":" RED("PIN") "}\"}");
  expect(r, "\"pin\":123456789", "\"pin\":" RED("PIN") "9");
  cb_redactor_free(r);
}

/* Shell forms of a value with every awkward character, also inside a JSON string. */
static void shell_forms(void)
{
  struct cb_redactor *r = make1("P", "it's $HOME \"x\"\\!`a`\n\x01z");
  expect(r, "P='it'\\''s $HOME \"x\"\\!`a`\n\x01z'", "P='" RED("P") "'");
  expect(r, "P='it'\"'\"'s $HOME \"x\"\\!`a`\n\x01z'", "P='" RED("P") "'");
  expect(r, "P=\"it's \\$HOME \\\"x\\\"\\\\!\\`a\\`\n\x01z\"", "P=\"" RED("P") "\"");
  expect(r, "P=$'it\\'s $HOME \"x\"\\\\!`a`\\n\\001z'", "P=$'" RED("P") "'");
  expect(r, "P=$'it\\'s $HOME \\\"x\\\"\\\\!`a`\\x0a\\x1z'", "P=$'" RED("P") "'");
  expect(r, "{\"o\":\"P='it'\\\\''s $HOME \\\"x\\\"\\\\!`a`\\n\\u0001z'\"}",
         "{\"o\":\"P='" RED("P") "'\"}");
  expect(r, "{\"o\":\"P=$'it\\\\'s $HOME \\\"x\\\"\\\\\\\\!`a`\\\\n\\\\001z'\"}",
         "{\"o\":\"P=$'" RED("P") "'\"}");
  cb_redactor_free(r);
}

/* bug-F11, bug-F9: lines of a value, key blocks. */
static void many_lines(void)
{
  struct cb_redactor *r = make1("M", "first-line-1\n  second-line-2\r\nx\nthird-line-3\n");
  expect(r, "a first-line-1\nb second-line-2\nx\nc third-line-3\n",
         "a " RED("M") "\nb " RED("M") "\nx\nc " RED("M") "\n");
  expect(r, "first-line-1\n  second-line-2\r\nx\nthird-line-3\n", RED("M") "\n");
  expect(r, "{\"k\":\"first-line-1\\n  second-line-2\\r\\nx\\nthird-line-3\\n\"}",
         "{\"k\":\"" RED("M") "\\n\"}");
  cb_redactor_free(r);

  r = make1("K", "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEF\n"
                 "-----END PRIVATE KEY-----\n");
  expect(r, "-----BEGIN PRIVATE KEY----- x y", "[REDACTED:private_key] x y");
  expect(r, "     2\tMIIEvQIBADANBgkqhkiG9w0BAQEF\n", "     2\t" RED("K") "\n");
  cb_redactor_free(r);

#define B64 "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj"
#define PEM "[REDACTED:private_key]"
  r = make(NULL, 0);
  expect(r, "-----BEGIN RSA PRIVATE KEY-----\n" B64 "\n" B64 "\nabc=\n-----END RSA PRIVATE KEY-----\nx\n",
         PEM "\nx\n");
  expect(r, "     1\t-----BEGIN PRIVATE KEY-----\n     2\t" B64 "\n     3\t" B64
            "\n     4\tabcd\n     5\t-----END PRIVATE KEY-----\n     6\tx\n",
         "     1\t" PEM "\n     6\tx\n");
  expect(r, "{\"c\":\"  1\xe2\x86\x92-----BEGIN PRIVATE KEY-----\\n  2\xe2\x86\x92" B64
            "\\n  3\xe2\x86\x92" "abcd==\\n  4\xe2\x86\x92-----END PRIVATE KEY-----\\n\"}",
         "{\"c\":\"  1\xe2\x86\x92" PEM "\\n\"}");
  expect(r, "k=-----BEGIN PRIVATE KEY----- " B64 " " B64 " abc= -----END PRIVATE KEY----- z",
         "k=" PEM " z");
  expect(r, "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,0A1B\n\n"
            B64 "\n-----END RSA PRIVATE KEY-----", PEM);
  expect(r, "-    -----BEGIN PRIVATE KEY-----\n-" B64 "\n-ab==\n------END PRIVATE KEY-----\n+x",
         "-    " PEM "\n+x");
  expect(r, "the line -----BEGIN PRIVATE KEY----- in the file, and more\n",
         "the line " PEM " in the file, and more\n");
  expect(r, "-----BEGIN PRIVATE KEY-----\nand then prose goes on\n", PEM "\nand then prose goes on\n");
  expect(r, "\"-----BEGIN PRIVATE KEY-----\\n" B64 "\\nabcd\"}", "\"" PEM "\"}");
  expect(r, "-----BEGIN CERTIFICATE-----\n" B64 "\n", "-----BEGIN CERTIFICATE-----\n" B64 "\n");
  expect(r, "-----BEGIN OPENSSH PRIVATE KEY-----\n" B64, PEM);
  cb_redactor_free(r);
}

static void shapes(void)
{
  static const struct {
    const char *in, *out;
  } cases[] = {
    { "a " T " b", "a [REDACTED:github_token] b" },
    { "sk-ant-api03-abcdefghijklmnopqrstuvwxyz_-012", "[REDACTED:anthropic_key]" },
    { "sk-proj-abcdefghij_klmnopqrst-uvwx ", "[REDACTED:openai_key] " },
    { "sk-abcdefghijklmnopqrstuvwxyz0123456789 ", "[REDACTED:openai_key] " },
    { "task-abcdef disk-management-and-recovery-of-things", "task-abcdef disk-management-and-recovery-of-things" },
    { "github_pat_11ABCDEFG0abcdefghijkl_mnopqrstuv", "[REDACTED:github_token]" },
    { "glpat-abcdefghij0123456789\n", "[REDACTED:gitlab_token]\n" },
    { "xoxb-1234567890-abcdef", "[REDACTED:slack_token]" },
    { "id AKIAIOSFODNN7EXAMPLE.", "id [REDACTED:aws_key]." },
    { "AIzaSyA1234567890abcdefghijklmnopqrstuv", "[REDACTED:google_key]" },
    { "e2b_0123456789abcdef0123456789abcdef01234567 x", "[REDACTED:e2b_key] x" },
    { "npm_0123456789abcdefghijABCDEFGHIJ012345\\n", "[REDACTED:npm_token]\\n" },
    { "npm_short ghp_short e2b_beef planes plane_api_x", "npm_short ghp_short e2b_beef planes plane_api_x" },
    { "jwt eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abc-_DEF. end", "jwt [REDACTED:jwt]. end" },
    { "eyJhbGciOiJIUzI1NiJ9.nothing", "eyJhbGciOiJIUzI1NiJ9.nothing" },
    { "git clone https://user:hunter2-x@example.com/a.git", "git clone https://user:[REDACTED:url_password]@example.com/a.git" },
    { "https:\\/\\/u:pw%40@h\\/", "https:\\/\\/u:[REDACTED:url_password]@h\\/" },
    { "https://user:[REDACTED:S]@h", "https://user:[REDACTED:S]@h" },
    { "http://host:8080/a@b ssh://git@host/x postgres://:pw@h", "http://host:8080/a@b ssh://git@host/x postgres://:[REDACTED:url_password]@h" },
    { "see [REDACTED:github_token] there", "see [REDACTED:github_token] there" },
  };
  struct cb_redactor *r = make(NULL, 0);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    expect(r, cases[i].in, cases[i].out);
    expect(r, cases[i].out, cases[i].out); /* masking twice changes nothing */
  }
  CHECK_STR(cb_redact_shape("x " T, strlen("x " T)), "github_token");
  CHECK(cb_redact_shape("nothing", 7) == NULL);
  cb_redactor_free(r);
  /* A named value wins over its shape; a value that ends inside a shape is one mark. */
  r = make1("TOKEN", T);
  expect(r, "a " T " b", "a " RED("TOKEN") " b");
  expect(r, "https://u:" T "@h", "https://u:" RED("TOKEN") "@h");
  cb_redactor_free(r);
  r = make1("TAIL", "EXAMPLE tail");
  expect(r, T " tail.", "[REDACTED:github_token].");
  cb_redactor_free(r);
}

/* bug-F15: prefixes, adjacency, overlap with itself and others. */
static void overlaps(void)
{
  static const char *const pairs[][2] = {
    { "A", "abcd1234" }, { "B", "abcd1234efgh" }, { "C", "1234efghij" }, { "D", "xyxyxyxy" },
  };
  struct cb_redactor *r = make(pairs, 4);
  expect(r, "abcd1234", RED("A"));
  expect(r, "abcd1234efg", RED("A") "efg");
  expect(r, "abcd1234efgh", RED("B"));
  expect(r, "abcd1234efghij-", RED("B") "-");
  expect(r, "abcd1234efghi", RED("B") "i");
  expect(r, "abcd1234abcd1234efgh", RED("A") RED("B"));
  expect(r, "1234efghij", RED("C"));
  expect(r, "xyxyxyxyxyxyx", RED("D") "x");
  expect(r, "xyxyxyxyxyxyxyxy.xyxyxyx", RED("D") ".xyxyxyx");
  cb_redactor_free(r);
}

/* bug-F19: characters at cuts and at the ends of matches. */
static void utf8(void)
{
  struct cb_redactor *r = make1("S", S);
  struct cb_redact_stream *s;
  struct cb_err err = CB_ERR_INIT;
  struct cb_buf out;
  const char *text = "\xe2\x82\xac" S "\xe2\x82\xac\xf0\x9f\x98\x80 caf\xc3\xa9\n";
  cb_buf_init(&out, 4096);
  expect(r, text, "\xe2\x82\xac" RED("S") "\xe2\x82\xac\xf0\x9f\x98\x80 caf\xc3\xa9\n");
  CHECK(cb_redact_stream_new(&s, r, &err) == CB_OK);
  for (size_t i = 0; i < strlen(text); i++) {
    cb_buf_reset(&out);
    CHECK(cb_redact_feed(s, text + i, 1, &out, NULL, &err) == CB_OK);
    CHECK(cb_utf8_valid(out.p ? out.p : "", out.len)); /* every piece alone */
  }
  CHECK(cb_redact_held(s) == 0);
  cb_redact_stream_free(s);
  expect(r, "\xff\xfe\xe2\x82 \xc3", "\xff\xfe\xe2\x82 \xc3");
  cb_redactor_free(r);
  /* A value that begins and ends inside characters takes them whole. */
  r = make1("V", "\x82\xac middle \xe2\x82");
  expect(r, "a\xe2\x82\xac middle \xe2\x82\xac b", "a" RED("V") " b");
  cb_redactor_free(r);
  r = make1("U", "secret-\xc3\xa9-value");
  expect(r, "{\"k\":\"secret-\\u00E9-value\"}", "{\"k\":\"" RED("U") "\"}");
  expect(r, "secret-%C3%a9-value", RED("U"));
  struct cb_buf wide;
  cb_buf_init(&wide, 256);
  for (const char *p = "x secret-"; *p; p++)
    CHECK(cb_buf_add(&wide, (const char[]){ *p, 0 }, 2) == CB_OK);
  CHECK(cb_buf_add(&wide, "\xe9\0-\0v\0a\0l\0u\0e\0!\0", 16) == CB_OK);
  mask(r, wide.p, wide.len, &out);
  CHECK(out.len == 4 + strlen(RED("U")) + 2 && memcmp(out.p + 4, RED("U"), strlen(RED("U"))) == 0);
  cb_buf_clear(&wide);
  cb_buf_clear(&out);
  cb_redactor_free(r);
}

/* A finished line is not held back; what is held is a live prefix. */
static void holds_little(void)
{
  struct cb_redactor *r = make1("S", S);
  struct cb_redact_stream *s;
  struct cb_err err = CB_ERR_INIT;
  struct cb_buf out;
  cb_buf_init(&out, 4096);
  CHECK(cb_redact_stream_new(&s, r, &err) == CB_OK);
  CHECK(cb_redact_feed(s, "a line of text: {\"a\":1}\n", 24, &out, NULL, &err) == CB_OK);
  CHECK(out.len == 24 && cb_redact_held(s) == 0);
  CHECK(cb_redact_feed(s, "pre zq9-FA", 10, &out, NULL, &err) == CB_OK);
  CHECK(cb_redact_held(s) == 6);
  CHECK(cb_redact_feed(s, "X\n", 2, &out, NULL, &err) == CB_OK);
  CHECK(cb_redact_held(s) == 0);
  CHECK(cb_redact_stream_found(s) == NULL);
  CHECK(cb_redact_feed(s, S "\n", strlen(S) + 1, &out, NULL, &err) == CB_OK);
  CHECK_STR(cb_redact_stream_found(s), "S");
  /* An endless token costs no memory once it is known to be one. */
  char many[1000];
  memset(many, 'a', sizeof many);
  CHECK(cb_redact_feed(s, "ghp_", 4, &out, NULL, &err) == CB_OK);
  for (int i = 0; i < 100; i++)
    CHECK(cb_redact_feed(s, many, sizeof many, &out, NULL, &err) == CB_OK);
  CHECK(cb_redact_held(s) < 64);
  CHECK(cb_redact_finish(s, &out, &err) == CB_OK && cb_redact_held(s) == 0);
  CHECK(strstr(out.p, "ghp_") == NULL);
  cb_redact_stream_free(s);
  cb_buf_clear(&out);
  cb_redactor_free(r);
}

static void short_names_and_limits(void)
{
  static const char *const pairs[][2] = {
    { "SHORT", "1234567" }, { "EMPTY", "" }, { "BLANK", "   abc\n    " }, { "odd\"name\n", "abcdefgh" },
  };
  struct cb_redactor *r = make(pairs, 4);
  struct cb_err err = CB_ERR_INIT;
  CHECK_STR(cb_redactor_skipped(r, 0), "SHORT");
  CHECK_STR(cb_redactor_skipped(r, 1), "EMPTY");
  CHECK_STR(cb_redactor_skipped(r, 2), "BLANK");
  CHECK(cb_redactor_skipped(r, 3) == NULL);
  expect(r, "1234567 abcdefgh", "1234567 [REDACTED:odd_name_]");
  const char *name;
  CHECK(cb_redact_find(r, "xxabcdefgh", 10, &name, &err) == CB_CONTAINS_SECRET);
  CHECK_STR(name, "odd_name_");
  CHECK(strstr(err.text, "abcdefgh") == NULL);
  CHECK(cb_redact_find(r, "xxYWJjZGVmZ2g=", 14, &name, &err) == CB_CONTAINS_SECRET);
  CHECK(cb_redact_find(r, "xxabcdefg", 9, &name, &err) == CB_OK && name == NULL);
  cb_redactor_free(r);
  static char big[CB_SECRET_MAX + 1];
  memset(big, 'x', sizeof big);
  struct cb_secret s = { "BIG", big, sizeof big };
  CHECK(cb_redactor_new(&r, &s, 1, &err) == CB_TOO_LARGE && r == NULL);
  CHECK(strstr(err.text, "BIG") != NULL);

  /* A full output buffer loses nothing. */
  struct cb_redact_stream *st;
  struct cb_buf out;
  size_t taken, fed = 0;
  const char *text = "some text " S " and more";
  char all[256] = "";
  r = make1("S", S);
  cb_buf_init(&out, 40);
  CHECK(cb_redact_stream_new(&st, r, &err) == CB_OK);
  int rc;
  do {
    rc = cb_redact_feed(st, text + fed, strlen(text) - fed < 7 ? strlen(text) - fed : 7, &out,
                        &taken, &err);
    fed += taken;
    if (rc == CB_TOO_LARGE || fed == strlen(text)) {
      strncat(all, out.p, out.len);
      cb_buf_reset(&out);
    }
  } while (rc || fed < strlen(text));
  CHECK(cb_redact_finish(st, &out, &err) == CB_OK);
  strncat(all, out.p, out.len);
  CHECK_STR(all, "some text " RED("S") " and more");
  cb_redact_stream_free(st);
  cb_redactor_free(r);
  cb_buf_clear(&out);
}

/* Each allocation fails once: no crash, no leak, no byte of the value, and the stream goes on. */
static void failing_allocations(void)
{
  struct cb_secret s = { "S", S, strlen(S) };
  for (unsigned long n = 1; n < 60; n++) {
    struct cb_redactor *r = NULL;
    struct cb_redact_stream *st = NULL;
    struct cb_err err = CB_ERR_INIT;
    struct cb_buf out;
    size_t taken = 0, fed = 0;
    const char *text = "a " S " b " T " c";
    cb_buf_init(&out, 4096);
    cb_alloc_fail_at(n);
    int rc = cb_redactor_new(&r, &s, 1, &err);
    if (rc == CB_OK)
      rc = cb_redact_stream_new(&st, r, &err);
    if (rc == CB_OK) {
      for (int i = 0; i < 4 && fed < strlen(text); i++) {
        rc = cb_redact_feed(st, text + fed, strlen(text) - fed, &out, &taken, &err);
        fed += taken;
      }
      rc = cb_redact_finish(st, &out, &err);
      if (rc)
        rc = cb_redact_finish(st, &out, &err);
      CHECK(rc == CB_OK && fed == strlen(text));
      CHECK_STR(out.p, "a " RED("S") " b [REDACTED:github_token] c");
    } else {
      CHECK(rc == CB_NO_MEMORY);
    }
    cb_alloc_fail_at(0);
    cb_redact_stream_free(st);
    cb_redactor_free(r);
    cb_buf_clear(&out);
  }
}

/* ---- random inputs ------------------------------------------------------------------------- */

static uint64_t seed = 88172645463325252u;

static uint64_t rnd(void)
{
  seed ^= seed << 13;
  seed ^= seed >> 7;
  return seed ^= seed << 17;
}

/* The slow way: marks each byte of each occurrence, then names each run by its first match. */
static void slow_mask(const char *const pairs[][2], size_t count, const char *in, char *out)
{
  size_t n = strlen(in), covered = 0;
  for (size_t i = 0; i < n;) {
    size_t best = 0, who = 0;
    for (size_t k = 0; k < count; k++) {
      size_t len = strlen(pairs[k][1]);
      if (strncmp(in + i, pairs[k][1], len) == 0 && len > best)
        best = len, who = k;
    }
    if (best && i >= covered)
      out += sprintf(out, "[REDACTED:%s]", pairs[who][0]);
    if (i + best > covered && best)
      covered = i + best;
    if (i >= covered)
      *out++ = in[i];
    i++;
  }
  *out = '\0';
}

static void against_the_slow_way(void)
{
  static char in[2000], want[60000];
  for (int round = 0; round < 400; round++) {
    char values[6][24];
    const char *pairs[6][2];
    static const char *const names[] = { "A", "B", "C", "D", "E", "F" };
    size_t letters = 2 + rnd() % 2;
    for (size_t i = 0; i < 6; i++) {
      size_t len = 8 + rnd() % 9;
      for (size_t k = 0; k < len; k++)
        values[i][k] = (char)("xyz"[rnd() % letters]);
      values[i][len] = '\0';
      if (i && rnd() % 2) /* a prefix or an overlap of another one */
        memmove(values[i], values[i - 1] + rnd() % 3, 8), values[i][8] = '\0';
      if (strlen(values[i]) < 8)
        strcpy(values[i], "xxxxyyyy");
      pairs[i][0] = names[i];
      pairs[i][1] = values[i];
    }
    size_t n = 0;
    while (n < 300) {
      if (rnd() % 4 == 0)
        n += (size_t)sprintf(in + n, "%s", values[rnd() % 6]);
      else if (rnd() % 8 == 0)
        in[n++] = ' ';
      else
        in[n++] = "xyz"[rnd() % letters];
    }
    in[n] = '\0';
    struct cb_redactor *r = make((const char *const(*)[2])pairs, 6);
    struct cb_buf out, got;
    cb_buf_init(&out, 1 << 20);
    cb_buf_init(&got, 1 << 20);
    mask(r, in, n, &out);
    slow_mask((const char *const(*)[2])pairs, 6, in, want);
    CHECK_STR(out.p, want);
    for (int k = 0; k < 20; k++) {
      size_t a = rnd() % (n + 1), b = a + rnd() % (n - a + 1);
      mask_cut(r, in, n, a, b, &got);
      CHECK(same(&out, &got));
    }
    cb_buf_clear(&out);
    cb_buf_clear(&got);
    cb_redactor_free(r);
  }
}

/* Fragments of everything the redactor knows, glued at random: cuts never show. */
static void random_cuts(void)
{
  static const char *const bits[] = {
    S, "zq9-FAKE", "+tok/en=77$x", "%2Btok", "%2", "\\", "\\u00", "\\u002b", "\"", "\n", "ghp_",
    "EXAMPLE00000000000000000000000000EXAMPLE", "eyJhbGciOiJI", ".eyJzdWIiOiIx", ".", "sk-", "ant-",
    "-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----", "-----", "MIIEvQIBADANBgkqhkiG9w0BAQEF",
    "abc=", " ", "1", "12345678", "\":", ",", "://", "u:", "@", "\xe2\x82", "\xac", "\xc3\xa9", "enE5LUZBS0Ur",
    "dG9rL2VuPTc3JHg", "=", "7a71392d46414b45", "2b746f6b2f656e3d37372478", "aaaaaaaaaaaaaaaaaaaaaaaa", "-", "in the", "n",
  };
  static const char *const pairs[][2] = {
    { "S", S }, { "N", "12345678" }, { "E", "n\\u002b\"x" }, { "A", "aaaaaaaa" }, { "B", "\\\\\\\\\\\\\\\\" },
    { "U", "\xac\xc3\xa9\xc3\xa9\xe2\x82" }, { "L", "line-one-1\nline-two-2" },
  };
  struct cb_redactor *r = make(pairs, 7);
  struct cb_buf whole, got;
  cb_buf_init(&whole, 1 << 20);
  cb_buf_init(&got, 1 << 20);
  int bad = 0;
  for (int round = 0; round < 6000; round++) {
    char in[1200];
    size_t n = 0;
    for (size_t k = 4 + rnd() % 20; k > 0; k--)
      n += (size_t)sprintf(in + n, "%s", bits[rnd() % (sizeof bits / sizeof *bits)]);
    mask(r, in, n, &whole);
    for (int k = 0; k < 12; k++) {
      size_t a = rnd() % (n + 1), b = a + rnd() % (n - a + 1);
      mask_cut(r, in, n, a, b, &got);
      if (!same(&whole, &got) && bad++ < 3)
        fprintf(stderr, "cut at %zu, %zu of %zu:\n %s\n %.*s\n %.*s\n", a, b, n, in, (int)whole.len,
                whole.p, (int)got.len, got.p);
    }
    CHECK(strstr(whole.p, S) == NULL);
  }
  CHECK(bad == 0);
  cb_buf_clear(&whole);
  cb_buf_clear(&got);
  cb_redactor_free(r);
}

/* Pieces larger than the redactor's own slices. */
static void large(void)
{
  struct cb_redactor *r = make1("S", S);
  struct cb_buf in, out;
  size_t count = 0;
  cb_buf_init(&in, 1 << 24);
  cb_buf_init(&out, 1 << 24);
  while (in.len < 300000) {
    CHECK(cb_buf_addf(&in, "%s line %zu %s\n", count % 3 ? "some" : "", count, S) == CB_OK);
    count++;
  }
  mask(r, in.p, in.len, &out);
  size_t marks = 0;
  for (const char *p = out.p; (p = strstr(p, RED("S"))); p++)
    marks++;
  CHECK(marks == count && strstr(out.p, "zq9") == NULL);
  CHECK(out.len == in.len - count * strlen(S) + count * strlen(RED("S")));
  cb_buf_clear(&in);
  cb_buf_clear(&out);
  cb_redactor_free(r);
}

int main(void)
{
  forms_of_one_value();
  base64_of_a_value();
  json_stays_json();
  shell_forms();
  many_lines();
  shapes();
  overlaps();
  utf8();
  holds_little();
  short_names_and_limits();
  failing_allocations();
  against_the_slow_way();
  random_cuts();
  large();
  return check_done();
}
