/* SPDX-License-Identifier: MIT
 * sys.c: core.sys, what the system offers at once: processes, clocks, files of our own. Each
 * function that can fail gives nil and an error. Buffers live in a userdata while Lua makes
 * its copy, so that a Lua error cannot leak them. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/path.h"
#include "base/rand.h"
#include "base/sha256.h"
#include "lua/lib.h"
#include "net/host_file.h"
#include "net/host_proc.h"
#include "net/interrupt.h"

#define LOCK_MT "crewbox.lock"
#define BUF_MT "crewbox.buffer"

enum { FILE_MAX = 64 << 20, ID_MAX = 64, STDIN_SOME = 256 << 10 };

static int done(lua_State *L, int rc, const struct cb_err *err)
{
  if (rc)
    return cb_lua_fail(L, err);
  lua_pushboolean(L, 1);
  return 1;
}

/* A path has no zero in it: one would silently name another file. */
static const char *check_path(lua_State *L, int i)
{
  size_t n;
  luaL_checktype(L, i, LUA_TSTRING); /* a number is a mistake, not the name of a file */
  const char *p = luaL_checklstring(L, i, &n);
  luaL_argcheck(L, strlen(p) == n && n > 0, i, "a path is not empty and holds no zero byte");
  return p;
}

static mode_t opt_mode(lua_State *L, int i, mode_t otherwise)
{
  int64_t mode = cb_lua_opt_int(L, i, (int64_t)otherwise);
  luaL_argcheck(L, mode >= 0 && mode <= 07777, i, "a file mode");
  return (mode_t)mode;
}

static size_t opt_size(lua_State *L, int i, int64_t otherwise)
{
  int64_t n = cb_lua_opt_int(L, i, otherwise);
  luaL_argcheck(L, n >= 0 && n <= (int64_t)1 << 40, i, "a number of bytes");
  return (size_t)n;
}

/* ---- a buffer that Lua collects ---------------------------------------------------------- */

static struct cb_buf *push_buf(lua_State *L, size_t max)
{
  struct cb_buf *b = lua_newuserdatauv(L, sizeof *b, 0);
  cb_buf_init(b, max);
  luaL_setmetatable(L, BUF_MT);
  return b;
}

static int buf_gc(lua_State *L)
{
  cb_buf_clear(luaL_checkudata(L, 1, BUF_MT));
  return 0;
}

/* The bytes of the buffer on top of the stack, or the failure. */
static int give_bytes(lua_State *L, struct cb_buf *b, int rc, const struct cb_err *err)
{
  if (rc == CB_OK)
    lua_pushlstring(L, b->p ? b->p : "", b->len);
  cb_buf_clear(b);
  return rc ? cb_lua_fail(L, err) : 1;
}

/* ---- processes --------------------------------------------------------------------------- */

static int sys_pid(lua_State *L)
{
  lua_pushinteger(L, getpid());
  return 1;
}

/* A number, or its digits as a store gives them back. 0: not known. */
static int64_t opt_start(lua_State *L, int i)
{
  if (lua_type(L, i) == LUA_TSTRING) {
    const char *text = lua_tostring(L, i);
    luaL_argcheck(L, text[strspn(text, "0123456789")] == '\0' && strlen(text) < 19, i,
                  "a start time");
    return strtoll(text, NULL, 10);
  }
  return cb_lua_opt_int(L, i, 0);
}

static int sys_pid_start(lua_State *L)
{
  struct cb_err err = CB_ERR_INIT;
  int64_t start = 0;
  if (cb_proc_start((pid_t)cb_lua_check_int(L, 1), &start, &err))
    return cb_lua_fail(L, &err);
  cb_lua_push_int(L, start);
  return 1;
}

static int sys_alive(lua_State *L)
{
  int64_t pid = cb_lua_check_int(L, 1);
  lua_pushboolean(L, cb_proc_alive((pid_t)pid, opt_start(L, 2)));
  return 1;
}

