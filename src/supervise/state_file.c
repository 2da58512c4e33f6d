/* SPDX-License-Identifier: MIT
 * state_file.c: how a run tells what it knows, on a full disk too. */
#include "supervise/run_private.h"

#include <poll.h>
#include <string.h>

#include "base/fd.h"

enum { LAST_STATE_TRIES = 30 };

int cb_sup_state_write(struct cb_sup_run *r, bool durable)
{
  cb_buf_reset(&r->text);
  int rc = cb_state_write(&r->state, &r->text, NULL);
  if (rc)
    return rc;
  rc = cb_sup_dir_put(&r->dir, "state", r->text.p, r->text.len, durable, NULL);
  if (rc == CB_DISK_FULL)
    rc = cb_sup_dir_swap(&r->dir, "state", "spare", r->text.p, r->text.len, durable, NULL);
  return rc;
}

int cb_sup_state_write_last(struct cb_sup_run *r)
{
  int rc = cb_sup_state_write(r, true);
  for (int i = 0; rc != CB_OK && i < LAST_STATE_TRIES; i++) {
    poll(NULL, 0, 1000);
    rc = cb_sup_state_write(r, true);
  }
  cb_sup_dir_remove(&r->dir, "spare");
  return rc;
}

void cb_sup_state_keep_spare(struct cb_sup_run *r)
{
  char zeros[CB_STATE_MAX_BYTES] = { 0 };
  int fd = -1;
  if (cb_sup_dir_create(&r->dir, "spare", &fd, NULL) == CB_OK)
    cb_write_full(fd, zeros, sizeof zeros, NULL); /* without it a full disk is only less kind */
  cb_close(&fd);
}

void cb_sup_state_note(struct cb_sup_run *r, const struct cb_err *err)
{
  if (r->state.error[0] == '\0') {
    strncpy(r->state.error, err->text, sizeof r->state.error - 1);
    r->state.error[sizeof r->state.error - 1] = '\0';
  }
}
