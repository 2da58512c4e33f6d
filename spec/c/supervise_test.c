/* SPDX-License-Identifier: MIT
 * supervise_test.c: the real crewbox-supervise on real processes, as root (where we are root) and
 * as an ordinary user. The program is taken from $CREWBOX_BUILD, else from build. */
#include <sys/mount.h>

#include "c/supervise_help.h"

#include "base/sha256.h"

#define SECRET "zq9-FAKE+tok/en=77$x"
#define SECRET_BASE64 "enE5LUZBS0UrdG9rL2VuPTc3JHg" /* of the whole, without padding */

static bool is_running(const struct cb_state *s)
{
  return s->phase == CB_PHASE_RUNNING && s->beat >= 2;
}

static bool is_stopped(const struct cb_state *s)
{
  return s->stopped;
}

static bool is_finished(const struct cb_state *s)
{
  return s->phase == CB_PHASE_FINISHED;
}

/* Starts the orders, waits for the end, reads the last state. */
static bool run_to_end(const struct place *w, struct cb_buf *orders, struct cb_state *s)
{
  write_orders(w, orders);
  int status = wait_exit(start_run(w));
  CHECK(status == 0);
  return read_state(w, s) && is_finished(s);
}

/* bug-N7: the brief reaches the agent byte for byte, whatever is in it. bug-A1: then stdin ends. */
static void feeds_the_brief_and_ends_stdin(uid_t uid)
{
  static const char nasty[] = "-p \"$(touch /tmp/x)\" '`id`' @file $HOME \\ \xff\xfe\xc3 \0\0 end\r\n";
  const size_t size = 300 << 10;
  struct place w;
  struct cb_buf b;
  struct cb_state s;
  size_t len;
  make_place(&w, uid);
  char *brief = malloc(size);
  for (size_t i = 0; i < size; i++)
    brief[i] = nasty[i % (sizeof nasty - 1)];
  put_file(in_run(&w, "brief"), brief, size, 0600);
  give_to(&w, in_run(&w, "brief"));
  begin_orders(&w, &b, 1, "test -e \"$ORDERS\" && echo ORDERS STILL THERE; cat >\"$HOME/got\"; "
                          "cat >/dev/null; echo done");
  char env[200];
  snprintf(env, sizeof env, "ORDERS=%s", w.orders);
  cb_record_addz(&b, "env", env);
  cb_record_addz(&b, "stdin", "brief");
  CHECK(run_to_end(&w, &b, &s) && s.why == CB_WHY_EXITED && s.exit_status == 0);
  char *got = get_file(in_home(&w, "got"), &len);
  CHECK(len == size && memcmp(got, brief, size) == 0);
  free(got);
  char *out = stream_of(&w, "out", &len);
  CHECK_STR(out, "done\n"); /* the orders were gone before the agent ran */
  CHECK(s.out.end == 5 && s.out.gap_from == s.out.gap_to);
  free(out);
  struct stat st;
  char folder[128];
  snprintf(folder, sizeof folder, "%s/orders-dir", w.root);
  CHECK(lstat(folder, &st) < 0 && errno == ENOENT);
  free(brief);
  drop_place(&w);
}

/* bug-A1: without a brief stdin is at its end at once, though ours stays open. */
static void stdin_ends_though_ours_stays_open(uid_t uid)
{
  struct place w;
  struct cb_buf b;
  struct cb_state s;
  int ends[2];
  make_place(&w, uid);
  begin_orders(&w, &b, 1, "cat >/dev/null; echo result");
  write_orders(&w, &b);
  CHECK(pipe2(ends, O_CLOEXEC) == 0);
  const char *const args[] = { "run", w.orders, NULL };
  CHECK(wait_exit(start(&w, args, ends[0], -1)) == 0);
  CHECK(read_state(&w, &s) && is_finished(&s) && s.exit_status == 0 && s.out.end == 7);
  close(ends[0]);
  close(ends[1]);
  drop_place(&w);
}

/* bug-O7: the agent gets its three descriptors and its environment, and nothing of ours. */
static void inherits_nothing(uid_t uid)
{
  struct place w;
  struct cb_buf b;
  struct cb_state s;
  size_t len;
  make_place(&w, uid);
  begin_orders(&w, &b, 1, NULL);
  cb_record_addz(&b, "env", "ODD=two\nlines = \"x\"");
  cb_record_addz(&b, "argv", "env");
  cb_record_addz(&b, "argv", "-0");
  CHECK(run_to_end(&w, &b, &s) && s.exit_status == 0);
  char *out = stream_of(&w, "out", &len);
  char want[512];
  int n = snprintf(want, sizeof want, "PATH=/usr/local/bin:/usr/bin:/bin%cHOME=%s%cODD=two\nlines = \"x\"%c",
                   0, w.home, 0, 0);
  CHECK(len == (size_t)n && memcmp(out, want, len) == 0);
  free(out);
  begin_orders(&w, &b, 2, "ls /proc/self/fd; ulimit -c; umask; pwd; ps -o sid= -p $$ | tr -d ' '; "
                          "echo $$; trap; kill -s PIPE $$; echo survived SIGPIPE");
  CHECK(run_to_end(&w, &b, &s) && s.signal == SIGPIPE); /* default again, though we ignore it */
  out = stream_of(&w, "out", &len);
  char sid[32];
  snprintf(sid, sizeof sid, "%lld\n%lld\n", (long long)s.pid, (long long)s.pid);
  n = snprintf(want, sizeof want, "0\n1\n2\n3\n0\n0022\n%s\n%s", w.project, sid);
  CHECK_STR(out, want); /* 3 is the folder ls reads */
  free(out);
  drop_place(&w);
}

