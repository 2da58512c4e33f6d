/* SPDX-License-Identifier: MIT
 * view.c: see view.h. Names are relative to the cwd until the pivot: first the box's folder,
 * then the new root. */
#include "box/view.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/drop_user.h"
#include "base/fd.h"
#include "base/path.h"
#include "box/mnt.h"

/* --- trees of the host --- */

void cb_view_trees_init(struct cb_view_trees *t)
{
  memset(t, 0, sizeof *t);
  t->box = t->base = t->usr = -1;
}

void cb_view_trees_close(struct cb_view_trees *t)
{
  cb_close(&t->box);
  cb_close(&t->base);
  cb_close(&t->usr);
  for (size_t i = 0; i < t->bind_count; i++)
    cb_close(&t->binds[i]);
  for (size_t i = 0; i < t->below_usr_count; i++) {
    cb_close(&t->below_usr[i].tree);
    cb_free(t->below_usr[i].path);
  }
  cb_free(t->binds);
  cb_view_trees_init(t);
}

static int octal(const char *p)
{
  for (int i = 1; i <= 3; i++)
    if (p[i] < '0' || p[i] > '7')
      return -1;
  return (p[1] - '0') * 64 + (p[2] - '0') * 8 + (p[3] - '0');
}

/* Undoes the \040 of mountinfo in place. */
static void unescape(char *p)
{
  char *to = p;
  for (; *p; p++) {
    int c = *p == '\\' ? octal(p) : -1;
    *to++ = c > 0 ? (char)c : *p;
    p += c > 0 ? 3 : 0;
  }
  *to = '\0';
}

static bool is_below(const char *path, const char *top)
{
  size_t n = strlen(top);
  return strncmp(path, top, n) == 0 && path[n] == '/';
}

static int add_below_usr(struct cb_view_trees *t, const char *path, struct cb_step *s)
{
  for (size_t i = 0; i < t->below_usr_count; i++) /* copies are recursive */
    if (is_below(path + 1, t->below_usr[i].path))
      return 0;
  if (t->below_usr_count == CB_VIEW_SUBMOUNTS_MAX)
    return cb_step_set(s, CB_ISOLATION, 0, "mounts below /usr",
                       "this host has more than %d mounts below /usr", CB_VIEW_SUBMOUNTS_MAX);
  int tree = cb_mnt_copy(AT_FDCWD, path, true, true, false);
  if (tree < 0) /* not ours to see: then nobody in the box misses it */
    return 0;
  char *copy = cb_strdup(path + 1);
  if (!copy) {
    cb_close(&tree);
    return cb_step_host(s, ENOMEM, "mounts below /usr", "");
  }
  t->below_usr[t->below_usr_count].tree = tree;
  t->below_usr[t->below_usr_count++].path = copy;
  return 0;
}

static int open_below_usr(struct cb_view_trees *t, struct cb_step *s)
{
  char line[8192], point[4097];
  int rc = 0;
  FILE *f = fopen("/proc/self/mountinfo", "re");
  if (!f)
    return cb_step_host(s, errno, "read /proc/self/mountinfo", "/proc must be mounted");
  while (rc == 0 && fgets(line, sizeof line, f)) {
    if (sscanf(line, "%*s %*s %*s %*s %4096s", point) != 1)
      continue;
    unescape(point);
    if (is_below(point, "/usr"))
      rc = add_below_usr(t, point, s);
  }
  fclose(f);
  return rc;
}

static int open_binds(struct cb_view_trees *t, const struct cb_box_config *c, struct cb_step *s)
{
  if (c->bind_count == 0)
    return 0;
  t->binds = cb_malloc(c->bind_count * sizeof *t->binds);
  if (!t->binds)
    return cb_step_host(s, ENOMEM, "open the mounts", "");
  for (size_t i = 0; i < c->bind_count; i++) {
    int tree = cb_mnt_copy(AT_FDCWD, c->binds[i].source, true, true, false);
    if (tree < 0)
      return cb_step_set(s, CB_INVALID, errno, "open the mounts",
                         "mount source %.200s: %s: correct the template", c->binds[i].source,
                         strerror(errno));
    t->binds[t->bind_count++] = tree;
  }
  return 0;
}

