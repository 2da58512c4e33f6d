/* SPDX-License-Identifier: MIT
 * lua_host.c: `lua5.4 [-e CODE]... [FILE [ARGS...]]` for the sanitizer builds. A sanitizer's runtime must be in
 * the program from its start, and the interpreter of the system does not have it; preloading the
 * runtime would reach every git and sh that a test starts. */
#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

static int with_trace(lua_State *L)
{
  luaL_traceback(L, L, luaL_tolstring(L, 1, NULL), 1);
  return 1;
}

/* Runs the chunk that was loaded with the n arguments above it; reports what it raises. */
static int run(lua_State *L, int loaded, int n)
{
  if (loaded == LUA_OK && lua_pcall(L, n, 0, 1) == LUA_OK)
    return 0;
  fprintf(stderr, "lua5.4: %s\n", lua_tostring(L, -1));
  return 1;
}

int main(int argc, char **argv)
{
  lua_State *L = luaL_newstate();
  int rc = 0, script = 1;
  if (!L || argc < 2) {
    fputs("usage: lua5.4 [-e CODE]... [FILE [ARGS...]]\n", stderr);
    return 2;
  }
  luaL_openlibs(L);
  signal(SIGINT, SIG_DFL); /* as lua does: a shell ignores it for what runs in the background */
  while (script + 1 < argc && strcmp(argv[script], "-e") == 0)
    script += 2;
  lua_pushcfunction(L, with_trace);
  lua_newtable(L);
  for (int i = 0; i < argc; i++) {
    lua_pushstring(L, argv[i]);
    lua_rawseti(L, -2, i - script);
  }
  lua_setglobal(L, "arg");
  for (int i = 2; i < script && !rc; i += 2)
    rc = run(L, luaL_loadbuffer(L, argv[i], strlen(argv[i]), "=(command line)"), 0);
  if (script < argc && !rc) {
    int loaded = luaL_loadfile(L, argv[script]);
    for (int i = script + 1; i < argc && loaded == LUA_OK; i++)
      lua_pushstring(L, argv[i]);
    rc = run(L, loaded, argc - script - 1);
  }
  lua_close(L);
  return rc;
}
