/* SPDX-License-Identifier: MIT */
#include "secrets/resolve.h"

#include <string.h>

#include "secrets/redact.h"

static bool is_upper(char c)
{
  return c >= 'A' && c <= 'Z';
}

static bool is_lower(char c)
{
  return c >= 'a' && c <= 'z';
}

static bool is_digit(char c)
{
  return c >= '0' && c <= '9';
}

static bool is_alnum(char c)
{
  return is_upper(c) || is_lower(c) || is_digit(c);
}

/* ---- references ---------------------------------------------------------------------------- */

bool cb_reference_next(const char *text, size_t len, size_t at, struct cb_reference *out)
{
  while (at < len) {
    const char *dollar = memchr(text + at, '$', len - at);
    if (!dollar)
      return false;
    size_t start = (size_t)(dollar - text), p = start + 2;
    at = start + 1;
    if (p >= len || text[start + 1] != '{' || is_digit(text[p]))
      continue;
    while (p < len && (is_alnum(text[p]) || text[p] == '_'))
      p++;
    if (p == len || text[p] != '}' || p == start + 2)
      continue;
    out->start = start;
    out->end = p + 1;
    out->name = text + start + 2;
    out->name_len = p - start - 2;
    return true;
  }
  return false;
}

static int append(struct cb_buf *out, const char *p, size_t n, struct cb_err *err)
{
  int rc = cb_buf_add(out, p, n);
  if (rc == CB_TOO_LARGE)
    return cb_err_set(err, rc, "resolve: the text grows over %zu bytes", out->max);
  return rc ? cb_err_no_memory(err) : CB_OK;
}

int cb_resolve(const char *text, size_t len, cb_resolve_lookup *lookup, cb_resolve_missing *missing,
               void *arg, struct cb_buf *out, struct cb_err *err)
{
  struct cb_reference r;
  size_t at = 0;
  int rc = CB_OK;
  while (rc == CB_OK && cb_reference_next(text, len, at, &r)) {
    size_t n = 0;
    const char *value = lookup(arg, r.name, r.name_len, &n);
    rc = append(out, text + at, r.start - at, err);
    if (rc == CB_OK && value && n)
      rc = append(out, value, n, err);
    else if (rc == CB_OK && missing)
      missing(arg, r.name, r.name_len);
    at = r.end;
  }
  return rc ? rc : append(out, text + at, len - at, err);
}

/* ---- environment --------------------------------------------------------------------------- */

bool cb_env_name_ok(const char *name, size_t len)
{
  if (len == 0 || len > 255 || is_digit(name[0]))
    return false;
  for (size_t i = 0; i < len; i++) {
    if (!is_alnum(name[i]) && name[i] != '_')
      return false;
  }
  return true;
}

static int compare_names(const struct cb_env_var *a, const struct cb_env_var *b)
{
  int c = memcmp(a->name, b->name, a->name_len < b->name_len ? a->name_len : b->name_len);
  if (c)
    return c;
  return a->name_len < b->name_len ? -1 : a->name_len > b->name_len;
}

size_t cb_env_merge(struct cb_env_var *vars, size_t count)
{
  size_t n = 0;
  for (size_t i = 0; i < count; i++) {
    struct cb_env_var v = vars[i]; /* vars[0 .. n) is merged and in order */
    size_t lo = 0, hi = n;
    while (lo < hi) {
      size_t mid = lo + (hi - lo) / 2;
      if (compare_names(&vars[mid], &v) < 0)
        lo = mid + 1;
      else
        hi = mid;
    }
    if (lo == n || compare_names(&vars[lo], &v) != 0) {
      memmove(&vars[lo + 1], &vars[lo], (n - lo) * sizeof *vars);
      n++;
    }
    vars[lo] = v;
  }
  return n;
}

/* ---- what is a secret ---------------------------------------------------------------------- */

enum { RANDOM_LEAST = 16, HANDLE_MAX = 40 };

static bool has_random_part(const char *p, size_t n)
{
  size_t run = 0;
  bool upper = false, lower = false, digit = false;
  for (size_t i = 0; i < n; i++) {
    if (!is_alnum(p[i])) {
      run = 0;
      upper = lower = digit = false;
      continue;
    }
    upper = upper || is_upper(p[i]);
    lower = lower || is_lower(p[i]);
    digit = digit || is_digit(p[i]);
    if (++run >= RANDOM_LEAST && upper && lower && digit)
      return true;
  }
  return false;
}

static bool only(const char *p, size_t n, const char *also)
{
  for (size_t i = 0; i < n; i++) {
    if (!is_alnum(p[i]) && (p[i] == '\0' || !strchr(also, p[i])))
      return false;
  }
  return true;
}

static bool begins(const char *p, size_t n, const char *what)
{
  size_t len = strlen(what);
  return n >= len && memcmp(p, what, len) == 0;
}

static bool is_path(const char *p, size_t n)
{
  return (begins(p, n, "/") || begins(p, n, "./") || begins(p, n, "../") || begins(p, n, "~/")) &&
         only(p, n, "/._-~@+,");
}

static bool is_url(const char *p, size_t n)
{
  size_t scheme = 0;
  while (scheme < n && (is_alnum(p[scheme]) || p[scheme] == '+' || p[scheme] == '-'))
    scheme++;
  return scheme > 0 && begins(p + scheme, n - scheme, "://") &&
         only(p + scheme + 3, n - scheme - 3, "/._-~:[]%,");
}

static bool is_handle(const char *p, size_t n)
{
  if (n > HANDLE_MAX || p[0] != '@' || !is_lower(p[1]))
    return false;
  for (size_t i = 1; i < n; i++) {
    if (!is_lower(p[i]) && !is_digit(p[i]) && p[i] != '-' && p[i] != '_')
      return false;
  }
  return true;
}

static bool is_mail(const char *p, size_t n)
{
  const char *at = memchr(p, '@', n);
  if (!at || at == p || !only(p, (size_t)(at - p), "._+-"))
    return false;
  size_t domain = n - (size_t)(at + 1 - p);
  const char *dot = memrchr(at + 1, '.', domain);
  if (!dot || dot == at + 1 || !only(at + 1, domain, ".-"))
    return false;
  size_t top = (size_t)(p + n - dot - 1);
  for (size_t i = 0; i < top; i++) {
    if (!is_lower(dot[1 + i]))
      return false;
  }
  return top >= 2;
}

bool cb_secret_is(const char *value, size_t len)
{
  if (len < CB_SECRET_MIN)
    return false;
  if ((is_path(value, len) || is_url(value, len)) && !has_random_part(value, len))
    return false;
  return !is_handle(value, len) && !is_mail(value, len);
}

/* ---- headers ------------------------------------------------------------------------------- */

static bool is_blank(char c)
{
  return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

int cb_header_value(const char *what, const char **value, size_t *len, struct cb_err *err)
{
  while (*len && is_blank((*value)[*len - 1]))
    --*len;
  while (*len && is_blank(**value))
    ++*value, --*len;
  for (size_t i = 0; i < *len; i++) {
    unsigned char c = (unsigned char)(*value)[i];
    if ((c < ' ' && c != '\t') || c == 0x7f)
      return cb_err_set(err, CB_INVALID,
                        "%.100s holds a control character and cannot go into a header", what);
  }
  return CB_OK;
}
