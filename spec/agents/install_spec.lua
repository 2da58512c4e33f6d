-- SPDX-License-Identifier: MIT
-- Installs the real Claude Code with the real npm, and runs it. Slow: 245 MB from the registry.
local shell = require "spec.support.shell"

describe("crewbox agents install claude-code", function()
  local place
  setup(function() place = shell.place() end)
  teardown(function() place.remove() end)

  it("brings a program that runs", function()
    local version = require("crewbox.harness").get("claude-code").package.version
    local r = place.crewbox { "agents", "install", "claude-code", seconds = 900 }
    assert.are.equal(0, r.status, r.err)
    local dir = r.out:match(" installed in (%S+)\n$")
    local says = place.run { dir .. "/node_modules/.bin/claude", "--version" }
    assert.are.equal(version, says.out:match "^%S+")
    -- It needs no Node: a box may have none.
    local magic = shell.read(dir .. "/node_modules/.bin/claude"):sub(1, 4)
    assert.are.equal("\127ELF", magic)
  end)
end)
