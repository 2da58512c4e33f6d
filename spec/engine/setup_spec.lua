-- SPDX-License-Identifier: MIT
local core = require "crewbox.core"
local states = require "spec.support.state"

local STEPS = [[setup = {
  { name = "tools", files = { ["notes/a.txt"] = "from setup\n", ["/usr/local/bin/tool"] = "#!/bin/sh\necho the tool\n" },
    commands = { "chmod 755 /usr/local/bin/tool", "id -u", "echo $KEY > /root/key", "echo with $KEY" },
    env = { KEY = "k-${SETUP_KEY}" }, brief = "There is a tool." },
  { name = "second", commands = { "test -s /root/key", "tool", "test -n \"$FAIL\" && exit 7 || true" }, env = { FAIL = "%s" } },
} ]]

local SECRET = "zq9-FAKE+tok/en=77$x"

describe("setup steps", function()
  local s

  after_each(function() s:close() end)

  local function run(c, request)
    request.agent, request.no_repo = "command", true
    return assert(c:wait(assert(c:run(request)), 180))
  end

  it("run as root of the box before the agent, once, and their secrets are masked", function()
    s = states.new { sandbox = STEPS:format("") }
    local c = s:client { SETUP_KEY = SECRET }
    local row = run(c, { brief = "cat ~/notes/a.txt; tool; touch ~/notes/b; echo \"key: $KEY$SETUP_KEY\"; id -un" })
    assert.equal("succeeded", row.state, row.outcome.error)
    assert.equal("from setup\nthe tool\nkey: \nuser\n", s:read(row.id, "out.log"))
    assert.equal("0\nwith k-[REDACTED:SETUP_KEY]\n", s:read(row.id, "setup-1.log"))
    assert.equal("the tool\n", s:read(row.id, "setup-2.log"))
  end)

  it("that fail end the run with the step's name and words", function()
    s = states.new { sandbox = STEPS:format("yes") }
    local c = s:client { SETUP_KEY = SECRET }
    local row = run(c, { brief = "echo never" })
    assert.equal("failed", row.state)
    assert.equal("setup_failed", row.reason)
    assert.truthy(row.outcome.text:find("setup step second failed with status 7: the tool", 1, true), row.outcome.text)
    assert.is_nil(s:read(row.id, "out.log"))
  end)

  it("want the variables they name", function()
    s = states.new { sandbox = STEPS:format("") }
    local c = s:client { SETUP_KEY = "" }
    local id, e = c:run { agent = "command", no_repo = true, brief = "x" }
    assert.is_nil(id)
    assert.equal("invalid", e.code)
    assert.truthy(e.message:find("SETUP_KEY", 1, true))
    assert.same({}, assert(core.sys.list(s.state .. "/runs")))
  end)

  it("are not repeated by the engine that comes after", function()
    s = states.new { sandbox = [[setup = { { name = "slow", commands = { "echo once >> /root/count; sleep 2; wc -l < /root/count" } } }]] }
    local c = s:client()
    local id = assert(c:run { agent = "command", no_repo = true, brief = "echo agent" })
    states.eventually("the step", 120, function() return #states.processes("crewbox-" .. id .. "s1-1/orders") > 0 end)
    core.sys.kill(s:engine_pid(), "KILL")
    local row = assert(c:wait(id, 180))
    assert.equal("succeeded", row.state, row.outcome.error)
    assert.equal("1\n", s:read(id, "setup-1.log"))
    assert.equal("agent\n", s:read(id, "out.log"))
  end)
end)