/* bug-A3: whatever daemonises, ignores SIGTERM or forks on is dead when the run is finished. */
static void nothing_of_the_tree_survives(uid_t uid)
{
  static const char script[] =
    "echo $$ >>\"$HOME/pids\"; "
    "setsid sh -c 'echo $$ >>\"$HOME/pids\"; setsid sleep 1000 & echo $! >>\"$HOME/pids\"; exit 0' & "
    "sh -c 'trap \"\" TERM; echo $$ >>\"$HOME/pids\"; while :; do sleep 1000; done' & "
    "(setsid sh -c 'trap \"\" TERM HUP; echo $$ >>\"$HOME/pids\"; sleep 1000; sleep 1000') "
    ">/dev/null 2>&1 </dev/null & "
    "while [ $(wc -l <\"$HOME/pids\") -lt 5 ]; do sleep 0.02; done; echo started; ";
  static const char *const endings[] = { "exit 7", "exec sleep 1000" };
  for (int i = 0; i < 2; i++) {
    struct place w;
    struct cb_buf b;
    struct cb_state s;
    pid_t pids[16];
    char whole[2048];
    make_place(&w, uid);
    snprintf(whole, sizeof whole, "%s%s", script, endings[i]);
    begin_orders(&w, &b, 1, whole);
    write_orders(&w, &b);
    pid_t sup = start_run(&w);
    if (i == 1) {
      CHECK(wait_file(in_run(&w, "out.0000000000000000")));
      put_file(in_run(&w, "stop"), "", 0, 0600);
    }
    CHECK(wait_exit(sup) == 0 && read_state(&w, &s) && is_finished(&s));
    CHECK(i == 0 ? s.exit_status == 7 && s.why == CB_WHY_EXITED
                 : s.signal == SIGTERM && s.why == CB_WHY_STOPPED);
    CHECK_STR(s.error, "");
    size_t n = pids_in(in_home(&w, "pids"), pids, 16);
    CHECK(n == 5);
    for (size_t k = 0; k < n; k++)
      CHECK(is_dead(pids[k]));
    drop_place(&w);
  }
}

/* A tree that forks faster than it is killed comes to an end as well. */
static void a_forking_tree_ends(uid_t uid)
{
  struct place w;
  struct cb_buf b;
  struct cb_state s;
  make_place(&w, uid);
  put_file(in_home(&w, "hydra"), "", 0, 0644);
  char script[512];
  snprintf(script, sizeof script,
           "h='echo $$ >>\"$HOME/pids\"; (setsid sh -c \"$H\" &) ; exit 0'; export H=\"$h\"; "
           "sh -c \"$h\"; sh -c \"$h\"; echo started; exec sleep 1000");
  begin_orders(&w, &b, 1, script);
  write_orders(&w, &b);
  pid_t sup = start_run(&w);
  CHECK(wait_file(in_run(&w, "out.0000000000000000")));
  kill(sup, SIGTERM); /* the other way to ask */
  CHECK(wait_exit(sup) == 0 && read_state(&w, &s) && is_finished(&s));
  CHECK(s.why == CB_WHY_STOPPED);
  CHECK_STR(s.error, "");
  size_t before, after;
  free(get_file(in_home(&w, "pids"), &before));
  usleep(100000); /* one that is left would have written by now */
  free(get_file(in_home(&w, "pids"), &after));
  CHECK(before > 0 && before == after);
  drop_place(&w);
}

static void tells_how_it_ended(uid_t uid)
{
  static const struct {
    const char *script;
    int exit_status, sig;
  } cases[] = { { "exit 0", 0, 0 }, { "exit 255", 255, 0 }, { "kill -KILL $$", -1, SIGKILL },
                { "kill -SEGV $$", -1, SIGSEGV } };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct place w;
    struct cb_buf b;
    struct cb_state s;
    make_place(&w, uid);
    begin_orders(&w, &b, 1, cases[i].script);
    CHECK(run_to_end(&w, &b, &s));
    CHECK(s.why == CB_WHY_EXITED && s.exit_status == cases[i].exit_status &&
          s.signal == cases[i].sig && s.oom <= 0);
    CHECK(s.pid > 0 && s.pid_start > 0 && s.sup_pid > 0 && s.sup_start > 0 && s.beat > 0);
    CHECK_STR(s.run, "rtest");
    drop_place(&w);
  }
}

