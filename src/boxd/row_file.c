/* SPDX-License-Identifier: MIT
 * row_file.c: see row_file.h. The end is kept on the boot clock: a step of the wall clock while
 * no daemon runs moves nothing, and another boot id tells that the clock began anew. */
#include "boxd/row_file.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/path.h"

enum { VERSION = 1, FILE_MAX = 2 * 1024 * 1024 };

static void boot_id(char out[40])
{
  FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");
  out[0] = '\0';
  if (!f)
    return;
  if (!fgets(out, 40, f))
    out[0] = '\0';
  fclose(f);
  out[strcspn(out, "\n")] = '\0';
}

int cb_row_file_write(int state_dir, const struct cb_row *row, struct cb_err *err)
{
  char path[CB_ROW_ID_MAX + 32], boot[40];
  boot_id(boot);
  json_t *j = json_pack("{s:i,s:s,s:s,s:s,s:I,s:I,s:O,s:O,s:O}", "version", VERSION, "id", row->id,
                        "boot_id", boot, "template", row->template, "started_at_ms",
                        (json_int_t)row->started_at_ms, "end_boot_ms",
                        (json_int_t)row->end_boot_ms, "metadata", row->metadata, "allow",
                        row->allow, "forward", row->forward);
  char *text = j ? json_dumps(j, JSON_INDENT(1)) : NULL;
  json_decref(j);
  if (!text)
    return cb_err_no_memory(err);
  snprintf(path, sizeof path, "boxes/%s/box.json", row->id);
  int rc = cb_write_file_beneath(state_dir, path, text, strlen(text), 0600, false, err);
  free(text);
  return rc;
}

static int read_json(json_t *j, struct cb_row *row, struct cb_err *err)
{
  const char *boot, *template;
  json_int_t started, end;
  json_t *metadata, *allow, *forward;
  int version;
  char now[40];
  if (json_unpack(j, "{s:i,s:s,s:s,s:I,s:I,s:o,s:o,s:o}", "version", &version, "boot_id", &boot,
                  "template", &template, "started_at_ms", &started, "end_boot_ms", &end,
                  "metadata", &metadata, "allow", &allow, "forward", &forward) ||
      version != VERSION || !json_is_object(metadata) || !json_is_array(allow) ||
      !json_is_array(forward) || strlen(template) > CB_TEMPLATE_NAME_MAX)
    return cb_err_set(err, CB_CORRUPT, "box.json of %s is not one of ours", row->id);
  boot_id(now);
  if (strcmp(boot, now) != 0)
    return cb_err_set(err, CB_CLOSED, "box %s is of another boot", row->id);
  snprintf(row->template, sizeof row->template, "%s", template);
  row->started_at_ms = started;
  row->end_boot_ms = end;
  row->metadata = json_incref(metadata);
  row->allow = json_incref(allow);
  row->forward = json_incref(forward);
  return CB_OK;
}

int cb_row_file_read(int state_dir, struct cb_row *row, struct cb_err *err)
{
  char path[CB_ROW_ID_MAX + 32];
  struct cb_buf b;
  json_error_t why;
  json_t *j = NULL;
  cb_buf_init(&b, FILE_MAX);
  snprintf(path, sizeof path, "boxes/%s/box.json", row->id);
  int rc = cb_read_file_beneath(state_dir, path, &b, err);
  if (!rc) {
    j = json_loadb(b.p ? b.p : "", b.len, 0, &why);
    rc = j ? read_json(j, row, err)
           : cb_err_set(err, CB_CORRUPT, "box.json of %s: %s", row->id, why.text);
  }
  json_decref(j);
  cb_buf_clear(&b);
  return rc;
}
