/* SPDX-License-Identifier: MIT
 * base_layer.c: see base_layer.h. Names below STATE/base/:
 *   KEY/        a finished layer
 *   .new-XXXX/  one being built or removed; whoever holds build.lock may delete it
 *   build.lock  held (flock) while something is built or collected */
#include "boxd/base_layer.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/path.h"
#include "base/rand.h"
#include "base/sha256.h"

/* Grows when the content changes for the same host: old layers are then not used any more. */
#define LAYER_FORMAT "crewbox base layer 1"

enum {
  ETC_FILE_MAX = 256 * 1024,
  ETC_FILE_MAX_LISTED = 8 * 1024 * 1024, /* for those that must be there whatever their size */
  DEPTH_MAX = 64,
};

/* What decides whether a layer is still right. Missing ones count as missing. */
static const char *const witnesses[] = {
  "/var/lib/dpkg/status", "/var/lib/rpm", "/usr/lib/sysimage/rpm", "/var/lib/pacman/local",
  "/lib/apk/db/installed", "/usr", "/usr/lib", "/usr/bin", "/usr/share", "/usr/local",
  "/usr/local/bin", "/usr/local/lib", "/usr/local/lib/node_modules", "/usr/lib/node_modules",
  "/etc/alternatives", "/etc/ssl/certs", "/etc/ld.so.cache",
};

/* Not copied from the host's /etc: replaced below, or telling about the host. */
static const char *const etc_skipped[] = {
  "passwd", "passwd-", "group", "group-", "shadow", "shadow-", "gshadow", "gshadow-", "subuid",
  "subuid-", "subgid", "subgid-", "hosts", "hostname", "resolv.conf", "machine-id", "fstab",
  "environment", "sudoers", "sudoers.d", "ssh", "cron.d", "cron.daily", "cron.hourly",
  "cron.monthly", "cron.weekly", "crontab", "systemd", "init.d", "rc0.d", "rc1.d", "rc2.d",
  "rc3.d", "rc4.d", "rc5.d", "rc6.d", "rcS.d", "network", "docker", "kubernetes", "wireguard",
  "openvpn", "NetworkManager", ".pwd.lock", "mtab", "motd", "issue", "issue.net", "update-motd.d",
};

struct build {
  uid_t uid;
  gid_t gid;
  bool own; /* chown everything: we are not the box's id ourselves */
  struct cb_err *err;
};

static int fail(struct build *b, const char *what, const char *name)
{
  return cb_err_errno(b->err, errno, "build the base layer: %s %s", what, name);
}

static int give_at(struct build *b, int dir, const char *name)
{
  if (!b->own || fchownat(dir, name, b->uid, b->gid, AT_SYMLINK_NOFOLLOW) == 0)
    return CB_OK;
  return fail(b, "give to the box", name);
}

static int make_dir(struct build *b, int at, const char *name, mode_t mode, int *out)
{
  if (mkdirat(at, name, 0700) < 0 && errno != EEXIST)
    return fail(b, "make the folder", name);
  int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0)
    return fail(b, "open the folder", name);
  int rc = CB_OK;
  if (b->own && fchown(fd, b->uid, b->gid) < 0)
    rc = fail(b, "give to the box", name);
  else if (fchmod(fd, mode) < 0)
    rc = fail(b, "set the mode of", name);
  if (rc)
    cb_close(&fd);
  else
    *out = fd;
  return rc;
}