int cb_view_trees_open(struct cb_view_trees *t, const struct cb_box_config *c, struct cb_step *s)
{
  static const char hint[] = "unprivileged user namespaces and the mount calls of Linux 5.12 "
                             "must be allowed";
  struct statfs fs;
  if (statfs(".", &fs) == 0 && fs.f_type == OVERLAYFS_SUPER_MAGIC)
    return cb_step_set(s, CB_ISOLATION, 0, "state folder",
                       "the state folder lies on an overlay file system (a container's own "
                       "disk?), which cannot carry a box: put it on a volume or a tmpfs");
  t->box = cb_mnt_copy(AT_FDCWD, ".", false, false, false);
  if (t->box < 0)
    return cb_step_host(s, errno, "copy the mount of the box's folder", hint);
  t->base = cb_mnt_copy(AT_FDCWD, c->base, false, true, false);
  if (t->base < 0)
    return cb_step_host(s, errno, "copy the mount of the base layer", hint);
  t->usr = cb_mnt_copy(AT_FDCWD, "/usr", false, true, false);
  if (t->usr < 0 && errno != EINVAL) /* EINVAL: see split_usr */
    return cb_step_host(s, errno, "copy the mount of /usr", hint);
  if (open_below_usr(t, s) < 0)
    return -1;
  return open_binds(t, c, s);
}

/* --- making things in the new root --- */

static int make_dir(const char *path, mode_t mode, struct cb_step *s)
{
  if ((mkdir(path, mode) < 0 && errno != EEXIST) || chmod(path, mode) < 0)
    return cb_step_host(s, errno, path, "");
  return 0;
}

static int make_link(const char *text, const char *path, struct cb_step *s)
{
  if (symlink(text, path) < 0 && errno != EEXIST)
    return cb_step_host(s, errno, path, "");
  return 0;
}

static int make_file(const char *path, struct cb_step *s)
{
  int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0)
    return cb_step_host(s, errno, path, "");
  cb_close(&fd);
  return 0;
}

static int attach(int *tree, const char *path, struct cb_step *s)
{
  int fd = *tree;
  *tree = -1;
  if (cb_mnt_attach(fd, AT_FDCWD, path) < 0)
    return cb_step_host(s, errno, path, "attaching a mount was refused");
  return 0;
}

static int attach_tmpfs(const char *path, const char *options, bool exec, struct cb_step *s)
{
  int tree = cb_mnt_tmpfs(options, exec);
  if (tree < 0)
    return cb_step_host(s, errno, "mount a tmpfs", "");
  return attach(&tree, path, s);
}

/* A share of memory between bounds, as a tmpfs size. */
static unsigned long long share_of_memory(unsigned part, unsigned long long least,
                                          unsigned long long most)
{
  struct sysinfo info;
  unsigned long long v = least;
  if (sysinfo(&info) == 0)
    v = (unsigned long long)info.totalram * info.mem_unit / part;
  return v < least ? least : v > most ? most : v;
}

enum { MIB = 1 << 20 };

static int make_root(struct cb_step *s)
{
  static const char *const dirs[] = { "usr", "etc", "home", "home/user", "root", "tmp", "var",
                                      "dev", "proc", "sys", "run", "opt", "srv", "mnt", "media",
                                      ".box", ".base", ".usr" };
  int root = cb_mnt_tmpfs("size=4m,nr_inodes=16k,mode=755", true);
  if (root < 0)
    return cb_step_host(s, errno, "mount the new root", "mounting in a user namespace is refused");
  int inside = fcntl(root, F_DUPFD_CLOEXEC, 3);
  int rc = inside < 0 ? cb_step_host(s, errno, "mount the new root", "") : attach(&root, ".", s);
  if (rc == 0 && fchdir(inside) < 0)
    rc = cb_step_host(s, errno, "enter the new root", "");
  cb_close(&inside);
  cb_close(&root);
  for (size_t i = 0; i < sizeof dirs / sizeof *dirs && rc == 0; i++)
    rc = make_dir(dirs[i], 0755, s);
  return rc;
}

