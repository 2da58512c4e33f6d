/* SPDX-License-Identifier: MIT */
#include "tree/never.h"

#include <fnmatch.h>
#include <string.h>
#include <strings.h>

enum { COMPONENT_MAX = 255 };

static const struct {
  const char *pattern; /* of one component, lower case */
  const char *reason;
} rules[] = {
#define NEVER(p) { p, "never uploaded: " p }
  NEVER(".env"),          NEVER(".env.*"),          NEVER(".envrc"),
  NEVER("*.pem"),         NEVER("*.key"),           NEVER("*.p12"),
  NEVER("*.pfx"),         NEVER("*.jks"),           NEVER("*.keystore"),
  NEVER("*.kdbx"),        NEVER("*.ppk"),           NEVER("id_rsa*"),
  NEVER("id_dsa*"),       NEVER("id_ecdsa*"),       NEVER("id_ed25519*"),
  NEVER(".netrc"),        NEVER("_netrc"),          NEVER(".npmrc"),
  NEVER(".yarnrc.yml"),   NEVER(".pypirc"),         NEVER(".git-credentials"),
  NEVER(".htpasswd"),     NEVER(".ssh"),            NEVER(".gnupg"),
  NEVER(".aws"),          NEVER(".azure"),          NEVER(".kube"),
  NEVER(".docker"),       NEVER("*.tfstate*"),      NEVER("*.tfvars"),
  NEVER("credentials.json"), NEVER("service-account*.json"), NEVER("*-credentials.json"),
#undef NEVER
};

/* Files that show which variables there are, without values. */
static const char *const samples[] = { ".example", ".sample", ".template", ".dist" };

static bool is_sample(const char *name)
{
  size_t n = strlen(name);
  if (strncmp(name, ".env.", 5) != 0)
    return false;
  for (size_t i = 0; i < sizeof samples / sizeof *samples; i++) {
    size_t len = strlen(samples[i]);
    if (n >= len && strcmp(name + n - len, samples[i]) == 0)
      return true;
  }
  return false;
}

/* Length of a character that file systems of macOS leave out when they compare, 0: none. */
static size_t ignorable(const unsigned char *p, size_t n)
{
  if (n >= 3 && p[0] == 0xe2 && p[1] == 0x80 &&
      ((p[2] >= 0x8c && p[2] <= 0x8f) || (p[2] >= 0xaa && p[2] <= 0xae)))
    return 3;
  if (n >= 3 && p[0] == 0xe2 && p[1] == 0x81 && p[2] >= 0xaa && p[2] <= 0xaf)
    return 3;
  return n >= 3 && p[0] == 0xef && p[1] == 0xbb && p[2] == 0xbf ? 3 : 0;
}

static bool is_git(const char *name, size_t len)
{
  char plain[8];
  size_t n = 0;
  for (size_t i = 0; i < len;) {
    size_t skip = ignorable((const unsigned char *)name + i, len - i);
    if (skip) {
      i += skip;
      continue;
    }
    if (name[i] == ':') /* an alternate data stream of NTFS: the name ends here */
      break;
    if (n == sizeof plain - 1) {
      /* Only dots and blanks may follow. */
      if (name[i] != '.' && name[i] != ' ')
        return false;
    } else {
      plain[n++] = name[i];
    }
    i++;
  }
  while (n && (plain[n - 1] == '.' || plain[n - 1] == ' '))
    n--;
  plain[n] = '\0';
  return strcasecmp(plain, ".git") == 0 || strcasecmp(plain, "git~1") == 0;
}

/* Calls fn for each component; stops at and returns its first answer that is not NULL. */
static const char *each(const char *path, size_t len,
                        const char *(*fn)(const char *name, size_t n))
{
  for (size_t at = 0; at <= len;) {
    const char *slash = memchr(path + at, '/', len - at);
    size_t n = slash ? (size_t)(slash - path) - at : len - at;
    const char *answer = fn(path + at, n);
    if (answer)
      return answer;
    at += n + 1;
  }
  return NULL;
}

static const char *git_component(const char *name, size_t n)
{
  return is_git(name, n) ? "never uploaded: .git" : NULL;
}

static const char *never_component(const char *name, size_t n)
{
  char lower[COMPONENT_MAX + 1];
  if (is_git(name, n))
    return "never uploaded: .git";
  if (n > COMPONENT_MAX)
    return NULL;
  for (size_t i = 0; i < n; i++)
    lower[i] = name[i] >= 'A' && name[i] <= 'Z' ? (char)(name[i] + 32) : name[i];
  lower[n] = '\0';
  if (is_sample(lower))
    return NULL;
  for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
    if (fnmatch(rules[i].pattern, lower, 0) == 0)
      return rules[i].reason;
  }
  return NULL;
}

bool cb_tree_names_git(const char *path, size_t len)
{
  return each(path, len, git_component) != NULL;
}

const char *cb_tree_never(const char *path, size_t len)
{
  static const char gcloud[] = ".config/gcloud";
  const char *reason = each(path, len, never_component);
  if (reason)
    return reason;
  for (size_t at = 0; at + sizeof gcloud - 1 <= len; at++) {
    size_t end = at + sizeof gcloud - 1;
    if ((at == 0 || path[at - 1] == '/') && (end == len || path[end] == '/') &&
        strncasecmp(path + at, gcloud, sizeof gcloud - 1) == 0)
      return "never uploaded: .config/gcloud";
  }
  return NULL;
}

bool cb_tree_matches(const char *pattern, const char *path)
{
  if (fnmatch(pattern, path, FNM_CASEFOLD) == 0)
    return true;
  for (const char *at = path; at;) {
    char name[COMPONENT_MAX + 1];
    const char *slash = strchr(at, '/');
    size_t n = slash ? (size_t)(slash - at) : strlen(at);
    if (n <= COMPONENT_MAX) {
      memcpy(name, at, n);
      name[n] = '\0';
      if (fnmatch(pattern, name, FNM_CASEFOLD) == 0)
        return true;
    }
    at = slash ? slash + 1 : NULL;
  }
  return false;
}
