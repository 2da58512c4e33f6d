/* SPDX-License-Identifier: MIT
 * user.h: a user by name or number. Reads /etc/passwd itself: a static program has no business
 * with the name service of the machine it happens to land on. */
#ifndef CB_SUPERVISE_USER_H
#define CB_SUPERVISE_USER_H
#include <sys/types.h>
#include "base/err.h"

/* A number that has no entry gets itself as group. CB_NOT_FOUND for a name that has none. */
int cb_sup_user_find(const char *name, uid_t *uid, gid_t *gid, struct cb_err *err);
#endif
