-- SPDX-License-Identifier: MIT
-- A person's run where boxes are somebody else's: type e2b with URLs and a key, nothing of the
-- server's on this side. The server is crewboxd on TCP, which speaks the same protocol.
local box_server = require "spec.support.box_server"
local shell = require "spec.support.shell"

describe("crewbox with a remote provider", function()
  local place, server, repo, env

  setup(function()
    place, server = shell.place(), box_server.start(true)
    repo = place.checkout("repo", { ["a.txt"] = "one\n" })
    shell.write(repo .. "/crewbox.yaml", ([[
providers:
  sandbox:
    type: e2b
    api_key: ${MY_BOX_KEY}
    api_url: %s
    sandbox_url: %s
]]):format(server.url, server.url))
    env = { MY_BOX_KEY = shell.read(server.dir .. "/state/key"):match "%S+" }
  end)
  teardown(function()
    place.remove()
    server:stop()
  end)

  it("runs there with a key of any name, and brings the patch back", function()
    local r = place.crewbox { cwd = repo, env = env, "run", "--agent", "command", "echo two >a.txt; uname -m" }
    assert.are.equal(0, r.status, r.err)
    assert.is_truthy(r.err:find("\n  M a.txt\n", 1, true), r.err)
    local p = place.crewbox { cwd = repo, env = env, "result", "--patch", "last" }
    assert.is_truthy(p.out:find("\n+two\n", 1, true), p.err)
  end)

  it("leaves no box behind and the key on no disk", function()
    local provider = server:provider()
    server:wait_for(function() return #server:next(provider:list {}).boxes == 0 end, "the end of the box")
    provider:close()
    local found = place.run { "grep", "-rlaF", env.MY_BOX_KEY, place.state, place.home }
    assert.are.equal("", found.out)
  end)

  it("says that a model on this machine's loopback cannot be reached from there", function()
    local r = place.crewbox { cwd = repo, env = { MY_BOX_KEY = env.MY_BOX_KEY, ANTHROPIC_API_KEY = "not-a-key-of-anybody",
      ANTHROPIC_BASE_URL = "http://127.0.0.1:9" }, "run", "--agent", "claude-code", "x" }
    assert.are.equal(2, r.status)
    assert.is_truthy(r.err:find("loopback", 1, true), r.err)
  end)

  it("names the variable of the key when it is not set", function()
    local r = place.crewbox { cwd = repo, "run", "--agent", "command", "x" }
    assert.are.equal(2, r.status)
    assert.is_truthy(r.err:find("MY_BOX_KEY is not set", 1, true), r.err)
  end)
end)
