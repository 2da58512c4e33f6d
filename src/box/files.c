/* SPDX-License-Identifier: MIT
 * files.c: see files.h. */
#include "box/files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fd.h"
#include "base/path.h"
#include "box/children.h"
#include "box/protocol.h"
#include "wire/record.h"

enum { ENTRY_MAX = 16 * 1024, COPY_MAX = 1 << 30 };

/* Of linux/magic.h and of headers that are not installed everywhere. */
static const unsigned long pseudo[] = {
  PROC_SUPER_MAGIC,   SYSFS_MAGIC,      DEVPTS_SUPER_MAGIC, CGROUP_SUPER_MAGIC,
  CGROUP2_SUPER_MAGIC, DEBUGFS_MAGIC,   TRACEFS_MAGIC,      SECURITYFS_MAGIC,
  BPF_FS_MAGIC,       NSFS_MAGIC,       BINFMTFS_MAGIC,     EFIVARFS_MAGIC,
  SELINUX_MAGIC,      SMACK_MAGIC,      0x62656570 /* configfs */, 0x65735543 /* fusectl */,
  0x19800202 /* mqueue */, SOCKFS_MAGIC, PIPEFS_MAGIC, ANON_INODE_FS_MAGIC,
};

static bool on_pseudo_fs(int fd)
{
  struct statfs fs;
  if (fstatfs(fd, &fs) < 0)
    return true;
  for (size_t i = 0; i < sizeof pseudo / sizeof *pseudo; i++)
    if ((unsigned long)fs.f_type == pseudo[i])
      return true;
  return false;
}

static int open_plain(int dir, const char *path, int flags, mode_t mode)
{
  struct open_how how = { .flags = (unsigned long long)(flags | O_CLOEXEC),
                          .mode = flags & O_CREAT ? mode : 0,
                          .resolve = RESOLVE_NO_MAGICLINKS };
  return (int)syscall(SYS_openat2, dir, path, &how, sizeof how);
}

static int not_a_file(const char *path, struct cb_err *err)
{
  return cb_err_set(err, CB_INVALID, "path '%.300s' is not a file of the box", path);
}

static int path_error(int sys, const char *path, struct cb_err *err)
{
  switch (sys) {
  case ENOENT:
    return cb_err_set(err, CB_NOT_FOUND, "path '%.300s' does not exist", path);
  case ENOTDIR:
    return cb_err_set(err, CB_INVALID, "path '%.300s': a part of it is not a folder", path);
  case EISDIR:
    return cb_err_set(err, CB_INVALID, "path '%.300s' is a directory", path);
  case ELOOP: /* a loop, or a magic link */
  case ENXIO: /* a fifo without a reader, a socket */
    return not_a_file(path, err);
  default:
    return cb_err_errno(err, sys, "path '%.300s'", path);
  }
}

int cb_files_absolute(const char *path, const char *user, char out[CB_FILES_PATH_MAX + 1],
                      struct cb_err *err)
{
  const char *home = cb_child_home(user);
  char whole[2 * CB_FILES_PATH_MAX];
  size_t used = 0;

  if (!home)
    return cb_err_set(err, CB_UNAUTHORIZED, "invalid username: '%.64s'", user);
  if (!*path || strlen(path) > CB_FILES_PATH_MAX)
    return cb_err_set(err, CB_INVALID, "path of %zu bytes, 1 to %d are possible", strlen(path),
                      CB_FILES_PATH_MAX);
  if (path[0] == '/')
    snprintf(whole, sizeof whole, "%s", path);
  else if (path[0] == '~' && (path[1] == '/' || path[1] == '\0'))
    snprintf(whole, sizeof whole, "%s/%s", home, path[1] ? path + 2 : "");
  else
    snprintf(whole, sizeof whole, "%s/%s", home, path);

  for (const char *p = whole; *p;) {
    size_t n = strcspn(p, "/");
    if (n == 2 && memcmp(p, "..", 2) == 0) {
      while (used > 0 && out[--used] != '/')
        continue;
    } else if (n > 0 && !(n == 1 && *p == '.')) {
      if (used + 1 + n > CB_FILES_PATH_MAX)
        return cb_err_set(err, CB_INVALID, "path of over %d bytes", CB_FILES_PATH_MAX);
      out[used++] = '/';
      memcpy(out + used, p, n);
      used += n;
    }
    p += n + (p[n] == '/');
  }
  if (used == 0)
    out[used++] = '/';
  out[used] = '\0';
  return CB_OK;
}

