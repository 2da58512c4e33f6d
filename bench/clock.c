/* SPDX-License-Identifier: MIT
 * clock.c: the one thing the benchmarks need that crewbox has no use for: a monotonic clock finer
 * than a millisecond. `require "bench_clock"` gives a function that says seconds. */
#include <lauxlib.h>
#include <lua.h>
#include <time.h>

int luaopen_bench_clock(lua_State *L);

static int seconds(lua_State *L)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  lua_pushnumber(L, (lua_Number)t.tv_sec + (lua_Number)t.tv_nsec / 1e9);
  return 1;
}

int luaopen_bench_clock(lua_State *L)
{
  lua_pushcfunction(L, seconds);
  return 1;
}