/* bug-B5: an agent in state T is told as stopped, and can still be ended. */
static void tells_that_the_agent_is_stopped(uid_t uid)
{
  struct place w;
  struct cb_buf b;
  struct cb_state s;
  make_place(&w, uid);
  begin_orders(&w, &b, 1, "echo up; kill -STOP $$; echo resumed; exec sleep 1000");
  write_orders(&w, &b);
  pid_t sup = start_run(&w);
  CHECK(wait_state(&w, &s, is_stopped) && s.phase == CB_PHASE_RUNNING);
  put_file(in_run(&w, "stop"), "", 0, 0600);
  CHECK(wait_exit(sup) == 0 && read_state(&w, &s) && is_finished(&s));
  CHECK(s.why == CB_WHY_STOPPED && s.signal == SIGTERM && !s.stopped);
  drop_place(&w);
}

/* bug-A5: no byte of output within the start deadline. */
static void deadlines_end_a_run(uid_t uid)
{
  static const struct {
    const char *script, *record;
    enum cb_why why;
  } cases[] = { { "exec sleep 9999", "start_deadline_ms", CB_WHY_START_DEADLINE },
                { "trap '' TERM; while :; do echo busy; sleep 0.02; done", "guard_ms", CB_WHY_GUARD } };
  for (size_t i = 0; i < 2; i++) {
    struct place w;
    struct cb_buf b;
    struct cb_state s;
    make_place(&w, uid);
    begin_orders(&w, &b, 1, cases[i].script);
    cb_record_addi(&b, cases[i].record, 200);
    CHECK(run_to_end(&w, &b, &s));
    CHECK(s.why == cases[i].why && s.signal == (i ? SIGKILL : SIGTERM) && s.age_ms >= 200);
    drop_place(&w);
  }
  struct place w;
  struct cb_buf b;
  struct cb_state s;
  make_place(&w, uid); /* a byte on stderr is a sign of life */
  begin_orders(&w, &b, 1, "printf x >&2; sleep 0.6; exit 4");
  cb_record_addi(&b, "start_deadline_ms", 300);
  CHECK(run_to_end(&w, &b, &s) && s.why == CB_WHY_EXITED && s.exit_status == 4);
  drop_place(&w);
}

/* Time in which the supervisor itself was stopped counts as two beats at most: a box that was
 * paused fires no deadline when it wakes. */
static void a_pause_fires_no_deadline(uid_t uid)
{
  struct place w;
  struct cb_buf b;
  struct cb_state s, t;
  make_place(&w, uid);
  begin_orders(&w, &b, 1, "exec sleep 1000");
  cb_record_addi(&b, "guard_ms", 3600000);
  write_orders(&w, &b);
  pid_t sup = start_run(&w);
  CHECK(wait_state(&w, &s, is_running));
  int64_t began = cb_now_ms();
  kill(sup, SIGSTOP);
  usleep(2000000);
  kill(sup, SIGCONT);
  kill(sup, SIGTERM);
  CHECK(wait_exit(sup) == 0 && read_state(&w, &t) && is_finished(&t));
  int64_t passed = cb_now_ms() - began; /* however long that was: half of the pause is not in it */
  CHECK(t.age_ms >= s.age_ms && t.age_ms - s.age_ms < passed - 1000);
  drop_place(&w);
}

/* Byte i of the long output: every position is told apart from its neighbours. */
static char long_byte(size_t i)
{
  char line[32];
  snprintf(line, sizeof line, "%014zu\n", i / 15);
  return line[i % 15];
}

/* Segments begin at multiples, full ones have full size, and over the bound the middle goes.
 * bug-F19: offsets are exact bytes. */
static void keeps_head_and_tail(uid_t uid)
{
  const int64_t segment = 4096, log_max = 10 * 4096;
  struct place w;
  struct cb_buf b;
  struct cb_state s;
  make_place(&w, uid);
  begin_orders(&w, &b, 1, "seq -f %014.0f 0 19999; echo mark >&2");
  cb_record_addi(&b, "segment", segment);
  cb_record_addi(&b, "log_max", log_max);
  CHECK(run_to_end(&w, &b, &s) && s.exit_status == 0);
  CHECK(s.out.end == 300000 && s.err.end == 5 && s.segment == segment);
  CHECK(s.out.gap_from == 5 * segment && s.out.gap_to % segment == 0);
  CHECK(s.out.gap_to > 300000 - log_max && s.out.end - s.out.gap_to <= log_max / 2 &&
        s.out.end - s.out.gap_to > log_max / 2 - segment);
  for (int64_t at = 0; at < s.out.end; at += segment) {
    size_t len;
    char *p = segment_at(&w, "out", at, &len);
    int64_t want = s.out.end - at < segment ? s.out.end - at : segment;
    if (at >= s.out.gap_from && at < s.out.gap_to) {
      CHECK(len == 0);
    } else {
      bool same = len == (size_t)want;
      for (size_t i = 0; same && i < len; i++)
        same = p[i] == long_byte((size_t)at + i);
      CHECK(same);
    }
    free(p);
  }
  drop_place(&w);
}

