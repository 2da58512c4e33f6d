/* SPDX-License-Identifier: MIT
 * Parts of crewboxd that need no box: tokens and signatures, ranges, the body of a create,
 * templates, the state folder, the event loop. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/path.h"
#include "boxd/auth.h"
#include "boxd/create_spec.h"
#include "boxd/json.h"
#include "boxd/listen.h"
#include "boxd/loop.h"
#include "boxd/options.h"
#include "boxd/range.h"
#include "boxd/state.h"
#include "c/check.h"

static char dir[] = "/tmp/crewbox-parts-XXXXXX";
static int dir_fd;

static void write_file(const char *name, const char *text)
{
  struct cb_err err = CB_ERR_INIT;
  CHECK(cb_write_file_beneath(dir_fd, name, text, strlen(text), 0600, false, &err) == CB_OK);
}

static void tokens(void)
{
  char a[CB_AUTH_TOKEN_LEN + 1], b[CB_AUTH_TOKEN_LEN + 1], user[CB_AUTH_USER_MAX + 1];
  struct cb_err err = CB_ERR_INIT;
  cb_auth_token("seed", 4, "ia", a);
  cb_auth_token("seed", 4, "ib", b);
  CHECK(strlen(a) == 64 && strcmp(a, b) != 0);
  cb_auth_token("other", 5, "ia", b);
  CHECK(strcmp(a, b) != 0);
  CHECK(cb_auth_equal(a, a) && !cb_auth_equal(NULL, a) && !cb_auth_equal("", a));
  CHECK(cb_auth_basic_user(NULL, user, &err) == CB_OK && !*user);
  CHECK(cb_auth_basic_user("Basic cm9vdDo=", user, &err) == CB_OK);
  CHECK_STR(user, "root");
  CHECK(cb_auth_basic_user("Basic cm9vdA==", user, &err) == CB_UNAUTHORIZED); /* no colon */
  CHECK(cb_auth_basic_user("Bearer x", user, &err) == CB_UNAUTHORIZED);
}

static void signatures(void)
{
  struct cb_err err = CB_ERR_INIT;
  const char *path = "/home/user/a b.txt";
  const char *read = "v1_Gm+zB3DF0MMS/pqj9QrVgPT/QlUR4KchIUP2745qAok";
  const char *write = "v1_8Wo2P5jpTAfthxvFSMkGLG2sEvO8a8y2J/pHrA30p4c";
  CHECK(cb_auth_signature(read, path, false, "user", "T", NULL, 0, &err) == CB_OK);
  CHECK(cb_auth_signature(read, path, true, "user", "T", NULL, 0, &err) == CB_UNAUTHORIZED);
  CHECK_STR(err.text, "invalid signature");
  CHECK(cb_auth_signature(write, path, true, "", "T", "1796064278", 1796064278, &err) == CB_OK);
  CHECK(cb_auth_signature(write, path, true, "", "T", "1796064278", 1796064279, &err) ==
        CB_UNAUTHORIZED);
  CHECK_STR(err.text, "signature is already expired");
  CHECK(cb_auth_signature(NULL, path, true, "", "T", NULL, 0, &err) == CB_UNAUTHORIZED);
  CHECK_STR(err.text, "missing signature query parameter");
}

