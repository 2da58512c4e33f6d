/* SPDX-License-Identifier: MIT
 * box_answer.c: see box_answer.h. */
#include "boxd/box_answer.h"

#include <string.h>

#include "base/alloc.h"
#include "wire/record.h"

struct counts {
  size_t entries, procs, words;
};

static int broken(void)
{
  return CB_PROTOCOL;
}

/* Ends the value of a record in place. The reader is past it already; each is read once. */
static const char *ended(const struct cb_record *rec)
{
  char *p = (char *)(uintptr_t)rec->value;
  p[rec->len] = '\0';
  return p;
}

static bool is_text(const struct cb_record *rec)
{
  return memchr(rec->value, '\0', rec->len) == NULL;
}

static int count(struct counts *c, const char *bytes, size_t n)
{
  struct cb_record_reader r, inner;
  struct cb_record rec, part;
  int more;
  cb_record_open(&r, bytes, n);
  while ((more = cb_record_next(&r, &rec)) == 1) {
    c->entries += cb_record_is(&rec, "entry");
    if (!cb_record_is(&rec, "proc"))
      continue;
    c->procs++;
    cb_record_open(&inner, rec.value, rec.len);
    while ((more = cb_record_next(&inner, &part)) == 1)
      c->words += cb_record_is(&part, "arg") || cb_record_is(&part, "env");
    if (more < 0)
      return broken();
  }
  return more < 0 ? broken() : CB_OK;
}

static int parse_entry(struct cb_box_entry *e, const struct cb_record *rec)
{
  struct cb_record_reader r;
  struct cb_record part;
  int more;
  int64_t v;
  e->name = e->path = e->owner = e->group = "";
  e->type = 'o';
  cb_record_open(&r, rec->value, rec->len);
  while ((more = cb_record_next(&r, &part)) == 1) {
    const char **text = cb_record_is(&part, "name")    ? &e->name
                        : cb_record_is(&part, "path")  ? &e->path
                        : cb_record_is(&part, "owner") ? &e->owner
                        : cb_record_is(&part, "group") ? &e->group
                        : cb_record_is(&part, "link")  ? &e->link
                                                       : NULL;
    if (text) {
      if (!is_text(&part))
        return broken();
      *text = ended(&part);
    } else if (cb_record_is(&part, "type")) {
      e->type = part.len == 1 && strchr("fdlo", part.value[0]) ? part.value[0] : 'o';
    } else if (cb_record_is(&part, "size") && cb_record_int(&part, &v) && v >= 0) {
      e->size = v;
    } else if (cb_record_is(&part, "mode") && cb_record_int(&part, &v) && v >= 0 && v <= 07777) {
      e->mode = (uint32_t)v;
    } else if (cb_record_is(&part, "modified_ms") && cb_record_int(&part, &v)) {
      e->modified_ms = v;
    }
  }
  return more < 0 || e->path[0] != '/' ? broken() : CB_OK;
}

/* Arguments first and environment behind them, from the shared array at *words. */
static int parse_proc(struct cb_box_proc *p, const struct cb_record *rec, const char ***words)
{
  struct cb_record_reader r;
  struct cb_record part;
  int more;
  int64_t v;
  p->cmd = p->cwd = p->user = p->tag = "";
  cb_record_open(&r, rec->value, rec->len);
  while ((more = cb_record_next(&r, &part)) == 1)
    p->arg_count += cb_record_is(&part, "arg");
  if (more < 0)
    return broken();
  const char **args = *words, **env = *words + p->arg_count;
  p->args = args;
  p->env = env;
  cb_record_open(&r, rec->value, rec->len);
  while ((more = cb_record_next(&r, &part)) == 1) {
    const char **text = cb_record_is(&part, "cmd")    ? &p->cmd
                        : cb_record_is(&part, "cwd")  ? &p->cwd
                        : cb_record_is(&part, "user") ? &p->user
                        : cb_record_is(&part, "tag")  ? &p->tag
                        : cb_record_is(&part, "arg")  ? args++
                        : cb_record_is(&part, "env")  ? env++
                                                      : NULL;
    if (text) {
      if (!is_text(&part))
        return broken();
      *text = ended(&part);
    } else if (cb_record_is(&part, "pid") && cb_record_int(&part, &v)) {
      p->pid = v;
    } else if (cb_record_is(&part, "status") && cb_record_int(&part, &v)) {
      p->status = (int)v;
    } else if (cb_record_is(&part, "exited")) {
      p->exited = part.len == 1 && part.value[0] == '1';
    } else if (cb_record_is(&part, "deadline")) {
      p->deadline = part.len == 1 && part.value[0] == '1';
    }
  }
  p->env_count = (size_t)(env - p->env);
  *words = env;
  return more < 0 || p->pid <= 1 ? broken() : CB_OK;
}

