-- SPDX-License-Identifier: MIT
-- How runs of an agent that never ends by itself end: a stand-in for the CLI of OpenCode says what
-- the real one was recorded to say, in a real box, through the engine process.
local core = require "crewbox.core"
local harness = require "crewbox.harness.opencode"
local json = require "crewbox.json"
local states = require "spec.support.state"

local function step(reason)
  return json.encode { type = "step_finish", sessionID = "ses_1", part = { reason = reason, tokens = { input = 1, output = 1 } } }
end

describe("an agent that asks its model for ever", function()
  local s, c, cache

  setup(function()
    s = states.new()
    cache = s.dir .. "/cache"
    c = s:client { CREWBOX_CACHE = cache, OPENAI_API_KEY = "sk-stand-in-key-0001", ANTHROPIC_API_KEY = "", OPENAI_BASE_URL = "" }
  end)

  teardown(function() s:close() end)

  -- Starts a run in which `opencode` is this script.
  local function begin(script, request)
    local dir = ("%s/agents/opencode/%s"):format(cache, harness.package.version)
    assert(core.sys.mkdirs(dir .. "/node_modules/.bin", 493))
    assert(core.sys.write_file(dir .. "/node_modules/.bin/opencode", "#!/bin/sh\n" .. script, 493, false))
    assert(core.sys.write_file(dir .. "/installed.json", json.encode { version = harness.package.version }, 420, false))
    -- A box of root's has another user id: all of the cache can be read.
    assert(os.execute(("chmod 755 '%s' '%s'/agents '%s'/agents/opencode && chmod 711 '%s'"):format(cache, cache, cache, s.dir)))
    request = request or {}
    request.agent, request.no_repo, request.brief = "opencode", true, "do it"
    return assert(c:run(request))
  end

  local FOREVER = "while :; do echo '%s'; sleep 0.2; done"

  it("because its answers break off is ended, as truncated", function()
    local id = begin(FOREVER:format(step "unknown"))
    local row = assert(c:wait(id, 120))
    assert.equal("failed", row.state)
    assert.equal("truncated", row.reason)
    assert.equal("stopped", row.outcome.why)
    assert.truthy(row.outcome.error:find("in a row", 1, true))
    assert.equal(1, states.count(s:events(id), "agent_stopped"))
  end)

  it("is ended at the run's limit", function()
    local row = assert(c:wait(begin(FOREVER:format(step "tool-calls"), { options = { max_turns = 3 } }), 120))
    assert.equal("limit", row.reason)
    assert.equal("failed", row.state)
  end)

  it("is ended by the engine that comes after a dead one", function()
    local id = begin(("echo '%s'; sleep 3; while :; do echo '%s'; sleep 0.2; done"):format(step "unknown", step "unknown"))
    states.eventually("its first line", 60, function() return (s:read(id, "out.log") or "") ~= "" end)
    core.sys.kill(s:engine_pid(), "KILL")
    local row = assert(c:wait(id, 120))
    assert.equal("truncated", row.reason)
    assert.equal(1, states.count(s:events(id), "run_finished"))
  end)

  it("but is stopped by a person is cancelled", function()
    local id = begin("echo started; sleep 6071; " .. FOREVER:format(step "unknown"))
    states.eventually("its start", 60, function() return #states.processes("sleep\0006071") > 0 end)
    assert(c:cancel(id))
    local row = assert(c:wait(id, 120))
    assert.equal("cancelled", row.state)
    assert.same({}, states.processes("sleep\0006071"))
  end)
end)