static int check_signal(lua_State *L, int i)
{
  static const struct {
    const char *name;
    int sig;
  } known[] = { { "TERM", SIGTERM }, { "KILL", SIGKILL }, { "INT", SIGINT },   { "HUP", SIGHUP },
                { "STOP", SIGSTOP }, { "CONT", SIGCONT }, { "USR1", SIGUSR1 }, { "USR2", SIGUSR2 } };
  if (lua_type(L, i) == LUA_TNUMBER)
    return (int)cb_lua_check_int(L, i);
  const char *name = luaL_checkstring(L, i);
  for (size_t k = 0; k < sizeof known / sizeof *known; k++) {
    if (strcmp(name, known[k].name) == 0)
      return known[k].sig;
  }
  return luaL_argerror(L, i, "TERM, KILL, INT, HUP, STOP, CONT, USR1, USR2 or a number");
}

/* kill(pid, signal, pid_start?) */
static int sys_kill(lua_State *L)
{
  struct cb_err err = CB_ERR_INIT;
  int64_t pid = cb_lua_check_int(L, 1), start = opt_start(L, 3);
  int sig = check_signal(L, 2);
  luaL_argcheck(L, pid > 0, 1, "one process: 1 or more"); /* never a group, never everybody */
  return done(L, cb_proc_kill((pid_t)pid, start, sig, &err), &err);
}

static int sys_uid(lua_State *L)
{
  cb_lua_push_int(L, (int64_t)geteuid());
  return 1;
}

static int sys_hostname(lua_State *L)
{
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  lua_pushstring(L, name);
  return 1;
}

static int sys_environ(lua_State *L)
{
  lua_newtable(L);
  for (char **line = environ; line && *line; line++) {
    const char *eq = strchr(*line, '=');
    if (!eq || eq == *line)
      continue;
    lua_pushlstring(L, *line, (size_t)(eq - *line));
    lua_pushstring(L, eq + 1);
    lua_rawset(L, -3);
  }
  return 1;
}

static int sys_isatty(lua_State *L)
{
  lua_pushboolean(L, isatty((int)cb_lua_check_int(L, 1)));
  return 1;
}

static int sys_term_width(lua_State *L)
{
  static const int fds[] = { STDERR_FILENO, STDOUT_FILENO, STDIN_FILENO };
  for (size_t i = 0; i < sizeof fds / sizeof *fds; i++) {
    struct winsize w;
    if (ioctl(fds[i], TIOCGWINSZ, &w) == 0 && w.ws_col > 0) {
      lua_pushinteger(L, w.ws_col);
      return 1;
    }
  }
  return 0;
}

static int sys_catch_interrupt(lua_State *L)
{
  struct cb_err err = CB_ERR_INIT;
  return done(L, cb_interrupt_catch(&err), &err);
}

static int sys_interrupted(lua_State *L)
{
  int count = 0, sig = cb_interrupted(&count);
  if (!sig)
    return 0;
  lua_pushstring(L, sig == SIGINT ? "INT" : "TERM");
  lua_pushinteger(L, count);
  return 2;
}

/* ---- a program that outlives us ---------------------------------------------------------- */

/* A vector of the strings of a Lua value, kept alive by what is pushed: the userdata that holds
 * the pointers and a table that holds the strings. [-0, +2] */