/* Nothing below a folder holds these bytes. */
static bool folder_is_clean(const char *folder, const char *bytes)
{
  DIR *d = opendir(folder);
  struct dirent *e;
  bool clean = d != NULL;
  while (clean && (e = readdir(d))) {
    char path[512];
    struct stat st;
    size_t len;
    snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
    if (e->d_name[0] == '.' || lstat(path, &st) < 0 || !S_ISREG(st.st_mode))
      continue;
    char *p = get_file(path, &len);
    clean = !has_bytes(p, len, bytes);
    free(p);
  }
  if (d)
    closedir(d);
  return clean;
}

/* bug-F1, bug-F3, bug-I1: no secret on disk, in arguments or in our environment. */
static void no_secret_gets_out(uid_t uid)
{
  static const char script[] =
    "printf 'a zq9-FA'; sleep 0.1; printf 'KE+tok/en=7'; sleep 0.1; printf '7$x b\\n'; "
    "printf %s \"$TOKEN\" | base64 >&2; printf 'report %s end' \"$TOKEN\" >\"$HOME/findings.md\"; "
    "printf '%s' \"$TOKEN\" | cut -c 1-10; echo up; "
    "while [ ! -e \"$HOME/go\" ]; do sleep 0.02; done; printf 'tail zq9-FAKE'";
  struct place w;
  struct cb_buf b;
  struct cb_state s;
  size_t len;
  char path[64], digest[65];
  make_place(&w, uid);
  begin_orders(&w, &b, 1, script);
  cb_record_addz(&b, "env", "TOKEN=" SECRET);
  cb_record_addz(&b, "secret", "TOKEN=" SECRET);
  cb_record_addz(&b, "findings", in_home(&w, "findings.md"));
  write_orders(&w, &b);
  put_file(in_home(&w, "findings.md"), "of an earlier run", 17, 0644); /* bug-D7 */
  give_to(&w, in_home(&w, "findings.md"));
  pid_t sup = start_run(&w);
  CHECK(wait_state(&w, &s, is_running));
  for (int i = 0; i < 2; i++) {
    snprintf(path, sizeof path, "/proc/%d/%s", (int)sup, i ? "cmdline" : "environ");
    char *p = get_file(path, &len);
    CHECK(!has_bytes(p, len, "FAKE"));
    CHECK(i == 0 || len > 0);
    free(p);
  }
  snprintf(path, sizeof path, "/proc/%d/environ", (int)sup);
  struct stat st;
  CHECK(stat(path, &st) == 0 && st.st_uid == 0); /* not dumpable: not even its own user may look */
  put_file(in_home(&w, "go"), "", 0, 0644);
  CHECK(wait_exit(sup) == 0 && read_state(&w, &s) && is_finished(&s));
  char *out = stream_of(&w, "out", &len);
  CHECK_STR(out, "a [REDACTED:TOKEN] b\nzq9-FAKE+t\nup\ntail zq9-FAKE");
  CHECK((size_t)s.out.end == len);
  free(out);
  out = stream_of(&w, "err", &len);
  CHECK(has_bytes(out, len, "[REDACTED:TOKEN]") && !has_bytes(out, len, SECRET_BASE64));
  free(out);
  out = get_file(in_run(&w, "findings.md"), &len);
  CHECK_STR(out, "report [REDACTED:TOKEN] end");
  cb_sha256_hex(out, len, digest);
  CHECK(s.findings_size == (int64_t)len);
  CHECK_STR(s.findings_sha256, digest);
  free(out);
  CHECK(folder_is_clean(w.run, SECRET) && folder_is_clean(w.run, SECRET_BASE64));
  drop_place(&w);
}

static void merges_streams_in_order(uid_t uid)
{
  struct place w;
  struct cb_buf b;
  struct cb_state s;
  size_t len;
  make_place(&w, uid);
  begin_orders(&w, &b, 1, "echo 1; echo 2 >&2; echo 3");
  cb_record_addz(&b, "streams", "merged");
  CHECK(run_to_end(&w, &b, &s) && s.out.end == 6 && s.err.end == 0);
  char *out = stream_of(&w, "out", &len);
  CHECK_STR(out, "1\n2\n3\n");
  free(out);
  drop_place(&w);
}

/* One launch is started once; a later one of the same folder begins afresh. */
static void refuses_a_second_start(uid_t uid)
{
  struct place w;
  struct cb_buf b;
  struct cb_state s;
  size_t len;
  make_place(&w, uid);
  begin_orders(&w, &b, 2, "echo first; exec sleep 1000");
  write_orders(&w, &b);
  pid_t sup = start_run(&w);
  CHECK(wait_state(&w, &s, is_running));
  for (int seq = 2; seq <= 3; seq++) { /* another launch must wait for the end of this one, too */
    begin_orders(&w, &b, seq, "echo second");
    write_orders(&w, &b);
    CHECK(wait_exit(start_run(&w)) == 3);
    CHECK(access(w.orders, F_OK) < 0); /* refused orders do not stay either */
  }
  CHECK(read_state(&w, &s) && s.phase == CB_PHASE_RUNNING && s.launch_seq == 2);
  put_file(in_run(&w, "stop"), "", 0, 0600);
  give_to(&w, in_run(&w, "stop"));
  CHECK(wait_exit(sup) == 0);
  for (int seq = 1; seq <= 2; seq++) {
    begin_orders(&w, &b, seq, "echo second");
    write_orders(&w, &b);
    CHECK(wait_exit(start_run(&w)) == 3);
  }
  begin_orders(&w, &b, 3, "echo third");
  CHECK(run_to_end(&w, &b, &s)); /* the stop file was for the launch before */
  CHECK(s.launch_seq == 3 && s.why == CB_WHY_EXITED && s.exit_status == 0);
  char *out = stream_of(&w, "out", &len);
  CHECK_STR(out, "third\n");
  free(out);
  drop_place(&w);
}

