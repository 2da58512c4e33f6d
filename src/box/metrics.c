/* SPDX-License-Identifier: MIT
 * metrics.c: see metrics.h. */
#include "box/metrics.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "wire/record.h"

static bool read_proc(const char *pid, const char *name, char *text, size_t room)
{
  char path[64];
  snprintf(path, sizeof path, "/proc/%.20s/%s", pid, name);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    return false;
  ssize_t k = read(fd, text, room - 1);
  cb_close(&fd);
  if (k <= 0)
    return false;
  text[k] = '\0';
  return true;
}

struct sums {
  int64_t ticks, pages, processes;
};

static void add_process(struct sums *s, const char *pid)
{
  char text[1024];
  long long size, resident, shared;
  unsigned long long user, system;
  if (read_proc(pid, "statm", text, sizeof text) &&
      sscanf(text, "%lld %lld %lld", &size, &resident, &shared) == 3 && resident > shared)
    s->pages += resident - shared;
  if (!read_proc(pid, "stat", text, sizeof text))
    return;
  s->processes++;
  const char *after = strrchr(text, ')'); /* the name may hold anything */
  if (after && sscanf(after + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu", &user,
                      &system) == 2)
    s->ticks += (int64_t)(user + system);
}

int cb_metrics_put(const struct cb_init *init, struct cb_buf *into)
{
  struct sums s = { 0 };
  struct rusage ended = { 0 };
  struct sysinfo info = { 0 };
  struct statvfs disk = { 0 };
  long page = sysconf(_SC_PAGESIZE), hz = sysconf(_SC_CLK_TCK);
  struct dirent *e;
  DIR *d = opendir("/proc");

  while (d && (e = readdir(d)))
    if (e->d_name[0] >= '1' && e->d_name[0] <= '9')
      add_process(&s, e->d_name);
  if (d)
    closedir(d);
  getrusage(RUSAGE_CHILDREN, &ended);
  sysinfo(&info);
  (void)statvfs("/home/user", &disk);
  int64_t ended_ms = (int64_t)(ended.ru_utime.tv_sec + ended.ru_stime.tv_sec) * 1000 +
                     (ended.ru_utime.tv_usec + ended.ru_stime.tv_usec) / 1000;
  const struct {
    const char *name;
    int64_t value;
  } all[] = {
    { "cpu_count", sysconf(_SC_NPROCESSORS_ONLN) },
    { "cpu_ms", ended_ms + s.ticks * 1000 / (hz > 0 ? hz : 100) },
    { "uptime_ms", cb_boot_ms() - init->started_ms },
    { "mem_total", (int64_t)info.totalram * info.mem_unit },
    { "mem_used", s.pages * page },
    { "mem_cache", (int64_t)info.bufferram * info.mem_unit },
    { "disk_total", (int64_t)disk.f_blocks * (int64_t)disk.f_frsize },
    { "disk_used", (int64_t)(disk.f_blocks - disk.f_bfree) * (int64_t)disk.f_frsize },
    { "processes", s.processes },
  };
  int rc = CB_OK;
  for (size_t i = 0; i < sizeof all / sizeof *all && !rc; i++)
    rc = cb_record_addi(into, all[i].name, all[i].value);
  return rc;
}