/* Opens the folder that holds the last part of an absolute clean path, making missing ones. One
 * part after the other: a path may have two thousand of them. */
static int open_parent(const char *path, bool make, int *out, const char **base,
                       struct cb_err *err)
{
  char part[CB_FILES_PATH_MAX + 1];
  const char *p = path + 1, *slash;
  int at = open_plain(AT_FDCWD, "/", O_PATH | O_DIRECTORY, 0);
  while (at >= 0 && (slash = strchr(p, '/'))) {
    size_t n = (size_t)(slash - p);
    memcpy(part, p, n);
    part[n] = '\0';
    p = slash + 1;
    int next = open_plain(at, part, O_PATH | O_DIRECTORY, 0);
    if (next < 0 && errno == ENOENT && make && (mkdirat(at, part, 0755) == 0 || errno == EEXIST))
      next = open_plain(at, part, O_PATH | O_DIRECTORY, 0);
    cb_close(&at);
    at = next;
  }
  if (at < 0)
    return path_error(errno, path, err);
  if (on_pseudo_fs(at)) {
    cb_close(&at);
    return not_a_file(path, err);
  }
  *base = *p ? p : ".";
  *out = at;
  return CB_OK;
}

int cb_files_open(const char *path, bool for_writing, int *out, int64_t *size,
                  struct cb_err *err)
{
  int parent = -1;
  const char *base;
  struct stat st;
  int rc = open_parent(path, for_writing, &parent, &base, err);
  if (rc)
    return rc;
  /* O_NONBLOCK: a fifo must not stop pid 1. No O_TRUNC: first see what it is. */
  int flags = O_NONBLOCK | O_NOCTTY | (for_writing ? O_WRONLY | O_CREAT : O_RDONLY);
  int fd = open_plain(parent, base, flags, 0666);
  if (fd < 0)
    rc = path_error(errno, path, err);
  else if (fstat(fd, &st) < 0)
    rc = path_error(errno, path, err);
  else if (S_ISDIR(st.st_mode))
    rc = path_error(EISDIR, path, err);
  else if (!S_ISREG(st.st_mode) || on_pseudo_fs(fd))
    rc = not_a_file(path, err);
  else if (for_writing && ftruncate(fd, 0) < 0)
    rc = path_error(errno, path, err);
  else
    rc = cb_nonblock(fd, false, err);
  if (rc) {
    cb_close(&fd);
  } else {
    *out = fd;
    *size = for_writing ? 0 : st.st_size;
  }
  cb_close(&parent);
  return rc;
}

static char type_of(mode_t mode)
{
  return S_ISREG(mode) ? 'f' : S_ISDIR(mode) ? 'd' : S_ISLNK(mode) ? 'l' : 'o';
}

/* One host id: what belongs to it belongs to whoever asks; what does not is the host's. */
static const char *owner_of(unsigned id, const char *user)
{
  return id == 0 ? user : "nobody";
}

static int put_entry(struct cb_buf *into, int dir, const char *base, const char *path,
                     const char *user, struct stat *st, struct cb_err *err)
{
  char text[CB_FILES_PATH_MAX + 1], type[2] = { type_of(st->st_mode), '\0' };
  const char *name = strrchr(path, '/') + 1;
  ssize_t link = -1;

  if (type[0] == 'l') {
    link = readlinkat(dir, base, text, sizeof text - 1);
    int fd = open_plain(dir, base, O_PATH, 0);
    struct stat target;
    if (fd >= 0 && !on_pseudo_fs(fd) && fstat(fd, &target) == 0)
      type[0] = type_of(target.st_mode);
    cb_close(&fd);
  }
  size_t start = into->len;
  int rc = cb_record_addz(into, "name", *name ? name : "/");
  if (!rc)
    rc = cb_record_addz(into, "path", path);
  if (!rc)
    rc = cb_record_addz(into, "type", type);
  if (!rc)
    rc = cb_record_addi(into, "size", st->st_size);
  if (!rc)
    rc = cb_record_addi(into, "mode", st->st_mode & 07777);
  if (!rc)
    rc = cb_record_addi(into, "modified_ms",
                        (int64_t)st->st_mtim.tv_sec * 1000 + st->st_mtim.tv_nsec / 1000000);
  if (!rc)
    rc = cb_record_addz(into, "owner", owner_of(st->st_uid, user));
  if (!rc)
    rc = cb_record_addz(into, "group", owner_of(st->st_gid, user));
  if (!rc && link >= 0)
    rc = cb_record_add(into, "link", text, (size_t)link);
  if (rc) {
    into->len = start;
    return cb_err_set(err, rc, "path '%.300s': the answer is too large", path);
  }
  return CB_OK;
}

