/* SPDX-License-Identifier: MIT
 * The redactor reads whatever agents print: where its input is cut never shows, no value stays
 * in, what is held is bounded. The first byte says where to cut. */
#include <assert.h>
#include <string.h>

#include "fuzz/fuzz.h"
#include "secrets/redact.h"

static const struct cb_secret secrets[] = {
  { "S", "zq9-FAKE+tok/en=77$x", 20 }, { "A", "abcd1234", 8 },   { "B", "abcd1234efgh", 12 },
  { "N", "12345678", 8 },              { "L", "line-one-1\nline-two-2", 21 }, { "Q", "a\"b\\c'd\ne$", 10 },
};

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
  static struct cb_redactor *r; /* made once: that is the slow part */
  struct cb_redact_stream *s;
  struct cb_buf whole, cut;
  const char *name;
  if (n < 2)
    return 0;
  size_t at = (size_t)p[0] * (n - 1) / 255;
  p++, n--;
  cb_buf_init(&whole, SIZE_MAX / 4);
  cb_buf_init(&cut, SIZE_MAX / 4);
  if (!r)
    assert(cb_redactor_new(&r, secrets, sizeof secrets / sizeof *secrets, NULL) == CB_OK);
  assert(cb_redact_mask(r, p, n, &whole, NULL) == CB_OK);
  assert(cb_redact_stream_new(&s, r, NULL) == CB_OK);
  assert(cb_redact_feed(s, p, at, &cut, NULL, NULL) == CB_OK);
  assert(cb_redact_held(s) < 4096);
  for (size_t i = at; i < n && i < at + 16; i++)
    assert(cb_redact_feed(s, p + i, 1, &cut, NULL, NULL) == CB_OK);
  if (n > at + 16)
    assert(cb_redact_feed(s, p + at + 16, n - at - 16, &cut, NULL, NULL) == CB_OK);
  assert(cb_redact_finish(s, &cut, NULL) == CB_OK);
  assert(whole.len == cut.len && (whole.len == 0 || memcmp(whole.p, cut.p, whole.len) == 0));
  /* A marker between two halves of a value makes none of them whole. */
  assert(whole.len == 0 || cb_redact_find(r, whole.p, whole.len, &name, NULL) == CB_OK);
  cb_redact_stream_free(s);
  cb_buf_clear(&whole);
  cb_buf_clear(&cut);
  return 0;
}
