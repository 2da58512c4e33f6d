/* SPDX-License-Identifier: MIT
 * download.c: GET /files: the box's init opens the file inside its view and hands over the
 * descriptor; nothing here follows a path of a box. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include "base/fd.h"
#include "boxd/boxd.h"
#include "boxd/envd.h"
#include "boxd/files_auth.h"
#include "boxd/range.h"

/* The daemon never sets a locale, so the names of days and months are the English ones. */
static void http_date(time_t t, char out[40])
{
  struct tm tm;
  if (!gmtime_r(&t, &tm) || !strftime(out, 40, "%a, %d %b %Y %H:%M:%S GMT", &tm))
    snprintf(out, 40, "Thu, 01 Jan 1970 00:00:00 GMT");
}

static void serve_file(struct cb_request *req, int fd)
{
  struct stat st;
  char date[40], text[96];
  if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) { /* the init promises it; we do not rely on it */
    cb_close(&fd);
    cb_answer_error(req, 400, NULL, "path is not a regular file");
    return;
  }
  uint64_t size = (uint64_t)st.st_size, first = 0, length = size;
  http_date(st.st_mtim.tv_sec, date);
  const char *range = cb_request_header(req, "Range");
  const char *if_range = cb_request_header(req, "If-Range");
  if (if_range && strcmp(if_range, date) != 0)
    range = NULL; /* the client's part is of another state of the file */
  enum cb_range_kind kind = cb_range_read(range, size, &first, &length);
  cb_answer_header(req, "Accept-Ranges", "bytes");
  if (kind == CB_RANGE_UNSATISFIABLE) {
    snprintf(text, sizeof text, "bytes */%llu", (unsigned long long)size);
    cb_answer_header(req, "Content-Range", text);
    cb_close(&fd);
    cb_answer_error(req, 416, NULL, "the range begins behind the end of the file (%llu bytes)",
                    (unsigned long long)size);
    return;
  }
  cb_answer_header(req, "Content-Type", "application/octet-stream");
  cb_answer_header(req, "Last-Modified", date);
  cb_answer_header(req, "Content-Disposition", "inline");
  if (kind == CB_RANGE_PART) {
    snprintf(text, sizeof text, "bytes %llu-%llu/%llu", (unsigned long long)first,
             (unsigned long long)(first + length - 1), (unsigned long long)size);
    cb_answer_header(req, "Content-Range", text);
  }
  cb_answer_file(req, kind == CB_RANGE_PART ? 206 : 200, fd, first, length);
}

static void on_opened(void *arg, struct cb_box_answer *answer)
{
  struct cb_request *req = arg;
  if (answer->err) {
    cb_files_fail(req, answer->err);
    return;
  }
  int fd = answer->fds[0];
  answer->fds[0] = -1;
  serve_file(req, fd);
}

void cb_envd_download(struct cb_request *req)
{
  struct cb_err err = CB_ERR_INIT;
  char user[CB_AUTH_USER_MAX + 1];
  const char *path = cb_request_query(req, "path");
  int rc = cb_files_user(req, user, &err);
  if (!rc && (!path || !*path))
    rc = cb_err_set(&err, CB_INVALID, "path is missing");
  if (!rc)
    rc = cb_box_open(cb_row_of(req)->box, path, *user ? user : NULL, false, on_opened, req, NULL,
                     &err);
  if (rc)
    cb_files_fail(req, &err);
}
