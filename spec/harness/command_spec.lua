-- SPDX-License-Identifier: MIT
local command = require "crewbox.harness.command"
local brief = require "crewbox.brief"
local harness = require "crewbox.harness"

describe("the command harness", function()
  it("runs the brief as a script, byte for byte, with an empty stdin", function()
    local bytes = "-x '\"$(id)\" \0 \255 @f"
    local composed = brief.compose { brief = bytes, harness = command, findings = "/f", project = "/p" }
    assert.equal(bytes, composed)
    local p = command:plan { brief = composed, run_dir = "/r", env = { K = "v" } }
    assert.same({ "sh", "/r/script" }, p.argv)
    assert.is_nil(p.stdin)
    assert.same({ { path = "/r/script", data = bytes } }, p.files)
    assert.same({ K = "v" }, p.env)
  end)

  it("feeds a configured program on stdin", function()
    local p = command:plan { brief = "do it", run_dir = "/r", options = { program = { "my-agent", "--quiet" } } }
    assert.same({ "my-agent", "--quiet" }, p.argv)
    assert.equal("do it", p.stdin)
  end)

  it("judges by the exit status and reports findings or the end of the output", function()
    local r = command:reader()
    r:feed("one\ntwo\n")
    local o = r:finish { exit = 0 }
    assert.is_true(o.success)
    assert.equal("one\ntwo\n", o.text)
    o = command:reader():finish { exit = 3, findings = "why" }
    assert.is_false(o.success)
    assert.equal("agent_exit", o.reason)
    assert.equal("why", o.text)
    assert.equal("signal", command:reader():finish({ signal = 9 }).reason)
  end)

  it("keeps only the end of a long output and says so", function()
    local r = command:reader()
    for _ = 1, 40 do r:feed(("x"):rep(1000)) end
    local o = r:finish { exit = 0 }
    assert.equal(16384, #o.text)
    assert.truthy(o.notes[1]:find("of 40000 bytes", 1, true))
  end)
end)

describe("the list of harnesses", function()
  it("gives each by its public name and names them in the error", function()
    assert.same({ "claude-code", "command", "opencode" }, harness.names())
    for _, name in ipairs(harness.names()) do assert.equal(name, harness.get(name).name) end
    local h, e = harness.get "clade-code"
    assert.is_nil(h)
    assert.truthy(e.message:find("claude%-code, command"))
  end)
end)

describe("the brief", function()
  it("keeps the person's words first and says where to report", function()
    local claude = harness.get "claude-code"
    local b = brief.compose { brief = "Fix it.\n", harness = claude, project = "/home/user/project",
      findings = "/home/user/.crewbox/findings.md", tree = true, base_commit = true }
    assert.equal("Fix it.\n", b:sub(1, 8))
    assert.truthy(b:find("/home/user/.crewbox/findings.md", 1, true))
    assert.truthy(b:find("history was not sent", 1, true))
    b = brief.compose { brief = "x", harness = claude, findings = "/f" }
    assert.is_nil(b:find("working tree", 1, true))
  end)
end)
