/* SPDX-License-Identifier: MIT
 * base_test.c: buffers, digests, encodings, paths with planted links, memory that runs out. */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/drop_user.h"
#include "base/encode.h"
#include "base/err.h"
#include "base/fd.h"
#include "base/path.h"
#include "base/queue.h"
#include "base/rand.h"
#include "base/sha256.h"
#include "c/check.h"

static char folder[64];

/* ---- sizes, errors, buffers -------------------------------------------------------------- */

static void sizes_that_do_not_fit_are_refused(void)
{
  size_t n = 7;
  CHECK(!cb_size_add(SIZE_MAX, 1, &n) && n == 7);
  CHECK(!cb_size_mul(SIZE_MAX / 2, 3, &n) && n == 7);
  CHECK(cb_size_add(2, 3, &n) && n == 5);
  CHECK(cb_size_mul(0, SIZE_MAX, &n) && n == 0);
  CHECK(cb_calloc(SIZE_MAX / 2, 4) == NULL);
}

static void errors_keep_code_and_text(void)
{
  struct cb_err err = CB_ERR_INIT;
  CHECK(cb_err_set(&err, CB_BUSY, "lock %s", "x") == CB_BUSY);
  CHECK(cb_err_wrap(&err, "start") == CB_BUSY);
  CHECK_STR(err.text, "start: lock x");
  CHECK(cb_err_errno(&err, ENOSPC, "write") == CB_DISK_FULL && err.sys == ENOSPC);
  CHECK(cb_err_errno(NULL, ENOENT, "open") == CB_NOT_FOUND); /* no place to tell is fine */
  CHECK_STR(cb_code_name(CB_CONTAINS_SECRET), "contains_secret");
  char longer[1000];
  memset(longer, 'a', sizeof longer - 1);
  longer[sizeof longer - 1] = '\0';
  cb_err_set(&err, CB_SYSTEM, "%s", longer);
  cb_err_wrap(&err, "%s", longer);
  CHECK(strlen(err.text) < sizeof err.text);
}

static void buffers_stop_at_their_ceiling(void)
{
  struct cb_buf b;
  cb_buf_init(&b, 10);
  CHECK(cb_buf_add(&b, "12345678", 8) == CB_OK);
  CHECK(cb_buf_add(&b, "abc", 3) == CB_TOO_LARGE && b.len == 8);
  CHECK(cb_buf_addf(&b, "%d", 123) == CB_TOO_LARGE && b.len == 8);
  CHECK(cb_buf_addf(&b, "%d", 42) == CB_OK);
  CHECK_STR(b.p, "1234567842");
  cb_buf_drop_front(&b, 8);
  CHECK_STR(b.p, "42");
  size_t n;
  char *p = cb_buf_take(&b, &n);
  CHECK(n == 2 && b.len == 0 && b.p == NULL);
  cb_free(p);
  p = cb_buf_take(&b, &n);
  CHECK(p && n == 0 && p[0] == '\0');
  cb_free(p);
  cb_buf_clear_wiped(&b);
  cb_buf_clear(&b);
}

static void reading_a_file_stops_at_the_ceiling(void)
{
  int ends[2];
  struct cb_buf b;
  struct cb_err err = CB_ERR_INIT;
  CHECK(cb_pipe(ends, &err) == CB_OK);
  CHECK(write(ends[1], "12345", 5) == 5);
  cb_close(&ends[1]);
  cb_buf_init(&b, 4);
  CHECK(cb_buf_read_all(&b, ends[0], &err) == CB_TOO_LARGE);
  cb_close(&ends[0]);
  CHECK(ends[0] == -1);
  cb_buf_clear(&b);
}

