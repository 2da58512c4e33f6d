/* SPDX-License-Identifier: MIT */
#include "supervise/oom.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_BYTES = 4096 };

/* The value behind "oom_kill " in a file of cgroup v2 (memory.events) or v1 (oom_control). */
static int64_t counter_in(const char *path)
{
  char line[256];
  int64_t found = -1;
  FILE *f = fopen(path, "re");
  while (f && found < 0 && fgets(line, sizeof line, f)) {
    if (strncmp(line, "oom_kill ", 9) == 0)
      found = strtoll(line + 9, NULL, 10);
  }
  if (f)
    fclose(f);
  return found;
}

/* A line of /proc/self/cgroup, "ID:CONTROLLERS:PATH": v2 has no controllers, v1 names memory. */
static bool file_of(char *line, char out[PATH_BYTES])
{
  char *controllers = strchr(line, ':');
  char *path = controllers ? strchr(controllers + 1, ':') : NULL;
  if (!path)
    return false;
  *path++ = '\0';
  controllers++;
  path[strcspn(path, "\n")] = '\0';
  if (strcmp(path, "/") == 0)
    *path = '\0';
  if (*controllers == '\0')
    snprintf(out, PATH_BYTES, "/sys/fs/cgroup%s/memory.events", path);
  else if (strcmp(controllers, "memory") == 0)
    snprintf(out, PATH_BYTES, "/sys/fs/cgroup/memory%s/memory.oom_control", path);
  else
    return false;
  return true;
}

int64_t cb_sup_oom_kills(void)
{
  char line[PATH_BYTES - 64], path[PATH_BYTES];
  int64_t found = -1;
  FILE *f = fopen("/proc/self/cgroup", "re");
  while (f && found < 0 && fgets(line, sizeof line, f)) {
    if (file_of(line, path))
      found = counter_in(path);
  }
  if (f)
    fclose(f);
  return found;
}