static char **push_vector(lua_State *L, int i, const char *what, bool pairs)
{
  size_t count = 0, at = 0;
  lua_newtable(L);
  int strings = lua_gettop(L);
  if (!pairs || lua_rawlen(L, i) > 0) {
    count = lua_rawlen(L, i);
    for (size_t k = 1; k <= count; k++) {
      if (cb_lua_rawgeti(L, i, (int)k) != LUA_TSTRING)
        luaL_error(L, "%s must be a list of strings", what);
      lua_rawseti(L, strings, (int)k);
    }
  } else {
    lua_pushnil(L);
    while (lua_next(L, i)) {
      if (lua_type(L, -2) != LUA_TSTRING || lua_type(L, -1) != LUA_TSTRING)
        luaL_error(L, "%s must hold names and strings", what);
      lua_pushvalue(L, -2);
      lua_pushliteral(L, "=");
      lua_pushvalue(L, -3);
      lua_concat(L, 3);
      lua_rawseti(L, strings, (int)++count);
      lua_pop(L, 1);
    }
  }
  char **out = lua_newuserdatauv(L, (count + 1) * sizeof(char *), 0);
  for (; at < count; at++) {
    lua_rawgeti(L, strings, (int)at + 1);
    out[at] = (char *)(uintptr_t)lua_tostring(L, -1);
    lua_pop(L, 1); /* the table keeps it */
  }
  out[count] = NULL;
  return out;
}

static int sys_daemon(lua_State *L)
{
  struct cb_err err = CB_ERR_INIT;
  char line[CB_DAEMON_LINE_MAX];
  pid_t pid = 0;
  luaL_checktype(L, 1, LUA_TTABLE);
  lua_settop(L, 1);
  lua_getfield(L, 1, "argv"); /* 2 */
  lua_getfield(L, 1, "env");  /* 3 */
  lua_getfield(L, 1, "log");  /* 4 */
  lua_getfield(L, 1, "ready_timeout_ms"); /* 5 */
  if (!lua_istable(L, 2) || lua_rawlen(L, 2) == 0)
    return luaL_argerror(L, 1, "argv must be a list of strings");
  if (!lua_isnil(L, 3) && !lua_istable(L, 3))
    return luaL_argerror(L, 1, "env must be a table");
  struct cb_daemon d = {
    .argv = push_vector(L, 2, "argv", false),
    .env = lua_isnil(L, 3) ? environ : push_vector(L, 3, "env", true),
    .log = check_path(L, 4),
    .ready_timeout_ms = cb_lua_opt_int(L, 5, 10000),
  };
  if (cb_daemon_start(&d, &pid, line, &err))
    return cb_lua_fail(L, &err);
  lua_createtable(L, 0, 2);
  lua_pushinteger(L, pid);
  lua_setfield(L, -2, "pid");
  lua_pushstring(L, line);
  lua_setfield(L, -2, "line");
  return 1;
}

/* ---- clocks and bytes -------------------------------------------------------------------- */

static int sys_now_ms(lua_State *L)
{
  cb_lua_push_int(L, cb_now_ms());
  return 1;
}

static int sys_wall(lua_State *L)
{
  lua_pushnumber(L, (lua_Number)cb_wall_ms() / 1000);
  return 1;
}

static int sys_random_id(lua_State *L)
{
  char id[ID_MAX + 1];
  int64_t n = cb_lua_check_int(L, 1);
  luaL_argcheck(L, n > 0 && n <= ID_MAX, 1, "1 to 64");
  cb_random_id(id, (size_t)n);
  lua_pushlstring(L, id, (size_t)n);
  return 1;
}

static int sys_sha256(lua_State *L)
{
  char hex[CB_SHA256_HEX + 1];
  size_t n;
  const char *p = luaL_checklstring(L, 1, &n);
  cb_sha256_hex(p, n, hex);
  lua_pushlstring(L, hex, CB_SHA256_HEX);
  return 1;
}

/* ---- files ------------------------------------------------------------------------------- */

static int sys_realpath(lua_State *L)
{
  struct cb_err err = CB_ERR_INIT;
  const char *path = check_path(L, 1);
  char *real = realpath(path, NULL);
  if (!real) {
    cb_err_errno(&err, errno, "%s", path);
    return cb_lua_fail(L, &err);
  }
  char copy[CB_PATH_MAX_BYTES + 1];
  snprintf(copy, sizeof copy, "%s", real); /* PATH_MAX is what realpath keeps to */
  free(real);
  lua_pushstring(L, copy);
  return 1;
}

