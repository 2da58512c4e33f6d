/* SPDX-License-Identifier: MIT
 * err.h: how failures travel. A function that can fail returns CB_OK (0) or a code and, as its
 * last parameter, fills a struct cb_err. Success leaves it alone. The text is a fixed array:
 * reporting can neither fail nor leak. Text form: operation and object, lower case, no full
 * stop, saying what to do next where somebody can do something. A secret never enters it.
 * err may be NULL everywhere. */
#ifndef CB_BASE_ERR_H
#define CB_BASE_ERR_H
#include <stdbool.h>
#include <stdint.h>

/* The codes users and Lua see; docs/reference/interfaces.md says what each means.
 * Append only: the names are public. */
#define CB_CODES(X)                                                                          \
  X(OK, "ok")                                                                                \
  X(UNREACHABLE, "unreachable")   /* no connection, name not found, connection lost */       \
  X(UNAUTHORIZED, "unauthorized") /* key or token refused */                                 \
  X(NOT_FOUND, "not_found")                                                                  \
  X(CONFLICT, "conflict")         /* the thing is in a state that forbids this now */        \
  X(RATE_LIMITED, "rate_limited") /* retry_after_ms says when */                             \
  X(QUOTA, "quota")               /* a plan's or a host's cap */                             \
  X(PROVIDER, "provider")         /* the provider failed; status holds its HTTP status */    \
  X(PROTOCOL, "protocol")         /* bytes that do not follow the format */                  \
  X(TOO_LARGE, "too_large")                                                                  \
  X(TIMEOUT, "timeout")                                                                      \
  X(CANCELLED, "cancelled")                                                                  \
  X(CLOSED, "closed")             /* the handle was closed */                                \
  X(NO_MEMORY, "no_memory")                                                                  \
  X(SYSTEM, "system")             /* a system call failed; sys holds errno */                \
  X(INVALID, "invalid")           /* input that breaks a rule */                             \
  X(EXISTS, "exists")                                                                        \
  X(BUSY, "busy")                 /* somebody else holds it; try again */                    \
  X(DENIED, "denied")             /* a rule forbids it */                                    \
  X(UNSUPPORTED, "unsupported")                                                              \
  X(CONTAINS_SECRET, "contains_secret")                                                      \
  X(ISOLATION, "isolation_unavailable") /* this host cannot isolate a box */                 \
  X(DISK_FULL, "disk_full")                                                                  \
  X(CORRUPT, "corrupt")           /* stored bytes are not what was stored */

enum cb_code {
#define CB_X(id, name) CB_##id,
  CB_CODES(CB_X)
#undef CB_X
  CB_CODE_COUNT
};

struct cb_err {
  enum cb_code code;
  int sys;                /* errno, or 0 */
  int status;             /* HTTP status, or 0 */
  int64_t retry_after_ms; /* with CB_RATE_LIMITED; else 0 */
  char text[480];
  bool unknown;           /* the request may have been carried out all the same */
};
#define CB_ERR_INIT { CB_OK, 0, 0, 0, "", false }

/* Fills *err and returns code. */
int cb_err_set(struct cb_err *err, enum cb_code code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* As cb_err_set, with errno: adds ": <strerror>" and picks CB_DISK_FULL, CB_NOT_FOUND,
 * CB_DENIED, CB_EXISTS, CB_NO_MEMORY or CB_SYSTEM from it. */
int cb_err_errno(struct cb_err *err, int sys, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Puts "<fmt>: " before the text that is there. Returns err->code. */
int cb_err_wrap(struct cb_err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

int cb_err_no_memory(struct cb_err *err);

#ifdef __clang_analyzer__
/* What clang's analyzer cannot see from a caller: the code comes back, and it is never CB_OK. */
#define cb_err_set(err, code, ...) ((void)(cb_err_set)(err, code, __VA_ARGS__), (int)(code))
#define cb_err_errno(err, ...) ((void)(cb_err_errno)(err, __VA_ARGS__), (int)CB_SYSTEM)
#define cb_err_no_memory(err) ((void)(cb_err_no_memory)(err), (int)CB_NO_MEMORY)
#endif

/* "ok", "unreachable", ...: never NULL. */
const char *cb_code_name(enum cb_code code);
#endif