/* A stop that came before the start counts. */
static void heeds_an_early_stop(uid_t uid)
{
  struct place w;
  struct cb_buf b;
  struct cb_state s;
  make_place(&w, uid);
  put_file(in_run(&w, "stop"), "", 0, 0600);
  begin_orders(&w, &b, 1, "exec sleep 1000");
  CHECK(run_to_end(&w, &b, &s) && s.why == CB_WHY_STOPPED);
  drop_place(&w);
}

static void tells_why_it_could_not_start(uid_t uid)
{
  static const struct {
    const char *record, *value, *says;
  } cases[] = {
    { "argv", "/nowhere/agent", "exec /nowhere/agent: No such file or directory" },
    { "argv", "no-such-program-at-all", "exec no-such-program-at-all: No such file or directory" },
    { "argv", "/etc/passwd", "exec /etc/passwd: Permission denied" },
    { "cwd", "/nowhere", "chdir /nowhere: No such file or directory" },
    { "stdin", "missing", "stdin: open missing: No such file or directory" },
    { "stdin", "fifo", "not a regular file" },
    { "stdin", "link", "a link is in the way" },
    { "user", "nobody-of-that-name", "user nobody-of-that-name: not in /etc/passwd" },
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct place w;
    struct cb_buf b;
    struct cb_state s;
    bool is_argv = strcmp(cases[i].record, "argv") == 0;
    make_place(&w, uid);
    CHECK(mkfifo(in_run(&w, "fifo"), 0600) == 0 && symlink("/etc/passwd", in_run(&w, "link")) == 0);
    give_to(&w, in_run(&w, "fifo"));
    begin_orders(&w, &b, 1, is_argv ? NULL : "echo ran");
    cb_record_addz(&b, cases[i].record, cases[i].value);
    CHECK(run_to_end(&w, &b, &s));
    CHECK(s.why == CB_WHY_SPAWN_FAILED && s.exit_status == -1 && s.signal == 0 && s.pid == 0);
    if (!strstr(s.error, cases[i].says))
      fprintf(stderr, "%s: \"%s\"\n", cases[i].value, s.error);
    CHECK(strstr(s.error, cases[i].says) != NULL);
    CHECK(s.out.end == 0);
    drop_place(&w);
  }
}

/* Orders that are a link, not ours alone, or broken are refused with one line. */
static void refuses_bad_orders(uid_t uid)
{
  for (int i = 0; i < 5; i++) {
    struct place w;
    struct cb_buf b;
    struct stat st;
    char other[160], folder[128], said[128];
    size_t len;
    make_place(&w, uid);
    begin_orders(&w, &b, 1, "echo ran");
    cb_record_addz(&b, "secret", "TOKEN=" SECRET);
    if (i == 0)
      cb_record_addz(&b, "streams", "neither");
    write_orders(&w, &b);
    snprintf(other, sizeof other, "%s/other", w.root);
    snprintf(folder, sizeof folder, "%s/orders-dir", w.root);
    if (i == 1)
      CHECK(rename(w.orders, other) == 0 && symlink(other, w.orders) == 0);
    if (i == 2)
      CHECK(chmod(folder, 0755) == 0 && chmod(w.orders, 0644) == 0);
    if (i == 3)
      CHECK(chmod(w.orders, 0622) == 0);
    if (i == 4)
      CHECK(link(w.orders, other) == 0);
    CHECK(wait_exit(start_run(&w)) == 1);
    CHECK((lstat(w.orders, &st) == 0) == (i != 0)); /* what is not ours is left alone */
    snprintf(said, sizeof said, "%s/stderr", w.root);
    char *p = get_file(said, &len);
    CHECK(strncmp(p, "crewbox-supervise: ", 19) == 0 && strchr(p, '\n') == p + len - 1);
    CHECK(!has_bytes(p, len, "FAKE"));
    free(p);
    CHECK(access(in_run(&w, "state"), F_OK) < 0);
    drop_place(&w);
  }
  struct place w;
  make_place(&w, uid);
  CHECK(wait_exit(start_run(&w)) == 1); /* none there */
  drop_place(&w);
}

