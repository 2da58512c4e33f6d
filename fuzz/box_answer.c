/* SPDX-License-Identifier: MIT
 * Answers of a box's init: whatever comes, every string given out ends and every array is as
 * long as it says. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz/fuzz.h"
/* The room `boxd` is not linked into fuzz targets; this part of it is pure. */
#include "src/boxd/box_answer.c"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
  struct cb_box_parsed parsed;
  size_t total = 0;
  char *copy = malloc(n ? n : 1);
  assert(copy);
  memcpy(copy, p, n);
  if (cb_box_answer_parse(&parsed, copy, n, n > 0 && (p[0] & 1)) == CB_OK && !parsed.answer.err) {
    const struct cb_box_answer *a = &parsed.answer;
    for (size_t i = 0; i < a->entry_count; i++)
      total += strlen(a->entries[i].name) + strlen(a->entries[i].path) +
               strlen(a->entries[i].owner) + strlen(a->entries[i].group) +
               (a->entries[i].link ? strlen(a->entries[i].link) : 0);
    for (size_t i = 0; i < a->proc_count; i++) {
      total += strlen(a->procs[i].cmd) + strlen(a->procs[i].cwd) + strlen(a->procs[i].tag);
      for (size_t k = 0; k < a->procs[i].arg_count; k++)
        total += strlen(a->procs[i].args[k]);
      for (size_t k = 0; k < a->procs[i].env_count; k++)
        total += strlen(a->procs[i].env[k]);
    }
    total += a->path ? strlen(a->path) : 0;
  }
  assert(total <= n);
  cb_box_parsed_clear(&parsed);
  free(copy);
  return 0;
}
