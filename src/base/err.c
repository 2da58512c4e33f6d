/* SPDX-License-Identifier: MIT */
#include "base/err.h"

/* Of clang's analyzer, see there. */
#undef cb_err_set
#undef cb_err_errno
#undef cb_err_no_memory

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char *const names[] = {
#define CB_X(id, name) name,
  CB_CODES(CB_X)
#undef CB_X
};
_Static_assert(sizeof names / sizeof *names == CB_CODE_COUNT, "one name a code");

const char *cb_code_name(enum cb_code code)
{
  return (unsigned)code < CB_CODE_COUNT ? names[code] : "unknown";
}

static enum cb_code code_of_errno(int sys)
{
  switch (sys) {
  case ENOSPC:
  case EDQUOT:
    return CB_DISK_FULL;
  case ENOENT:
    return CB_NOT_FOUND;
  case EACCES:
  case EPERM:
  case EROFS:
    return CB_DENIED;
  case EEXIST:
    return CB_EXISTS;
  case ENOMEM:
    return CB_NO_MEMORY;
  default:
    return CB_SYSTEM;
  }
}

int cb_err_set(struct cb_err *err, enum cb_code code, const char *fmt, ...)
{
  if (err) {
    va_list ap;
    memset(err, 0, sizeof *err);
    err->code = code;
    va_start(ap, fmt);
    vsnprintf(err->text, sizeof err->text, fmt, ap);
    va_end(ap);
  }
  return code;
}

int cb_err_errno(struct cb_err *err, int sys, const char *fmt, ...)
{
  enum cb_code code = code_of_errno(sys);
  if (err) {
    va_list ap;
    memset(err, 0, sizeof *err);
    err->code = code;
    err->sys = sys;
    va_start(ap, fmt);
    int n = vsnprintf(err->text, sizeof err->text, fmt, ap);
    va_end(ap);
    if (n >= 0 && (size_t)n < sizeof err->text) {
      char said[128] = "";
      const char *why = strerror_r(sys, said, sizeof said); /* GNU: may ignore said */
      snprintf(err->text + n, sizeof err->text - (size_t)n, ": %s", why);
    }
  }
  return code;
}

int cb_err_wrap(struct cb_err *err, const char *fmt, ...)
{
  if (!err)
    return CB_SYSTEM;
  char said[sizeof err->text];
  va_list ap;
  memcpy(said, err->text, sizeof said);
  va_start(ap, fmt);
  int n = vsnprintf(err->text, sizeof err->text, fmt, ap);
  va_end(ap);
  if (n >= 0 && (size_t)n < sizeof err->text)
    snprintf(err->text + n, sizeof err->text - (size_t)n, ": %s", said);
  return err->code;
}

int cb_err_no_memory(struct cb_err *err)
{
  return cb_err_set(err, CB_NO_MEMORY, "out of memory");
}
