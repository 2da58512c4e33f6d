-- SPDX-License-Identifier: MIT
-- One file and one line in a list: the examples of docs/how-to/contribute.md, put into a copy of the
-- tree from outside, work.
local shell = require "spec.support.shell"

local BUILD = os.getenv "CREWBOX_BUILD"
local ABI = jit and "5.1" or "5.4"

describe("docs/how-to/contribute.md", function()
  local place, root, examples = nil, nil, {}

  -- Puts `line` behind the first line that has `after` in it.
  local function add_line(path, after, line)
    local out, done = {}, false
    for l in (shell.read(root .. "/" .. path)):gmatch "([^\n]*)\n" do
      out[#out + 1] = l
      if not done and l:find(after, 1, true) then
        out[#out + 1], done = line, true
      end
    end
    assert.is_true(done, after)
    shell.write(root .. "/" .. path, table.concat(out, "\n") .. "\n")
  end

  setup(function()
    place = shell.place()
    root = place.dir .. "/tree"
    os.execute(("mkdir -p '%s' && cp -R lua src bin '%s/'"):format(root, root))
    for block in shell.read("docs/how-to/contribute.md"):gmatch "```%l+\n(.-)\n```" do
      local path = block:match "^[/*-]+ ([%w_/.]+)"
      examples[path] = block .. "\n"
      shell.write(root .. "/" .. path, block .. "\n")
    end
    add_line("lua/crewbox/harness/init.lua", "local modules = {", '  ["echo-agent"] = "crewbox.harness.echo_agent",')
    add_line("lua/crewbox/cli/main.lua", "local VERBS = {", 'VERBS[#VERBS + 1] = "hello"')
    add_line("src/providers/provider.c", "extern const struct cb_provider_ops cb_e2b_ops;",
      "extern const struct cb_provider_ops cb_nowhere_ops;")
    add_line("src/providers/provider.c", "} kinds[] = {", '  {"nowhere", &cb_nowhere_ops, false},')
  end)
  teardown(function() place.remove() end)

  local function lua(cpath, ...)
    return place.run { "env", ("LUA_PATH=%s/lua/?.lua;%s/lua/?/init.lua;;"):format(root, root),
      ("LUA_CPATH=%s/?.so;;"):format(cpath), "CREWBOX_LIBEXEC=" .. BUILD, jit and "luajit" or "lua5.4", ... }
  end
  local function crewbox(...)
    return lua(BUILD .. "/lua/" .. ABI, root .. "/lua/crewbox/cli/start.lua", ...)
  end

  it("has the examples", function()
    for _, path in ipairs { "lua/crewbox/cli/hello.lua", "lua/crewbox/harness/echo_agent.lua", "src/providers/nowhere.c" } do
      assert.is_string(examples[path], path)
    end
  end)

  it("adds a verb", function()
    local r = crewbox("hello", "you")
    assert.are.equal("hello you\n", r.out, r.err)
    assert.is_truthy(crewbox("--help").out:find("Say hello.", 1, true))
    assert.are.equal(2, crewbox("hello").status)
  end)

  it("adds a harness", function()
    local r = crewbox("run", "--no-repo", "--agent", "echo-agent", "say this")
    assert.are.equal(0, r.status, r.err)
    assert.is_truthy(r.out:find("say this", 1, true))
  end)

  it("adds a harness from a host, without a line in the list", function()
    local harness = require "crewbox.harness"
    package.preload["spec.nobody"] = function() return { name = "spec-nobody" } end
    harness.add("spec-nobody", "spec.nobody")
    assert.are.equal("spec-nobody", harness.get("spec-nobody").name)
    assert.has_error(function() harness.add("claude-code", "spec.nobody") end)
    assert.has_error(function() harness.add("No Name", "spec.nobody") end)
  end)

  it("adds a provider", function()
    local made = place.run { "sh", "-c", ([[
      set -e
      mkdir -p out/crewbox
      for f in provider nowhere; do
        ${CC:-cc} -std=gnu11 -D_GNU_SOURCE -I'%s/src' -fPIC -Wall -Wextra -Werror -c '%s/src/providers/'$f.c -o out/$f.o
      done
      for r in base wire secrets net store tree providers watch; do
        for o in '%s/obj/'$r/*.o; do [ "$r/${o##*/}" = providers/provider.o ] || echo "$o"; done
      done >out/objects
      ${CC:-cc} -shared -o out/crewbox/core.so $(cat out/objects) '%s/obj-lua%s/'*.o out/provider.o out/nowhere.o \
        -lcurl -ljansson -lsqlite3 -lcrypto -lpthread]]):format(root, root, BUILD, BUILD, ABI), seconds = 120 }
    assert.are.equal(0, made.status, made.err)
    local r = lua(place.work .. "/out", "-e", [[
      local core = require "crewbox.core"
      local io_ = core.io()
      local function await(op)
        while io_:step(10000) do
          for _, c in ipairs(io_:drain()) do
            if c.op == op then return c.value, c.err end
          end
        end
      end
      local p = assert(core.provider(io_, "nowhere", {}))
      print(await(p:health {}).server)
      local _, e = await(p:create { nonce = "n" })
      print(e.code)
      p:close()
      io_:close()]])
    assert.are.equal("nowhere\nunsupported\n", r.out, r.err)
  end)
end)
