/* SPDX-License-Identifier: MIT
 * Paths below a root in which somebody hostile works. Each line of the input is a step: a letter
 * and a path. `l NAME TARGET` plants a link by hand, the others are the functions of path.h.
 * What is opened lies in the root at exactly the path that was said; what lies beside the root
 * stays as it is. */
#include <assert.h>
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/path.h"
#include "fuzz/fuzz.h"

enum { STEPS_MAX = 64 };

static char folder[64];
static int outside = -1;

static void clean(void)
{
  int tmp = open("/tmp", O_PATH | O_DIRECTORY | O_CLOEXEC);
  (void)cb_rmtree_beneath(tmp, folder + strlen("/tmp/"), NULL);
  cb_close(&tmp);
}

static void prepare(void)
{
  strcpy(folder, "/tmp/crewbox-fuzz-XXXXXX");
  assert(mkdtemp(folder));
  outside = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
  assert(outside >= 0 && mkdirat(outside, "canary", 0700) == 0);
  assert(cb_write_file_beneath(outside, "canary/file", "sings", 5, 0600, false, NULL) == CB_OK);
  atexit(clean);
}

static void check_outside(void)
{
  struct cb_buf b;
  char name[80];
  int count = 0;
  cb_buf_init(&b, 64);
  assert(cb_read_file_beneath(outside, "canary/file", &b, NULL) == CB_OK);
  assert(b.len == 5 && memcmp(b.p, "sings", 5) == 0);
  cb_buf_clear(&b);
  snprintf(name, sizeof name, "%s/canary", folder);
  DIR *d = opendir(name);
  assert(d);
  while (readdir(d))
    count++;
  closedir(d);
  assert(count == 3); /* ".", ".." and the file */
}

/* The kernel's own name of what was opened. */
static void check_place(int fd, const char *path)
{
  char link[40], is[PATH_MAX + 1], must[PATH_MAX + 128];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t n = readlink(link, is, sizeof is - 1);
  assert(n > 0);
  is[n] = '\0';
  snprintf(must, sizeof must, "%s/root%s%s", folder, *path ? "/" : "", path);
  assert(strcmp(is, must) == 0);
}

static void step(int root, char what, char *path)
{
  struct stat st;
  struct cb_buf b;
  const char *base;
  int fd = -1;
  char *target = strchr(path, ' ');
  cb_buf_init(&b, 8192);
  switch (what) {
  case 'l':
    if (target)
      *target++ = '\0';
    if (target && !strchr(path, '/') && symlinkat(target, root, path) < 0)
      break;
    break;
  case 'd':
    (void)cb_mkdirs_beneath(root, path, NULL);
    break;
  case 'w':
    (void)cb_write_file_beneath(root, path, "w", 1, 0600, false, NULL);
    break;
  case 'c':
  case 'o':
    if (cb_open_beneath(root, path, what == 'c' ? O_WRONLY | O_CREAT : O_RDONLY | O_NONBLOCK, 0600,
                        &fd, NULL) == CB_OK)
      check_place(fd, path);
    break;
  case 's':
    (void)cb_stat_beneath(root, path, &st, NULL);
    break;
  case 'k':
    (void)cb_readlink_beneath(root, path, &b, NULL);
    break;
  case 'r':
    (void)cb_read_file_beneath(root, path, &b, NULL);
    assert(b.len < 5 || memcmp(b.p, "sings", 5) != 0);
    break;
  case 'u':
    (void)cb_unlink_beneath(root, path, NULL);
    break;
  case 't':
    (void)cb_rmtree_beneath(root, path, NULL);
    break;
  case 'p':
    if (cb_open_parent_beneath(root, path, &fd, &base, NULL) == CB_OK) {
      assert(base >= path && base <= path + strlen(path) && !strchr(base, '/'));
      char parent[PATH_MAX];
      snprintf(parent, sizeof parent, "%.*s", base > path ? (int)(base - path - 1) : 0, path);
      check_place(fd, parent);
    }
    break;
  }
  cb_close(&fd);
  cb_buf_clear(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
  char line[2048];
  if (outside < 0)
    prepare();
  assert(mkdirat(outside, "root", 0700) == 0);
  int root = openat(outside, "root", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  assert(root >= 0);
  for (int steps = 0; n > 2 && steps < STEPS_MAX; steps++) {
    const uint8_t *end = memchr(p, '\n', n);
    size_t len = end ? (size_t)(end - p) : n;
    if (len > 2 && len - 2 < sizeof line) {
      memcpy(line, p + 2, len - 2);
      line[len - 2] = '\0';
      step(root, (char)p[0], line);
    }
    len += end ? 1 : 0;
    p += len;
    n -= len;
  }
  close(root);
  check_outside();
  assert(cb_rmtree_beneath(outside, "root", NULL) == CB_OK);
  check_outside();
  return 0;
}
