-- SPDX-License-Identifier: MIT
-- Every recorded end of the real Claude Code (2.1.197, and "new" 2.1.332) is judged right.
local claude = require "crewbox.harness.claude_code"

local DIR = "spec/fixtures/claude_code/"

local function slurp(name)
  local f = io.open(DIR .. name, "rb")
  if not f then return "" end
  local all = f:read("*a")
  f:close()
  return all
end

-- Words each case must end with: ok, or a reason and a piece of the error.
local DONE = "All done: hello.txt holds hello and the test passes."
local cases = {
  { "claude-stream-json", exit = 0, ok = true, text = DONE, turns = 3 },
  { "claude-stream-json-partial", exit = 0, ok = true, text = DONE, turns = 3 },
  { "claudenew-stream-json", exit = 0, ok = true, text = DONE, turns = 3 },
  { "claudenew-json", exit = 0, ok = true, text = DONE },
  { "claude-stdin-pipe-open", exit = 0, ok = true, text = DONE },
  { "claude-stdin-wait", exit = 0, ok = true, text = "Just text, no tool." },
  { "claude-stream-input", exit = 0, ok = true, text = "Just text, no tool." },
  { "claude-auth-token", exit = 0, ok = true, text = "Just text, no tool." },
  { "claude-oauth-token", exit = 0, ok = true, text = "Just text, no tool." },
  { "claude-nonmodel", exit = 0, ok = true, text = "Just text, no tool." },
  { "claude-dash-sep", exit = 0, ok = true, text = "Just text, no tool." },
  { "claude-resume", exit = 0, ok = true, text = "done" },
  { "claude-tool-fails", exit = 0, ok = true, text = "the command failed" },
  { "claude-env-in-tool", exit = 0, ok = true, text = "env shown" },
  { "claude-429-twice", exit = 0, ok = true, text = "after the limit" },
  { "claude-truncate-once", exit = 0, ok = true, text = "second try whole" },
  { "claude-mcp", exit = 0, ok = true, text = "pinged both" },
  { "claude-mcp-dead", exit = 0, ok = true, text = "Just text", note = "did not connect" },

  { "claude-400", exit = 1, reason = "agent_error", error = "Prompt is too long" },
  { "claude-401-default", exit = 1, reason = "agent_error", error = "Invalid API key" },
  { "claude-401-retry0", exit = 1, reason = "agent_error", error = "Invalid API key" },
  { "claudenew-401", exit = 1, reason = "agent_error", error = "Invalid API key" },
  { "claude-429-forever", exit = 1, reason = "agent_error", error = "429" },
  { "claude-500", exit = 1, reason = "agent_error", error = "500" },
  { "claude-529", exit = 1, reason = "agent_error", error = "529" },
  { "claude-hang", exit = 1, reason = "agent_error", error = "timed out" },
  { "claude-refused", exit = 1, reason = "agent_error", error = "ConnectionRefused" },
  { "claude-truncate", exit = 1, reason = "agent_error", error = "ECONNRESET" },
  { "claude-max-tokens", exit = 1, reason = "agent_error", error = "exceeded" },
  { "claude-no-key", exit = 1, reason = "agent_error", error = "Not logged in" },
  { "claude-max-turns", exit = 1, reason = "limit", error = "maximum number of turns" },
  { "claude-max-turns-stream", exit = 1, reason = "limit", error = "maximum number of turns" },
  { "claudenew-max-turns", exit = 1, reason = "limit", error = "maximum number of turns" },
  { "claude-max-budget", exit = 1, reason = "limit", error = "maximum budget" },

  { "claude-bad-flag", exit = 1, reason = "agent_exit", error = "unknown option" },
  { "claude-dash", exit = 1, reason = "agent_exit", error = "unknown option" },
  { "claude-dashdash", exit = 1, reason = "agent_exit", error = "unknown option" },
  { "claude-bad-resume", exit = 1, reason = "agent_exit", error = "No conversation found" },
  { "claude-empty-prompt", exit = 1, reason = "agent_exit", error = "Input must be provided" },
  { "claude-mcp-badfile", exit = 1, reason = "agent_exit", error = "Invalid MCP configuration" },
  { "claude-mcp-nofile", exit = 1, reason = "agent_exit", error = "Invalid MCP configuration" },
  { "claude-root-refused", exit = 1, reason = "agent_exit", error = "cannot be used with root" },
  { "claude-stream-json-noverbose", exit = 1, reason = "agent_exit", error = "requires --verbose" },

  -- Signals, with the agent's own end, not the recording shell's.
  { "claude-sigint-slow", exit = 1, reason = "agent_error", error = "ede_diagnostic" },
  { "claude-sigint-tool", exit = 1, reason = "agent_error", error = "ede_diagnostic" },
  { "claude-sigterm-model", exit = 143, reason = "agent_exit", error = "143" },
  { "claude-sigterm-slow", exit = 143, reason = "agent_exit", error = "143", result = false },
  { "claudenew-sigterm-slow", exit = 143, reason = "agent_exit", error = "143", result = false },
  { "claude-sigkill", signal = 9, reason = "signal", error = "signal 9" },
  { "claude-sigkill-slow", signal = 9, reason = "signal", error = "signal 9" },
  -- Cut by a time-out of the recording: still running, never finished by itself.
  { "claude-401", signal = 9, reason = "signal", error = "signal 9" },
  { "claude-stall-timeout", signal = 9, reason = "signal", error = "signal 9" },
  { "claude-stall-watchdog", signal = 9, reason = "signal", error = "signal 9" },
  -- The words of an agent that was told to print plain text are no result.
  { "claude-text", exit = 0, reason = "no_result", error = "neither result nor findings" },
}