/* The n-th allocation fails: the answer is a code, the buffer stays usable, nothing leaks. */
static void memory_that_runs_out_is_a_code(void)
{
  bool went_through = false;
  for (unsigned long n = 1; n < 50 && !went_through; n++) {
    struct cb_buf b;
    int rc = CB_OK;
    cb_buf_init(&b, 1 << 20);
    cb_alloc_fail_at(n);
    for (int i = 0; rc == CB_OK && i < 3000; i++)
      rc = cb_buf_addz(&b, "0123456789");
    cb_alloc_fail_at(0);
    CHECK(rc == CB_OK || rc == CB_NO_MEMORY);
    CHECK(b.len % 10 == 0); /* all or nothing */
    CHECK(cb_buf_addc(&b, 'x') == CB_OK);
    cb_buf_clear(&b);
    went_through = rc == CB_OK;
  }
  CHECK(went_through);
  cb_alloc_fail_at(1);
  CHECK(cb_strdup("x") == NULL);
  cb_alloc_fail_at(1);
  CHECK(cb_memdup("x", 1) == NULL);
  cb_alloc_fail_at(0);
}

/* ---- digests and encodings --------------------------------------------------------------- */

static void digests_agree_with_libcrypto(void)
{
  static const size_t sizes[] = { 0, 1, 3, 55, 56, 57, 63, 64, 65, 119, 120, 127, 128, 129, 1000,
                                  4096, 100001 };
  char *p = cb_malloc(100001);
  cb_random(p, 100001);
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    unsigned char want[EVP_MAX_MD_SIZE], got[CB_SHA256_BYTES];
    unsigned len;
    size_t n = sizes[i], first = n / 3;
    struct cb_sha256 s;
    EVP_Digest(p, n, want, &len, EVP_sha256(), NULL);
    cb_sha256_init(&s);
    cb_sha256_add(&s, p, first); /* in two pieces */
    cb_sha256_add(&s, p + first, n - first);
    cb_sha256_end(&s, got);
    CHECK(len == CB_SHA256_BYTES && memcmp(want, got, len) == 0);
    HMAC(EVP_sha256(), p, (int)(n % 200), (unsigned char *)p, n, want, &len);
    cb_hmac_sha256(p, n % 200, p, n, got);
    CHECK(memcmp(want, got, CB_SHA256_BYTES) == 0);
  }
  char hex[CB_SHA256_HEX + 1];
  cb_sha256_hex("abc", 3, hex);
  CHECK_STR(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  cb_free(p);
}

static void base64_goes_both_ways(void)
{
  static const struct {
    const char *plain, *coded;
  } cases[] = { { "", "" },         { "f", "Zg==" },         { "fo", "Zm8=" },
                { "foo", "Zm9v" },  { "foobar", "Zm9vYmFy" } };
  struct cb_buf b;
  cb_buf_init(&b, 100);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char out[32];
    cb_base64(cases[i].plain, strlen(cases[i].plain), out);
    CHECK_STR(out, cases[i].coded);
    cb_buf_reset(&b);
    CHECK(cb_base64_decode(&b, out, strlen(out)) == CB_OK);
    CHECK(b.len == strlen(cases[i].plain) && (!b.len || !memcmp(b.p, cases[i].plain, b.len)));
  }
  cb_buf_reset(&b);
  CHECK(cb_base64_decode(&b, "-_8", 3) == CB_OK && b.len == 2); /* URL-safe, without padding */
  cb_buf_reset(&b);
  CHECK(cb_base64_decode(&b, "Zg*=", 4) == CB_PROTOCOL);
  cb_buf_clear(&b);
}

static void percent_goes_both_ways(void)
{
  struct cb_buf b;
  cb_buf_init(&b, 100);
  CHECK(cb_percent_add(&b, "a b/\xff", 5) == CB_OK);
  CHECK_STR(b.p, "a%20b%2F%FF");
  cb_buf_reset(&b);
  CHECK(cb_percent_decode(&b, "a+b%2f", 6, true) == CB_OK);
  CHECK_STR(b.p, "a b/");
  cb_buf_reset(&b);
  CHECK(cb_percent_decode(&b, "a%2", 3, false) == CB_PROTOCOL);
  cb_buf_clear(&b);
}

