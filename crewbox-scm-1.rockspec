-- SPDX-License-Identifier: MIT
-- A rock of crewbox for Lua 5.4 or LuaJIT. It is built by the Makefile and not by luarocks' own
-- rules, because the programs (crewboxd, crewbox-init, crewbox-supervise) belong to it and
-- luarocks only builds modules.
--   luarocks make                                      from the registry's Lua dependencies
--   luarocks --lua-version=5.4 make --deps-mode=none   with those of the distribution
rockspec_format = "3.0"
package = "crewbox"
version = "scm-1"
source = {
  url = "git+https://github.com/crewbox/crewbox.git",
}
description = {
  summary = "Runs coding agents in isolated boxes as detached, durable jobs",
  detailed = [[
A C core with thin bindings and the engine in Lua: coding agents (Claude Code, OpenCode or any command) run
in isolated boxes, locally or at an E2B server; the working tree goes in, findings and a patch come
out, and nothing is lost when a process dies in between.]],
  license = "MIT",
}
supported_platforms = { "linux" }
dependencies = {
  "lua >= 5.1, < 5.5",
  "argparse >= 0.7",
  "lua-cjson >= 2.1",
  "lyaml >= 6.2",
}
build = {
  type = "make",
  build_target = "rock-build",
  install_target = "rock-install",
  build_variables = {
    CFLAGS = "$(CFLAGS)",
    LUA_INCDIR = "$(LUA_INCDIR)",
  },
  install_variables = {
    BINDIR = "$(BINDIR)",
    LIBEXECDIR = "$(PREFIX)/libexec",
    ROCK_LUADIR = "$(LUADIR)",
    ROCK_LIBDIR = "$(LIBDIR)",
  },
  copy_directories = { "examples" },
}
