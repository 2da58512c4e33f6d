/* SPDX-License-Identifier: MIT
 * pack_test.c: packs come back whole, and every cut, flip or lie is noticed. */
#include "wire/pack.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "c/check.h"

struct bytes {
  const char *p;
  size_t len, at, step; /* step: most bytes a read gives */
};

static int source(void *ctx, void *p, size_t max, size_t *n, struct cb_err *err)
{
  struct bytes *b = ctx;
  (void)err;
  *n = b->len - b->at;
  if (*n > max)
    *n = max;
  if (*n > b->step)
    *n = b->step;
  memcpy(p, b->p + b->at, *n);
  b->at += *n;
  return CB_OK;
}

static int sink(void *ctx, const void *p, size_t n, struct cb_err *err)
{
  (void)err;
  return cb_buf_add(ctx, p, n);
}

static int full_sink(void *ctx, const void *p, size_t n, struct cb_err *err)
{
  (void)ctx, (void)p, (void)n;
  return cb_err_set(err, CB_DISK_FULL, "no room");
}

static const char *const contents[] = { "alpha\n", "", "target", "d\0ta" };
static const size_t lengths[] = { 6, 0, 6, 4 };

static void make_manifest(struct cb_manifest *m)
{
  static const char *const paths[] = { "a", "b", "c", "d/e" };
  char digest[65];
  for (size_t i = 0; i < 4; i++) {
    cb_sha256_hex(contents[i], lengths[i], digest);
    CHECK(cb_manifest_add(m, i == 2 ? CB_TREE_LINK : CB_TREE_FILE, lengths[i], digest, paths[i],
                          strlen(paths[i]), NULL) == CB_OK);
  }
  CHECK(cb_manifest_sort(m, NULL) == CB_OK);
}

/* Packs the entries whose bit is set. */
static void make_pack(const struct cb_manifest *m, unsigned which, struct cb_buf *out,
                      char digest[65])
{
  struct cb_pack_writer w;
  CHECK(cb_pack_begin(&w, sink, out, m, NULL) == CB_OK);
  for (size_t i = 0; i < 4; i++) {
    if (!(which >> i & 1))
      continue;
    CHECK(cb_pack_file(&w, i, NULL) == CB_OK);
    for (size_t k = 0; k < lengths[i]; k++)
      CHECK(cb_pack_data(&w, contents[i] + k, 1, NULL) == CB_OK);
  }
  CHECK(cb_pack_end(&w, digest, NULL) == CB_OK);
}

/* Reads all; the first failure, or CB_OK with *which set from the contents that came. */
static int read_pack(const char *p, size_t len, size_t step, unsigned *which, char digest[65])
{
  struct cb_manifest m = CB_MANIFEST_INIT;
  struct cb_pack_reader *r = calloc(1, sizeof *r);
  struct bytes b = { p, len, 0, step };
  int rc = cb_pack_open(r, source, &b, &m, 100, 1 << 20, NULL);
  *which = 0;
  while (rc == CB_OK) {
    size_t index, n, total = 0;
    char got[64];
    rc = cb_pack_next(r, &index, NULL);
    if (rc || index == SIZE_MAX)
      break;
    do {
      rc = cb_pack_read(r, got + total, sizeof got - total, &n, NULL);
      total += n;
    } while (rc == CB_OK && n > 0);
    if (rc == CB_OK && index < 4 && total == lengths[index] &&
        memcmp(got, contents[index], total) == 0)
      *which |= 1u << index;
  }
  if (rc == CB_OK) {
    size_t index;
    CHECK(cb_pack_next(r, &index, NULL) == CB_OK && index == SIZE_MAX); /* stays at the end */
    memcpy(digest, r->digest, sizeof r->digest);
  }
  cb_manifest_clear(&m);
  free(r);
  return rc;
}

static void comes_back_at_every_step(void)
{
  struct cb_manifest m = CB_MANIFEST_INIT;
  make_manifest(&m);
  for (unsigned which = 0; which < 16; which++) {
    struct cb_buf pack;
    char wrote[65], read[65];
    unsigned got;
    cb_buf_init(&pack, 1 << 20);
    make_pack(&m, which, &pack, wrote);
    for (size_t step = 1; step < 40; step += 3) {
      CHECK(read_pack(pack.p, pack.len, step, &got, read) == CB_OK);
      CHECK(got == which);
      CHECK_STR(read, wrote);
    }
    cb_buf_clear(&pack);
  }
  cb_manifest_clear(&m);
}