static void utf8_is_checked_strictly(void)
{
  CHECK(cb_utf8_valid("a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", 10));
  CHECK(!cb_utf8_valid("\xc0\x80", 2));         /* longer than needed */
  CHECK(!cb_utf8_valid("\xed\xa0\x80", 3));     /* half a surrogate pair */
  CHECK(!cb_utf8_valid("\xf4\x90\x80\x80", 4)); /* beyond U+10FFFF */
  CHECK(!cb_utf8_valid("\xe2\x82", 2));         /* cut */
  CHECK(cb_equal_const_time("abc", "abc", 3) && !cb_equal_const_time("abc", "abd", 3));
}

static void random_ids_hold_only_their_letters(void)
{
  char a[25], b[25];
  cb_random_id(a, 24);
  cb_random_id(b, 24);
  CHECK(strlen(a) == 24 && strspn(a, "abcdefghijklmnopqrstuvwxyz0123456789") == 24);
  CHECK(strcmp(a, b) != 0);
}

/* ---- the queue --------------------------------------------------------------------------- */

struct item {
  struct cb_link link;
  int producer, number;
};

struct producer {
  struct cb_queue *q;
  int number;
};

enum { PRODUCERS = 4, ITEMS = 5000 };

static void *produce(void *arg)
{
  struct producer *p = arg;
  for (int i = 0; i < ITEMS; i++) {
    struct item *it = cb_malloc(sizeof *it);
    it->producer = p->number;
    it->number = i;
    cb_queue_push(p->q, &it->link);
  }
  return NULL;
}

static void the_queue_keeps_each_producers_order(void)
{
  struct cb_queue q = CB_QUEUE_INIT;
  pthread_t threads[PRODUCERS];
  struct producer p[PRODUCERS];
  int next[PRODUCERS] = { 0 }, seen = 0;
  bool in_order = true;
  for (int i = 0; i < PRODUCERS; i++) {
    p[i] = (struct producer){ &q, i };
    pthread_create(&threads[i], NULL, produce, &p[i]);
  }
  while (seen < PRODUCERS * ITEMS) {
    struct cb_link *l = cb_queue_take(&q);
    while (l) {
      struct item *it = (struct item *)l;
      l = l->next;
      in_order = in_order && it->number == next[it->producer]++;
      seen++;
      cb_free(it);
    }
  }
  for (int i = 0; i < PRODUCERS; i++)
    pthread_join(threads[i], NULL);
  CHECK(in_order);
  CHECK(cb_queue_empty(&q));
}

/* ---- paths ------------------------------------------------------------------------------- */

static void only_plain_paths_are_plain(void)
{
  static const char *const good[] = { "a", "a/b", ".a", "a..b/c", "-rf" };
  static const char *const bad[] = { "", "/a", "a/", "a//b", ".", "..", "a/..", "./a", "a/./b" };
  for (size_t i = 0; i < sizeof good / sizeof *good; i++)
    CHECK(cb_path_is_plain(good[i], strlen(good[i])));
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
    CHECK(!cb_path_is_plain(bad[i], strlen(bad[i])));
  CHECK(!cb_path_is_plain("a\0b", 3));
  char longer[300];
  memset(longer, 'x', sizeof longer);
  CHECK(cb_path_is_plain(longer, 255) && !cb_path_is_plain(longer, 256));
}

