/* SPDX-License-Identifier: MIT
 * manifest_test.c: order, rules of paths, broken bytes, links that leave the tree. */
#include "wire/manifest.h"

#include <stdlib.h>
#include <string.h>

#include "c/check.h"
#include "base/alloc.h"

#define EMPTY "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
#define LINE(mode, size, path) mode " " size " " EMPTY " " path "\0"
#define BYTES(s) s, sizeof s - 1

static int add(struct cb_manifest *m, const char *path)
{
  return cb_manifest_add(m, CB_TREE_FILE, 0, EMPTY, path, strlen(path), NULL);
}

static void sorts_by_bytes_and_finds(void)
{
  struct cb_manifest m = CB_MANIFEST_INIT;
  static const char *const paths[] = { "b", "a/c", "a.b", "\xff\xfe", "a-", "with \"q\"", "new\nline",
                                       "-rf", " lead" };
  size_t n = sizeof paths / sizeof *paths;
  for (size_t i = 0; i < n; i++)
    CHECK(add(&m, paths[i]) == CB_OK);
  CHECK(cb_manifest_sort(&m, NULL) == CB_OK);
  for (size_t i = 1; i < m.count; i++)
    CHECK(strcmp(m.entries[i - 1].path, m.entries[i].path) < 0);
  for (size_t i = 0; i < n; i++) {
    const struct cb_manifest_entry *e = cb_manifest_find(&m, paths[i], strlen(paths[i]));
    CHECK(e && strcmp(e->path, paths[i]) == 0);
  }
  CHECK(!cb_manifest_find(&m, "a", 1));
  cb_manifest_clear(&m);
}

static void comes_back_as_written(void)
{
  struct cb_manifest m = CB_MANIFEST_INIT, again = CB_MANIFEST_INIT;
  struct cb_buf text;
  char a[65], b[65];
  cb_buf_init(&text, 1 << 20);
  CHECK(cb_manifest_add(&m, CB_TREE_LINK, 7, EMPTY, "l", 1, NULL) == CB_OK);
  CHECK(cb_manifest_add(&m, CB_TREE_PROGRAM, 123456789012, EMPTY, "d/x", 3, NULL) == CB_OK);
  CHECK(cb_manifest_add(&m, CB_TREE_FILE, 0, EMPTY, "caf\xc3\xa9\n", 6, NULL) == CB_OK);
  CHECK(cb_manifest_sort(&m, NULL) == CB_OK);
  CHECK(cb_manifest_write(&m, &text, NULL) == CB_OK);
  CHECK(cb_manifest_parse(&again, text.p, text.len, 3, NULL) == CB_OK);
  CHECK(again.count == 3 && again.entries[1].mode == CB_TREE_PROGRAM);
  CHECK(again.entries[1].size == 123456789012 && again.entries[2].mode == CB_TREE_LINK);
  cb_manifest_digest(&m, a);
  cb_manifest_digest(&again, b);
  CHECK_STR(a, b);
  cb_sha256_hex(text.p, text.len, b);
  CHECK_STR(a, b);
  CHECK(cb_manifest_bytes(&m) == 123456789019);
  cb_manifest_clear(&again);
  /* Whatever is cut off, what is left is either whole entries or refused. */
  for (size_t n = 0; n < text.len; n++) {
    int rc = cb_manifest_parse(&again, text.p, n, 3, NULL);
    bool whole = n == 0 || text.p[n - 1] == '\0';
    CHECK(whole ? rc == CB_OK : rc == CB_PROTOCOL && again.count == 0);
    cb_manifest_clear(&again);
  }
  CHECK(cb_manifest_parse(&again, text.p, text.len, 2, NULL) == CB_TOO_LARGE);
  cb_buf_clear(&text);
  cb_manifest_clear(&m);
}

