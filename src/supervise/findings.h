/* SPDX-License-Identifier: MIT
 * findings.h: the agent's report. It lies where the agent wrote it; when its process tree is gone
 * a bounded, masked copy goes into the run folder. Nothing about the file is trusted. */
#ifndef CB_SUPERVISE_FINDINGS_H
#define CB_SUPERVISE_FINDINGS_H
#include "secrets/redact.h"
#include "supervise/rundir.h"
#include "wire/state.h"

enum { CB_SUP_FINDINGS_MAX = 1 << 20 }; /* bytes read; what is longer is cut there */

struct cb_sup_findings {
  int folder; /* opened before the agent runs, so that it cannot be swapped; -1: it was not there */
  char *path; /* "" = none */
};
#define CB_SUP_FINDINGS_INIT { -1, NULL }

/* Copies the path, and removes a report an earlier run left there: it is not this run's. */
int cb_sup_findings_prepare(struct cb_sup_findings *f, const char *path, struct cb_err *err);
/* Fills findings_size and findings_sha256 of the state. CB_OK also when there is no report. */
int cb_sup_findings_collect(const struct cb_sup_findings *f, const struct cb_sup_dir *dir,
                            const struct cb_redactor *redactor, struct cb_state *state,
                            struct cb_err *err);
void cb_sup_findings_clear(struct cb_sup_findings *f);
#endif