static void links_never_lead_out_of_the_folder(void)
{
  struct cb_err err = CB_ERR_INIT;
  struct cb_buf b;
  int dir = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC), fd = -1;
  cb_buf_init(&b, 1000);
  CHECK(cb_write_file_beneath(dir, "plain", "inside", 6, 0600, true, &err) == CB_OK);
  CHECK(symlinkat("/etc", dir, "out") == 0);
  CHECK(symlinkat("plain", dir, "alias") == 0);
  CHECK(symlinkat("..", dir, "up") == 0);

  CHECK(cb_open_beneath(dir, "out/passwd", O_RDONLY, 0, &fd, &err) == CB_DENIED);
  CHECK(cb_open_beneath(dir, "up/x", O_RDONLY, 0, &fd, &err) == CB_DENIED);
  CHECK(cb_open_beneath(dir, "alias", O_RDONLY, 0, &fd, &err) == CB_DENIED); /* even inside */
  CHECK(cb_open_beneath(dir, "../x", O_RDONLY, 0, &fd, &err) == CB_DENIED);
  CHECK(cb_open_beneath(dir, "/etc/passwd", O_RDONLY, 0, &fd, &err) == CB_DENIED);
  CHECK(fd == -1);
  CHECK(cb_read_file_beneath(dir, "plain", &b, &err) == CB_OK);
  CHECK_STR(b.p, "inside");
  cb_buf_reset(&b);
  CHECK(cb_readlink_beneath(dir, "out", &b, &err) == CB_OK);
  CHECK_STR(b.p, "/etc");
  CHECK(cb_write_file_beneath(dir, "out/new", "x", 1, 0600, false, &err) == CB_DENIED);
  CHECK(cb_mkdirs_beneath(dir, "out/new", &err) == CB_CONFLICT);
  CHECK(cb_mkdirs_beneath(dir, "plain/new", &err) == CB_CONFLICT);
  CHECK(cb_mkdirs_beneath(dir, "d/e/f", &err) == CB_OK);
  /* Writing over a link replaces the link, not what it points to. */
  CHECK(cb_write_file_beneath(dir, "alias", "new", 3, 0600, false, &err) == CB_OK);
  cb_buf_reset(&b);
  CHECK(cb_read_file_beneath(dir, "plain", &b, &err) == CB_OK);
  CHECK_STR(b.p, "inside");
  CHECK(mkfifoat(dir, "pipe", 0600) == 0);
  cb_buf_reset(&b);
  CHECK(cb_read_file_beneath(dir, "pipe", &b, &err) == CB_DENIED); /* and does not hang */
  CHECK(cb_unlink_beneath(dir, "nothing", &err) == CB_OK);
  cb_buf_clear(&b);
  cb_close(&dir);
}

static void removing_a_tree_stays_inside(void)
{
  struct cb_err err = CB_ERR_INIT;
  struct stat st;
  int dir = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  CHECK(cb_mkdirs_beneath(dir, "keep", &err) == CB_OK);
  CHECK(cb_write_file_beneath(dir, "keep/file", "x", 1, 0600, false, &err) == CB_OK);
  CHECK(cb_mkdirs_beneath(dir, "tree/a/b", &err) == CB_OK);
  CHECK(cb_write_file_beneath(dir, "tree/a/f", "x", 1, 0400, false, &err) == CB_OK);
  CHECK(symlinkat("../keep", dir, "tree/link") == 0);
  CHECK(fchmodat(dir, "tree/a", 0, 0) == 0); /* no right to enter */
  CHECK(cb_rmtree_beneath(dir, "tree", &err) == CB_OK);
  CHECK(fstatat(dir, "tree", &st, 0) < 0 && errno == ENOENT);
  CHECK(fstatat(dir, "keep/file", &st, 0) == 0);
  CHECK(cb_rmtree_beneath(dir, "tree", &err) == CB_OK); /* absent is fine */
  cb_close(&dir);
}

/* ---- sockets ----------------------------------------------------------------------------- */

static void sockets_are_private_and_replaced_only_when_dead(void)
{
  char path[128], longer[200];
  struct cb_err err = CB_ERR_INIT;
  struct stat st;
  int a = -1, b = -1, c = -1;
  snprintf(path, sizeof path, "%s/s", folder);
  CHECK(cb_unix_connect(path, SOCK_STREAM, &c, &err) == CB_UNREACHABLE);
  CHECK(cb_unix_listen(path, SOCK_STREAM, &a, &err) == CB_OK);
  CHECK(stat(path, &st) == 0 && (st.st_mode & 0777) == 0600);
  CHECK(cb_unix_listen(path, SOCK_STREAM, &b, &err) == CB_EXISTS);
  CHECK(cb_unix_connect(path, SOCK_STREAM, &c, &err) == CB_OK);
  CHECK(cb_peer_is_us(c));
  cb_close(&a);
  cb_close(&c);
  CHECK(cb_unix_listen(path, SOCK_STREAM, &b, &err) == CB_OK); /* nobody answered there */
  cb_close(&b);
  memset(longer, 'x', sizeof longer - 1);
  longer[sizeof longer - 1] = '\0';
  CHECK(cb_unix_listen(longer, SOCK_STREAM, &a, &err) == CB_INVALID);
}