static const char *type_of(mode_t mode)
{
  return S_ISREG(mode)    ? "file"
         : S_ISDIR(mode)  ? "dir"
         : S_ISLNK(mode)  ? "symlink"
         : S_ISSOCK(mode) ? "socket"
         : S_ISFIFO(mode) ? "fifo"
                          : "other";
}

/* stat(path, nofollow?) */
static int sys_stat(lua_State *L)
{
  struct cb_err err = CB_ERR_INIT;
  struct stat st;
  const char *path = check_path(L, 1);
  if (fstatat(AT_FDCWD, path, &st, lua_toboolean(L, 2) ? AT_SYMLINK_NOFOLLOW : 0) < 0) {
    cb_err_errno(&err, errno, "%s", path);
    return cb_lua_fail(L, &err);
  }
  lua_createtable(L, 0, 6);
  lua_pushstring(L, type_of(st.st_mode));
  lua_setfield(L, -2, "type");
  cb_lua_push_int(L, st.st_size);
  lua_setfield(L, -2, "size");
  lua_pushinteger(L, st.st_mode & 07777);
  lua_setfield(L, -2, "mode");
  lua_pushnumber(L, (lua_Number)st.st_mtim.tv_sec + (lua_Number)st.st_mtim.tv_nsec / 1e9);
  lua_setfield(L, -2, "mtime");
  cb_lua_push_int(L, (int64_t)st.st_uid);
  lua_setfield(L, -2, "uid");
  cb_lua_push_int(L, (int64_t)st.st_gid);
  lua_setfield(L, -2, "gid");
  return 1;
}

static int sys_mkdirs(lua_State *L)
{
  struct cb_err err = CB_ERR_INIT;
  struct stat st;
  const char *path = check_path(L, 1);
  int rc = cb_mkdirs(path, opt_mode(L, 2, 0755), &err);
  if (rc == CB_OK && (stat(path, &st) < 0 || !S_ISDIR(st.st_mode)))
    rc = cb_err_set(&err, CB_EXISTS, "make the folder %s: something else is there", path);
  return done(L, rc, &err);
}

static int sys_read_file(lua_State *L)
{
  struct cb_err err = CB_ERR_INIT;
  const char *path = check_path(L, 1);
  struct cb_buf *b = push_buf(L, opt_size(L, 2, FILE_MAX));
  return give_bytes(L, b, cb_host_read(path, b, &err), &err);
}

static int sys_write_file(lua_State *L)
{
  struct cb_err err = CB_ERR_INIT;
  size_t n;
  const char *path = check_path(L, 1), *p = luaL_checklstring(L, 2, &n);
  mode_t mode = opt_mode(L, 3, 0600);
  return done(L, cb_host_write(path, p, n, mode, lua_toboolean(L, 4), &err), &err);
}

static int sys_append(lua_State *L)
{
  struct cb_err err = CB_ERR_INIT;
  size_t n;
  const char *path = check_path(L, 1), *p = luaL_checklstring(L, 2, &n);
  return done(L, cb_host_append(path, p, n, &err), &err);
}

static int sys_rename(lua_State *L)
{
  struct cb_err err = CB_ERR_INIT;
  const char *from = check_path(L, 1), *to = check_path(L, 2);
  int rc = rename(from, to) < 0 ? cb_err_errno(&err, errno, "rename %s", from) : CB_OK;
  return done(L, rc, &err);
}

static int sys_unlink(lua_State *L)
{
  struct cb_err err = CB_ERR_INIT;
  return done(L, cb_host_unlink(check_path(L, 1), &err), &err);
}

static int sys_rmtree(lua_State *L)
{
  struct cb_err err = CB_ERR_INIT;
  return done(L, cb_host_rmtree(check_path(L, 1), &err), &err);
}

