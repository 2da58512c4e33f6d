/* SPDX-License-Identifier: MIT
 * env_name.h: what may be the name of an environment variable. Pure. */
#ifndef CB_BOXD_ENV_NAME_H
#define CB_BOXD_ENV_NAME_H
#include <stdbool.h>
#include <string.h>

/* Not empty and no '=': more is the business of programs (names with dots exist). */
static inline bool cb_env_name_ok(const char *name)
{
  return name[0] != '\0' && strlen(name) <= 256 && strchr(name, '=') == NULL;
}
#endif
