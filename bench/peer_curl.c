/* SPDX-License-Identifier: MIT
 * peer_curl.c: the least a C program can do to poll with libcurl: curl_multi over epoll, kept
 * handles and connections, bytes thrown away, no JSON, no retries, no checks. The floor for
 * bench/poll.lua.
 *
 *   peer_curl IN_FLIGHT SECONDS SOCKET|URL      prints what poll_crewbox.lua prints */
#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <time.h>

enum { WARM_MS = 1000, EVENTS = 64 };

static CURLM *multi;
static int epoll_fd;
static long long due_ms = -1;
static unsigned long polls, bad;

static long long now_ms(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (long long)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static int on_timer(CURLM *m, long ms, void *arg)
{
  (void)m, (void)arg;
  due_ms = ms < 0 ? -1 : now_ms() + ms;
  return 0;
}

static int on_socket(CURL *easy, curl_socket_t fd, int what, void *arg, void *known)
{
  struct epoll_event e = { .data.fd = fd };
  (void)easy, (void)arg;
  if (what == CURL_POLL_REMOVE)
    return epoll_ctl(epoll_fd, EPOLL_CTL_DEL, fd, NULL), 0;
  e.events = (what & CURL_POLL_IN ? EPOLLIN : 0u) | (what & CURL_POLL_OUT ? EPOLLOUT : 0u);
  epoll_ctl(epoll_fd, known ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, &e);
  curl_multi_assign(multi, fd, &multi); /* known from now on */
  return 0;
}

static size_t on_bytes(char *p, size_t size, size_t n, void *arg)
{
  (void)p, (void)arg;
  return size * n;
}

static void take_ended(void)
{
  CURLMsg *m;
  int left;
  while ((m = curl_multi_info_read(multi, &left))) {
    if (m->msg != CURLMSG_DONE)
      continue;
    CURL *easy = m->easy_handle;
    bad += m->data.result != CURLE_OK;
    polls++;
    curl_multi_remove_handle(multi, easy);
    curl_multi_add_handle(multi, easy); /* the same request again */
  }
}

static void drive(long long till)
{
  struct epoll_event events[EVENTS];
  int running;
  while (now_ms() < till) {
    long long wait = due_ms < 0 ? 100 : due_ms - now_ms();
    int n = epoll_wait(epoll_fd, events, EVENTS, wait < 0 ? 0 : wait > 100 ? 100 : (int)wait);
    for (int i = 0; i < n; i++)
      curl_multi_socket_action(multi, events[i].data.fd,
                               (events[i].events & EPOLLIN ? CURL_CSELECT_IN : 0) |
                                   (events[i].events & EPOLLOUT ? CURL_CSELECT_OUT : 0) |
                                   (events[i].events & (EPOLLERR | EPOLLHUP) ? CURL_CSELECT_ERR : 0),
                               &running);
    if (due_ms >= 0 && now_ms() >= due_ms) {
      due_ms = -1;
      curl_multi_socket_action(multi, CURL_SOCKET_TIMEOUT, 0, &running);
    }
    take_ended();
  }
}

static double cpu_s(void)
{
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
  char url[512];
  struct rusage u;
  struct curl_slist *headers = NULL;
  if (argc != 4) {
    fprintf(stderr, "usage: peer_curl IN_FLIGHT SECONDS SOCKET|URL\n");
    return 2;
  }
  int in_flight = atoi(argv[1]);
  const char *socket = argv[3][0] == '/' ? argv[3] : NULL;
  snprintf(url, sizeof url,
           "%s/files?path=%%2Fhome%%2Fuser%%2F.crewbox%%2Fruns%%2Fr000000000000%%2Fstate",
           socket ? "http://localhost" : argv[3]);
  curl_global_init(CURL_GLOBAL_DEFAULT);
  epoll_fd = epoll_create1(EPOLL_CLOEXEC);
  multi = curl_multi_init();
  curl_multi_setopt(multi, CURLMOPT_SOCKETFUNCTION, on_socket);
  curl_multi_setopt(multi, CURLMOPT_TIMERFUNCTION, on_timer);
  curl_multi_setopt(multi, CURLMOPT_MAXCONNECTS, (long)in_flight);
  headers = curl_slist_append(headers, "E2b-Sandbox-Id: i000000001");
  headers = curl_slist_append(headers, "X-Access-Token: t0000000000000000");
  for (int i = 0; i < in_flight; i++) {
    CURL *easy = curl_easy_init();
    curl_easy_setopt(easy, CURLOPT_URL, url);
    curl_easy_setopt(easy, CURLOPT_UNIX_SOCKET_PATH, socket);
    curl_easy_setopt(easy, CURLOPT_RANGE, "0-8192");
    curl_easy_setopt(easy, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_bytes);
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_multi_add_handle(multi, easy);
  }
  drive(now_ms() + WARM_MS);
  unsigned long polls_before = polls;
  double cpu = cpu_s();
  long long at = now_ms();
  drive(at + atoll(argv[2]) * 1000);
  getrusage(RUSAGE_SELF, &u);
  printf("polls=%lu seconds=%.3f cpu=%.3f rss_kb=%ld bad=%lu\n", polls - polls_before,
         (double)(now_ms() - at) / 1000, cpu_s() - cpu, u.ru_maxrss, bad);
  return bad ? 1 : 0;
}
