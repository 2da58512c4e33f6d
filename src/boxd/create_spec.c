/* SPDX-License-Identifier: MIT
 * create_spec.c: see create_spec.h. */
#include "boxd/create_spec.h"
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "boxd/egress.h"
#include "boxd/env_name.h"
#include "boxd/json.h"
#include "boxd/network_rules.h"

int cb_seconds(json_t *body, const char *field, int64_t *out, struct cb_err *err)
{
  json_t *v = json_object_get(body, field);
  if (!v || json_is_null(v))
    return cb_err_set(err, CB_NOT_FOUND, "%s is missing", field);
  if (!json_is_integer(v))
    return cb_err_set(err, CB_INVALID, "%s must be a whole number of seconds", field);
  *out = json_integer_value(v);
  if (*out > INT32_MAX || *out < INT32_MIN)
    return cb_err_set(err, CB_INVALID, "%s does not fit 32 bits", field);
  return CB_OK;
}

/* --- things E2B does and we do not --- */

static bool is_off(json_t *v)
{
  return !v || json_is_null(v) || json_is_false(v) ||
         (json_is_object(v) && json_object_size(v) == 0) ||
         (json_is_array(v) && json_array_size(v) == 0);
}

static int refuse_missing(json_t *body, struct cb_err *err)
{
  static const struct {
    const char *field, *what;
  } missing[] = {
    { "autoPause", "pausing a box on expiry" },
    { "iam", "workload identity tokens" },
    { "volumeMounts", "volumes" },
    { "mcp", "an MCP gateway" },
  };
  for (size_t i = 0; i < sizeof missing / sizeof *missing; i++)
    if (!is_off(json_object_get(body, missing[i].field)))
      return cb_err_set(err, CB_INVALID, "%s: crewboxd does not offer %s", missing[i].field,
                        missing[i].what);
  if (json_is_true(json_object_get(json_object_get(body, "autoResume"), "enabled")))
    return cb_err_set(err, CB_INVALID, "autoResume: crewboxd does not pause boxes");
  return CB_OK;
}

/* --- network --- */

static int add_text(json_t *list, const char *text, struct cb_err *err)
{
  return json_array_append_new(list, json_string(text)) ? cb_err_no_memory(err) : CB_OK;
}

static bool is_all(const char *s)
{
  return strcmp(s, "0.0.0.0/0") == 0 || strcmp(s, "::/0") == 0;
}

/* E2B's own words: allowOut beside a denyOut of everything is a list of names and addresses,
 * which is what we have; each stands for its web ports. */
static int read_e2b_network(struct cb_create_spec *s, json_t *network, struct cb_err *err)
{
  static const char *const other[] = { "maskRequestHost", "rules", "egressProxy", "httpsPorts" };
  size_t i;
  json_t *v, *allow = json_object_get(network, "allowOut"),
             *deny = json_object_get(network, "denyOut");
  if (json_is_null(network) || !network)
    return CB_OK;
  if (!json_is_object(network))
    return cb_err_set(err, CB_INVALID, "network must be an object");
  for (i = 0; i < sizeof other / sizeof *other; i++)
    if (!is_off(json_object_get(network, other[i])))
      return cb_err_set(err, CB_INVALID, "network.%s: crewboxd does not offer it", other[i]);
  if (json_is_false(json_object_get(network, "allowPublicTraffic")))
    return cb_err_set(err, CB_INVALID, "network.allowPublicTraffic: crewboxd has no traffic "
                                       "tokens; box ports are not public anyway");
  if ((!is_off(allow) && !json_is_array(allow)) || (!is_off(deny) && !json_is_array(deny)))
    return cb_err_set(err, CB_INVALID, "network.allowOut and network.denyOut must be lists");
  bool denies_all = false;
  json_array_foreach(deny, i, v)
  {
    if (!json_is_string(v))
      return cb_err_set(err, CB_INVALID, "network.denyOut must be a list of strings");
    if (!is_all(json_string_value(v)))
      return cb_err_set(err, CB_INVALID,
                        "network.denyOut \"%.100s\": crewboxd denies everything that is not "
                        "allowed; use only 0.0.0.0/0 here",
                        json_string_value(v));
    denies_all = true;
  }
  if (!is_off(allow) && !denies_all)
    return cb_err_set(err, CB_INVALID, "network.allowOut needs 0.0.0.0/0 in network.denyOut");
  json_array_foreach(allow, i, v)
  {
    char rule[CB_EGRESS_NAME_MAX + 16];
    const char *host = json_string_value(v);
    if (!host)
      return cb_err_set(err, CB_INVALID, "network.allowOut must be a list of strings");
    if (strlen(host) > CB_EGRESS_NAME_MAX || strchr(host, '/') || strchr(host, ':'))
      return cb_err_set(err, CB_INVALID,
                        "network.allowOut \"%.100s\": crewboxd allows names and IPv4 addresses, "
                        "not ranges",
                        host);
    int rc = CB_OK;
    static const int ports[] = { 443, 80 };
    for (size_t k = 0; k < 2 && !rc; k++) {
      snprintf(rule, sizeof rule, "%s:%d", host, ports[k]);
      rc = add_text(s->allow, rule, err);
    }
    if (rc)
      return rc;
  }
  return CB_OK;
}