int cb_files_stat(const char *path, const char *user, struct cb_buf *into, struct cb_err *err)
{
  int parent = -1;
  const char *base;
  struct stat st;
  struct cb_buf entry;
  int rc = open_parent(path, false, &parent, &base, err);
  if (rc)
    return rc;
  cb_buf_init(&entry, ENTRY_MAX);
  if (fstatat(parent, base, &st, AT_SYMLINK_NOFOLLOW) < 0)
    rc = path_error(errno, path, err);
  else
    rc = put_entry(&entry, parent, base, path, user, &st, err);
  if (!rc && cb_record_add(into, "entry", entry.p, entry.len))
    rc = cb_err_no_memory(err);
  cb_buf_clear(&entry);
  cb_close(&parent);
  return rc;
}

int cb_files_mkdir(const char *path, struct cb_err *err)
{
  int parent = -1;
  const char *base;
  struct stat st;
  int rc = open_parent(path, true, &parent, &base, err);
  if (rc)
    return rc;
  if (mkdirat(parent, base, 0755) < 0) {
    int sys = errno;
    int fd = sys == EEXIST ? open_plain(parent, base, O_PATH, 0) : -1;
    if (fd >= 0 && fstat(fd, &st) == 0 && S_ISDIR(st.st_mode))
      rc = cb_err_set(err, CB_EXISTS, "directory already exists: %.300s", path);
    else if (sys == EEXIST)
      rc = cb_err_set(err, CB_INVALID, "path '%.300s' exists and is not a directory", path);
    else
      rc = path_error(sys, path, err);
    cb_close(&fd);
  }
  cb_close(&parent);
  return rc;
}

int cb_files_remove(const char *path, struct cb_err *err)
{
  int parent = -1;
  const char *base;
  struct cb_err mine = CB_ERR_INIT;
  int rc = open_parent(path, false, &parent, &base, &mine);
  if (rc == CB_NOT_FOUND)
    return CB_OK;
  if (rc) {
    if (err)
      *err = mine;
    return rc;
  }
  rc = strcmp(base, ".") == 0 ? cb_err_set(err, CB_DENIED, "the root cannot be removed")
                              : cb_rmtree_beneath(parent, base, err);
  cb_close(&parent);
  return rc;
}