/* name: of the folders in up/ and work/; "usr" or "etc" or, for split_usr, "usr-lib". */
static int overlay(const char *lower, const char *target, const char *name, struct cb_step *s)
{
  char options[1024], up[300], work[300];
  snprintf(up, sizeof up, ".box/up/%s", name);
  snprintf(work, sizeof work, ".box/work/%s", name);
  if (make_dir(up, 0755, s) < 0 || make_dir(work, 0755, s) < 0)
    return -1;
  /* Relative names: /proc/mounts of the box shows them as they are given here. */
  snprintf(options, sizeof options, "lowerdir=%s,upperdir=%s,workdir=%s,userxattr", lower, up,
           work);
  if (mount("overlay", target, "overlay", MS_NOSUID | MS_NODEV, options) < 0)
    return cb_step_host(s, errno, target,
                        "an overlay mount in a user namespace needs Linux 5.11 and a state "
                        "folder on a file system with user xattrs (ext4, xfs, btrfs, tmpfs)");
  return 0;
}

/* Other mounts lie below this folder of the host's /usr. */
static bool has_mounts(const struct cb_view_trees *t, const char *path)
{
  for (size_t i = 0; i < t->below_usr_count; i++)
    if (is_below(t->below_usr[i].path, path))
      return true;
  return false;
}

/* An ordinary user may not take /usr without what others mounted below it (WSL does so, and
 * containers with a graphics card): the kernel calls such mounts locked. Then each folder of
 * /usr is a layer of its own, and those with such mounts in them are read-only. */
static int split_usr(struct cb_view_trees *t, struct cb_step *s)
{
  char host[300], name[300], lower[700];
  struct dirent *e;
  int rc = overlay(".base/usr", "usr", "usr", s);
  DIR *d = rc == 0 ? opendir("/usr") : NULL;
  if (rc == 0 && !d)
    return cb_step_host(s, errno, "read /usr", "");
  while (rc == 0 && (e = readdir(d))) {
    struct stat st;
    const char *here = host + 1; /* "usr/NAME" */
    if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
      continue;
    snprintf(host, sizeof host, "/usr/%s", e->d_name);
    if (lstat(host, &st) < 0)
      continue;
    if (S_ISLNK(st.st_mode)) {
      char text[256];
      ssize_t n = readlink(host, text, sizeof text - 1);
      if (n > 0) {
        text[n] = '\0';
        rc = make_link(text, here, s);
      }
    } else if (S_ISDIR(st.st_mode) && (has_mounts(t, here) || strpbrk(e->d_name, ":,\\"))) {
      if (cb_mnt_bind(host, here, true, true) < 0)
        rc = cb_step_host(s, errno, host, "");
    } else if (S_ISDIR(st.st_mode)) {
      snprintf(name, sizeof name, "usr-%s", e->d_name);
      snprintf(lower, sizeof lower, ".base%s:%s", host, host);
      rc = overlay(lower, here, name, s);
    }
  }
  if (d)
    closedir(d);
  return rc;
}

static int usr(struct cb_view_trees *t, struct cb_step *s)
{
  if (t->usr < 0)
    return split_usr(t, s);
  if (attach(&t->usr, ".usr", s) < 0 || overlay(".base/usr:.usr", "usr", "usr", s) < 0)
    return -1;
  for (size_t i = 0; i < t->below_usr_count; i++)
    if (attach(&t->below_usr[i].tree, t->below_usr[i].path, s) < 0)
      return -1;
  return umount2(".usr", MNT_DETACH) < 0 ? cb_step_host(s, errno, ".usr", "") : 0;
}

/* /bin, /lib, ...: links on a host with a merged /usr, else folders of their own. */
static int top_links(struct cb_step *s)
{
  static const char *const names[] = { "bin", "sbin", "lib", "lib32", "lib64", "libx32" };
  int rc = 0;
  for (size_t i = 0; i < sizeof names / sizeof *names && rc == 0; i++) {
    char host[16], text[256];
    struct stat st;
    snprintf(host, sizeof host, "/%s", names[i]);
    if (lstat(host, &st) < 0)
      continue;
    ssize_t n = S_ISLNK(st.st_mode) ? readlink(host, text, sizeof text - 1) : -1;
    if (n > 0) {
      text[n] = '\0';
      rc = make_link(text, names[i], s);
    } else if (S_ISDIR(st.st_mode)) {
      rc = make_dir(names[i], 0755, s);
      if (rc == 0 && cb_mnt_bind(host, names[i], true, true) < 0)
        rc = cb_step_host(s, errno, names[i], "");
    }
  }
  return rc;
}

