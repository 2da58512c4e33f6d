/* SPDX-License-Identifier: MIT */
#include "providers/e2b_answer.h"

#include <ctype.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

bool cb_e2b_token_ok(const char *token)
{
  size_t n = token ? strlen(token) : 0;
  if (n == 0 || n > CB_E2B_TOKEN_MAX)
    return false;
  for (size_t i = 0; i < n; i++)
    if (token[i] <= 0x20 || token[i] >= 0x7f)
      return false;
  return true;
}

bool cb_e2b_domain_ok(const char *domain)
{
  size_t n = domain ? strlen(domain) : 0;
  if (n == 0 || n > CB_E2B_DOMAIN_MAX || domain[0] == '.' || domain[0] == '-')
    return false;
  size_t host = strspn(domain, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_");
  if (host == 0)
    return false;
  if (domain[host] == '\0')
    return true;
  if (domain[host] != ':')
    return false;
  size_t digits = strspn(domain + host + 1, "0123456789");
  return digits >= 1 && digits <= 5 && domain[host + 1 + digits] == '\0';
}

/* ---- time -------------------------------------------------------------------------------- */

static bool digits(const char **p, int count, int *out)
{
  int v = 0;
  for (int i = 0; i < count; i++, (*p)++) {
    if (!isdigit((unsigned char)**p))
      return false;
    v = v * 10 + (**p - '0');
  }
  *out = v;
  return true;
}

static bool literal(const char **p, const char *set)
{
  if (**p == '\0' || !strchr(set, **p))
    return false;
  (*p)++;
  return true;
}

/* Days from 1970-01-01 in the Gregorian calendar, counting years from March. */
static int64_t days_of(int year, int month, int day)
{
  int64_t y = year - (month <= 2);
  int64_t era = y / 400, yoe = y - era * 400;
  int64_t doy = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
  return era * 146097 + yoe * 365 + yoe / 4 - yoe / 100 + doy - 719468;
}

static int days_in(int year, int month)
{
  static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
  bool leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
  return month == 2 && leap ? 29 : days[month - 1];
}

/* The fraction and the offset, both in seconds. */
static bool time_tail(const char *p, double *fraction, int *offset)
{
  int hours, minutes;
  *fraction = 0;
  *offset = 0;
  if (*p == '.' || *p == ',') {
    double scale = 0.1;
    p++;
    if (!isdigit((unsigned char)*p))
      return false;
    for (; isdigit((unsigned char)*p); p++, scale /= 10)
      *fraction += (*p - '0') * scale;
  }
  if (*p == 'Z' || *p == 'z')
    return p[1] == '\0';
  char sign = *p;
  if (!literal(&p, "+-") || !digits(&p, 2, &hours) || !literal(&p, ":") ||
      !digits(&p, 2, &minutes) || *p != '\0' || hours > 23 || minutes > 59)
    return false;
  *offset = (hours * 60 + minutes) * (sign == '-' ? -60 : 60);
  return true;
}

bool cb_e2b_time(const char *text, double *out)
{
  int year, month, day, hour, minute, second, offset;
  double fraction;
  const char *p = text;
  if (!p || !digits(&p, 4, &year) || !literal(&p, "-") || !digits(&p, 2, &month) ||
      !literal(&p, "-") || !digits(&p, 2, &day) || !literal(&p, "Tt ") || !digits(&p, 2, &hour) ||
      !literal(&p, ":") || !digits(&p, 2, &minute) || !literal(&p, ":") ||
      !digits(&p, 2, &second))
    return false;
  if (month < 1 || month > 12 || day < 1 || day > days_in(year, month) || hour > 23 ||
      minute > 59 || second > 60)
    return false;
  if (!time_tail(p, &fraction, &offset))
    return false;
  int64_t whole = days_of(year, month, day) * 86400 + hour * 3600 + minute * 60 + second - offset;
  *out = (double)whole + fraction;
  return true;
}

/* ---- boxes ------------------------------------------------------------------------------- */

bool cb_e2b_version_ok(const char *version)
{
  int major, minor;
  if (!version || strlen(version) > 32 || sscanf(version, "%5d.%5d", &major, &minor) != 2)
    return false;
  return major > 0 || (major == 0 && minor >= 1);
}

static int missing(struct cb_err *err, const char *field)
{
  return cb_err_set(err, CB_PROTOCOL, "the answer has no usable %s", field);
}

static const char *text_of(const json_t *o, const char *name)
{
  const char *s = json_string_value(json_object_get(o, name));
  return s && *s ? s : NULL;
}

static bool set(json_t *o, const char *name, json_t *value)
{
  return json_object_set_new(o, name, value) == 0;
}

/* The facts that create, connect and detail share; token and version only where present. */
static int shared(const json_t *answer, json_t *box, struct cb_err *err)
{
  const char *token = text_of(answer, "envdAccessToken");
  const char *domain = text_of(answer, "domain");
  const char *version = text_of(answer, "envdVersion");
  if (token && !cb_e2b_token_ok(token))
    return missing(err, "envdAccessToken");
  if (domain && !cb_e2b_domain_ok(domain))
    return missing(err, "domain");
  if (!set(box, "id", json_string(text_of(answer, "sandboxID"))) ||
      (token && !set(box, "token", json_string(token))) ||
      (domain && !set(box, "domain", json_string(domain))) ||
      (version && !set(box, "envd_version", json_string(version))))
    return cb_err_no_memory(err);
  return CB_OK;
}

int cb_e2b_box(const json_t *answer, json_t **out, char id[CB_BOX_ID_MAX + 1], struct cb_err *err)
{
  const char *name = text_of(answer, "sandboxID");
  int rc = CB_OK;
  id[0] = '\0';
  *out = NULL;
  if (!cb_box_id_ok(name))
    return missing(err, "sandboxID");
  snprintf(id, CB_BOX_ID_MAX + 1, "%s", name);
  json_t *box = json_object();
  if (!box)
    return cb_err_no_memory(err);
  rc = shared(answer, box, err);
  if (!rc && !json_object_get(box, "token")) /* without it anybody who knows the id gets in */
    rc = missing(err, "envdAccessToken");
  if (!rc && !json_object_get(box, "envd_version"))
    rc = missing(err, "envdVersion");
  if (!rc && !cb_e2b_version_ok(text_of(answer, "envdVersion")))
    rc = cb_err_set(err, CB_UNSUPPORTED,
                    "the template's envd is older than 0.1.0; rebuild the template");
  if (rc)
    json_decref(box);
  else
    *out = box;
  return rc;
}

static int take_time(const json_t *answer, const char *field, json_t *box, const char *name,
                     struct cb_err *err)
{
  double at;
  const char *text = text_of(answer, field);
  if (!text)
    return CB_OK; /* the caller checks those it needs */
  if (!cb_e2b_time(text, &at))
    return missing(err, field);
  return set(box, name, json_real(at)) ? CB_OK : cb_err_no_memory(err);
}

int cb_e2b_detail(const json_t *answer, json_t **out, struct cb_err *err)
{
  const char *state = text_of(answer, "state");
  *out = NULL;
  if (!cb_box_id_ok(text_of(answer, "sandboxID")))
    return missing(err, "sandboxID");
  json_t *box = json_object();
  if (!box)
    return cb_err_no_memory(err);
  int rc = shared(answer, box, err);
  if (!rc && state && strcmp(state, "running") != 0 && strcmp(state, "paused") != 0)
    rc = missing(err, "state");
  /* The old list route has no state and gives running boxes alone. */
  if (!rc && !set(box, "state", json_string(state ? state : "running")))
    rc = cb_err_no_memory(err);
  if (!rc)
    rc = take_time(answer, "startedAt", box, "started_at", err);
  if (!rc)
    rc = take_time(answer, "endAt", box, "end_at", err);
  if (!rc) {
    json_t *metadata = json_object_get(answer, "metadata");
    json_t *copy = json_is_object(metadata) ? json_deep_copy(metadata) : json_object();
    if (!copy || !set(box, "metadata", copy))
      rc = cb_err_no_memory(err);
  }
  if (rc)
    json_decref(box);
  else
    *out = box;
  return rc;
}

/* ---- signals ----------------------------------------------------------------------------- */

static const struct {
  const char *name; /* as Go's syscall package spells them on Linux */
  int number;
} signals[] = {
  {"aborted", SIGABRT},          {"alarm clock", SIGALRM},
  {"bus error", SIGBUS},         {"broken pipe", SIGPIPE},
  {"CPU time limit exceeded", SIGXCPU}, {"file size limit exceeded", SIGXFSZ},
  {"floating point exception", SIGFPE}, {"hangup", SIGHUP},
  {"illegal instruction", SIGILL}, {"interrupt", SIGINT},
  {"killed", SIGKILL},           {"quit", SIGQUIT},
  {"segmentation fault", SIGSEGV}, {"bad system call", SIGSYS},
  {"terminated", SIGTERM},       {"trace/breakpoint trap", SIGTRAP},
  {"user defined signal 1", SIGUSR1}, {"user defined signal 2", SIGUSR2},
};

int cb_e2b_signal_of(const char *status)
{
  static const char prefix[] = "signal: ";
  if (!status || strncmp(status, prefix, sizeof prefix - 1) != 0)
    return 0;
  const char *name = status + sizeof prefix - 1;
  for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
    size_t n = strlen(signals[i].name);
    if (strncmp(name, signals[i].name, n) == 0 && (name[n] == '\0' || name[n] == ' '))
      return signals[i].number;
  }
  int number;
  if (sscanf(name, "signal %3d", &number) == 1 && number > 0 && number <= 64)
    return number;
  return 0;
}
