/* SPDX-License-Identifier: MIT
 * envd.h: the endpoints a box has: envd's processes, file system, files and facts. In each,
 * req->box is a running box and the sender has shown its token. */
#ifndef CB_BOXD_ENVD_H
#define CB_BOXD_ENVD_H
#include "boxd/web.h"

/* process.Process */
void cb_envd_start(struct cb_request *req);
void cb_envd_connect(struct cb_request *req);
void cb_envd_list(struct cb_request *req);
void cb_envd_send_input(struct cb_request *req);
void cb_envd_close_stdin(struct cb_request *req);
void cb_envd_send_signal(struct cb_request *req);

/* filesystem.Filesystem */
void cb_envd_stat(struct cb_request *req);
void cb_envd_make_dir(struct cb_request *req);
void cb_envd_move(struct cb_request *req);
void cb_envd_list_dir(struct cb_request *req);
void cb_envd_remove(struct cb_request *req);

/* Calls envd has and this server does not: told in the form the caller reads. */
void cb_envd_unimplemented(struct cb_request *req);

/* REST */
void cb_envd_health(struct cb_request *req);
void cb_envd_envs(struct cb_request *req);
void cb_envd_metrics(struct cb_request *req);
void cb_envd_download(struct cb_request *req);
extern const struct cb_endpoint cb_envd_upload;
#endif