static void every_cut_and_every_flip_is_noticed(void)
{
  struct cb_manifest m = CB_MANIFEST_INIT;
  struct cb_buf pack;
  char digest[65];
  unsigned got;
  make_manifest(&m);
  cb_buf_init(&pack, 1 << 20);
  make_pack(&m, 15, &pack, digest);
  CHECK(strncmp(pack.p, "crewbox-pack 1\nmanifest ", 24) == 0);
  CHECK(memcmp(pack.p + pack.len - 70, "\0taend ", 7) == 0 ||
        memcmp(pack.p + pack.len - 72, "\0taend ", 7) == 0); /* bytes are not followed by a LF */
  for (size_t n = 0; n < pack.len; n++)
    CHECK(read_pack(pack.p, n, 4096, &got, digest) == CB_PROTOCOL);
  for (size_t n = 0; n < pack.len; n++) {
    char keep = pack.p[n];
    pack.p[n] = (char)(keep ^ 1);
    CHECK(read_pack(pack.p, pack.len, 4096, &got, digest) != CB_OK);
    pack.p[n] = keep;
  }
  CHECK(cb_buf_addc(&pack, '\n') == CB_OK);
  CHECK(read_pack(pack.p, pack.len, 4096, &got, digest) == CB_PROTOCOL);
  cb_buf_clear(&pack);
  cb_manifest_clear(&m);
}

static void lies_are_refused(void)
{
  static const struct {
    const char *what, *head;
    int code;
  } cases[] = {
    { "empty", "", CB_PROTOCOL },
    { "another version", "crewbox-pack 2\nmanifest 0\n", CB_PROTOCOL },
    { "a huge manifest", "crewbox-pack 1\nmanifest 99999999999\n", CB_TOO_LARGE },
    { "an endless number", "crewbox-pack 1\nmanifest 99999999999999999999999\n", CB_PROTOCOL },
    { "a claimed manifest that does not come", "crewbox-pack 1\nmanifest 60000000\nabc", CB_PROTOCOL },
    { "leading zero", "crewbox-pack 1\nmanifest 00\n", CB_PROTOCOL },
    { "no file in it", "crewbox-pack 1\nmanifest 0\nfile 0 0\n", CB_PROTOCOL },
    { "a huge index", "crewbox-pack 1\nmanifest 0\nfile 18446744073709551615 0\n", CB_PROTOCOL },
    { "a line without end", "crewbox-pack 1\nmanifest 0\n"
      "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
      CB_PROTOCOL },
    { "a wrong sum", "crewbox-pack 1\nmanifest 0\nend "
      "0000000000000000000000000000000000000000000000000000000000000000\n", CB_CORRUPT },
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    unsigned got;
    char digest[65];
    int rc = read_pack(cases[i].head, strlen(cases[i].head), 7, &got, digest);
    if (rc != cases[i].code)
      fprintf(stderr, "case: %s gives %s\n", cases[i].what, cb_code_name((enum cb_code)rc));
    CHECK(rc == cases[i].code);
  }
}

static void limits_hold(void)
{
  struct cb_manifest m = CB_MANIFEST_INIT, got = CB_MANIFEST_INIT;
  struct cb_pack_reader r;
  struct cb_buf pack;
  char digest[65];
  make_manifest(&m);
  cb_buf_init(&pack, 1 << 20);
  make_pack(&m, 0, &pack, digest);
  struct bytes b = { pack.p, pack.len, 0, 4096 };
  CHECK(cb_pack_open(&r, source, &b, &got, 3, 1 << 20, NULL) == CB_TOO_LARGE && got.count == 0);
  b.at = 0;
  CHECK(cb_pack_open(&r, source, &b, &got, 4, 15, NULL) == CB_TOO_LARGE && got.count == 0);
  b.at = 0;
  CHECK(cb_pack_open(&r, source, &b, &got, 4, 16, NULL) == CB_OK && got.count == 4);
  cb_manifest_clear(&got);
  cb_buf_clear(&pack);
  cb_manifest_clear(&m);
}

/* bug-L9: a file that changes between hashing and packing is noticed by the writer. */
static void a_changed_source_is_a_conflict(void)
{
  struct cb_manifest m = CB_MANIFEST_INIT;
  struct cb_pack_writer w;
  struct cb_buf pack;
  make_manifest(&m);
  cb_buf_init(&pack, 1 << 20);
  CHECK(cb_pack_begin(&w, sink, &pack, &m, NULL) == CB_OK);
  CHECK(cb_pack_file(&w, 0, NULL) == CB_OK);
  CHECK(cb_pack_data(&w, "alphA\n", 6, NULL) == CB_OK);
  CHECK(cb_pack_end(&w, NULL, NULL) == CB_CONFLICT);
  CHECK(cb_pack_begin(&w, sink, &pack, &m, NULL) == CB_OK);
  CHECK(cb_pack_file(&w, 0, NULL) == CB_OK);
  CHECK(cb_pack_data(&w, "alp", 3, NULL) == CB_OK);
  CHECK(cb_pack_file(&w, 1, NULL) == CB_CONFLICT);
  CHECK(cb_pack_begin(&w, sink, &pack, &m, NULL) == CB_OK);
  CHECK(cb_pack_file(&w, 0, NULL) == CB_OK);
  CHECK(cb_pack_data(&w, "alpha\n+", 7, NULL) == CB_CONFLICT);
  CHECK(cb_pack_begin(&w, full_sink, NULL, &m, NULL) == CB_DISK_FULL);
  cb_buf_clear(&pack);
  cb_manifest_clear(&m);
}

int main(void)
{
  comes_back_at_every_step();
  every_cut_and_every_flip_is_noticed();
  lies_are_refused();
  limits_hold();
  a_changed_source_is_a_conflict();
  return check_done();
}