static void ranges(void)
{
  static const struct {
    const char *header;
    uint64_t size;
    enum cb_range_kind kind;
    uint64_t first, length;
  } cases[] = {
    { NULL, 10, CB_RANGE_WHOLE, 0, 0 },
    { "bytes=0-0", 10, CB_RANGE_PART, 0, 1 },
    { "bytes=2-", 10, CB_RANGE_PART, 2, 8 },
    { "bytes=2-99", 10, CB_RANGE_PART, 2, 8 },
    { "bytes=-3", 10, CB_RANGE_PART, 7, 3 },
    { "bytes=-30", 10, CB_RANGE_PART, 0, 10 },
    { "bytes=10-", 10, CB_RANGE_UNSATISFIABLE, 0, 0 },
    { "bytes=0-", 0, CB_RANGE_UNSATISFIABLE, 0, 0 },
    { "bytes=-0", 10, CB_RANGE_UNSATISFIABLE, 0, 0 },
    { "bytes=5-2", 10, CB_RANGE_WHOLE, 0, 0 },
    { "bytes=0-1,3-4", 10, CB_RANGE_WHOLE, 0, 0 },
    { "lines=0-1", 10, CB_RANGE_WHOLE, 0, 0 },
    { "bytes=-", 10, CB_RANGE_WHOLE, 0, 0 },
    { "bytes=99999999999999999999999-", 10, CB_RANGE_UNSATISFIABLE, 0, 0 },
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    uint64_t first = 0, length = 0;
    CHECK(cb_range_read(cases[i].header, cases[i].size, &first, &length) == cases[i].kind);
    if (cases[i].kind == CB_RANGE_PART)
      CHECK(first == cases[i].first && length == cases[i].length);
  }
}

/* Reads a create; its code, and the text in *err. */
static int read_create(const char *json, bool v2, struct cb_create_spec *s, struct cb_err *err)
{
  json_t *body = NULL;
  int rc = cb_json_body(json, strlen(json), &body, err);
  if (!rc)
    rc = cb_create_spec_read(s, body, v2, dir_fd, err);
  json_decref(body);
  return rc;
}

static void creates(void)
{
  static const struct {
    const char *json, *says; /* a piece of the refusal; "" when it is fine */
  } cases[] = {
    { "{\"templateID\":\"base\"}", "" },
    { "{\"templateID\":\"base\",\"unknown\":{\"x\":1}}", "" },
    { "{\"templateID\":\"base\",\"allow_internet_access\":true}", "" },
    { "{\"templateID\":\"base\",\"autoPause\":false,\"autoResume\":{\"enabled\":false}}", "" },
    { "{\"templateID\":\"base\",\"crewbox\":{\"network\":{\"mode\":\"none\"},\"limits\":{}}}", "" },
    { "{}", "templateID" },
    { "[]", "not a JSON object" },
    { "{\"templateID\":1}", "templateID" },
    { "{\"templateID\":\"base\",\"templateID\":\"x\"}", "duplicate" },
    { "{\"templateID\":\"base\",\"timeout\":0}", "Timeout must be greater than 0" },
    { "{\"templateID\":\"base\",\"timeout\":99999999}", "Timeout cannot be greater than" },
    { "{\"templateID\":\"base\",\"timeout\":1.5}", "whole number" },
    { "{\"templateID\":\"base\",\"timeout\":99999999999}", "32 bits" },
    { "{\"templateID\":\"base\",\"metadata\":{\"a\":1}}", "metadata.a must be a string" },
    { "{\"templateID\":\"base\",\"envVars\":{\"A=B\":\"x\"}}", "A=B" },
    { "{\"templateID\":\"base\",\"autoPause\":true}", "autoPause" },
    { "{\"templateID\":\"base\",\"volumeMounts\":[{}]}", "volumeMounts" },
    { "{\"templateID\":\"base\",\"network\":{\"rules\":{\"a\":[]}}}", "network.rules" },
    { "{\"templateID\":\"base\",\"network\":{\"allowOut\":[\"a.example\"]}}", "denyOut" },
    { "{\"templateID\":\"base\",\"network\":{\"allowOut\":[\"1.2.3.0/24\"],\"denyOut\":"
      "[\"0.0.0.0/0\"]}}", "not ranges" },
    { "{\"templateID\":\"base\",\"network\":{\"denyOut\":[\"1.2.3.4\"]}}", "1.2.3.4" },
    { "{\"templateID\":\"base\",\"allow_internet_access\":false,\"crewbox\":{\"network\":"
      "{\"allow\":[\"a.example:443\"]}}}", "allow_internet_access" },
    { "{\"templateID\":\"base\",\"crewbox\":{\"netwrok\":{}}}", "\"netwrok\"" },
    { "{\"templateID\":\"base\",\"crewbox\":{\"network\":{\"modus\":1}}}", "\"modus\"" },
    { "{\"templateID\":\"base\",\"crewbox\":{\"network\":{\"mode\":\"open\"}}}", "open" },
    { "{\"templateID\":\"base\",\"crewbox\":{\"network\":{\"mode\":\"none\",\"allow\":[\"a:1\"]}}}",
      "none" },
    { "{\"templateID\":\"base\",\"crewbox\":{\"network\":{\"allow\":[\"nonsense\"]}}}", "nonsense" },
    { "{\"templateID\":\"base\",\"crewbox\":{\"network\":{\"forward\":[{\"port\":0,\"to\":\"x\"}]}}}",
      "port" },
    { "{\"templateID\":\"base\",\"crewbox\":{\"network\":{\"forward\":[{\"prot\":1}]}}}", "prot" },
    { "{\"templateID\":\"base\",\"crewbox\":{\"limits\":{\"memory\":1}}}", "limits" },
    { "{\"templateID\":\"missing-one\"}", "'missing-one' not found" },
    { "{\"templateID\":\"../../etc/passwd\"}", "not found" },
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct cb_create_spec s;
    struct cb_err err = CB_ERR_INIT;
    int rc = read_create(cases[i].json, true, &s, &err);
    bool as_said = *cases[i].says ? rc != CB_OK && strstr(err.text, cases[i].says) : rc == CB_OK;
    if (!as_said)
      fprintf(stderr, "%s: %d %s\n", cases[i].json, rc, err.text);
    CHECK(as_said);
    if (!rc)
      cb_create_spec_clear(&s);
  }
}

