/* SPDX-License-Identifier: MIT
 * envd_facts.c: GET /health, /envs and /metrics of a box. */
#include "base/clock.h"
#include "boxd/boxd.h"
#include "boxd/envd.h"
#include "boxd/files_auth.h"

void cb_envd_health(struct cb_request *req)
{
  cb_answer_header(req, "Cache-Control", "no-store");
  cb_answer_empty(req, 204);
}

void cb_envd_envs(struct cb_request *req)
{
  const struct cb_row *row = cb_row_of(req);
  if (row->env)
    cb_answer_json(req, 200, json_incref(row->env));
  else
    cb_answer_error(req, 409, NULL,
                    "crewboxd was restarted: the box still has its environment, but only its "
                    "processes know it now");
}

/* Of all processors, since the measurement before; the first one is since the box began. */
static double cpu_percent(struct cb_row *row, const struct cb_box_metrics *m, int64_t now_ms)
{
  int64_t since = row->cpu_at_ms ? now_ms - row->cpu_at_ms : m->uptime_ms;
  int64_t used = m->cpu_ms - (row->cpu_at_ms ? row->cpu_ms : 0);
  row->cpu_ms = m->cpu_ms;
  row->cpu_at_ms = now_ms;
  if (since <= 0 || used <= 0 || m->cpu_count <= 0)
    return 0;
  double percent = 100.0 * (double)used / (double)since / (double)m->cpu_count;
  return (double)(int64_t)(percent * 100.0 + 0.5) / 100.0;
}

static void on_measured(void *arg, struct cb_box_answer *answer)
{
  struct cb_request *req = arg;
  if (answer->err) {
    cb_files_fail(req, answer->err);
    return;
  }
  const struct cb_box_metrics *m = answer->metrics;
  double percent = cpu_percent(cb_row_of(req), m, cb_boot_ms());
  cb_answer_json(
      req, 200,
      json_pack("{s:I,s:I,s:f,s:I,s:I,s:I,s:I,s:I,s:I,s:I}", "ts",
                (json_int_t)(cb_wall_ms() / 1000), "cpu_count", (json_int_t)m->cpu_count,
                "cpu_used_pct", percent, "mem_total", (json_int_t)m->mem_total, "mem_used",
                (json_int_t)m->mem_used, "mem_cache", (json_int_t)m->mem_cache, "mem_total_mib",
                (json_int_t)(m->mem_total >> 20), "mem_used_mib", (json_int_t)(m->mem_used >> 20),
                "disk_used", (json_int_t)m->disk_used, "disk_total",
                (json_int_t)m->disk_total));
}

void cb_envd_metrics(struct cb_request *req)
{
  struct cb_err err = CB_ERR_INIT;
  if (cb_box_measure(cb_row_of(req)->box, on_measured, req, NULL, &err))
    cb_files_fail(req, &err);
}