static int own_folders(struct cb_step *s)
{
  static const struct {
    const char *path;
    mode_t mode;
  } var[] = { { ".box/var/tmp", 01777 },  { ".box/var/log", 0755 },   { ".box/var/cache", 0755 },
              { ".box/var/lib", 0755 },   { ".box/var/spool", 0755 }, { ".box/var/mail", 0755 },
              { ".box/var/opt", 0755 },   { ".box/var/local", 0755 } };
  static const struct {
    const char *from, *to;
  } binds[] = { { ".box/home", "home/user" }, { ".box/root", "root" }, { ".box/var", "var" } };
  char size[64];

  for (size_t i = 0; i < sizeof var / sizeof *var; i++)
    if (make_dir(var[i].path, var[i].mode, s) < 0)
      return -1;
  if (make_link("/run", ".box/var/run", s) < 0 || make_link("/run/lock", ".box/var/lock", s) < 0)
    return -1;
  for (size_t i = 0; i < sizeof binds / sizeof *binds; i++)
    if (cb_mnt_bind(binds[i].from, binds[i].to, false, false) < 0)
      return cb_step_host(s, errno, binds[i].to, "binding a folder of the box was refused");
  snprintf(size, sizeof size, "size=%llu,mode=1777",
           share_of_memory(4, 256ull * MIB, 4096ull * MIB));
  return attach_tmpfs("tmp", size, true, s);
}

static int devices(struct cb_step *s)
{
  static const char *const names[] = { "null", "zero", "full", "random", "urandom", "tty" };
  static const char *const links[][2] = { { "/proc/self/fd", "dev/fd" },
                                          { "/proc/self/fd/0", "dev/stdin" },
                                          { "/proc/self/fd/1", "dev/stdout" },
                                          { "/proc/self/fd/2", "dev/stderr" },
                                          { "pts/ptmx", "dev/ptmx" } };
  char host[32], here[32], size[64];

  if (attach_tmpfs("dev", "size=64k,mode=755", false, s) < 0 || make_dir("dev/pts", 0755, s) < 0 ||
      make_dir("dev/shm", 01777, s) < 0)
    return -1;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    snprintf(host, sizeof host, "/dev/%s", names[i]);
    snprintf(here, sizeof here, "dev/%s", names[i]);
    if (make_file(here, s) < 0)
      return -1;
    int tree = cb_mnt_copy(AT_FDCWD, host, false, false, true);
    if (tree < 0)
      return cb_step_host(s, errno, host, "the host must have it");
    if (attach(&tree, here, s) < 0)
      return -1;
  }
  for (size_t i = 0; i < sizeof links / sizeof *links; i++)
    if (make_link(links[i][0], links[i][1], s) < 0)
      return -1;
  if (mount("devpts", "dev/pts", "devpts", MS_NOSUID | MS_NOEXEC,
            "newinstance,ptmxmode=0666,mode=620") < 0)
    return cb_step_host(s, errno, "mount devpts", "");
  snprintf(size, sizeof size, "size=%llu,mode=1777",
           share_of_memory(8, 64ull * MIB, 1024ull * MIB));
  if (attach_tmpfs("dev/shm", size, true, s) < 0)
    return -1;
  return cb_mnt_read_only("dev") < 0 ? cb_step_host(s, errno, "dev", "") : 0;
}