static void create_values(void)
{
  struct cb_create_spec s;
  struct cb_err err = CB_ERR_INIT;
  CHECK(read_create("{\"templateID\":\"BASE\"}", true, &s, &err) == CB_OK);
  CHECK(s.timeout_s == 300 && json_object_size(s.env) == 0);
  CHECK_STR(s.template.name, "base");
  cb_create_spec_clear(&s);
  CHECK(read_create("{\"templateID\":\"base\"}", false, &s, &err) == CB_OK);
  CHECK(s.timeout_s == 15);
  cb_create_spec_clear(&s);
  CHECK(read_create("{\"templateID\":\"base\",\"network\":{\"allowOut\":[\"a.example\"],"
                    "\"denyOut\":[\"0.0.0.0/0\"]}}", true, &s, &err) == CB_OK);
  CHECK(json_array_size(s.allow) == 2);
  CHECK_STR(json_string_value(json_array_get(s.allow, 0)), "a.example:443");
  cb_create_spec_clear(&s);
}

static void templates(void)
{
  static const struct {
    const char *json, *says;
  } cases[] = {
    { "{}", "" },
    { "{\"mounts\":[{\"source\":\"/usr\",\"target\":\"/opt/x\"}],\"path\":[\"/opt/x/bin\"],"
      "\"env\":{\"K\":\"V\"}}", "" },
    { "{", "templates/t.json line" },
    { "[]", "not a JSON object" },
    { "{\"mount\":[]}", "\"mount\"" },
    { "{\"mounts\":{}}", "mounts must be a list" },
    { "{\"mounts\":[{\"source\":\"/usr\"}]}", "source and target" },
    { "{\"mounts\":[{\"source\":\"/usr\",\"target\":\"/a\",\"rw\":true}]}", "\"rw\"" },
    { "{\"mounts\":[{\"source\":\"usr\",\"target\":\"/a\"}]}", "plain absolute" },
    { "{\"mounts\":[{\"source\":\"/usr/../etc\",\"target\":\"/a\"}]}", "plain absolute" },
    { "{\"mounts\":[{\"source\":\"/nonexistent-crewbox\",\"target\":\"/a\"}]}", "nonexistent" },
    { "{\"mounts\":[{\"source\":\"/dev/null\",\"target\":\"/a\"}]}", "neither a folder" },
    { "{\"mounts\":[{\"source\":\"/usr\",\"target\":\"/\"}]}", "target / is refused" },
    { "{\"mounts\":[{\"source\":\"/usr\",\"target\":\"/usr\"}]}", "/usr is refused" },
    { "{\"mounts\":[{\"source\":\"/usr\",\"target\":\"/etc\"}]}", "/etc is refused" },
    { "{\"mounts\":[{\"source\":\"/usr\",\"target\":\"/proc/x\"}]}", "/proc/" },
    { "{\"mounts\":[{\"source\":\"/usr\",\"target\":\"/opt/a/\"}]}", "plain absolute" },
    { "{\"mounts\":[{\"source\":\"/usr\",\"target\":\"/a\"},{\"source\":\"/etc\",\"target\":"
      "\"/a\"}]}", "twice" },
    { "{\"path\":[\"bin\"]}", "path must be" },
    { "{\"env\":{\"K\":1}}", "env.K" },
    { "{\"env\":{\"\":\"x\"}}", "variable" },
  };
  mkdirat(dir_fd, "templates", 0755);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct cb_template t;
    struct cb_err err = CB_ERR_INIT;
    write_file("templates/t.json", cases[i].json);
    int rc = cb_template_load(&t, dir_fd, "t", &err);
    bool as_said = *cases[i].says ? rc == CB_INVALID && strstr(err.text, cases[i].says)
                                  : rc == CB_OK;
    if (!as_said)
      fprintf(stderr, "%s: %d %s\n", cases[i].json, rc, err.text);
    CHECK(as_said);
    cb_template_clear(&t);
  }
  struct cb_create_spec s;
  struct cb_err err = CB_ERR_INIT;
  write_file("templates/t.json", "{\"env\":{\"A\":\"template\",\"B\":\"template\"}}");
  CHECK(read_create("{\"templateID\":\"t\",\"envVars\":{\"B\":\"given\"}}", true, &s, &err) == 0);
  CHECK_STR(json_string_value(json_object_get(s.env, "A")), "template");
  CHECK_STR(json_string_value(json_object_get(s.env, "B")), "given");
  cb_create_spec_clear(&s);
}