static int read_forward(struct cb_create_spec *s, json_t *list, struct cb_err *err)
{
  size_t i;
  json_t *v;
  if (!list)
    return CB_OK;
  if (!json_is_array(list))
    return cb_err_set(err, CB_INVALID, "crewbox.network.forward must be a list");
  json_array_foreach(list, i, v)
  {
    const char *key;
    json_t *part;
    if (!json_is_object(v))
      return cb_err_set(err, CB_INVALID, "crewbox.network.forward holds objects of port and to");
    json_object_foreach(v, key, part)
    {
      if (strcmp(key, "port") != 0 && strcmp(key, "to") != 0)
        return cb_err_set(err, CB_INVALID, "unknown key \"%.100s\" in crewbox.network.forward",
                          key);
    }
    json_int_t port = json_integer_value(json_object_get(v, "port"));
    if (port < 1 || port > 65535)
      return cb_err_set(err, CB_INVALID, "crewbox.network.forward: port must be 1 to 65535");
    if (!json_is_string(json_object_get(v, "to")))
      return cb_err_set(err, CB_INVALID, "crewbox.network.forward: to must be \"host:port\"");
    if (json_array_append(s->forward, v))
      return cb_err_no_memory(err);
  }
  return CB_OK;
}

static int read_our_network(struct cb_create_spec *s, json_t *network, struct cb_err *err)
{
  static const char *const known[] = { "mode", "allow", "forward", NULL };
  const char *key;
  json_t *v, *allow = json_object_get(network, "allow");
  size_t i;
  if (!json_is_object(network))
    return cb_err_set(err, CB_INVALID, "crewbox.network must be an object");
  json_object_foreach(network, key, v)
  {
    bool found = false;
    for (i = 0; known[i]; i++)
      found = found || strcmp(key, known[i]) == 0;
    if (!found)
      return cb_err_set(err, CB_INVALID, "unknown key \"%.100s\" in crewbox.network: known are "
                                         "mode, allow and forward", key);
  }
  v = json_object_get(network, "mode");
  const char *mode = json_string_value(v);
  if (v && !mode)
    return cb_err_set(err, CB_INVALID, "crewbox.network.mode must be a string");
  if (mode && strcmp(mode, "open") == 0)
    return cb_err_set(err, CB_INVALID, "crewbox.network.mode \"open\" is not offered: list what "
                                       "the box may reach with mode \"allowlist\"");
  if (mode && strcmp(mode, "none") != 0 && strcmp(mode, "allowlist") != 0)
    return cb_err_set(err, CB_INVALID,
                      "crewbox.network.mode \"%.50s\": must be none or allowlist", mode);
  if (allow && !json_is_array(allow))
    return cb_err_set(err, CB_INVALID, "crewbox.network.allow must be a list");
  if (mode && strcmp(mode, "none") == 0 && json_array_size(allow) > 0)
    return cb_err_set(err, CB_INVALID, "crewbox.network.allow with mode \"none\"");
  json_array_foreach(allow, i, v)
  {
    if (!json_is_string(v))
      return cb_err_set(err, CB_INVALID, "crewbox.network.allow must be a list of strings");
    if (json_array_append(s->allow, v))
      return cb_err_no_memory(err);
  }
  return read_forward(s, json_object_get(network, "forward"), err);
}

static int read_extension(struct cb_create_spec *s, json_t *ext, struct cb_err *err)
{
  const char *key;
  json_t *v;
  if (!ext || json_is_null(ext))
    return CB_OK;
  if (!json_is_object(ext))
    return cb_err_set(err, CB_INVALID, "crewbox must be an object");
  json_object_foreach(ext, key, v)
  {
    int rc = CB_OK;
    if (strcmp(key, "network") == 0)
      rc = read_our_network(s, v, err);
    else if (strcmp(key, "limits") == 0 && json_is_object(v) && json_object_size(v) == 0)
      rc = CB_OK;
    else if (strcmp(key, "limits") == 0)
      rc = cb_err_set(err, CB_INVALID, "crewbox.limits: this crewboxd knows no limits; leave it "
                                       "empty");
    else
      rc = cb_err_set(err, CB_INVALID, "unknown key \"%.100s\" in crewbox: known are network and "
                                       "limits", key);
    if (rc)
      return rc;
  }
  return CB_OK;
}