/* A file between two file systems of the box (/tmp and the home). */
static int copy_over(int from_dir, const char *from, int to_dir, const char *to,
                     const char *path, struct cb_err *err)
{
  int in = -1, out = -1, rc = CB_OK;
  struct stat st;
  in = openat(from_dir, from, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (in < 0 || fstat(in, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size > COPY_MAX) {
    rc = cb_err_set(err, CB_UNSUPPORTED,
                    "move '%.300s': between file systems of the box only files of up to 1 GiB "
                    "can be moved: copy it with a command", path);
    goto out;
  }
  if (unlinkat(to_dir, to, 0) < 0 && errno != ENOENT) {
    rc = path_error(errno, path, err);
    goto out;
  }
  out = openat(to_dir, to, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (out < 0) {
    rc = path_error(errno, path, err);
    goto out;
  }
  off_t left = st.st_size;
  while (left > 0) {
    ssize_t k = copy_file_range(in, NULL, out, NULL, (size_t)left, 0);
    if (k < 0 && errno == EXDEV)
      break;
    if (k < 0)
      rc = path_error(errno, path, err);
    if (k <= 0)
      break;
    left -= k;
  }
  char bytes[64 * 1024];
  ssize_t k;
  while (!rc && left > 0 && (k = read(in, bytes, sizeof bytes)) != 0) {
    if (k < 0)
      rc = path_error(errno, path, err);
    else
      rc = cb_write_full(out, bytes, (size_t)k, err);
    left -= k;
  }
  if (!rc && (fchmod(out, st.st_mode & 0777) < 0 || unlinkat(from_dir, from, 0) < 0))
    rc = path_error(errno, path, err);
  if (rc)
    (void)unlinkat(to_dir, to, 0);
out:
  cb_close(&in);
  cb_close(&out);
  return rc;
}

int cb_files_move(const char *from, const char *to, struct cb_err *err)
{
  int from_dir = -1, to_dir = -1;
  const char *from_base, *to_base;
  int rc = open_parent(from, false, &from_dir, &from_base, err);
  if (!rc) {
    struct stat st;
    if (fstatat(from_dir, from_base, &st, AT_SYMLINK_NOFOLLOW) < 0)
      rc = path_error(errno, from, err);
  }
  if (!rc)
    rc = open_parent(to, true, &to_dir, &to_base, err);
  if (!rc && renameat(from_dir, from_base, to_dir, to_base) < 0)
    rc = errno == EXDEV ? copy_over(from_dir, from_base, to_dir, to_base, from, err)
                        : path_error(errno, to, err);
  cb_close(&from_dir);
  cb_close(&to_dir);
  return rc;
}

/* --- listing --- */

struct listing {
  const char *user;
  dev_t dev;
  int count, depth;
  int (*each)(void *arg, const struct cb_buf *entry, struct cb_err *err);
  void *arg;
  struct cb_err *err;
};

static int by_name(const void *a, const void *b)
{
  return strcmp(*(char *const *)a, *(char *const *)b);
}

static int read_names(int dir, struct cb_strings *names, struct cb_err *err)
{
  struct dirent *e;
  int rc = CB_OK;
  int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR *d = fd < 0 ? NULL : fdopendir(fd);
  if (!d) {
    cb_close(&fd);
    return CB_OK; /* a folder of the host that is closed to the box: shown as empty */
  }
  while (rc == CB_OK && (e = readdir(d))) {
    if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
      continue;
    if (names->count >= CB_BOX_ENTRIES_MAX)
      rc = cb_err_set(err, CB_TOO_LARGE, "over %d entries: list a folder further down",
                      CB_BOX_ENTRIES_MAX);
    else if (cb_strings_add(names, e->d_name, strlen(e->d_name)))
      rc = cb_err_no_memory(err);
  }
  closedir(d);
  if (names->count > 1)
    qsort(names->at, names->count, sizeof *names->at, by_name);
  return rc;
}

static int list_one(struct listing *l, int dir, const char *dir_path, const char *name, int depth);

static int list_in(struct listing *l, int dir, const char *path, int depth)
{
  struct cb_strings names = { 0 };
  int rc = read_names(dir, &names, l->err);
  for (size_t i = 0; i < names.count && !rc; i++)
    rc = list_one(l, dir, path, names.at[i], depth);
  cb_strings_clear(&names);
  return rc;
}

static int list_one(struct listing *l, int dir, const char *dir_path, const char *name, int depth)
{
  char path[CB_FILES_PATH_MAX + 260];
  struct stat st;
  struct cb_buf entry;
  int rc = CB_OK;

  int n = snprintf(path, sizeof path, "%s/%s", strcmp(dir_path, "/") == 0 ? "" : dir_path, name);
  if (n > CB_FILES_PATH_MAX || fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
    return CB_OK; /* gone meanwhile, or too deep to be named */
  if (++l->count > CB_BOX_ENTRIES_MAX)
    return cb_err_set(l->err, CB_TOO_LARGE, "over %d entries: list a folder further down",
                      CB_BOX_ENTRIES_MAX);
  cb_buf_init(&entry, ENTRY_MAX);
  rc = put_entry(&entry, dir, name, path, l->user, &st, l->err);
  if (!rc)
    rc = l->each(l->arg, &entry, l->err);
  cb_buf_clear(&entry);
  if (!rc && S_ISDIR(st.st_mode) && depth < l->depth) {
    int sub = openat(dir, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (sub >= 0 && !on_pseudo_fs(sub))
      rc = list_in(l, sub, path, depth + 1);
    cb_close(&sub);
  }
  return rc;
}

int cb_files_list(const char *path, const char *user, int depth,
                  int (*each)(void *arg, const struct cb_buf *entry, struct cb_err *err),
                  void *arg, struct cb_err *err)
{
  struct listing l = { .user = user, .each = each, .arg = arg, .err = err,
                       .depth = depth < 1 ? 1 : depth > CB_BOX_DEPTH_MAX ? CB_BOX_DEPTH_MAX
                                                                         : depth };
  int dir = open_plain(AT_FDCWD, path, O_PATH | O_DIRECTORY, 0);
  if (dir < 0 && errno == ENOTDIR)
    return cb_err_set(err, CB_INVALID, "path '%.300s' is not a directory", path);
  if (dir < 0)
    return path_error(errno, path, err);
  int rc = on_pseudo_fs(dir) ? not_a_file(path, err) : list_in(&l, dir, path, 1);
  cb_close(&dir);
  return rc;
}