static void descriptors_travel_over_a_socket(void)
{
  int pair[2], got[CB_FDS_MAX];
  size_t n, count;
  char text[16];
  struct cb_err err = CB_ERR_INIT;
  CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
  CHECK(cb_send_fds(pair[0], "hi", 2, pair, 2, &err) == CB_OK);
  CHECK(cb_recv_fds(pair[1], text, sizeof text, &n, got, &count, &err) == CB_OK);
  CHECK(n == 2 && count == 2);
  CHECK(fcntl(got[0], F_GETFD) == FD_CLOEXEC);
  cb_close(&got[0]);
  cb_close(&got[1]);
  CHECK(cb_send_fds(pair[0], "0123456789abcdefg", 17, pair, 1, &err) == CB_OK);
  CHECK(cb_recv_fds(pair[1], text, sizeof text, &n, got, &count, &err) == CB_PROTOCOL);
  CHECK(count == 0); /* what came with it is closed */
  cb_close(&pair[0]);
  cb_close(&pair[1]);
}

static void clocks_go_forward(void)
{
  int64_t a = cb_now_ms(), b = cb_now_ms();
  CHECK(b >= a && cb_boot_ms() >= 0 && cb_wall_ms() > 1600000000000);
}

/* Where real ids exist and there is no filter (a virtual machine), becoming the user must leave
 * sudo working: no_new_privs stays off and the bounding set whole. */
static void a_real_machine_keeps_its_sudo(void)
{
  int status = -1;
  if (geteuid() != 0)
    return; /* only root can become somebody else without a namespace */
  pid_t pid = fork();
  if (pid == 0) {
    struct cb_drop_user to = { .uid = 65534, .gid = 65534, .filter_fd = -1 };
    struct cb_drop_failure why = { "", 0 };
    if (cb_drop_user(&to, &why))
      _exit(1);
    if (getuid() != 65534 || getgid() != 65534 || setuid(0) == 0)
      _exit(2);
    _exit(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 0 && prctl(PR_CAPBSET_READ, 0) == 1 ? 0 : 3);
  }
  CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* The same where openat2 is unknown, as under older kernels, some filters and valgrind. */
static void links_never_lead_out_without_openat2(void)
{
  struct sock_filter code[] = {
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat2, 0, 1),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog filter = { sizeof code / sizeof *code, code };
  int status = -1;
  pid_t pid = fork();
  if (pid == 0) {
    check_failed = 0;
    strcat(folder, "/steps");
    CHECK(mkdir(folder, 0700) == 0);
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0);
    CHECK(syscall(SYS_openat2, -1, NULL, NULL, 0) < 0 && errno == ENOSYS);
    links_never_lead_out_of_the_folder();
    removing_a_tree_stays_inside();
    _exit(check_failed ? 1 : 0);
  }
  CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}

int main(void)
{
  a_real_machine_keeps_its_sudo();
  char command[128];
  strcpy(folder, "/tmp/crewbox-base-XXXXXX");
  if (!mkdtemp(folder))
    return 1;
  sizes_that_do_not_fit_are_refused();
  errors_keep_code_and_text();
  buffers_stop_at_their_ceiling();
  reading_a_file_stops_at_the_ceiling();
  memory_that_runs_out_is_a_code();
  digests_agree_with_libcrypto();
  base64_goes_both_ways();
  percent_goes_both_ways();
  utf8_is_checked_strictly();
  random_ids_hold_only_their_letters();
  the_queue_keeps_each_producers_order();
  only_plain_paths_are_plain();
  links_never_lead_out_of_the_folder();
  removing_a_tree_stays_inside();
  links_never_lead_out_without_openat2();
  sockets_are_private_and_replaced_only_when_dead();
  descriptors_travel_over_a_socket();
  clocks_go_forward();
  snprintf(command, sizeof command, "rm -rf %s", folder);
  CHECK(system(command) == 0);
  return check_done();
}
