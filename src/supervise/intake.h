/* SPDX-License-Identifier: MIT
 * intake.h: takes the orders out of their file. They hold secrets: the file is gone before
 * anything else happens, and the bytes live in one allocation that is wiped. */
#ifndef CB_SUPERVISE_INTAKE_H
#define CB_SUPERVISE_INTAKE_H
#include <stddef.h>
#include "base/err.h"

/* Reads the file whole, removes it and the folder it lay in. *out gets *len bytes and a NUL,
 * freed by cb_free_wiped(out, len). CB_DENIED, with the file left alone, for a link, anything but
 * a regular file of ours with one name, a file others may write, and one that others may read
 * unless its folder is closed to them (an upload cannot choose modes, the folder can). */
int cb_sup_intake(const char *path, char **out, size_t *len, struct cb_err *err);
#endif