/* What an agent plants in the run folder is replaced, never written through. bug-L1 */
static void writes_through_no_planted_link(uid_t uid)
{
  static const char script[] =
    /* in a group without stderr: the supervisor may win each of these races, and is free to */
    "{ ln -s \"$HOME/victim\" \"$RUN/out.0000000000004096\"; mkdir -p \"$RUN/err.0000000000000000/x\"; "
    "rm -f \"$RUN/state\"; mkdir -p \"$RUN/state/deep\"; ln -s \"$HOME/victim\" \"$RUN/.new-state\"; "
    "ln -s \"$HOME/victim\" \"$RUN/findings.md\"; ln -s /etc/passwd \"$HOME/findings.md\"; } 2>/dev/null; "
    "head -c 6000 /dev/zero | tr '\\0' x; echo e >&2";
  struct place w;
  struct cb_buf b;
  struct cb_state s;
  size_t len;
  char env[160];
  make_place(&w, uid);
  put_file(in_home(&w, "victim"), "precious", 8, 0666);
  begin_orders(&w, &b, 1, script);
  snprintf(env, sizeof env, "RUN=%s", w.run);
  cb_record_addz(&b, "env", env);
  cb_record_addi(&b, "segment", 4096);
  cb_record_addz(&b, "findings", in_home(&w, "findings.md"));
  CHECK(run_to_end(&w, &b, &s) && s.exit_status == 0);
  char *p = get_file(in_home(&w, "victim"), &len);
  CHECK_STR(p, "precious");
  free(p);
  p = stream_of(&w, "out", &len);
  CHECK(len == 6000 && s.out.end == 6000 && s.err.end == 2);
  free(p);
  CHECK(s.findings_size == -1 && strstr(s.error, "findings: a link") != NULL);
  drop_place(&w);
}

static void findings_are_bounded_and_plain(uid_t uid)
{
  static const char *const scripts[] = {
    "mkfifo \"$HOME/findings.md\"", "mkdir \"$HOME/findings.md\"", "true",
    "head -c 3000000 /dev/zero | tr '\\0' y >\"$HOME/findings.md\""
  };
  for (int i = 0; i < 4; i++) {
    struct place w;
    struct cb_buf b;
    struct cb_state s;
    make_place(&w, uid);
    begin_orders(&w, &b, 1, scripts[i]);
    cb_record_addz(&b, "findings", in_home(&w, "findings.md"));
    CHECK(run_to_end(&w, &b, &s) && s.exit_status == 0);
    CHECK(s.findings_size == (i == 3 ? 1 << 20 : -1));
    CHECK((s.error[0] != '\0') == (i < 2));
    drop_place(&w);
  }
}

/* Without its supervisor an agent does not go on. */
static void dies_with_its_supervisor(uid_t uid)
{
  struct place w;
  struct cb_buf b;
  struct cb_state s;
  make_place(&w, uid);
  begin_orders(&w, &b, 1, "exec sleep 1000");
  write_orders(&w, &b);
  pid_t sup = start_run(&w);
  CHECK(wait_state(&w, &s, is_running));
  kill(sup, SIGKILL);
  CHECK(wait_exit(sup) == 128 + SIGKILL);
  int64_t deadline = cb_now_ms() + WAIT_MS;
  while (!is_dead((pid_t)s.pid) && cb_now_ms() < deadline)
    usleep(5000);
  CHECK(is_dead((pid_t)s.pid));
  drop_place(&w);
}

/* A place whose run folder is a disk of this size; false where that is not allowed. */
static bool make_small_disk(struct place *w, const char *size)
{
  make_place(w, 0);
  if (mount("none", w->run, "tmpfs", MS_NODEV | MS_NOSUID, size) == 0)
    return true;
  fprintf(stderr, "not run: no right to mount a small disk\n");
  drop_place(w);
  return false;
}

static void drop_small_disk(struct place *w)
{
  CHECK(umount(w->run) == 0);
  drop_place(w);
}

static void begin_disk_orders(const struct place *w, struct cb_buf *b, const char *script)
{
  char env[160];
  begin_orders(w, b, 1, script);
  snprintf(env, sizeof env, "RUN=%s", w->run);
  cb_record_addz(b, "env", env);
}

/* A segment holds these bytes of the long output. */
static bool segment_is_right(const struct place *w, int64_t start, size_t want)
{
  size_t len;
  char *p = segment_at(w, "out", start, &len);
  bool same = len == want;
  for (size_t i = 0; same && i < len; i++)
    same = p[i] == long_byte((size_t)start + i);
  free(p);
  return same;
}

/* A full disk costs log bytes, which are counted; the agent and the last state do not suffer. */
static void outlives_a_full_disk(void)
{
  struct place w;
  struct cb_buf b;
  struct cb_state s;
  if (!make_small_disk(&w, "size=256k"))
    return;
  begin_disk_orders(&w, &b, "seq -f %014.0f 0 99999; cat /dev/zero >\"$RUN/junk\" 2>/dev/null; "
                            "echo report >\"$HOME/findings.md\"; exit 3");
  cb_record_addi(&b, "segment", 65536);
  cb_record_addz(&b, "findings", in_home(&w, "findings.md"));
  CHECK(run_to_end(&w, &b, &s));
  CHECK(s.why == CB_WHY_EXITED && s.exit_status == 3 && s.out.end == 1500000);
  CHECK(s.out.gap_from > 0 && s.out.gap_to == s.out.end);
  CHECK(segment_is_right(&w, 0, 65536));
  drop_small_disk(&w);
}

