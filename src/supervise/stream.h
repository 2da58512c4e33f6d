/* SPDX-License-Identifier: MIT
 * stream.h: one output of the agent on its way from the pipe through the redactor into
 * segments. No byte reaches the disk unmasked; offsets count masked bytes. */
#ifndef CB_SUPERVISE_STREAM_H
#define CB_SUPERVISE_STREAM_H
#include <stdbool.h>
#include <stddef.h>
#include "base/buf.h"
#include "secrets/redact.h"
#include "supervise/segments.h"

struct cb_sup_stream {
  int fd; /* read end, non-blocking; -1: none, or at its end */
  struct cb_redact_stream *redact;
  struct cb_buf clean; /* masked bytes on their way */
  struct cb_sup_segments log;
};

/* Takes fd. log must have been set up; redactor is borrowed. */
int cb_sup_stream_start(struct cb_sup_stream *s, int fd, const struct cb_redactor *redactor,
                        struct cb_err *err);
/* Reads what is there now, at most max bytes. True when something was. */
bool cb_sup_stream_pump(struct cb_sup_stream *s, size_t max);
/* Reads what is left in the pipe, lets go of it, and writes what the redactor still held. */
void cb_sup_stream_finish(struct cb_sup_stream *s);
void cb_sup_stream_clear(struct cb_sup_stream *s);
#endif