static bool take_metric(struct cb_box_metrics *m, const struct cb_record *rec)
{
  const struct {
    const char *name;
    int64_t *into;
  } all[] = {
    { "cpu_count", &m->cpu_count },   { "cpu_ms", &m->cpu_ms },
    { "uptime_ms", &m->uptime_ms },   { "mem_total", &m->mem_total },
    { "mem_used", &m->mem_used },     { "mem_cache", &m->mem_cache },
    { "disk_total", &m->disk_total }, { "disk_used", &m->disk_used },
    { "processes", &m->processes },
  };
  int64_t v;
  for (size_t i = 0; i < sizeof all / sizeof *all; i++)
    if (cb_record_is(rec, all[i].name) && cb_record_int(rec, &v) && v >= 0) {
      *all[i].into = v;
      return true;
    }
  return false;
}

static int parse_ok(struct cb_box_parsed *out, char *bytes, size_t n)
{
  struct counts c = { 0 };
  struct cb_record_reader r;
  struct cb_record rec;
  int rc, more;
  int64_t v;

  rc = count(&c, bytes, n);
  if (rc)
    return rc;
  if (c.entries)
    out->entries = cb_calloc(c.entries, sizeof *out->entries);
  if (c.procs)
    out->procs = cb_calloc(c.procs, sizeof *out->procs);
  if (c.procs) /* one to spare: parse_proc points behind the last */
    out->words = cb_calloc(c.words + 1, sizeof *out->words);
  if ((c.entries && !out->entries) || (c.procs && (!out->procs || !out->words)))
    return CB_NO_MEMORY;
  struct cb_box_answer *a = &out->answer;
  a->entries = out->entries;
  a->procs = out->procs;
  const char **words = out->words;
  cb_record_open(&r, bytes, n);
  while (!rc && (more = cb_record_next(&r, &rec)) != 0) {
    static const char *const streams[3] = { "stdin", "stdout", "stderr" };
    if (more < 0)
      return broken();
    if (cb_record_is(&rec, "entry"))
      rc = parse_entry(&out->entries[a->entry_count++], &rec);
    else if (cb_record_is(&rec, "proc"))
      rc = parse_proc(&out->procs[a->proc_count++], &rec, &words);
    else if (cb_record_is(&rec, "pid") && cb_record_int(&rec, &v))
      a->pid = v;
    else if (cb_record_is(&rec, "size") && cb_record_int(&rec, &v) && v >= 0)
      a->size = v;
    else if (cb_record_is(&rec, "path") && is_text(&rec))
      a->path = ended(&rec);
    else if (take_metric(&out->metrics, &rec))
      a->metrics = &out->metrics;
    for (int i = 0; i < 3; i++)
      if (cb_record_is(&rec, streams[i]) && cb_record_int(&rec, &v) && v >= 0 && v < 3)
        out->stdio[i] = (int)v;
  }
  return rc;
}

static void parse_error(struct cb_box_parsed *out, const char *bytes, size_t n)
{
  struct cb_record rec;
  enum cb_code code = CB_SYSTEM;
  if (cb_record_find(bytes, n, "code", &rec))
    for (int i = CB_OK + 1; i < CB_CODE_COUNT; i++)
      if (strlen(cb_code_name(i)) == rec.len && memcmp(cb_code_name(i), rec.value, rec.len) == 0)
        code = (enum cb_code)i;
  if (cb_record_find(bytes, n, "text", &rec))
    cb_err_set(&out->err, code, "%.*s", (int)(rec.len < 400 ? rec.len : 400), rec.value);
  else
    cb_err_set(&out->err, code, "the box refused without a reason");
  out->answer.err = &out->err;
}

int cb_box_answer_parse(struct cb_box_parsed *out, char *bytes, size_t n, bool failed)
{
  memset(out, 0, sizeof *out);
  for (int i = 0; i < 3; i++)
    out->answer.fds[i] = out->stdio[i] = -1;
  if (failed) {
    parse_error(out, bytes, n);
    return CB_OK;
  }
  return parse_ok(out, bytes, n);
}

void cb_box_parsed_clear(struct cb_box_parsed *p)
{
  cb_free(p->entries);
  cb_free(p->procs);
  cb_free(p->words);
  memset(p, 0, sizeof *p);
}