static bool has_lost(const struct cb_state *s)
{
  return s->out.end == 90000 && s->out.gap_to == s->out.end;
}

/* Beats go on while the disk is full, and the gap begins once: behind it the newest is kept when
 * there is room again. */
static void goes_on_when_there_is_room_again(void)
{
  const int64_t segment = 4096, log_max = 16 * 4096;
  struct place w;
  struct cb_buf b;
  struct cb_state s, t, later;
  if (!make_small_disk(&w, "size=256k"))
    return;
  begin_disk_orders(&w, &b,
                    "cat /dev/zero >\"$RUN/junk\" 2>/dev/null; truncate -s -49152 \"$RUN/junk\"; "
                    "seq -f %014.0f 0 5999; cat /dev/zero >>\"$RUN/junk\" 2>/dev/null; "
                    "while [ ! -e \"$HOME/go\" ]; do sleep 0.02; done; rm \"$RUN/junk\"; "
                    "seq -f %014.0f 6000 19999");
  cb_record_addi(&b, "segment", segment);
  cb_record_addi(&b, "log_max", log_max);
  write_orders(&w, &b);
  pid_t sup = start_run(&w);
  CHECK(wait_state(&w, &s, has_lost));
  CHECK(s.out.gap_from > log_max / 2 && s.out.gap_from < 90000);
  int64_t deadline = cb_now_ms() + WAIT_MS;
  do
    usleep(5000);
  while ((!read_state(&w, &later) || later.beat < s.beat + 3) && cb_now_ms() < deadline);
  CHECK(later.beat >= s.beat + 3);
  put_file(in_home(&w, "go"), "", 0, 0644);
  CHECK(wait_exit(sup) == 0 && read_state(&w, &t) && is_finished(&t));
  CHECK(t.exit_status == 0 && t.out.end == 300000 && t.out.gap_from == s.out.gap_from);
  CHECK(t.out.gap_to % segment == 0 && t.out.end - t.out.gap_to > log_max / 4 - segment);
  for (int64_t at = 0; at + segment <= t.out.gap_from; at += segment)
    CHECK(segment_is_right(&w, at, (size_t)segment));
  for (int64_t at = t.out.gap_to; at < t.out.end; at += segment)
    CHECK(segment_is_right(&w, at, (size_t)(t.out.end - at < segment ? t.out.end - at : segment)));
  CHECK(access(in_run(&w, "spare"), F_OK) < 0);
  drop_small_disk(&w);
}

static bool set_limit(const char *group, const char *name, const char *value)
{
  char path[200];
  snprintf(path, sizeof path, "%s/%s", group, name);
  int fd = open(path, O_WRONLY | O_CLOEXEC);
  bool done = fd >= 0 && write(fd, value, strlen(value)) == (ssize_t)strlen(value);
  if (fd >= 0)
    close(fd);
  return done;
}

/* bug-O5: an agent the kernel killed for want of memory is told apart from one that was killed. */
static void tells_want_of_memory(void)
{
  static const struct {
    const char *root, *limit, *no_swap, *zero;
  } worlds[] = { { "/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.swappiness", "0" },
                 { "/sys/fs/cgroup", "memory.max", "memory.swap.max", "0" } };
  struct place w;
  struct cb_buf b;
  struct cb_state s;
  char group[100], procs[128];
  bool made = false;
  make_place(&w, 0);
  for (size_t i = 0; i < 2 && !made; i++) {
    snprintf(group, sizeof group, "%s/cb-test-%d", worlds[i].root, (int)getpid());
    if (mkdir(group, 0755) < 0)
      continue;
    made = set_limit(group, worlds[i].limit, "50000000");
    set_limit(group, worlds[i].no_swap, worlds[i].zero);
    if (!made)
      rmdir(group);
  }
  if (!made) {
    fprintf(stderr, "not run: no right to limit memory\n");
    drop_place(&w);
    return;
  }
  snprintf(procs, sizeof procs, "%s/cgroup.procs", group);
  w.group = procs;
  begin_orders(&w, &b, 1, "exec tail /dev/zero");
  CHECK(run_to_end(&w, &b, &s) && s.why == CB_WHY_EXITED && s.signal == SIGKILL && s.oom == 1);
  drop_place(&w);
  make_place(&w, 0);
  w.group = procs;
  begin_orders(&w, &b, 1, "kill -KILL $$");
  CHECK(run_to_end(&w, &b, &s) && s.signal == SIGKILL && s.oom == 0);
  drop_place(&w);
  CHECK(rmdir(group) == 0);
}

/* As root the agent becomes the user, who can read what is his: brief, state and log. Here the
 * machine is the boundary, as at E2B, so nothing keeps the user from its sudo. */