static int sys_copy(lua_State *L)
{
  struct cb_err err = CB_ERR_INIT;
  const char *from = check_path(L, 1), *to = check_path(L, 2);
  return done(L, cb_host_copy(from, to, opt_mode(L, 3, 0), &err), &err);
}

static int sys_free_bytes(lua_State *L)
{
  struct cb_err err = CB_ERR_INIT;
  int64_t n = 0;
  if (cb_host_free_bytes(check_path(L, 1), &n, &err))
    return cb_lua_fail(L, &err);
  cb_lua_push_int(L, n);
  return 1;
}

/* Names in a folder, each followed by a zero. */
static int read_names(const char *path, struct cb_buf *b, struct cb_err *err)
{
  DIR *d = opendir(path);
  struct dirent *e;
  int rc = CB_OK;
  if (!d)
    return cb_err_errno(err, errno, "list %s", path);
  while (rc == CB_OK && (e = readdir(d))) {
    if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
      rc = cb_buf_add(b, e->d_name, strlen(e->d_name) + 1);
  }
  closedir(d);
  if (rc)
    cb_err_set(err, (enum cb_code)rc, "list %s: too many names", path);
  return rc;
}

/* Sorted, so that what reads a folder does the same every time. */
static int by_bytes(const void *a, const void *b)
{
  return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int sys_list(lua_State *L)
{
  struct cb_err err = CB_ERR_INIT;
  const char *path = check_path(L, 1);
  struct cb_buf *b = push_buf(L, FILE_MAX);
  int rc = read_names(path, b, &err);
  size_t count = 0, k = 0;
  if (rc)
    return give_bytes(L, b, rc, &err);
  for (size_t i = 0; i < b->len; i++)
    count += b->p[i] == '\0';
  const char **names = lua_newuserdatauv(L, (count + 1) * sizeof(const char *), 0);
  for (size_t i = 0; i < b->len; i += strlen(b->p + i) + 1)
    names[k++] = b->p + i;
  qsort(names, count, sizeof(const char *), by_bytes);
  lua_createtable(L, (int)count, 0);
  for (k = 0; k < count; k++) {
    lua_pushstring(L, names[k]);
    lua_rawseti(L, -2, (int)k + 1);
  }
  return 1;
}

/* ---- standard input ---------------------------------------------------------------------- */

/* Waits for the first of what comes and takes what is there; *n is 0 at the end. A caught signal
 * ends the wait. */
static int read_some(char *into, size_t room, size_t *n, struct cb_err *err)
{
  for (;;) {
    struct pollfd fds[2] = { { .fd = STDIN_FILENO, .events = POLLIN },
                             { .fd = cb_interrupt_fd(), .events = POLLIN } };
    if (poll(fds, 2, -1) < 0 && errno != EINTR)
      return cb_err_errno(err, errno, "read standard input");
    if (cb_interrupted(NULL))
      return cb_err_set(err, CB_CANCELLED, "interrupted while reading standard input");
    if (!fds[0].revents)
      continue;
    ssize_t k = read(STDIN_FILENO, into, room);
    if (k < 0 && (errno == EINTR || errno == EAGAIN))
      continue;
    if (k < 0)
      return cb_err_errno(err, errno, "read standard input");
    *n = (size_t)k;
    return CB_OK;
  }
}

static int read_stdin(struct cb_buf *b, struct cb_err *err)
{
  char piece[65536];
  size_t n = 0;
  for (;;) {
    int rc = read_some(piece, sizeof piece, &n, err);
    if (rc || n == 0)
      return rc;
    rc = cb_buf_add(b, piece, n);
    if (rc)
      return cb_err_set(err, (enum cb_code)rc, "standard input: more than %zu bytes", b->max);
  }
}

/* stdin_some(max?): "" at the end. */
static int sys_stdin_some(lua_State *L)
{
  struct cb_err err = CB_ERR_INIT;
  size_t max = opt_size(L, 1, STDIN_SOME);
  luaL_argcheck(L, max > 0 && max <= FILE_MAX, 1, "1 to 64 MiB");
  struct cb_buf *b = push_buf(L, max);
  int rc = cb_buf_reserve(b, max);
  if (rc)
    cb_err_set(&err, (enum cb_code)rc, "no memory for %zu bytes of standard input", max);
  else
    rc = read_some(b->p, max, &b->len, &err);
  return give_bytes(L, b, rc, &err);
}

static int sys_stdin(lua_State *L)
{
  struct cb_err err = CB_ERR_INIT;
  struct cb_buf *b = push_buf(L, opt_size(L, 1, FILE_MAX));
  return give_bytes(L, b, read_stdin(b, &err), &err);
}

/* ---- lock -------------------------------------------------------------------------------- */

static int sys_lock(lua_State *L)
{
  struct cb_err err = CB_ERR_INIT;
  const char *path = check_path(L, 1);
  int *fd = lua_newuserdatauv(L, sizeof *fd, 0);
  *fd = -1;
  luaL_setmetatable(L, LOCK_MT);
  return cb_host_lock(path, fd, &err) ? cb_lua_fail(L, &err) : 1;
}

static int lock_release(lua_State *L)
{
  cb_close(luaL_checkudata(L, 1, LOCK_MT));
  lua_pushboolean(L, 1);
  return 1;
}

static int lock_end(lua_State *L) /* __gc, __close */
{
  cb_close(luaL_checkudata(L, 1, LOCK_MT));
  return 0;
}

static int lock_tostring(lua_State *L)
{
  int *fd = luaL_checkudata(L, 1, LOCK_MT);
  lua_pushstring(L, *fd >= 0 ? "crewbox.lock (held)" : "crewbox.lock (released)");
  return 1;
}

static const luaL_Reg functions[] = {
  { "pid", sys_pid },
  { "pid_start", sys_pid_start },
  { "alive", sys_alive },
  { "kill", sys_kill },
  { "uid", sys_uid },
  { "hostname", sys_hostname },
  { "environ", sys_environ },
  { "isatty", sys_isatty },
  { "term_width", sys_term_width },
  { "catch_interrupt", sys_catch_interrupt },
  { "interrupted", sys_interrupted },
  { "daemon", sys_daemon },
  { "now_ms", sys_now_ms },
  { "wall", sys_wall },
  { "random_id", sys_random_id },
  { "sha256", sys_sha256 },
  { "realpath", sys_realpath },
  { "stat", sys_stat },
  { "mkdirs", sys_mkdirs },
  { "read_file", sys_read_file },
  { "write_file", sys_write_file },
  { "append", sys_append },
  { "rename", sys_rename },
  { "unlink", sys_unlink },
  { "rmtree", sys_rmtree },
  { "list", sys_list },
  { "copy", sys_copy },
  { "free_bytes", sys_free_bytes },
  { "stdin", sys_stdin },
  { "stdin_some", sys_stdin_some },
  { "lock", sys_lock },
  { NULL, NULL },
};

static const luaL_Reg lock_meta[] = {
  { "__gc", lock_end },
  { "__close", lock_end },
  { "__tostring", lock_tostring },
  { NULL, NULL },
};

static const luaL_Reg lock_methods[] = {
  { "release", lock_release },
  { NULL, NULL },
};

void cb_lua_open_sys(lua_State *L)
{
  luaL_newmetatable(L, BUF_MT);
  lua_pushcfunction(L, buf_gc);
  lua_setfield(L, -2, "__gc");
  lua_pop(L, 1);

  luaL_newmetatable(L, LOCK_MT);
  luaL_setfuncs(L, lock_meta, 0);
  lua_pushliteral(L, LOCK_MT);
  lua_setfield(L, -2, "__name");
  luaL_newlib(L, lock_methods);
  lua_setfield(L, -2, "__index");
  lua_pop(L, 1);

  luaL_newlib(L, functions);
  lua_setfield(L, -2, "sys");
}
