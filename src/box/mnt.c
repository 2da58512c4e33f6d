/* SPDX-License-Identifier: MIT
 * mnt.c: see mnt.h. */
#include "box/mnt.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"

int cb_mnt_copy(int dir, const char *path, bool recursive, bool read_only, bool devices)
{
  unsigned deep = recursive ? AT_RECURSIVE : 0;
  struct mount_attr attr = { .attr_set = MOUNT_ATTR_NOSUID | (devices ? 0 : MOUNT_ATTR_NODEV) |
                                         (read_only ? MOUNT_ATTR_RDONLY : 0) };
  int tree = (int)syscall(SYS_open_tree, dir, path,
                          OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | deep |
                              (*path ? 0 : AT_EMPTY_PATH));
  if (tree < 0)
    return -1;
  if (syscall(SYS_mount_setattr, tree, "", AT_EMPTY_PATH | deep, &attr, sizeof attr) < 0) {
    cb_close(&tree);
    return -1;
  }
  return tree;
}

int cb_mnt_attach(int tree, int dir, const char *path)
{
  int rc = (int)syscall(SYS_move_mount, tree, "", dir, path,
                        MOVE_MOUNT_F_EMPTY_PATH | (*path ? 0 : MOVE_MOUNT_T_EMPTY_PATH));
  cb_close(&tree);
  return rc;
}

int cb_mnt_bind(const char *from, const char *to, bool recursive, bool read_only)
{
  int tree = cb_mnt_copy(AT_FDCWD, from, recursive, read_only, false);
  return tree < 0 ? -1 : cb_mnt_attach(tree, AT_FDCWD, to);
}

int cb_mnt_tmpfs(const char *options, bool exec)
{
  char word[64];
  int mounted = -1;
  int fs = (int)syscall(SYS_fsopen, "tmpfs", FSOPEN_CLOEXEC);
  if (fs < 0)
    return -1;
  while (*options) {
    size_t n = strcspn(options, ",");
    if (n >= sizeof word) {
      errno = EINVAL;
      goto out;
    }
    memcpy(word, options, n);
    word[n] = '\0';
    options += n + (options[n] == ',');
    char *value = strchr(word, '=');
    if (!value) {
      errno = EINVAL;
      goto out;
    }
    *value++ = '\0';
    if (syscall(SYS_fsconfig, fs, FSCONFIG_SET_STRING, word, value, 0) < 0)
      goto out;
  }
  if (syscall(SYS_fsconfig, fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
    goto out;
  mounted = (int)syscall(SYS_fsmount, fs, FSMOUNT_CLOEXEC,
                         MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | (exec ? 0 : MOUNT_ATTR_NOEXEC));
out:
  cb_close(&fs);
  return mounted;
}

int cb_mnt_read_only(const char *path)
{
  struct mount_attr attr = { .attr_set = MOUNT_ATTR_RDONLY };
  return (int)syscall(SYS_mount_setattr, AT_FDCWD, path, 0, &attr, sizeof attr);
}

int cb_mnt_pivot(void)
{
  /* Old and new root may be one folder: the old one is then stacked on top and detached. */
  if (syscall(SYS_pivot_root, ".", ".") < 0 || umount2(".", MNT_DETACH) < 0 || chdir("/") < 0)
    return -1;
  return 0;
}
