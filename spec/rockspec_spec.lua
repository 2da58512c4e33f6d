-- SPDX-License-Identifier: MIT
-- What is installed is complete: `make install` and the rock hold every Lua file, the C module is
-- linked from every C file, and the installed command runs from its own files alone.
local shell = require "spec.support.shell"

local BUILD = os.getenv "CREWBOX_BUILD"

local function lines(text)
  local list = {}
  for line in text:gmatch "[^\n]+" do list[#list + 1] = line end
  table.sort(list)
  return list
end

describe("the installation", function()
  local place, root
  setup(function()
    place = shell.place()
    root = place.run({ "pwd", cwd = "." }).out:match "[^\n]*"
  end)
  teardown(function() place.remove() end)

  -- The make of a packager: the tree as it is built, into a folder of ours.
  local function make(...) return place.run { "make", "-s", "BUILD=" .. BUILD, cwd = root, seconds = 300, ... } end

  describe("by make install", function()
    local dest
    setup(function()
      dest = place.dir .. "/dest"
      local r = make("install", "DESTDIR=" .. dest, "PREFIX=/opt/crewbox")
      assert(r.status == 0, r.err)
    end)

    it("holds every Lua file, for both Luas, and one that says where the programs are", function()
      local sources = lines(place.run({ "sh", "-c", "cd lua && find crewbox -name '*.lua'", cwd = root }).out)
      sources[#sources + 1] = "crewbox/installed.lua"
      table.sort(sources)
      for _, abi in ipairs { "5.4", "5.1" } do
        local there = place.run { "sh", "-c", "find crewbox -name '*.lua'", cwd = dest .. "/opt/crewbox/share/lua/" .. abi }
        assert.are.same(sources, lines(there.out))
      end
      assert.are.equal("/opt/crewbox/libexec/crewbox", dofile(dest .. "/opt/crewbox/share/lua/5.4/crewbox/installed.lua").libexec)
    end)

    it("names no place of the build", function()
      local r = place.run { "grep", "-rlF", root, dest .. "/opt/crewbox/bin", dest .. "/opt/crewbox/share" }
      assert.are.equal("", r.out)
      assert.is_nil(shell.read(dest .. "/opt/crewbox/bin/crewbox"):find("@", 1, true) and
        shell.read(dest .. "/opt/crewbox/bin/crewbox"):match "@%u+")
    end)

    it("runs", function()
      -- The prefix is where it would be installed: look at it through a link there is none of now.
      local text = shell.read(dest .. "/opt/crewbox/bin/crewbox"):gsub("/opt/crewbox", dest .. "/opt/crewbox")
      shell.write(place.dir .. "/crewbox", text)
      for _, lua in ipairs { "lua5.4", "luajit" } do
        local r = place.run { "sh", place.dir .. "/crewbox", "version", env = { CREWBOX_LUA = lua } }
        assert.is_truthy(r.out:find "^crewbox %d", r.err)
      end
      local r = place.run { dest .. "/opt/crewbox/libexec/crewbox/crewbox-supervise", "version" }
      assert.are.equal(0, r.status, r.err)
    end)
  end)

  it("links every C file into something", function()
    local sources = lines(place.run({ "sh", "-c", "cd src && find . -name '*.c'", cwd = root }).out)
    local plan = place.run { "make", "-n", "-B", "BUILD=" .. place.dir .. "/b", "all", cwd = root }
    assert.are.equal(0, plan.status, plan.err)
    for _, source in ipairs(sources) do
      assert.is_truthy(plan.out:find("src/" .. source:sub(3), 1, true), source .. " is in no program")
    end
  end)
end)

describe("the rockspec", function()
  local spec = {}
  local chunk = assert(loadfile("crewbox-scm-1.rockspec"))
  if setfenv then setfenv(chunk, spec) else chunk = assert(loadfile("crewbox-scm-1.rockspec", "t", spec)) end
  chunk()

  it("builds with targets of the Makefile", function()
    local makefile = shell.read "Makefile"
    assert.is_truthy(makefile:find("\n" .. spec.build.build_target:gsub("%-", "%%-") .. ":"))
    assert.is_truthy(makefile:find("\n" .. spec.build.install_target:gsub("%-", "%%-") .. ":"))
    for name in pairs(spec.build.install_variables) do assert.is_truthy(makefile:find("$(" .. name .. ")", 1, true), name) end
  end)

  it("names the Lua libraries that are required", function()
    local depends = {}
    for _, d in ipairs(spec.dependencies) do depends[d:match "^%S+"] = true end
    for module, rock in pairs { argparse = "argparse", cjson = "lua-cjson", lyaml = "lyaml" } do
      assert.is_true(depends[rock], module)
    end
  end)
end)
