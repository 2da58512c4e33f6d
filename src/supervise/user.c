/* SPDX-License-Identifier: MIT */
#include "supervise/user.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_BYTES = 1024 };
static const unsigned long MOST_ID = 4294967294ul; /* 2^32 - 1 means "leave as it is" */

static bool number(const char *s, char stop, unsigned long *out, const char **after)
{
  char *end;
  if (*s < '0' || *s > '9')
    return false;
  *out = strtoul(s, &end, 10);
  *after = end;
  return *end == stop && *out <= MOST_ID && end - s <= 10;
}

/* NAME:PASSWORD:UID:GID:... */
static bool parse_line(char *line, unsigned long *uid, unsigned long *gid)
{
  char *colon = strchr(line, ':');
  if (!colon)
    return false;
  *colon = '\0';
  const char *at = strchr(colon + 1, ':');
  return at && number(at + 1, ':', uid, &at) && number(at + 1, ':', gid, &at);
}

int cb_sup_user_find(const char *name, uid_t *uid, gid_t *gid, struct cb_err *err)
{
  char line[LINE_BYTES];
  const char *after;
  unsigned long want = 0, u, g;
  bool by_number = number(name, '\0', &want, &after), found = false;
  FILE *f = fopen("/etc/passwd", "re");

  while (f && !found && fgets(line, sizeof line, f))
    found = parse_line(line, &u, &g) && (by_number ? u == want : strcmp(line, name) == 0);
  if (f)
    fclose(f);
  if (!found && !by_number)
    return cb_err_set(err, CB_NOT_FOUND, "user %.64s: not in /etc/passwd", name);
  *uid = (uid_t)(found ? u : want);
  *gid = (gid_t)(found ? g : want);
  return CB_OK;
}
