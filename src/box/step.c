/* SPDX-License-Identifier: MIT
 * step.c: see step.h. */
#include "box/step.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "wire/record.h"

int cb_step_set(struct cb_step *s, enum cb_code code, int sys, const char *step,
                const char *fmt, ...)
{
  va_list ap;
  memset(s, 0, sizeof *s);
  s->code = code;
  s->sys = sys;
  snprintf(s->step, sizeof s->step, "%s", step);
  va_start(ap, fmt);
  vsnprintf(s->text, sizeof s->text, fmt, ap);
  va_end(ap);
  return -1;
}

int cb_step_host(struct cb_step *s, int sys, const char *step, const char *hint)
{
  enum cb_code code = sys == ENOSPC || sys == EDQUOT ? CB_DISK_FULL
                      : sys == ENOMEM                ? CB_NO_MEMORY
                                                     : CB_ISOLATION;
  return cb_step_set(s, code, sys, step, "this host cannot isolate a box: %s: %s%s%s", step,
                     strerror(sys), *hint ? "; " : "", hint);
}

int cb_step_put(struct cb_buf *into, const struct cb_step *s)
{
  int rc = cb_record_addz(into, "step", s->step);
  if (!rc)
    rc = cb_record_addi(into, "errno", s->sys);
  if (!rc)
    rc = cb_record_addz(into, "code", cb_code_name(s->code));
  if (!rc)
    rc = cb_record_addz(into, "text", s->text);
  return rc;
}

static void text_of(char *into, size_t room, const struct cb_record *rec)
{
  snprintf(into, room, "%.*s", (int)(rec->len < room ? rec->len : room - 1), rec->value);
}

void cb_step_get(struct cb_step *s, const void *records, size_t n)
{
  struct cb_record rec;
  int64_t v;
  memset(s, 0, sizeof *s);
  s->code = CB_SYSTEM;
  if (cb_record_find(records, n, "step", &rec))
    text_of(s->step, sizeof s->step, &rec);
  if (cb_record_find(records, n, "text", &rec))
    text_of(s->text, sizeof s->text, &rec);
  if (cb_record_find(records, n, "errno", &rec) && cb_record_int(&rec, &v) && v > 0 && v < 4096)
    s->sys = (int)v;
  if (cb_record_find(records, n, "code", &rec))
    for (int i = CB_OK + 1; i < CB_CODE_COUNT; i++)
      if (strlen(cb_code_name(i)) == rec.len &&
          memcmp(cb_code_name(i), rec.value, rec.len) == 0)
        s->code = (enum cb_code)i;
}