static void refuses_what_breaks_the_format(void)
{
  static const struct {
    const char *what, *p;
    size_t n;
  } cases[] = {
    { "order", BYTES(LINE("100644", "0", "b") LINE("100644", "0", "a")) },
    { "twice", BYTES(LINE("100644", "0", "a") LINE("100644", "0", "a")) },
    { "below a file", BYTES(LINE("100644", "0", "a") LINE("100644", "0", "a.b") LINE("100644", "0", "a/c")) },
    { "below a link", BYTES(LINE("120000", "0", "l") LINE("100644", "0", "l/x/y")) },
    { "absolute", BYTES(LINE("100644", "0", "/etc/passwd")) },
    { "parent", BYTES(LINE("100644", "0", "../x")) },
    { "parent within", BYTES(LINE("100644", "0", "a/../x")) },
    { "dot", BYTES(LINE("100644", "0", "./x")) },
    { "doubled slash", BYTES(LINE("100644", "0", "a//x")) },
    { "trailing slash", BYTES(LINE("100644", "0", "a/")) },
    { "empty path", BYTES(LINE("100644", "0", "")) },
    { "mode of a folder", BYTES(LINE("040000", "0", "a")) },
    { "mode of a module", BYTES(LINE("160000", "0", "a")) },
    { "mode 100664", BYTES(LINE("100664", "0", "a")) },
    { "mode too long", BYTES(LINE("0100644", "0", "a")) },
    { "no size", BYTES(LINE("100644", "", "a")) },
    { "minus", BYTES(LINE("100644", "-1", "a")) },
    { "plus", BYTES(LINE("100644", "+1", "a")) },
    { "leading zero", BYTES(LINE("100644", "01", "a")) },
    { "huge", BYTES(LINE("100644", "99999999999999999999", "a")) },
    { "hex size", BYTES(LINE("100644", "0x1", "a")) },
    { "two blanks", BYTES("100644  0 " EMPTY " a\0") },
    { "short digest", BYTES("100644 0 e3b0c4 a\0") },
    { "upper digest", BYTES("100644 0 E3B0C44298FC1C149AFBF4C8996FB92427AE41E4649B934CA495991B7852B855 a\0") },
    { "no end", BYTES("100644 0 " EMPTY " a") },
    { "garbage behind", BYTES(LINE("100644", "0", "a") "\n") },
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct cb_manifest m = CB_MANIFEST_INIT;
    struct cb_err err = CB_ERR_INIT;
    int rc = cb_manifest_parse(&m, cases[i].p, cases[i].n, 100, &err);
    if (rc != CB_PROTOCOL)
      fprintf(stderr, "case: %s\n", cases[i].what);
    CHECK(rc == CB_PROTOCOL && m.count == 0 && err.text[0]);
  }
}

static void add_and_sort_refuse_bad_trees(void)
{
  struct cb_manifest m = CB_MANIFEST_INIT;
  char deep[300];
  memset(deep, 'a', sizeof deep);
  CHECK(add(&m, "../x") == CB_INVALID);
  CHECK(add(&m, "") == CB_INVALID);
  CHECK(add(&m, "/x") == CB_INVALID);
  CHECK(cb_manifest_add(&m, CB_TREE_FILE, 0, EMPTY, "a\0b", 3, NULL) == CB_INVALID);
  CHECK(cb_manifest_add(&m, CB_TREE_FILE, 0, EMPTY, deep, sizeof deep, NULL) == CB_INVALID);
  CHECK(cb_manifest_add(&m, CB_TREE_FILE, 0, "e3", "a", 1, NULL) == CB_INVALID);
  CHECK(cb_manifest_add(&m, (enum cb_tree_mode)0100600, 0, EMPTY, "a", 1, NULL) == CB_INVALID);
  CHECK(m.count == 0);
  CHECK(add(&m, "a") == CB_OK && add(&m, "a") == CB_OK);
  CHECK(cb_manifest_sort(&m, NULL) == CB_INVALID);
  cb_manifest_clear(&m);
  CHECK(add(&m, "a/b/c") == CB_OK && add(&m, "a.x") == CB_OK && add(&m, "a") == CB_OK);
  CHECK(cb_manifest_sort(&m, NULL) == CB_INVALID);
  cb_manifest_clear(&m);
  cb_alloc_fail_at(1);
  CHECK(add(&m, "a") == CB_NO_MEMORY);
  cb_alloc_fail_at(2);
  CHECK(add(&m, "a") == CB_NO_MEMORY && m.count == 0);
  cb_alloc_fail_at(0);
  cb_manifest_clear(&m);
}

static void links_stay_inside(void)
{
  static const struct {
    const char *path, *text;
    bool inside;
  } cases[] = {
    { "l", "x", true },          { "l", ".", true },           { "l", "..", false },
    { "l", "/etc/passwd", false }, { "l", "", false },          { "a/l", "..", true },
    { "a/l", "../b", true },     { "a/l", "../../b", false },  { "l", "a/../b", true },
    { "l", "a/../../b", false }, { "a/b/l", "./../x//y/..", true }, { "l", "...", true },
    { "l", "../l", false },
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    if (cb_link_stays_inside(cases[i].path, strlen(cases[i].path), cases[i].text,
                             strlen(cases[i].text)) != cases[i].inside)
      fprintf(stderr, "case: %s -> %s\n", cases[i].path, cases[i].text);
    CHECK(cb_link_stays_inside(cases[i].path, strlen(cases[i].path), cases[i].text,
                               strlen(cases[i].text)) == cases[i].inside);
  }
  CHECK(!cb_link_stays_inside("l", 1, "a\0b", 3));
}

int main(void)
{
  sorts_by_bytes_and_finds();
  comes_back_as_written();
  refuses_what_breaks_the_format();
  add_and_sort_refuse_bad_trees();
  links_stay_inside();
  return check_done();
}
