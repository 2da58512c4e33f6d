/* SPDX-License-Identifier: MIT
 * frames_test.c: Connect envelopes, cut at every byte and broken in every way. */
#include "c/check.h"

#include "base/alloc.h"
#include "wire/frames.h"

/* Decodes `in` cut into pieces of `step` bytes and writes "flags:payload;" for each frame. */
static int decode(struct cb_frame_decoder *d, const char *in, size_t len, size_t step,
                  struct cb_buf *out, struct cb_err *err)
{
  for (size_t at = 0; at < len; at += step) {
    const char *p = in + at;
    size_t n = len - at < step ? len - at : step;
    struct cb_frame f;
    int rc;
    while ((rc = cb_frame_next(d, &p, &n, &f, err)) == 1) {
      cb_buf_addf(out, "%d:", f.flags);
      cb_buf_add(out, f.p, f.n);
      cb_buf_addc(out, ';');
    }
    if (rc < 0)
      return -1;
    CHECK(n == 0);
  }
  return 0;
}

static void encodes_the_recorded_head(void)
{
  char json[145];
  memset(json, 'x', sizeof json);
  struct cb_buf b;
  cb_buf_init(&b, 4096);
  CHECK(cb_frame_add(&b, 0, json, sizeof json) == CB_OK);
  CHECK(b.len == 150);
  CHECK(memcmp(b.p, "\0\0\0\0\x91", 5) == 0);
  cb_buf_clear(&b);
}

static void adds_all_or_nothing(void)
{
  struct cb_buf b;
  cb_buf_init(&b, 7);
  CHECK(cb_frame_add(&b, 0, "abc", 3) == CB_TOO_LARGE);
  CHECK(b.len == 0);
  CHECK(cb_frame_add(&b, 0, "ab", 2) == CB_OK);
  CHECK(b.len == 7);
  cb_buf_clear(&b);
}

static void survives_a_cut_at_every_byte(void)
{
  struct cb_buf in, out;
  cb_buf_init(&in, 4096);
  cb_frame_add(&in, 0, "{\"event\":{}}", 12);
  cb_frame_add(&in, 0, NULL, 0); /* length 0 is an empty message */
  cb_frame_add(&in, 0, "a\0b", 3);
  cb_frame_add(&in, CB_FRAME_END, "{}", 2);
  for (size_t step = 1; step <= in.len; step++) {
    struct cb_frame_decoder d;
    struct cb_err err = CB_ERR_INIT;
    cb_buf_init(&out, 4096);
    cb_frame_decoder_init(&d, 64);
    CHECK(decode(&d, in.p, in.len, step, &out, &err) == 0);
    CHECK(d.ended && !cb_frame_is_torn(&d));
    CHECK(out.len == 29 && memcmp(out.p, "0:{\"event\":{}};0:;0:a\0b;2:{};", 29) == 0);
    cb_frame_decoder_clear(&d);
    cb_buf_clear(&out);
  }
  for (size_t cut = 0; cut < in.len; cut++) { /* a stream that stops anywhere has not ended */
    struct cb_frame_decoder d;
    struct cb_err err = CB_ERR_INIT;
    cb_buf_init(&out, 4096);
    cb_frame_decoder_init(&d, 64);
    CHECK(decode(&d, in.p, cut, 3, &out, &err) == 0);
    CHECK(!d.ended);
    CHECK(cb_frame_is_torn(&d) == !(cut == 0 || cut == 17 || cut == 22 || cut == 30));
    cb_frame_decoder_clear(&d);
    cb_buf_clear(&out);
  }
  cb_buf_clear(&in);
}

static void refuses_what_breaks_the_format(void)
{
  static const struct {
    const char *bytes;
    size_t n;
    enum cb_code code;
    const char *text;
  } cases[] = {
    {"\x01\0\0\0\x01x", 6, CB_PROTOCOL, "stream envelope is compressed though nobody asked for it"},
    {"\x80\0\0\0\x01x", 6, CB_PROTOCOL, "stream envelope has unknown flags 0x80"},
    {"\0\xff\xff\xff\xff", 5, CB_TOO_LARGE,
     "stream envelope of 4294967295 bytes is over the limit of 16"},
    {"\0\0\0\0\x11", 5, CB_TOO_LARGE, "stream envelope of 17 bytes is over the limit of 16"},
    {"\x02\0\0\0\0\0", 6, CB_PROTOCOL, "stream goes on after its end envelope"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    struct cb_frame_decoder d;
    struct cb_err err = CB_ERR_INIT;
    struct cb_buf out;
    cb_buf_init(&out, 4096);
    cb_frame_decoder_init(&d, 16);
    CHECK(decode(&d, cases[i].bytes, cases[i].n, 1, &out, &err) == -1);
    CHECK(err.code == cases[i].code);
    CHECK_STR(err.text, cases[i].text);
    CHECK(decode(&d, "\0\0\0\0\0", 5, 5, &out, &err) == -1); /* and stays broken */
    cb_frame_decoder_clear(&d);
    cb_buf_clear(&out);
  }
}

static void reports_memory_running_out(void)
{
  struct cb_frame_decoder d;
  struct cb_err err = CB_ERR_INIT;
  struct cb_buf out;
  cb_buf_init(&out, 64);
  cb_frame_decoder_init(&d, 16);
  cb_alloc_fail_at(1);
  CHECK(decode(&d, "\0\0\0\0\x01x", 6, 6, &out, &err) == -1);
  cb_alloc_fail_at(0);
  CHECK(err.code == CB_NO_MEMORY);
  cb_frame_decoder_clear(&d);
  cb_buf_clear(&out);
}

int main(void)
{
  encodes_the_recorded_head();
  adds_all_or_nothing();
  survives_a_cut_at_every_byte();
  refuses_what_breaks_the_format();
  reports_memory_running_out();
  return check_done();
}
