-- SPDX-License-Identifier: MIT
-- luarocks builds and installs the rock, offline, for the Lua these specs run on, and what it
-- installs runs.
local shell = require "spec.support.shell"

local BUILD = os.getenv "CREWBOX_BUILD"
local ABI = jit and "5.1" or "5.4"

describe("luarocks make, for Lua " .. ABI, function()
  local place, tree, root
  setup(function()
    place = shell.place()
    tree = place.dir .. "/rocks"
    root = place.run({ "pwd", cwd = "." }).out:match "[^\n]*"
    local r = place.run { "luarocks", "--lua-version=" .. ABI, "--tree=" .. tree, "make", "--deps-mode=none", "crewbox-scm-1.rockspec",
      cwd = root, seconds = 300, env = { BUILD = BUILD } }
    assert(r.status == 0, r.out .. r.err)
  end)
  teardown(function() place.remove() end)

  -- What `luarocks path` prints for a tree that is not the system's.
  local function env()
    return { LUA_PATH = ("%s/share/lua/%s/?.lua;%s/share/lua/%s/?/init.lua;;"):format(tree, ABI, tree, ABI),
      LUA_CPATH = ("%s/lib/lua/%s/?.so;;"):format(tree, ABI) }
  end
  local function lua(code)
    return place.run { jit and "luajit" or "lua5.4", "-e", code, env = env() }
  end

  it("installs modules that load", function()
    local r = lua 'print(require("crewbox.core").version, type(require("crewbox").open))'
    assert.is_truthy(r.out:find "^%d+%.%d+%.%d+%s+function\n$", r.out .. r.err)
  end)

  it("installs the programs and knows where", function()
    local r = lua 'print(require("crewbox.paths").program("crewboxd"))'
    local path = r.out:match "^(/%S+/libexec/crewboxd)\n"
    assert.is_truthy(path, r.out .. r.err)
    assert.is_true(shell.exists(path))
  end)

  it("installs the command", function()
    local command = { tree .. "/bin/crewbox" }
    if jit then
      -- The wrapper of luarocks runs the plain Lua 5.1 unless it is configured otherwise.
      local r = place.run { command[1], "version", env = env() }
      assert.are.same({ 5, true }, { r.status, r.err:find("needs Lua 5.4 or LuaJIT", 1, true) ~= nil }, r.err)
      command = { "luajit", tree .. "/lib/luarocks/rocks-5.1/crewbox/scm-1/bin/crewbox" }
    end
    local function crewbox(...)
      local words = { env = env() }
      for i, w in ipairs(command) do words[i] = w end
      for _, w in ipairs { ... } do words[#words + 1] = w end
      return place.run(words)
    end
    local r = crewbox "version"
    assert.is_truthy(r.out:find "^crewbox %d", r.out .. r.err)
    -- It starts an engine, which has to find the same files.
    r = crewbox("run", "--no-repo", "--agent", "command", "echo from a box")
    assert.are.equal("from a box\n", r.out, r.err)
  end)
end)