static int read_network(struct cb_create_spec *s, json_t *body, struct cb_err *err)
{
  json_t *network = json_object_get(body, "network"), *ext = json_object_get(body, "crewbox");
  json_t *internet = json_object_get(body, "allow_internet_access");
  int rc = read_e2b_network(s, network, err);
  if (!rc && json_is_false(internet) && json_array_size(s->allow) > 0)
    rc = cb_err_set(err, CB_INVALID, "allow_internet_access false with network.allowOut");
  if (!rc)
    rc = read_extension(s, ext, err);
  if (!rc && json_is_false(internet) && json_array_size(s->allow) > 0)
    rc = cb_err_set(err, CB_INVALID, "allow_internet_access false with crewbox.network.allow");
  if (rc)
    return rc;
  /* The rules themselves are checked by the part that will apply them. */
  struct cb_network_rules rules;
  rc = cb_network_rules_read(&rules, s->allow, s->forward, err);
  if (!rc) {
    struct cb_egress_rules *compiled = NULL;
    rc = cb_egress_rules_new(&compiled, rules.allow, rules.allow_count, rules.forward,
                             rules.forward_count, err);
    cb_egress_rules_free(compiled);
  }
  cb_network_rules_clear(&rules);
  return rc;
}

/* --- the whole --- */

static int read_env(struct cb_create_spec *s, json_t *body, struct cb_err *err)
{
  const char *key;
  json_t *value, *given = NULL;
  int rc = cb_json_string_map(json_object_get(body, "envVars"), "envVars", &given, err);
  if (rc)
    return rc;
  json_object_foreach(given, key, value)
  {
    if (!cb_env_name_ok(key)) {
      rc = cb_err_set(err, CB_INVALID, "envVars: \"%.100s\" is not a variable's name", key);
      json_decref(given); /* key lives in it */
      return rc;
    }
  }
  s->env = s->template.env ? json_copy(s->template.env) : json_object();
  if (!s->env || json_object_update(s->env, given))
    rc = cb_err_no_memory(err);
  json_decref(given);
  return rc;
}

static int read_timeout(struct cb_create_spec *s, json_t *body, bool v2, struct cb_err *err)
{
  struct cb_err inner = CB_ERR_INIT;
  int rc = cb_seconds(body, "timeout", &s->timeout_s, &inner);
  if (rc == CB_NOT_FOUND) {
    s->timeout_s = v2 ? CB_CREATE_TIMEOUT_V2_S : CB_CREATE_TIMEOUT_V1_S;
    return CB_OK;
  }
  if (rc)
    return cb_err_set(err, rc, "%s", inner.text);
  if (s->timeout_s <= 0)
    return cb_err_set(err, CB_INVALID, "Timeout must be greater than 0");
  if (s->timeout_s > CB_TIMEOUT_MAX_S)
    return cb_err_set(err, CB_INVALID, "Timeout cannot be greater than %d hours",
                      CB_TIMEOUT_MAX_S / 3600);
  return CB_OK;
}

static int read_metadata(struct cb_create_spec *s, json_t *body, struct cb_err *err)
{
  int rc = cb_json_string_map(json_object_get(body, "metadata"), "metadata", &s->metadata, err);
  if (rc)
    return rc;
  if (json_dumpb(s->metadata, NULL, 0, JSON_COMPACT) > CB_METADATA_MAX)
    return cb_err_set(err, CB_INVALID, "metadata over %d bytes", CB_METADATA_MAX);
  return CB_OK;
}

int cb_create_spec_read(struct cb_create_spec *s, json_t *body, bool v2, int state_dir,
                        struct cb_err *err)
{
  memset(s, 0, sizeof *s);
  s->allow = json_array();
  s->forward = json_array();
  if (!s->allow || !s->forward) {
    cb_create_spec_clear(s);
    return cb_err_no_memory(err);
  }
  json_t *name = json_object_get(body, "templateID");
  int rc = CB_OK;
  if (!json_is_string(name))
    rc = cb_err_set(err, CB_INVALID, "validation error: templateID must be a string");
  if (!rc)
    rc = read_timeout(s, body, v2, err);
  if (!rc)
    rc = read_metadata(s, body, err);
  if (!rc)
    rc = refuse_missing(body, err);
  if (!rc)
    rc = read_network(s, body, err);
  if (!rc)
    rc = cb_template_load(&s->template, state_dir, json_string_value(name), err);
  if (!rc)
    rc = read_env(s, body, err);
  if (rc)
    cb_create_spec_clear(s);
  return rc;
}

void cb_create_spec_clear(struct cb_create_spec *s)
{
  cb_template_clear(&s->template);
  json_decref(s->metadata);
  json_decref(s->env);
  json_decref(s->allow);
  json_decref(s->forward);
  memset(s, 0, sizeof *s);
}
