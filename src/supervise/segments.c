/* SPDX-License-Identifier: MIT */
#include "supervise/segments.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "base/fd.h"

void cb_sup_segments_init(struct cb_sup_segments *s, const struct cb_sup_dir *dir,
                          const char *prefix, int64_t segment, int64_t log_max,
                          struct cb_state_stream *figures)
{
  s->dir = dir;
  s->prefix = prefix;
  s->segment = segment;
  s->log_max = log_max;
  s->figures = figures;
  s->head = log_max / 2 / segment * segment;
  s->tail = s->head;
  s->start = 0;
  s->fd = -1;
}

static void name_of(const struct cb_sup_segments *s, int64_t start, char out[40])
{
  snprintf(out, 40, "%s.%016" PRId64, s->prefix, start);
}

/* One range has to do for all that is missing. It begins where the first byte was lost and only
 * grows at its end, over what lies between: readers rely on that. So what came before the first
 * loss is never given up any more. */
static void note_gap(struct cb_sup_segments *s, int64_t from, int64_t to)
{
  struct cb_state_stream *f = s->figures;
  if (f->gap_from == f->gap_to) {
    f->gap_from = f->gap_to = from;
    if (from > s->head) {
      s->head = from;
      s->tail = (from / s->segment + 1) * s->segment;
    }
  }
  if (to > f->gap_to)
    f->gap_to = to;
}

/* Writes at the end of the stream, all within one segment. Bytes written. */
static size_t write_piece(struct cb_sup_segments *s, const char *p, size_t n)
{
  int64_t start = s->figures->end / s->segment * s->segment;
  size_t done = 0;
  if (s->fd < 0 || s->start != start) {
    char name[40];
    cb_close(&s->fd);
    name_of(s, start, name);
    if (cb_sup_dir_create(s->dir, name, &s->fd, NULL))
      return 0;
    s->start = start;
  }
  while (done < n) {
    ssize_t k = pwrite(s->fd, p + done, n - done,
                       (off_t)(s->figures->end - start + (int64_t)done));
    if (k < 0 && errno == EINTR)
      continue;
    if (k <= 0)
      break;
    done += (size_t)k;
  }
  return done;
}

/* Gives up the oldest full segments behind the head, but never the newest quarter: a head that a
 * full disk made longer must not cost the last lines. */
static void trim(struct cb_sup_segments *s)
{
  while (s->head + s->figures->end - s->tail > s->log_max &&
         s->figures->end - s->tail > s->log_max / 4 &&
         s->tail + s->segment <= s->figures->end) {
    char name[40];
    name_of(s, s->tail, name);
    if (s->fd >= 0 && s->start == s->tail)
      cb_close(&s->fd);
    cb_sup_dir_remove(s->dir, name);
    note_gap(s, s->tail, s->tail + s->segment);
    s->tail += s->segment;
  }
}

void cb_sup_segments_lose(struct cb_sup_segments *s, size_t n)
{
  if (n == 0)
    return;
  note_gap(s, s->figures->end, s->figures->end + (int64_t)n);
  s->figures->end += (int64_t)n;
  trim(s);
}

void cb_sup_segments_add(struct cb_sup_segments *s, const void *p, size_t n)
{
  const char *at = p;
  while (n > 0) {
    size_t room = (size_t)(s->segment - s->figures->end % s->segment);
    size_t take = n < room ? n : room;
    size_t done = write_piece(s, at, take);
    s->figures->end += (int64_t)done;
    cb_sup_segments_lose(s, take - done);
    trim(s);
    at += take;
    n -= take;
  }
}

void cb_sup_segments_close(struct cb_sup_segments *s)
{
  if (s->fd >= 0)
    fsync(s->fd);
  cb_close(&s->fd);
}
