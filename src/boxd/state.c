/* SPDX-License-Identifier: MIT
 * state.c: see state.h. Key and seed are made once, under the lock, by rename: a daemon that
 * dies while making them leaves nothing half. */
#include "boxd/state.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/fd.h"
#include "base/path.h"
#include "base/rand.h"

static int take_lock(struct cb_state *s, struct cb_err *err)
{
  s->lock = openat(s->dir, "lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (s->lock < 0)
    return cb_err_errno(err, errno, "open %s/lock", s->path);
  if (flock(s->lock, LOCK_EX | LOCK_NB) == 0)
    return CB_OK;
  if (errno == EWOULDBLOCK)
    return cb_err_set(err, CB_BUSY, "another crewboxd already serves %s", s->path);
  return cb_err_errno(err, errno, "lock %s/lock", s->path);
}

/* Reads exactly n bytes of name, or makes them with `make` and stores them. */
static int read_or_make(struct cb_state *s, const char *name, char *out, size_t n,
                        void (*make)(char *out, size_t n), struct cb_err *err)
{
  struct cb_buf b;
  struct stat st;
  cb_buf_init(&b, 4096);
  int rc = cb_read_file_beneath(s->dir, name, &b, err);
  if (rc == CB_NOT_FOUND) {
    make(out, n);
    rc = cb_write_file_beneath(s->dir, name, out, n, 0600, true, err);
  } else if (!rc && b.len != n) {
    rc = cb_err_set(err, CB_CORRUPT, "%s/%s has %zu bytes, not %zu: remove it to get a new one",
                    s->path, name, b.len, n);
  } else if (!rc) {
    memcpy(out, b.p, n);
    if (cb_stat_beneath(s->dir, name, &st, NULL) == CB_OK && (st.st_mode & 077))
      rc = cb_err_set(err, CB_DENIED, "%s/%s is open to others: chmod 0600 it", s->path, name);
  }
  cb_buf_clear_wiped(&b);
  return rc;
}

static void make_key(char *out, size_t n)
{
  char hex[CB_STATE_KEY_LEN - 4 + 1];
  cb_random_hex(hex, sizeof hex - 1);
  memcpy(out, "e2b_", 4); /* older E2B clients refuse keys of another shape */
  memcpy(out + 4, hex, n - 4);
}

static void make_seed(char *out, size_t n)
{
  cb_random(out, n);
}

int cb_state_open(struct cb_state *s, const char *path, struct cb_err *err)
{
  memset(s, 0, sizeof *s);
  s->dir = s->lock = -1;
  int rc = cb_mkdirs(path, 0700, err);
  if (rc)
    return cb_err_wrap(err, "make the state folder");
  s->path = realpath(path, NULL);
  if (!s->path)
    return cb_err_errno(err, errno, "state folder %s", path);
  s->dir = open(s->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (s->dir < 0)
    rc = cb_err_errno(err, errno, "open the state folder %s", s->path);
  struct stat st;
  if (!rc && fstat(s->dir, &st) == 0 && st.st_uid != geteuid())
    rc = cb_err_set(err, CB_DENIED, "the state folder %s belongs to another user", s->path);
  if (!rc && (st.st_mode & 022))
    rc = cb_err_set(err, CB_DENIED, "others may write in the state folder %s: chmod go-w it",
                    s->path);
  if (!rc)
    rc = take_lock(s, err);
  if (!rc)
    rc = read_or_make(s, "key", s->key, CB_STATE_KEY_LEN, make_key, err);
  if (!rc)
    rc = read_or_make(s, "seed", (char *)s->seed, CB_STATE_SEED_BYTES, make_seed, err);
  if (rc)
    cb_state_close(s);
  return rc;
}

void cb_state_close(struct cb_state *s)
{
  cb_close(&s->lock);
  cb_close(&s->dir);
  free(s->path); /* realpath's */
  memset(s, 0, sizeof *s);
  s->dir = s->lock = -1;
}