static void state_folder(void)
{
  char path[64], key[CB_STATE_KEY_LEN + 1];
  struct cb_state a, b;
  struct cb_err err = CB_ERR_INIT;
  struct stat st;
  snprintf(path, sizeof path, "%s/state", dir);
  CHECK(cb_state_open(&a, path, &err) == CB_OK);
  memcpy(key, a.key, sizeof key);
  CHECK(strlen(key) == 44 && strncmp(key, "e2b_", 4) == 0);
  CHECK(fstatat(a.dir, "key", &st, 0) == 0 && (st.st_mode & 0777) == 0600);
  CHECK(fstatat(a.dir, "seed", &st, 0) == 0 && (st.st_mode & 0777) == 0600);
  CHECK(cb_state_open(&b, path, &err) == CB_BUSY);
  CHECK(strstr(err.text, "already serves") != NULL);
  cb_state_close(&a);
  CHECK(cb_state_open(&b, path, &err) == CB_OK);
  CHECK_STR(b.key, key);
  CHECK(fchmodat(b.dir, "key", 0644, 0) == 0);
  cb_state_close(&b);
  CHECK(cb_state_open(&b, path, &err) == CB_DENIED);
  CHECK(strstr(err.text, "chmod 0600") != NULL);
}

static void listening(void)
{
  char url[128];
  int fd = -1;
  struct cb_err err = CB_ERR_INIT;
  CHECK(cb_listen_tcp("0.0.0.0:0", false, &fd, url, sizeof url, &err) == CB_DENIED);
  CHECK(strstr(err.text, "--listen-any") != NULL);
  CHECK(cb_listen_tcp("example.org:0", false, &fd, url, sizeof url, &err) == CB_INVALID);
  CHECK(cb_listen_tcp("127.0.0.1", false, &fd, url, sizeof url, &err) == CB_INVALID);
  CHECK(cb_listen_tcp("127.0.0.1:70000", false, &fd, url, sizeof url, &err) == CB_INVALID);
  CHECK(cb_listen_tcp("127.0.0.1:0", false, &fd, url, sizeof url, &err) == CB_OK);
  CHECK(strncmp(url, "http://127.0.0.1:", 17) == 0 && strcmp(url, "http://127.0.0.1:0") != 0);
  close(fd);
}

