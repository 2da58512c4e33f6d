-- SPDX-License-Identifier: MIT
-- Installs the real CLIs with the real npm, and runs them. Slow: some 400 MB from the registry.
local agent_cache = require "spec.support.agent_cache"
local shell = require "spec.support.shell"

for _, name in ipairs { "claude-code", "opencode" } do
  describe("crewbox agents install " .. name, function()
    local place
    setup(function() place = shell.place() end)
    teardown(function() place.remove() end)

    it("brings a program that runs", function()
      local package = require("crewbox.harness").get(name).package
      local dir = ("%s/agents/%s/%s"):format(agent_cache.with(name), name, package.version)
      local program = ("%s/node_modules/.bin/%s"):format(dir, package.bin)
      local says = place.run { program, "--version" }
      assert.are.equal(package.version, says.out:match "^%S+")
      -- It needs no Node: a box may have none.
      assert.are.equal("\127ELF", shell.read(program):sub(1, 4))
    end)
  end)
end
