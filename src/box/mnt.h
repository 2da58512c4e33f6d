/* SPDX-License-Identifier: MIT
 * mnt.h: the mount API of Linux 5.12 as functions; glibc of Debian 12 has wrappers for some of
 * it, others need the number. Each returns a descriptor or 0, or -1 with errno. */
#ifndef CB_BOX_MNT_H
#define CB_BOX_MNT_H
#include <stdbool.h>

/* A detached copy of the mount tree at path (relative to dir). recursive: with what is mounted
 * below it. Attributes are added to all of it: nosuid and nodev always (devices: not nodev). */
int cb_mnt_copy(int dir, const char *path, bool recursive, bool read_only, bool devices);
/* Attaches a detached tree over path (relative to dir; "" means dir itself). Closes tree. */
int cb_mnt_attach(int tree, int dir, const char *path);
/* cb_mnt_copy and cb_mnt_attach. */
int cb_mnt_bind(const char *from, const char *to, bool recursive, bool read_only);
/* A detached tmpfs; options are "key=value" separated by commas. */
int cb_mnt_tmpfs(const char *options, bool exec);
/* Sets a mounted tree (one mount, not recursive) read-only. */
int cb_mnt_read_only(const char *path);
int cb_mnt_pivot(void); /* the cwd becomes the root, the old root goes away */
#endif