static void becomes_the_user(void)
{
  struct place w;
  struct cb_buf b;
  struct cb_state s;
  struct stat st;
  size_t len;
  make_place(&w, 0);
  put_file(in_run(&w, "brief"), "hello\n", 6, 0600);
  CHECK(chmod(w.run, 0755) == 0);
  begin_orders(&w, &b, 1, "id -u; id -G; cat \"$RUN/brief\"; grep -c NoNewPrivs:.0 /proc/self/status");
  char env[160];
  snprintf(env, sizeof env, "RUN=%s", w.run);
  cb_record_addz(&b, "env", env);
  cb_record_addz(&b, "user", "nobody");
  cb_record_addz(&b, "stdin", "brief");
  CHECK(run_to_end(&w, &b, &s) && s.exit_status == 0);
  char *out = stream_of(&w, "out", &len);
  CHECK_STR(out, "65534\n65534\nhello\n1\n");
  free(out);
  CHECK(stat(in_run(&w, "state"), &st) == 0 && st.st_uid == ORDINARY && (st.st_mode & 0777) == 0600);
  CHECK(stat(in_run(&w, "out.0000000000000000"), &st) == 0 && st.st_uid == ORDINARY);
  drop_place(&w);
}

/* In a local box the supervisor is root of a namespace with one id; the agent becomes the user in
 * one more, and its tree is ended from outside of that. */
static void becomes_the_user_where_there_is_one_id(void)
{
  struct place w;
  struct cb_buf b;
  struct cb_state s;
  size_t len;
  make_place(&w, geteuid() == 0 ? ORDINARY : geteuid());
  w.own_ids = true;
  put_file(in_run(&w, "brief"), "hello\n", 6, 0600);
  give_to(&w, in_run(&w, "brief"));
  begin_orders(&w, &b, 1, "id -u; cat; grep CapEff /proc/self/status; echo x >\"$HOME/mine\"; "
                          "setsid sleep 1000 & echo $! >\"$HOME/pids\"; exec sleep 1000");
  cb_record_addz(&b, "user", "1000");
  cb_record_addz(&b, "stdin", "brief");
  write_orders(&w, &b);
  pid_t sup = start_run(&w), left;
  siginfo_t ended = { .si_pid = 0 };
  struct stat st;
  int64_t deadline = cb_now_ms() + WAIT_MS;
  while (stat(in_home(&w, "pids"), &st) < 0 && ended.si_pid == 0 && cb_now_ms() < deadline) {
    waitid(P_PID, (id_t)sup, &ended, WEXITED | WNOHANG | WNOWAIT);
    usleep(5000);
  }
  if (ended.si_pid && ended.si_status == 97) {
    CHECK(wait_exit(sup) == 97);
    fprintf(stderr, "not run: no user namespaces here\n");
    drop_place(&w);
    return;
  }
  CHECK(wait_file(in_home(&w, "pids")));
  kill(sup, SIGTERM);
  CHECK(wait_exit(sup) == 0 && read_state(&w, &s) && is_finished(&s));
  CHECK(s.why == CB_WHY_STOPPED);
  CHECK_STR(s.error, "");
  char *out = stream_of(&w, "out", &len);
  CHECK_STR(out, "1000\nhello\nCapEff:\t0000000000000000\n");
  free(out);
  CHECK(pids_in(in_home(&w, "pids"), &left, 1) == 1 && is_dead(left));
  drop_place(&w);
}

static void knows_its_arguments(uid_t uid)
{
  static const struct {
    const char *args[6];
    int status;
  } cases[] = {
    { { NULL }, 2 },
    { { "version", NULL }, 0 },
    { { "--help", NULL }, 0 },
    { { "version", "x", NULL }, 2 },
    { { "run", NULL }, 2 },
    { { "run", "a", "b", NULL }, 2 },
    { { "walk", NULL }, 2 },
    { { "tree-apply", NULL }, 2 },
    { { "tree-apply", "--project", NULL }, 2 },
    { { "tree-apply", "--bogus", NULL }, 2 },
    { { "tree-collect", "--max", "-1", NULL }, 2 },
    { { "run", "/nowhere/orders", NULL }, 1 },
  };
  struct place w;
  make_place(&w, uid);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    CHECK(wait_exit(start(&w, cases[i].args, -1, -1)) == cases[i].status);
  drop_place(&w);
}

static void all_as(uid_t uid)
{
  knows_its_arguments(uid);
  feeds_the_brief_and_ends_stdin(uid);
  stdin_ends_though_ours_stays_open(uid);
  inherits_nothing(uid);
  nothing_of_the_tree_survives(uid);
  a_forking_tree_ends(uid);
  tells_how_it_ended(uid);
  tells_that_the_agent_is_stopped(uid);
  deadlines_end_a_run(uid);
  a_pause_fires_no_deadline(uid);
  keeps_head_and_tail(uid);
  no_secret_gets_out(uid);
  merges_streams_in_order(uid);
  refuses_a_second_start(uid);
  heeds_an_early_stop(uid);
  tells_why_it_could_not_start(uid);
  refuses_bad_orders(uid);
  writes_through_no_planted_link(uid);
  findings_are_bounded_and_plain(uid);
  dies_with_its_supervisor(uid);
}

int main(void)
{
  umask(022);
  all_as(geteuid());
  becomes_the_user_where_there_is_one_id();
  if (geteuid() == 0) {
    all_as(ORDINARY);
    outlives_a_full_disk();
    goes_on_when_there_is_room_again();
    tells_want_of_memory();
    becomes_the_user();
  }
  return check_done();
}
