/* SPDX-License-Identifier: MIT
 * e2b_answer.h: what E2B's control plane answers, read strictly. Pure: no I/O. A field that is
 * missing or wrong is CB_PROTOCOL naming it. */
#ifndef CB_PROVIDERS_E2B_ANSWER_H
#define CB_PROVIDERS_E2B_ANSWER_H
#include <jansson.h>
#include <stdbool.h>
#include "base/err.h"
#include "providers/args.h"

enum { CB_E2B_TOKEN_MAX = 1024, CB_E2B_DOMAIN_MAX = 255 };

/* Printable ASCII without blanks: what may enter a header. */
bool cb_e2b_token_ok(const char *token);
/* A host name with an optional port. */
bool cb_e2b_domain_ok(const char *domain);

/* RFC 3339 with any number of fraction digits and any offset, as unix seconds. */
bool cb_e2b_time(const char *text, double *out);

/* True for a version X.Y.Z... that is at least 0.1.0; older boxes speak another protocol. */
bool cb_e2b_version_ok(const char *version);

/* {id, token, domain?, envd_version} from a create or connect answer. With CB_PROTOCOL *id is
 * still filled when there was a usable one (so that the box can be killed); else "". */
int cb_e2b_box(const json_t *answer, json_t **out, char id[CB_BOX_ID_MAX + 1],
               struct cb_err *err);

/* {id, token?, domain?, envd_version?, state, started_at, end_at, metadata} from a detail or
 * list entry. */
int cb_e2b_detail(const json_t *answer, json_t **out, struct cb_err *err);

/* Signal number of a Go exit status such as "signal: killed (core dumped)"; 0 when it is none. */
int cb_e2b_signal_of(const char *status);
#endif
