/* SPDX-License-Identifier: MIT
 * alloc.h: the one door to the heap. Every room allocates through it, so that a test can make
 * the n-th allocation fail. Any thread. All functions return NULL when memory runs out; none
 * aborts. Memory from here is freed by cb_free only. */
#ifndef CB_BASE_ALLOC_H
#define CB_BASE_ALLOC_H
#include <stdbool.h>
#include <stddef.h>

void *cb_malloc(size_t n);
void *cb_calloc(size_t count, size_t size); /* NULL when count * size overflows */
void *cb_realloc(void *p, size_t n);
char *cb_strdup(const char *s);                 /* s may be NULL: then NULL */
char *cb_memdup(const void *p, size_t n);       /* copies n bytes and adds a NUL */
void cb_free(void *p);                          /* NULL is fine */
void cb_free_wiped(void *p, size_t n);          /* overwrites n bytes first; for secrets */

/* a + b and a * b, false (and *out untouched) when the result does not fit a size_t. */
bool cb_size_add(size_t a, size_t b, size_t *out);
bool cb_size_mul(size_t a, size_t b, size_t *out);

/* Test hook: the n-th allocation from now (1 = the next) fails, once. 0 switches it off.
 * Process-wide on purpose: it exists to break code that cannot be reached otherwise. */
void cb_alloc_fail_at(unsigned long n);
bool cb_alloc_fail_pending(void); /* it has not come yet */
#endif