static int write_file(struct build *b, int at, const char *name, const char *text, mode_t mode)
{
  if (unlinkat(at, name, 0) < 0 && errno != ENOENT)
    return fail(b, "replace", name);
  int fd = openat(at, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (fd < 0)
    return fail(b, "write", name);
  int rc = cb_write_full(fd, text, strlen(text), b->err);
  if (!rc && fchmod(fd, mode) < 0)
    rc = fail(b, "set the mode of", name);
  cb_close(&fd);
  return rc ? rc : give_at(b, at, name);
}

/* Copies an open regular file of at most max bytes. */
static int copy_fd(struct build *b, int from, int at, const char *name, mode_t mode, off_t max)
{
  char bytes[64 * 1024];
  off_t total = 0;
  int rc = CB_OK;
  int to = openat(at, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (to < 0)
    return fail(b, "write", name);
  for (;;) {
    ssize_t k = read(from, bytes, sizeof bytes);
    if (k < 0 && errno == EINTR)
      continue;
    if (k < 0)
      rc = fail(b, "read", name);
    total += k > 0 ? k : 0;
    if (k <= 0 || total > max)
      break;
    rc = cb_write_full(to, bytes, (size_t)k, b->err);
    if (rc)
      break;
  }
  if (!rc && fchmod(to, mode) < 0)
    rc = fail(b, "set the mode of", name);
  cb_close(&to);
  return rc ? rc : give_at(b, at, name);
}

static bool dots(const char *name)
{
  return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

/* Opens what can be opened; what this user may not read stays an empty folder of the layer. */
static DIR *open_list(int at, const char *name)
{
  int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  DIR *d = fd < 0 ? NULL : fdopendir(fd);
  if (fd >= 0 && !d)
    cb_close(&fd);
  return d;
}

/* Every folder below src, empty, below dst. Other file systems are left out: the init binds
 * them over (an overlay's lower layer is one file system). */
static int copy_folders(struct build *b, DIR *src, int dst, dev_t dev, int depth)
{
  int rc = CB_OK;
  struct dirent *e;
  while (rc == CB_OK && (e = readdir(src))) {
    struct stat st;
    int sub = -1;
    if (dots(e->d_name) || (e->d_type != DT_DIR && e->d_type != DT_UNKNOWN))
      continue;
    if (fstatat(dirfd(src), e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISDIR(st.st_mode))
      continue;
    rc = make_dir(b, dst, e->d_name, (st.st_mode & 0755) | 0700, &sub);
    if (rc == CB_OK && st.st_dev == dev && depth < DEPTH_MAX) {
      DIR *list = open_list(dirfd(src), e->d_name);
      if (list) {
        rc = copy_folders(b, list, sub, dev, depth + 1);
        closedir(list);
      }
    }
    cb_close(&sub);
  }
  return rc;
}

static bool is_skipped(const char *name)
{
  for (size_t i = 0; i < sizeof etc_skipped / sizeof *etc_skipped; i++)
    if (strcmp(name, etc_skipped[i]) == 0)
      return true;
  return false;
}

static int copy_link(struct build *b, int from, int dst, const char *name)
{
  char text[CB_PATH_MAX_BYTES + 1];
  ssize_t n = readlinkat(from, name, text, sizeof text);
  if (n < 0 || (size_t)n >= sizeof text)
    return CB_OK;
  text[n] = '\0';
  if (symlinkat(text, dst, name) < 0)
    return fail(b, "link", name);
  return give_at(b, dst, name);
}

static int copy_small_file(struct build *b, int from, int dst, const char *name, off_t max)
{
  struct stat st;
  int rc = CB_OK;
  int fd = openat(from, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0)
    return CB_OK; /* not ours to read, or just gone */
  if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && (st.st_mode & 0004) && st.st_size <= max)
    rc = copy_fd(b, fd, dst, name, (st.st_mode & 0755) | 0600, max);
  cb_close(&fd);
  return rc;
}

static int copy_etc(struct build *b, DIR *src, int dst, dev_t dev, int depth, bool certificates)
{
  int rc = CB_OK;
  struct dirent *e;
  while (rc == CB_OK && (e = readdir(src))) {
    struct stat st;
    if (dots(e->d_name) || (depth == 0 && is_skipped(e->d_name)))
      continue;
    if (fstatat(dirfd(src), e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
      continue;
    if (S_ISLNK(st.st_mode)) {
      rc = copy_link(b, dirfd(src), dst, e->d_name);
    } else if (S_ISREG(st.st_mode)) {
      /* The certificate bundle and the loader's cache must be there whatever their size. */
      bool listed = certificates || (depth == 0 && strcmp(e->d_name, "ld.so.cache") == 0);
      rc = copy_small_file(b, dirfd(src), dst, e->d_name,
                           listed ? ETC_FILE_MAX_LISTED : ETC_FILE_MAX);
    } else if (S_ISDIR(st.st_mode) && (st.st_mode & 0005) == 0005 && st.st_dev == dev &&
               depth < DEPTH_MAX) {
      int sub = -1;
      DIR *list = open_list(dirfd(src), e->d_name);
      if (!list)
        continue;
      rc = make_dir(b, dst, e->d_name, 0755, &sub);
      if (rc == CB_OK)
        rc = copy_etc(b, list, sub, dev, depth + 1,
                      certificates || strcmp(e->d_name, "ssl") == 0);
      cb_close(&sub);
      closedir(list);
    }
  }
  return rc;
}

/* Lines of /etc/passwd or /etc/group with an id of a system account: packages refer to them by
 * name. Real people of the host are left out. */
static int add_system_accounts(struct cb_buf *into, const char *file)
{
  char line[1024];
  int rc = CB_OK;
  FILE *f = fopen(file, "re");
  if (!f)
    return CB_OK;
  while (rc == CB_OK && fgets(line, sizeof line, f)) {
    char *id = strchr(line, ':');
    unsigned v = 0;
    id = id ? strchr(id + 1, ':') : NULL;
    if (id && strchr(line, '\n') && sscanf(id + 1, "%u", &v) == 1 && v > 0 && v < 1000)
      rc = cb_buf_addz(into, line);
  }
  fclose(f);
  return rc;
}

static int write_accounts(struct build *b, int etc)
{
  static const struct {
    const char *name, *host, *first, *last;
  } files[] = {
    { "passwd", "/etc/passwd",
      "root:x:0:0:root:/root:/bin/bash\nuser:x:1000:1000:user:/home/user:/bin/bash\n",
      "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n" },
    { "group", "/etc/group", "root:x:0:\nuser:x:1000:\n", "nogroup:x:65534:\n" },
  };
  for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
    struct cb_buf text;
    cb_buf_init(&text, 256 * 1024);
    int rc = cb_buf_addz(&text, files[i].first);
    if (!rc)
      rc = add_system_accounts(&text, files[i].host);
    if (!rc)
      rc = cb_buf_addz(&text, files[i].last);
    rc = rc ? cb_err_set(b->err, rc, "build the base layer: %s is too large", files[i].host)
            : write_file(b, etc, files[i].name, text.p, 0644);
    cb_buf_clear(&text);
    if (rc)
      return rc;
  }
  return CB_OK;
}

/* Login shells set PATH anew (Debian's /etc/profile does): folders of a template come back. */
static const char profile_script[] =
    "# Written by crewbox: folders that the box's template puts in front of PATH.\n"
    "if [ -n \"${CREWBOX_PATH:-}\" ]; then\n"
    "  PATH=$CREWBOX_PATH:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n"
    "else\n"
    "  PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n"
    "fi\n"
    "export PATH\n";

static int write_own_etc(struct build *b, int etc)
{
  char machine_id[34];
  int profiles = -1;
  int rc = write_accounts(b, etc);
  if (!rc)
    rc = write_file(b, etc, "hosts", "127.0.0.1 localhost box\n::1 localhost\n", 0644);
  if (!rc)
    rc = write_file(b, etc, "hostname", "box\n", 0644);
  if (!rc)
    rc = write_file(b, etc, "resolv.conf", "nameserver 127.0.0.1\noptions timeout:5 attempts:2\n",
                    0644);
  if (!rc)
    rc = write_file(b, etc, "nsswitch.conf",
                    "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\n"
                    "networks: files\nservices: files\nprotocols: files\n", 0644);
  if (!rc)
    rc = write_file(b, etc, "shadow", "root:*:19000:0:99999:7:::\nuser:*:19000:0:99999:7:::\n",
                    0600);
  if (!rc)
    rc = write_file(b, etc, "gshadow", "root:*::\nuser:!::\n", 0600);
  cb_random_hex(machine_id, 32);
  machine_id[32] = '\n';
  machine_id[33] = '\0';
  if (!rc)
    rc = write_file(b, etc, "machine-id", machine_id, 0444);
  if (!rc && symlinkat("/proc/self/mounts", etc, "mtab") < 0)
    rc = fail(b, "link", "mtab");
  if (!rc)
    rc = give_at(b, etc, "mtab");
  if (!rc)
    rc = make_dir(b, etc, "profile.d", 0755, &profiles);
  if (!rc)
    rc = write_file(b, profiles, "zz-crewbox-path.sh", profile_script, 0644);
  cb_close(&profiles);
  return rc;
}

static int put_sudo(struct build *b, int usr, const char *init_path)
{
  int local = -1, bin = -1, from = -1;
  int rc = make_dir(b, usr, "local", 0755, &local);
  if (!rc)
    rc = make_dir(b, local, "bin", 0755, &bin);
  if (!rc) {
    from = open(init_path, O_RDONLY | O_CLOEXEC);
    rc = from < 0 ? fail(b, "read", init_path)
                  : copy_fd(b, from, bin, "sudo", 0755, 64 * 1024 * 1024);
  }
  cb_close(&from);
  cb_close(&bin);
  cb_close(&local);
  return rc;
}

static int fill(struct build *b, int layer, const char *init_path)
{
  int usr = -1, etc = -1, lock = -1, rc;
  struct stat st;
  DIR *host = NULL;

  rc = make_dir(b, layer, "usr", 0755, &usr);
  if (!rc && (!(host = open_list(AT_FDCWD, "/usr")) || fstat(dirfd(host), &st) < 0))
    rc = fail(b, "read", "/usr");
  if (!rc)
    rc = copy_folders(b, host, usr, st.st_dev, 0);
  if (!rc)
    rc = put_sudo(b, usr, init_path);
  if (host)
    closedir(host);
  host = NULL;
  if (!rc)
    rc = make_dir(b, layer, "etc", 0755, &etc);
  if (!rc && (!(host = open_list(AT_FDCWD, "/etc")) || fstat(dirfd(host), &st) < 0))
    rc = fail(b, "read", "/etc");
  if (!rc)
    rc = copy_etc(b, host, etc, st.st_dev, 0, false);
  if (!rc)
    rc = write_own_etc(b, etc);
  if (!rc) {
    lock = openat(layer, "lock", O_RDONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (lock < 0)
      rc = fail(b, "make", "lock");
  }
  if (host)
    closedir(host);
  cb_close(&lock);
  cb_close(&etc);
  cb_close(&usr);
  return rc;
}

static void digest_stat(struct cb_sha256 *s, const char *path)
{
  struct stat st;
  char text[160];
  int n = stat(path, &st) < 0
              ? snprintf(text, sizeof text, "-")
              : snprintf(text, sizeof text, "%llu %llu %lld %lld.%09ld",
                         (unsigned long long)st.st_dev, (unsigned long long)st.st_ino,
                         (long long)(S_ISDIR(st.st_mode) ? 0 : st.st_size),
                         (long long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec);
  cb_sha256_add(s, path, strlen(path) + 1);
  cb_sha256_add(s, text, (size_t)n + 1);
}

static void make_key(const struct cb_base_layer_source *from, char key[CB_BASE_KEY_LEN + 1])
{
  struct cb_sha256 s;
  char hex[CB_SHA256_HEX + 1], ids[64];
  cb_sha256_init(&s);
  cb_sha256_add(&s, LAYER_FORMAT, sizeof LAYER_FORMAT);
  int n = snprintf(ids, sizeof ids, "%lu %lu", (unsigned long)from->uid,
                   (unsigned long)from->gid);
  cb_sha256_add(&s, ids, (size_t)n + 1);
  for (size_t i = 0; i < sizeof witnesses / sizeof *witnesses; i++)
    digest_stat(&s, witnesses[i]);
  digest_stat(&s, from->init_path);
  cb_sha256_end_hex(&s, hex);
  memcpy(key, hex, CB_BASE_KEY_LEN);
  key[CB_BASE_KEY_LEN] = '\0';
}

/* 1 with *lock held shared, 0 when there is no such layer, -1 with *err. A layer that is being
 * removed under our hands counts as none. */
static int hold(int base, const char *key, int *lock, struct cb_err *err)
{
  char name[CB_BASE_KEY_LEN + 8];
  struct stat mine, there;
  snprintf(name, sizeof name, "%s/lock", key);
  int fd = openat(base, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0 && (errno == ENOENT || errno == ENOTDIR))
    return 0;
  if (fd < 0) {
    cb_err_errno(err, errno, "open the base layer %s", key);
    return -1;
  }
  if (flock(fd, LOCK_SH | LOCK_NB) == 0 && fstat(fd, &mine) == 0 &&
      fstatat(base, name, &there, AT_SYMLINK_NOFOLLOW) == 0 && mine.st_ino == there.st_ino) {
    *lock = fd;
    return 1;
  }
  cb_close(&fd);
  return 0;
}

static void remove_leftovers(int base)
{
  DIR *d = open_list(base, ".");
  struct dirent *e;
  while (d && (e = readdir(d)))
    if (strncmp(e->d_name, ".new-", 5) == 0)
      (void)cb_rmtree_beneath(base, e->d_name, NULL);
  if (d)
    closedir(d);
}

static int build(const struct cb_base_layer_source *from, int base, const char *key,
                 struct cb_err *err)
{
  struct build b = { from->uid, from->gid, geteuid() != from->uid || getegid() != from->gid, err };
  char temp[24] = ".new-";
  int layer = -1;
  cb_random_id(temp + 5, 12);
  int rc = make_dir(&b, base, temp, 0755, &layer);
  if (!rc)
    rc = fill(&b, layer, from->init_path);
  if (!rc && renameat(base, temp, base, key) < 0)
    rc = fail(&b, "rename to", key);
  cb_close(&layer);
  if (rc)
    (void)cb_rmtree_beneath(base, temp, NULL);
  return rc;
}

static int open_base(const char *state_dir, int *base, int *lock, int how, struct cb_err *err)
{
  char path[CB_PATH_MAX_BYTES + 1];
  int n = snprintf(path, sizeof path, "%s/base", state_dir);
  if (n < 0 || (size_t)n >= sizeof path)
    return cb_err_set(err, CB_INVALID, "the state folder's path is too long");
  int rc = cb_mkdirs(path, 0755, err);
  if (rc)
    return rc;
  *base = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (*base < 0)
    return cb_err_errno(err, errno, "open %s", path);
  if (how < 0)
    return CB_OK;
  *lock = openat(*base, "build.lock", O_RDONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (*lock < 0)
    return cb_err_errno(err, errno, "open %s/build.lock", path);
  while (flock(*lock, how) < 0) {
    if (errno == EINTR)
      continue;
    return cb_err_errno(err, errno, "lock %s/build.lock", path);
  }
  return CB_OK;
}

int cb_base_layer_get(const struct cb_base_layer_source *from, struct cb_base_layer *out,
                      struct cb_err *err)
{
  int base = -1, building = -1, held = -1, rc;

  out->lock = -1;
  make_key(from, out->key);
  rc = open_base(from->state_dir, &base, &building, -1, err);
  if (rc)
    goto out;
  held = hold(base, out->key, &out->lock, err);
  if (held != 0) /* the usual way: it is there */
    goto out;
  cb_close(&base);
  rc = open_base(from->state_dir, &base, &building, LOCK_EX, err);
  if (rc)
    goto out;
  held = hold(base, out->key, &out->lock, err); /* somebody else built it while we waited */
  if (held != 0)
    goto out;
  remove_leftovers(base);
  rc = build(from, base, out->key, err);
  if (rc)
    goto out;
  held = hold(base, out->key, &out->lock, err);
  if (held == 0)
    rc = cb_err_set(err, CB_SYSTEM, "the base layer %s went away", out->key);
out:
  if (held < 0)
    rc = err ? (int)err->code : CB_SYSTEM;
  cb_close(&building);
  cb_close(&base);
  return rc;
}

void cb_base_layer_release(struct cb_base_layer *layer)
{
  cb_close(&layer->lock);
}

static void collect_one(int base, const char *key)
{
  char name[CB_BASE_KEY_LEN + 8], temp[24] = ".new-";
  snprintf(name, sizeof name, "%.*s/lock", CB_BASE_KEY_LEN, key);
  int fd = openat(base, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0)
    return;
  /* Renamed while the lock is held alone: nobody can take it up between the two. */
  if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
    cb_random_id(temp + 5, 12);
    if (renameat(base, key, base, temp) == 0)
      (void)cb_rmtree_beneath(base, temp, NULL);
  }
  cb_close(&fd);
}

void cb_base_layer_collect(const char *state_dir, const char *keep_key)
{
  int base = -1, building = -1;
  struct dirent *e;
  DIR *d = NULL;
  if (open_base(state_dir, &base, &building, LOCK_EX | LOCK_NB, NULL) == CB_OK)
    d = open_list(base, ".");
  while (d && (e = readdir(d)))
    if (strlen(e->d_name) == CB_BASE_KEY_LEN && (!keep_key || strcmp(e->d_name, keep_key) != 0))
      collect_one(base, e->d_name);
  if (d)
    closedir(d);
  cb_close(&building);
  cb_close(&base);
}