static int processes(struct cb_step *s)
{
  static const char *const read_only[] = { "proc/sys", "proc/sysrq-trigger", "proc/irq",
                                           "proc/bus", "proc/fs" };
  static const char *const hidden[] = { "proc/kcore", "proc/keys", "proc/key-users",
                                        "proc/timer_list", "proc/timer_stats",
                                        "proc/latency_stats", "proc/sched_debug",
                                        "proc/kallsyms", "proc/kmsg", "proc/kpagecount",
                                        "proc/kpageflags", "proc/kpagecgroup", "proc/iomem",
                                        "proc/ioports", "proc/modules", "proc/mtrr" };
  static const char *const empty[] = { "proc/acpi", "proc/asound", "proc/scsi", "proc/driver",
                                       "proc/dynamic_debug" };

  if (mount("proc", "proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0)
    return cb_step_host(s, errno, "mount /proc",
                        errno == EPERM ? "parts of /proc are covered here (inside a container?): "
                                         "run crewboxd outside of it, or give the container an "
                                         "unmasked /proc"
                                       : "");
  for (size_t i = 0; i < sizeof read_only / sizeof *read_only; i++)
    if (access(read_only[i], F_OK) == 0 && cb_mnt_bind(read_only[i], read_only[i], true, true) < 0)
      return cb_step_host(s, errno, read_only[i], "");
  for (size_t i = 0; i < sizeof hidden / sizeof *hidden; i++)
    if (access(hidden[i], F_OK) == 0 && cb_mnt_bind("dev/null", hidden[i], false, true) < 0)
      return cb_step_host(s, errno, hidden[i], "");
  for (size_t i = 0; i < sizeof empty / sizeof *empty; i++)
    if (access(empty[i], F_OK) == 0 &&
        (attach_tmpfs(empty[i], "size=4k,mode=555", false, s) < 0 ||
         cb_mnt_read_only(empty[i]) < 0))
      return cb_step_host(s, errno, empty[i], "");
  return 0;
}

/* /run, and /run/crewbox as a mount of its own that can be sealed. */
static int run_folder(int user_filter, struct cb_step *s)
{
  char bytes[4096];
  off_t at = 0;
  ssize_t k = 0;
  if (attach_tmpfs("run", "size=16m,nr_inodes=4k,mode=755", false, s) < 0 ||
      make_dir("run/lock", 01777, s) < 0 || make_dir("run/crewbox", 0755, s) < 0 ||
      attach_tmpfs("run/crewbox", "size=256k,nr_inodes=64,mode=755", false, s) < 0)
    return -1;
  const char *name = &CB_DROP_FILTER_FILE[1]; /* relative: the root is still the host's */
  int fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444);
  if (fd < 0)
    return cb_step_host(s, errno, name, "");
  while ((k = pread(user_filter, bytes, sizeof bytes, at)) > 0) {
    if (cb_write_full(fd, bytes, (size_t)k, NULL)) {
      k = -1;
      break;
    }
    at += k;
  }
  int sys = errno;
  cb_close(&fd);
  return k < 0 ? cb_step_host(s, sys, name, "") : 0;
}

/* --- mounts of the host and of templates --- */

static int open_in_root(int root, const char *path, int flags)
{
  /* Links are followed as they will be seen from inside, never into the host. */
  struct open_how how = { .flags = (unsigned long long)(flags | O_CLOEXEC),
                          .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS };
  return (int)syscall(SYS_openat2, root, path, &how, sizeof how);
}

/* Opens target (absolute, as inside) after making what is missing of it; a folder or a file. */
static int open_target(int root, const char *target, bool folder, struct cb_step *s)
{
  char part[CB_PATH_MAX_BYTES + 1];
  size_t n = strlen(target);
  int parent = -1, fd = -1;

  if (n > CB_PATH_MAX_BYTES || !cb_path_is_plain(target + 1, n - 1))
    return cb_step_set(s, CB_INVALID, 0, "mount target",
                       "mount target %.200s: not a plain absolute path: correct the template",
                       target);
  parent = open_in_root(root, "/", O_PATH | O_DIRECTORY);
  for (size_t i = 1; parent >= 0 && i <= n; i++) {
    if (target[i] != '/' && target[i] != '\0')
      continue;
    bool last = target[i] == '\0';
    memcpy(part, target, i);
    part[i] = '\0';
    int flags = O_PATH | (last && !folder ? 0 : O_DIRECTORY);
    fd = open_in_root(root, part, flags);
    if (fd < 0 && errno == ENOENT) {
      const char *base = strrchr(part, '/') + 1;
      int made = -1;
      if (last && !folder)
        made = openat(parent, base, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
      if (last && !folder ? made >= 0 : mkdirat(parent, base, 0755) == 0)
        fd = open_in_root(root, part, flags);
      cb_close(&made);
    }
    int sys = errno;
    cb_close(&parent);
    errno = sys;
    parent = fd;
  }
  if (parent < 0)
    return cb_step_set(s, CB_INVALID, errno, "mount target",
                       "mount target %.200s: %s: correct the template", target, strerror(errno));
  return parent;
}

static int attach_binds(const struct cb_box_config *c, struct cb_view_trees *t, struct cb_step *s)
{
  int rc = 0;
  int root = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (root < 0)
    return cb_step_host(s, errno, "open the new root", "");
  for (size_t i = 0; i < c->bind_count && rc == 0; i++) {
    struct stat st;
    if (fstat(t->binds[i], &st) < 0) {
      rc = cb_step_host(s, errno, c->binds[i].source, "");
      break;
    }
    int at = open_target(root, c->binds[i].target, S_ISDIR(st.st_mode), s);
    if (at < 0) {
      rc = -1;
      break;
    }
    int tree = t->binds[i];
    t->binds[i] = -1;
    if (cb_mnt_attach(tree, at, "") < 0)
      rc = cb_step_host(s, errno, c->binds[i].target, "attaching a mount was refused");
    cb_close(&at);
  }
  cb_close(&root);
  return rc;
}

/* /opt entry by entry, not as one mount: templates like to put their own folders there. */
static int host_opt(struct cb_step *s)
{
  char host[300], here[300];
  struct dirent *e;
  int rc = 0;
  DIR *d = opendir("/opt");
  while (d && rc == 0 && (e = readdir(d))) {
    struct stat st;
    if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
      continue;
    snprintf(host, sizeof host, "/opt/%s", e->d_name);
    snprintf(here, sizeof here, "opt/%s", e->d_name);
    if (lstat(host, &st) < 0 || !S_ISDIR(st.st_mode))
      continue;
    rc = make_dir(here, 0755, s);
    if (rc == 0 && cb_mnt_bind(host, here, true, true) < 0)
      (void)rmdir(here); /* not ours to read */
  }
  if (d)
    closedir(d);
  return rc;
}

/* So that dpkg -l answers; nothing to learn there that /usr does not show. */
static int packages(struct cb_step *s)
{
  if (access("/var/lib/dpkg", R_OK | X_OK) < 0)
    return 0;
  if (make_dir("var/lib/dpkg", 0755, s) < 0)
    return -1;
  (void)cb_mnt_bind("/var/lib/dpkg", "var/lib/dpkg", true, true); /* good to have, no more */
  return 0;
}

int cb_view_build(const struct cb_box_config *c, struct cb_view_trees *t, int user_filter,
                  struct cb_step *s)
{
  static const char *const scaffold[] = { ".box", ".base" };

  umask(022);
  if (make_root(s) < 0 || attach(&t->box, ".box", s) < 0 || attach(&t->base, ".base", s) < 0 ||
      usr(t, s) < 0 || overlay(".base/etc", "etc", "etc", s) < 0)
    return -1;
  if (top_links(s) < 0 || own_folders(s) < 0 || devices(s) < 0 || processes(s) < 0 ||
      run_folder(user_filter, s) < 0 || host_opt(s) < 0 || packages(s) < 0 ||
      attach_binds(c, t, s) < 0)
    return -1;
  for (size_t i = 0; i < sizeof scaffold / sizeof *scaffold; i++)
    if (umount2(scaffold[i], MNT_DETACH) < 0 || rmdir(scaffold[i]) < 0)
      return cb_step_host(s, errno, scaffold[i], "");
  if (rmdir(".usr") < 0)
    return cb_step_host(s, errno, ".usr", "");
  cb_view_trees_close(t);
  if (cb_mnt_pivot() < 0)
    return cb_step_host(s, errno, "change the root", "");
  return 0;
}

int cb_view_seal(struct cb_step *s)
{
  if (cb_mnt_read_only("/run/crewbox") < 0 || cb_mnt_read_only("/") < 0)
    return cb_step_host(s, errno, "make the root read-only", "");
  return 0;
}
