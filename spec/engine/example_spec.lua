-- SPDX-License-Identifier: MIT
local core = require "crewbox.core"
local states = require "spec.support.state"

describe("examples/run_from_lua.lua", function()
  it("prints what the command said and the patch it made", function()
    local s = states.new()
    local repo = s:checkout { ["a.txt"] = "one\n" }
    local lua = core.sys.realpath("/proc/self/exe")
    local p = assert(io.popen(("CREWBOX_STATE='%s' '%s' examples/run_from_lua.lua '%s' 'echo said; echo two >> a.txt' 2>&1")
      :format(s.state, lua, repo)))
    local out = p:read("*a")
    p:close()
    assert.equal("succeeded\t1 changed\tsaid\n", out:match("^[^\n]*\n"))
    assert.truthy(out:find("\n+two\n", 1, true), out)
    s:close()
  end)
end)
