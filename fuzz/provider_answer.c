/* SPDX-License-Identifier: MIT
 * JSON of a control plane that may be anybody's: what is taken from it is of the right type, and
 * a token or a domain can be put into a request without changing what the request is.
 * links: src/providers/e2b_answer.c src/providers/args.c */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "fuzz/fuzz.h"
#include "providers/e2b_answer.h"

static void check_text(const json_t *box, const char *key)
{
  const char *s = json_string_value(json_object_get(box, key));
  for (; s && *s; s++)
    assert((unsigned char)*s > ' ' && (unsigned char)*s < 0x7f);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
  char text[256], id[CB_BOX_ID_MAX + 1];
  double at;
  size_t len = n < sizeof text - 1 ? n : sizeof text - 1;
  memcpy(text, p, len);
  text[len] = '\0';
  if (cb_e2b_time(text, &at))
    assert(isfinite(at));
  int sig = cb_e2b_signal_of(text);
  assert(sig >= 0 && sig < 128);
  cb_e2b_version_ok(text);
  if (cb_e2b_token_ok(text) || cb_e2b_domain_ok(text))
    assert(!strpbrk(text, " \t\r\n"));

  json_t *answer = json_loadb((const char *)p, n, JSON_REJECT_DUPLICATES, NULL);
  json_t *box = NULL;
  if (!answer)
    return 0;
  int rc = cb_e2b_box(answer, &box, id, NULL);
  assert(strlen(id) <= CB_BOX_ID_MAX && !strpbrk(id, "/ \r\n?#"));
  if (rc == CB_OK) {
    assert(json_is_string(json_object_get(box, "id")) && json_is_string(json_object_get(box, "token")));
    check_text(box, "token");
    check_text(box, "domain");
    json_decref(box);
  }
  box = NULL;
  if (cb_e2b_detail(answer, &box, NULL) == CB_OK) {
    assert(json_is_string(json_object_get(box, "id")) && json_is_string(json_object_get(box, "state")));
    assert(isfinite(json_number_value(json_object_get(box, "end_at"))));
    check_text(box, "token");
    check_text(box, "domain");
    json_decref(box);
  }
  json_decref(answer);
  return 0;
}