static void bad_options(void)
{
  static const char *const cases[][5] = {
    { "crewboxd", NULL },
    { "crewboxd", "--state", NULL },
    { "crewboxd", "--state", "d", "extra", NULL },
    { "crewboxd", "--stat3", "d", NULL },
    { "crewboxd", "--state", "d", "--max-boxes=x", NULL },
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct cb_options o;
    struct cb_err err = CB_ERR_INIT;
    char *argv[6] = { NULL };
    int argc = 0;
    for (; cases[i][argc]; argc++)
      argv[argc] = (char *)(uintptr_t)cases[i][argc];
    optind = 1;
    CHECK(cb_options_read(&o, argc, argv, &err) == CB_INVALID && err.text[0]);
  }
}

static void texts(void)
{
  json_t *j = cb_json_text("a\xff" "b\xc3\xa9", 5);
  CHECK_STR(json_string_value(j), "a\xef\xbf\xbd" "b\xc3\xa9");
  json_decref(j);
  j = cb_json_time(1796064278042);
  CHECK_STR(json_string_value(j), "2026-11-30T18:44:38.042Z");
  json_decref(j);
}

/* --- the loop --- */

struct loop_case {
  struct cb_loop *loop;
  struct cb_loop_timer a, b, c;
  struct cb_watch first, second;
  char order[16];
  int events;
};

static void note_a(struct cb_loop_timer *t)
{
  struct loop_case *c = t->owner;
  strcat(c->order, "a");
}

static void note_b(struct cb_loop_timer *t)
{
  struct loop_case *c = t->owner;
  strcat(c->order, "b");
  cb_loop_timer_stop(c->loop, &c->c); /* would be next */
  cb_loop_stop(c->loop);
}

/* Whichever comes first takes the other out: its event, in the same batch, must not arrive. */
static void drop_other(struct cb_watch *w, uint32_t events)
{
  struct loop_case *c = w->owner;
  (void)events;
  c->events++;
  cb_loop_del(c->loop, &c->first);
  cb_loop_del(c->loop, &c->second);
}

static void loops(void)
{
  struct loop_case c;
  struct cb_err err = CB_ERR_INIT;
  int one[2], two[2];
  memset(&c, 0, sizeof c);
  CHECK(cb_loop_new(&c.loop, &err) == CB_OK && pipe(one) == 0 && pipe(two) == 0);
  CHECK(write(one[1], "x", 1) == 1 && write(two[1], "x", 1) == 1);
  CHECK(cb_loop_add(c.loop, &c.first, one[0], EPOLLIN, drop_other, &c, &err) == CB_OK);
  CHECK(cb_loop_add(c.loop, &c.second, two[0], EPOLLIN, drop_other, &c, &err) == CB_OK);
  cb_loop_timer_start(c.loop, &c.b, 20, note_b, &c);
  cb_loop_timer_start(c.loop, &c.a, 10, note_a, &c);
  cb_loop_timer_start(c.loop, &c.c, 20, note_a, &c);
  CHECK(cb_loop_run(c.loop, &err) == CB_OK);
  CHECK(c.events == 1);
  CHECK_STR(c.order, "ab");
  cb_loop_free(c.loop);
  close(one[0]), close(one[1]), close(two[0]), close(two[1]);
}

int main(void)
{
  if (!mkdtemp(dir) || (dir_fd = open(dir, O_RDONLY | O_DIRECTORY)) < 0)
    return 1;
  tokens();
  signatures();
  ranges();
  creates();
  create_values();
  templates();
  state_folder();
  listening();
  bad_options();
  texts();
  loops();
  int root = open("/tmp", O_RDONLY | O_DIRECTORY);
  cb_rmtree_beneath(root, dir + 5, NULL);
  return check_done();
}