local function judge(c, cut, more)
  local r = claude:reader()
  local out = slurp(c[1] .. ".stdout")
  if cut then
    for at = 1, #out, cut do r:feed(out:sub(at, at + cut - 1)) end
  else
    r:feed(out)
  end
  local f = { exit = c.exit, signal = c.signal, why = "exited", stderr = slurp(c[1] .. ".stderr") }
  for k, v in pairs(more or {}) do f[k] = v end
  return r:finish(f), r
end

describe("the Claude Code harness", function()
  for _, c in ipairs(cases) do
    it("judges " .. c[1], function()
      for _, cut in ipairs { false, 1, 7, 4096 } do
        local o = judge(c, cut)
        assert.equal(c.ok or false, o.success)
        assert.equal(c.reason, o.reason)
        if c.text then assert.truthy(o.text:find(c.text, 1, true), o.text) end
        if c.error then assert.truthy(o.error and o.error:find(c.error, 1, true), o.error) end
        if c.note then assert.truthy(table.concat(o.notes, "|"):find(c.note, 1, true)) end
        if c.turns then assert.equal(c.turns, o.turns) end
      end
    end)
  end

  it("judges every recording that lies in the fixtures", function()
    local named = {}
    for _, c in ipairs(cases) do named[c[1]] = true end
    named["claude-sigterm-tool"], named["claude-sigterm-tool-stream"] = true, true -- below
    local p = assert(io.popen("ls " .. DIR))
    for file in p:lines() do
      local name = file:gsub("%.std%a+$", "")
      assert.is_true(named[name], "no case for " .. file)
    end
    p:close()
  end)

  it("counts tokens and money from modelUsage", function()
    local o = judge { "claude-stream-json", exit = 0 }
    assert.same({ input = 3900, output = 95, cache_read = 2800, cache_write = 100 }, o.usage)
    assert.truthy(math.abs(o.cost_usd - 0.0239) < 1e-9)
    assert.equal("6dd6a848-94b5-4d7d-9053-51358547ee3c", o.session_id)
  end)

  it("says nothing about usage it does not know", function()
    local o = judge { "claude-bad-flag", exit = 1 }
    assert.is_nil(o.usage)
    assert.is_nil(o.cost_usd)
  end)

  it("calls a success line with a bad end a failure, unless we ended it after its last word", function()
    -- SIGTERM makes the real CLI print a success result and exit 0, or be ended by a signal.
    local c = { "claude-sigterm-tool-stream", signal = 15 }
    local o, r = judge(c)
    assert.is_true(r:terminal())
    assert.is_false(o.success)
    assert.equal("signal", o.reason)
    assert.is_true(judge(c, nil, { stopped_after_terminal = true }).success) -- bug-A3
  end)

  it("takes findings as the report, and as success without a terminal event (bug-A9)", function()
    local o = judge({ "claude-stream-json", exit = 0 }, nil, { findings = "# Done\n" })
    assert.equal("# Done\n", o.text)
    local r = claude:reader()
    o = r:finish { exit = 0, why = "exited", findings = "# Fixed it\n" }
    assert.is_true(o.success)
    assert.truthy(o.notes[1]:find("no terminal event", 1, true))
  end)

  it("never makes a crash a success, but keeps its findings", function()
    local o = claude:reader():finish { exit = 1, why = "exited", findings = "# half\n", stderr = "boom\nmore" }
    assert.is_false(o.success)
    assert.equal("# half\n", o.text)
    assert.truthy(o.error:find("boom", 1, true))
    assert.is_nil(o.error:find("more", 1, true))
  end)

  it("reads an event behind terminal escapes (bug-A11)", function()
    local r = claude:reader()
    r:feed('\27]0;x: ready\7{"type":"result","subtype":"success","is_error":false,"result":"fine"}\n')
    assert.is_true(r:terminal())
    assert.equal("fine", r:finish({ exit = 0 }).text)
  end)

  it("reads a line over 1 MiB and one torn at poll time (bug-A13)", function()
    local r = claude:reader()
    local big = '{"type":"result","is_error":false,"result":"' .. ("x"):rep(1200000) .. '"}'
    r:feed(big:sub(1, 700000))
    assert.is_false(r:terminal())
    r:feed(big:sub(700001))
    assert.is_false(r:terminal()) -- no newline yet
    r:feed("\n")
    assert.is_true(r:terminal())
    r = claude:reader() -- and the stream may end without a newline
    r:feed(big)
    assert.equal(1200000, #r:finish({ exit = 0 }).text)
  end)

  it("survives hostile lines", function()
    local r = claude:reader()
    r:feed('{"type":"assistant","message":null}\n{"type":"assistant","message":{"content":[1,null,{"type":"tool_use","name":5,"input":7}]}}\n')
    r:feed('{"type":"system","subtype":"init","mcp_servers":[3,{"status":"failed","name":{}}]}\n[1]\n{"type":7}\n{"type"\n')
    r:feed('{"type":"result","is_error":false,"modelUsage":{"a":3},"usage":"x","errors":"y","permission_denials":5}\n')
    r:feed(("["):rep(5000) .. "\n")
    assert.is_true(r:finish({ exit = 0 }).success)
  end)

  it("tells progress", function()
    local r = claude:reader()
    r:feed(slurp "claude-stream-json.stdout")
    local p = r:progress()
    assert.equal(3, p.turns)
    assert.truthy(p.tokens > 0)
    assert.truthy(p.action:find("All done", 1, true))
    r = claude:reader()
    r:feed(slurp("claude-529.stdout"):match("^(.-\n.-\n.-\n)"))
    assert.equal("retry 2 of 2 after overloaded", r:progress().action)
  end)

  it("launches with the brief on stdin and nothing of it on the command line (bug-N7)", function()
    local brief = '-p "$(touch /tmp/x)" @file'
    local p = claude:plan { brief = brief, project = "/home/user/project", model = "m", session_id = "s", env = { A = "b" } }
    assert.same({ "claude", "-p", "--output-format", "stream-json", "--verbose", "--permission-mode",
      "bypassPermissions", "--model", "m", "--session-id", "s" }, p.argv)
    assert.equal(brief, p.stdin)
    assert.equal("b", p.env.A)
    assert.equal("1", p.env.CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC)
    p = claude:plan { brief = "x", project = "/p", session_id = "s", resume = true, options = { max_turns = 3 } }
    assert.same({ "--resume", "s", "--max-turns", "3" }, { p.argv[8], p.argv[9], p.argv[10], p.argv[11] })
  end)

  it("asks for a key by name", function()
    local ok, e = claude:check {}
    assert.is_nil(ok)
    assert.truthy(e.message:find("ANTHROPIC_API_KEY", 1, true))
    assert.is_true(claude:check { ANTHROPIC_AUTH_TOKEN = "t" })
  end)

  it("names the model's endpoint", function()
    assert.same({ "https://api.anthropic.com" }, claude:endpoints {})
    assert.same({ "http://127.0.0.1:9" }, claude:endpoints { ANTHROPIC_BASE_URL = "http://127.0.0.1:9" })
  end)
end)
