/* SPDX-License-Identifier: MIT
 * The body of a create, as any client may send it, and the template file it names: the input up
 * to its first zero byte is the template. What is accepted is complete and within its bounds.
 * links: src/boxd/create_spec.c src/boxd/template.c src/boxd/json.c src/boxd/network_rules.c src/boxd/egress_rules.c */
#include <assert.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/path.h"
#include "boxd/create_spec.h"
#include "boxd/json.h"
#include "boxd/network_rules.h"
#include "fuzz/fuzz.h"

static char folder[64];
static int state = -1;

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
  state = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  assert(state >= 0 && mkdirat(state, "templates", 0700) == 0);
  atexit(clean);
}

static void check(const struct cb_create_spec *s)
{
  const char *key;
  json_t *value;
  size_t i;
  assert(s->timeout_s > 0 && s->timeout_s <= CB_TIMEOUT_MAX_S);
  assert(json_is_object(s->metadata) && json_is_object(s->env));
  json_object_foreach(s->env, key, value)
    assert(json_is_string(value) && *key && !strchr(key, '='));
  json_array_foreach(s->allow, i, value)
    assert(json_is_string(value));
  assert(s->template.mount_count <= CB_TEMPLATE_MOUNTS_MAX);
  for (i = 0; i < s->template.mount_count; i++) {
    const char *source = s->template.mounts[i].source, *target = s->template.mounts[i].target;
    assert(source[0] == '/' && target[0] == '/' && cb_path_is_plain(target + 1, strlen(target + 1)));
  }
  struct cb_network_rules rules;
  assert(cb_network_rules_read(&rules, s->allow, s->forward, NULL) == CB_OK);
  cb_network_rules_clear(&rules);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
  struct cb_create_spec s;
  json_t *body = NULL;
  if (state < 0)
    prepare();
  const uint8_t *end = memchr(p, 0, n);
  if (end) {
    size_t len = (size_t)(end - p);
    int fd = openat(state, "templates/t.json", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert(fd >= 0 && write(fd, p, len) == (ssize_t)len);
    close(fd);
    p += len + 1;
    n -= len + 1;
  }
  if (cb_json_body((const char *)p, n, &body, NULL) != CB_OK)
    return 0;
  for (int v2 = 0; v2 < 2; v2++) {
    memset(&s, 0xa5, sizeof s); /* nothing of it may be read */
    if (cb_create_spec_read(&s, body, v2, state, NULL) != CB_OK)
      continue;
    check(&s);
    cb_create_spec_clear(&s);
  }
  json_decref(body);
  return 0;
}
