/* SPDX-License-Identifier: MIT
 * reaper.c: `reaper PROGRAM [ARGS...]` runs a test program and says which processes it left
 * behind: whatever it started, however detached (a session of its own, an empty environment, pid
 * 1 of a box), becomes a child of ours when its parent ends (PR_SET_CHILD_SUBREAPER). They get
 * GRACE_MS to end by themselves, are named on stdout and killed. The status is the program's, or
 * LEFT_BEHIND when that was 0 and something was left. */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { GRACE_MS = 10000, STEP_MS = 20, LEFT_BEHIND = 97, ROUNDS = 200 };

static volatile pid_t program;

static void pass_on(int sig)
{
  if (program > 0)
    kill(program, sig);
}

static void nap(void)
{
  const struct timespec step = { 0, STEP_MS * 1000000L };
  nanosleep(&step, NULL);
}

/* Parent of a process, -1 when it is gone or only waits to be reaped. */
static pid_t parent_of(pid_t pid)
{
  char name[32], line[512];
  snprintf(name, sizeof name, "/proc/%d/stat", (int)pid);
  FILE *f = fopen(name, "re");
  if (!f)
    return -1;
  size_t n = fread(line, 1, sizeof line - 1, f);
  fclose(f);
  line[n] = '\0';
  const char *end = strrchr(line, ')'); /* the name before it may hold anything */
  char state;
  int parent;
  if (!end || sscanf(end + 1, " %c %d", &state, &parent) != 2 || state == 'Z')
    return -1;
  return parent;
}

static void tell(pid_t pid)
{
  char name[32], line[400];
  snprintf(name, sizeof name, "/proc/%d/cmdline", (int)pid);
  FILE *f = fopen(name, "re");
  size_t n = f ? fread(line, 1, sizeof line - 1, f) : 0;
  if (f)
    fclose(f);
  for (size_t i = 0; i < n; i++)
    line[i] = isprint((unsigned char)line[i]) ? line[i] : ' ';
  line[n] = '\0';
  printf("left behind: process %d: %s\n", (int)pid, line);
}

/* Our children of this moment: told, or killed. How many there were. */
static int each_child(bool kill_it)
{
  DIR *d = opendir("/proc");
  int count = 0;
  for (struct dirent *e; d && (e = readdir(d));) {
    pid_t pid = (pid_t)strtol(e->d_name, NULL, 10);
    if (pid <= 0 || parent_of(pid) != getpid())
      continue;
    count++;
    if (kill_it)
      kill(pid, SIGKILL);
    else
      tell(pid);
  }
  if (d)
    closedir(d);
  return count;
}

/* Reaps what has ended; false when there is no child at all. */
static bool reap(void)
{
  pid_t pid;
  while ((pid = waitpid(-1, NULL, WNOHANG)) > 0) {
  }
  return pid == 0;
}

int main(int argc, char **argv)
{
  int status = 0;
  if (argc < 2) {
    fputs("usage: reaper PROGRAM [ARGS...]\n", stderr);
    return 2;
  }
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  program = fork();
  if (program == 0) {
    execvp(argv[1], argv + 1);
    perror(argv[1]);
    _exit(127);
  }
  if (program < 0) {
    perror("fork");
    return 2;
  }
  signal(SIGTERM, pass_on);
  signal(SIGINT, pass_on);
  for (pid_t pid; (pid = waitpid(-1, &status, 0)) != program;)
    if (pid < 0 && errno != EINTR)
      return 2;
  status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);

  bool left = reap();
  for (int waited = 0; left && waited < GRACE_MS; waited += STEP_MS) {
    nap();
    left = reap();
  }
  if (!left)
    return status;
  each_child(false);
  /* What they started comes to us as they go. */
  for (int i = 0; i < ROUNDS && reap(); i++) {
    each_child(true);
    nap();
  }
  return status ? status : LEFT_BEHIND;
}
