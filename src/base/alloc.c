/* SPDX-License-Identifier: MIT */
#include "base/alloc.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* The only mutable file-level state of the core: a test switch, see alloc.h. */
static atomic_ulong fail_at;

static bool must_fail(void)
{
  unsigned long n = atomic_load_explicit(&fail_at, memory_order_relaxed);
  if (n == 0)
    return false;
  return atomic_fetch_sub(&fail_at, 1) == 1;
}

void cb_alloc_fail_at(unsigned long n)
{
  atomic_store(&fail_at, n);
}

bool cb_alloc_fail_pending(void)
{
  return atomic_load(&fail_at) != 0;
}

void *cb_malloc(size_t n)
{
  return must_fail() ? NULL : malloc(n ? n : 1);
}

void *cb_calloc(size_t count, size_t size)
{
  return must_fail() ? NULL : calloc(count ? count : 1, size ? size : 1);
}

void *cb_realloc(void *p, size_t n)
{
  return must_fail() ? NULL : realloc(p, n ? n : 1);
}

char *cb_memdup(const void *p, size_t n)
{
  size_t want;
  if (!cb_size_add(n, 1, &want))
    return NULL;
  char *q = cb_malloc(want);
  if (!q)
    return NULL;
  if (n)
    memcpy(q, p, n);
  q[n] = '\0';
  return q;
}

char *cb_strdup(const char *s)
{
  return s ? cb_memdup(s, strlen(s)) : NULL;
}

void cb_free(void *p)
{
  free(p);
}

void cb_free_wiped(void *p, size_t n)
{
  if (p)
    explicit_bzero(p, n);
  free(p);
}

bool cb_size_add(size_t a, size_t b, size_t *out)
{
  if (a > SIZE_MAX - b)
    return false;
  *out = a + b;
  return true;
}

bool cb_size_mul(size_t a, size_t b, size_t *out)
{
  if (b && a > SIZE_MAX / b)
    return false;
  *out = a * b;
  return true;
}
