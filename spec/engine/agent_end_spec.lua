-- SPDX-License-Identifier: MIT
-- How runs of a real harness end: a stand-in for the CLI of Claude Code says what the real one was
-- recorded to say, in a real box, through the engine process.
local core = require "crewbox.core"
local harness = require "crewbox.harness.claude_code"
local json = require "crewbox.json"
local states = require "spec.support.state"

local RESULT = json.encode { type = "result", subtype = "success", is_error = false, result = "all done", session_id = "s-1",
  num_turns = 2, total_cost_usd = 0.5, usage = { input_tokens = 10, output_tokens = 5 } }

describe("a coding agent", function()
  local s, c, cache

  setup(function()
    s = states.new()
    cache = s.dir .. "/cache"
    c = s:client { CREWBOX_CACHE = cache, ANTHROPIC_API_KEY = "sk-ant-stand-in-key-0001", ANTHROPIC_BASE_URL = "" }
  end)

  teardown(function() s:close() end)

  -- Installs `script` as what `claude` is.
  local function install(script)
    local dir = ("%s/agents/claude-code/%s"):format(cache, harness.package.version)
    assert(core.sys.mkdirs(dir .. "/node_modules/.bin", 493))
    assert(core.sys.write_file(dir .. "/node_modules/.bin/claude", "#!/bin/sh\n" .. script, 493, false))
    assert(core.sys.write_file(dir .. "/installed.json", json.encode { version = harness.package.version }, 420, false))
    -- A box of root's has another user id: all of the cache can be read.
    assert(os.execute(("chmod 755 '%s' '%s'/agents '%s'/agents/claude-code && chmod 711 '%s'"):format(cache, cache, cache, s.dir)))
  end

  local function run(script, request)
    install(script)
    request = request or {}
    request.agent, request.no_repo, request.brief = "claude-code", true, request.brief or "do it"
    local id = assert(c:run(request))
    return assert(c:wait(id, 180))
  end

  it("that leaves after its last word is done", function()
    local row = run(("cat > brief.txt; grep -q '^do it' brief.txt || exit 7; echo '%s'"):format(RESULT))
    assert.equal("succeeded", row.state, row.outcome.error)
    assert.equal("all done", row.outcome.text)
    assert.equal("s-1", row.session_id)
    assert.equal(0.5, row.outcome.cost_usd)
    assert.equal(2, row.outcome.turns)
  end)

  it("that stays after its last word is ended and done (bug-A3)", function()
    local row = run(("echo '%s'; exec sleep 6061"):format(RESULT))
    assert.equal("succeeded", row.state, row.outcome.error)
    assert.equal("stopped", row.outcome.why)
    assert.same({}, states.processes("sleep\0006061"))
  end)

  it("that says an error and leaves with 0 has failed (bug-A7)", function()
    local row = run(("echo '%s'"):format(RESULT:gsub('"is_error":false', '"is_error":true')))
    assert.equal("failed", row.state)
    assert.equal("agent_error", row.reason)
    assert.equal("all done", row.outcome.error)
  end)

  it("that writes findings but no last word is done, with a note (bug-A9)", function()
    local row = run("echo '# Report' > ~/.crewbox/findings.md")
    assert.equal("succeeded", row.state)
    assert.equal("# Report\n", row.outcome.text)
    assert.truthy(row.outcome.notes[1]:find("no terminal event", 1, true))
  end)

  it("that says nothing has failed, with the words of its stderr", function()
    local row = run("echo 'node: not found' >&2; exit 127")
    assert.equal("failed", row.state)
    assert.equal("agent_exit", row.reason)
    assert.truthy(row.outcome.error:find("node: not found", 1, true))
  end)

  it("that writes half a line, waits, and writes the rest is understood (bug-A13)", function()
    local row = run(("printf '%%s' '%s'; sleep 2.5; echo '%s'"):format(RESULT:sub(1, 40), RESULT:sub(41)))
    assert.equal("succeeded", row.state, row.outcome.error)
    assert.equal("all done", row.outcome.text)
  end)

  it("that ends while its engine is dead is understood from what was stored", function()
    install(("echo '%s'; %s; echo '%s'"):format('{"type":"system","subtype":"init","session_id":"s-0"}', states.HELD, RESULT))
    local id = assert(c:run { agent = "claude-code", no_repo = true, brief = "do it" })
    states.eventually("its first line", 120, function() return (s:read(id, "out.log") or "") ~= "" end)
    core.sys.kill(s:engine_pid(), "KILL")
    s:let_go()
    local row = assert(c:wait(id, 180))
    assert.equal("succeeded", row.state, row.outcome.error)
    assert.equal("all done", row.outcome.text)
    assert.equal(1, states.count(s:events(id), "run_finished"))
  end)
end)
