/* SPDX-License-Identifier: MIT
 * row_file.h: a row of the table as STATE/boxes/ID/box.json. */
#ifndef CB_BOXD_ROW_FILE_H
#define CB_BOXD_ROW_FILE_H
#include "base/err.h"
#include "boxd/table.h"

/* Replaces the file by rename. The folder must be there. */
int cb_row_file_write(int state_dir, const struct cb_row *row, struct cb_err *err);
/* Fills what the file holds, for row->id. CB_NOT_FOUND, CB_CORRUPT; CB_CLOSED for a box of
 * before the last start of this machine: it cannot be alive. */
int cb_row_file_read(int state_dir, struct cb_row *row, struct cb_err *err);
#endif
