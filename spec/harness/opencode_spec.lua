-- SPDX-License-Identifier: MIT
-- Every recorded end of the real OpenCode (1.18.33) is judged right.
local json = require "crewbox.json"
local opencode = require "crewbox.harness.opencode"

local DIR = "spec/fixtures/opencode/"

local function slurp(name)
  local f = io.open(DIR .. name, "rb")
  if not f then return "" end
  local all = f:read("*a")
  f:close()
  return all
end

-- How each case must end: ok, or a reason and a piece of the error. `stop`: a piece of what the
-- reader says to have it ended; the recording was cut there by a kill, which is the engine's then.
local DONE = "All done: hello.txt holds hello and the test passes."
local cases = {
  { "ok", exit = 0, ok = true, text = DONE, turns = 3 },
  { "user", exit = 0, ok = true, text = DONE, turns = 3 },
  { "anthropic", exit = 0, ok = true, text = "all done", turns = 2 },
  { "responses", exit = 0, ok = true, text = "all done", turns = 2 },
  { "stdin-both", exit = 0, ok = true, turns = 1 },
  { "no-key", exit = 0, ok = true, turns = 1 },
  { "nogit", exit = 0, ok = true, turns = 1 },
  { "resume", exit = 0, ok = true, turns = 3 },
  { "tool-fails", exit = 0, ok = true, turns = 2 },
  { "429-twice", exit = 0, ok = true, turns = 1 },
  { "truncate-once", exit = 0, ok = true, text = "second try whole", turns = 2 },
  { "mcp", exit = 0, ok = true, turns = 2 },
  { "mcp-dead", exit = 0, ok = true, turns = 1 },
  -- Status 1 that lies: the prompt was compacted and the work is done.
  { "compacted", exit = 1, ok = true, text = "all done", note = "too long 1 time" },

  -- Status 0 that lies.
  { "max-tokens", exit = 0, reason = "truncated", error = "length" },
  { "permission-ask", exit = 0, reason = "agent_error", error = "denied" },
  { "text", exit = 0, reason = "no_result", error = "neither result nor findings" },

  { "401", exit = 1, reason = "agent_error", error = "invalid x-api-key (status 401)" },
  { "500", exit = 1, reason = "agent_error", error = "scripted 500 (status 500)" },
  { "stall", exit = 1, reason = "agent_error", error = "SSE read timed out" },
  { "hang", exit = 1, reason = "agent_error", error = "headers timed out" },
  { "bad-model", exit = 1, reason = "agent_error", error = "Unexpected server error" },
  { "bad-config", exit = 1, reason = "agent_exit", error = "not valid JSON" },
  { "dashdash", exit = 1, reason = "agent_exit", error = "opencode run" },
  { "empty", exit = 1, reason = "agent_exit", error = "You must provide a message" },
  { "home-unwritable", exit = 1, reason = "agent_exit", error = "ENOENT" },
  { "sigint-tool", exit = 130, reason = "agent_exit", error = "130" },
  { "sigterm-tool", exit = 143, reason = "agent_exit", error = "143" },

  -- Loops without an end.
  { "400", signal = 9, why = "stopped", reason = "agent_error", error = "too long", stop = "compacting it did not help" },
  { "truncate", signal = 9, why = "stopped", reason = "truncated", error = "broke off 5 times", stop = "broke off 5 times" },
  { "steps", signal = 9, why = "stopped", reason = "limit", error = "20 turns", stop = "20 turns", options = { max_turns = 20 } },
}

local function reader_of(c, cut)
  local r = opencode:reader(c.options)
  local out = slurp("opencode-" .. c[1] .. ".stdout")
  for at = 1, #out, cut or math.max(#out, 1) do r:feed(out:sub(at, at + (cut or #out) - 1)) end
  return r
end

local function judge(c, cut, more)
  local r = reader_of(c, cut)
  local f = { exit = c.exit, signal = c.signal, why = c.why or "exited", stderr = slurp("opencode-" .. c[1] .. ".stderr") }
  for k, v in pairs(more or {}) do f[k] = v end
  return r:finish(f), r
end

local function line(o) return json.encode(o) .. "\n" end
local function step(reason, cost)
  return line { type = "step_finish", sessionID = "ses_a1", part = { reason = reason, cost = cost,
    tokens = { input = 1, output = 2, reasoning = 3, cache = { read = 4, write = 5 } } } }
end

describe("the OpenCode harness", function()
  for _, c in ipairs(cases) do
    it("judges opencode-" .. c[1], function()
      for _, cut in ipairs { false, 1, 7, 4096 } do
        local o, r = judge(c, cut or nil)
        assert.equal(c.ok or false, o.success, o.error)
        assert.equal(c.reason, o.reason)
        if c.text then assert.equal(c.text, o.text) end
        if c.error then assert.truthy(o.error and o.error:find(c.error, 1, true), o.error) end
        if c.note then assert.truthy(table.concat(o.notes, "|"):find(c.note, 1, true)) end
        if c.turns then assert.equal(c.turns, o.turns) end
        local stop = r:stop_reason()
        assert.equal(c.stop ~= nil, stop ~= nil, stop)
        if stop then assert.truthy(stop:find(c.stop, 1, true), stop) end
      end
    end)
  end

  it("judges every recording that lies in the fixtures", function()
    local named = {}
    for _, c in ipairs(cases) do named["opencode-" .. c[1]] = true end
    local p = assert(io.popen("ls " .. DIR))
    for file in p:lines() do assert.is_true(named[file:gsub("%.std%a+$", "")], "no case for " .. file) end
    p:close()
  end)

  it("sums tokens and money over the steps", function()
    local o = judge { "ok", exit = 0 }
    assert.same({ input = 3900, output = 95, cache_read = 2800, cache_write = 0 }, o.usage)
    assert.truthy(math.abs(o.cost_usd - 0.013965) < 1e-9)
    assert.equal("ses_dd23a4e67ffegH48rsOzdW90FW", o.session_id)
    local r = opencode:reader()
    r:feed(step("stop", 0.5))
    o = r:finish { exit = 0, why = "exited" }
    assert.same({ input = 1, output = 5, cache_read = 4, cache_write = 5 }, o.usage)
    assert.equal(0.5, o.cost_usd)
  end)

  it("tells no cost of a model without a price, and no usage of a run without a step", function()
    assert.is_nil(judge({ "truncate", signal = 9 }).cost_usd)
    local o = judge { "401", exit = 1 }
    assert.is_nil(o.usage)
    assert.is_nil(o.cost_usd)
  end)

  it("asks for the end of a loop as soon as it is one, and not before", function()
    local r = opencode:reader()
    for _ = 1, 4 do r:feed(step "unknown") end
    assert.is_nil(r:stop_reason())
    r:feed(step "tool-calls") -- it got on
    for _ = 1, 4 do r:feed(step "unknown") end
    assert.is_nil(r:stop_reason())
    r:feed(step "unknown")
    assert.truthy(r:stop_reason())
    r = opencode:reader { max_budget_usd = 1 }
    r:feed(step("tool-calls", 0.9))
    assert.is_nil(r:stop_reason())
    r:feed(step("tool-calls", 0.1))
    assert.truthy(r:stop_reason():find("1.00 USD", 1, true))
    assert.equal("limit", r:finish({ signal = 15, why = "stopped" }).reason)
  end)

  it("has a cap on steps of its own", function()
    local r = opencode:reader()
    for _ = 1, 999 do r:feed(step "tool-calls") end
    assert.is_nil(r:stop_reason())
    r:feed(step "tool-calls")
    assert.truthy(r:stop_reason())
    r = opencode:reader { max_turns = 2 } -- a last turn that is the last by itself is none too many
    r:feed(step "tool-calls" .. step "stop")
    assert.is_nil(r:stop_reason())
  end)

  it("goes by what the agent did when it ended well before it could be stopped", function()
    local r = opencode:reader { max_turns = 1 }
    r:feed(step "tool-calls")
    assert.truthy(r:stop_reason())
    r:feed(step "stop")
    assert.is_true(r:finish({ exit = 0, why = "exited" }).success)
  end)

  it("takes `stop` for the last word until something follows (bug-A3)", function()
    local r = opencode:reader()
    r:feed(step "tool-calls")
    assert.is_false(r:terminal())
    r:feed(step "stop")
    assert.is_true(r:terminal())
    r:feed(line { type = "text", part = { synthetic = true, metadata = { compaction_continue = true }, text = "go on" } })
    assert.is_false(r:terminal())
    r:feed(line { type = "step_start", part = {} } .. step "stop")
    assert.is_true(r:terminal())
    assert.is_true(r:finish({ signal = 15, why = "stopped", stopped_after_terminal = true }).success)
    r = opencode:reader()
    r:feed(step "stop")
    assert.equal("signal", r:finish({ signal = 15, why = "exited" }).reason)
  end)

  it("calls an error after all the work an error (bug-A7)", function()
    local o = judge({ "ok", exit = 0 }, nil, nil)
    assert.is_true(o.success)
    local r = reader_of { "ok" }
    r:feed(line { type = "error", error = { name = "APIError", data = { message = "it broke" } } })
    o = r:finish { exit = 0, why = "exited" }
    assert.is_false(o.success)
    assert.equal("it broke", o.error)
    r = reader_of { "compacted" } -- the same for one after a compaction
    r:feed(line { type = "error", error = { name = "ContextOverflowError", data = { message = "too long again" } } })
    assert.equal("too long again", r:finish({ exit = 1, why = "exited" }).error)
    assert.equal("agent_exit", judge({ "compacted", exit = 2 }).reason)
  end)

  it("takes findings as the report, and as success without a last word (bug-A9)", function()
    assert.equal("# Done\n", judge({ "ok", exit = 0 }, nil, { findings = "# Done\n" }).text)
    local o = opencode:reader():finish { exit = 0, why = "exited", findings = "# Fixed it\n" }
    assert.is_true(o.success)
    assert.truthy(o.notes[1]:find("no last word", 1, true))
    o = judge({ "permission-ask", exit = 0 }, nil, { findings = "# half\n" })
    assert.is_false(o.success)
    assert.equal("# half\n", o.text)
    assert.is_false(opencode:reader():finish({ exit = 1, why = "exited", findings = "# half\n" }).success)
  end)

  it("reads an event behind terminal escapes (bug-A11)", function()
    local r = opencode:reader()
    r:feed("\27]0;x: ready\7" .. step "stop")
    assert.is_true(r:finish({ exit = 0, why = "exited" }).success)
  end)

  it("reads a line over 1 MiB and one torn at poll time (bug-A13)", function()
    local big = line { type = "text", part = { text = ("x"):rep(1200000) } } .. step "stop"
    local r = opencode:reader()
    r:feed(big:sub(1, 700000))
    r:feed(big:sub(700001, #big - 10))
    assert.is_false(r:terminal())
    r:feed(big:sub(-10))
    assert.is_true(r:terminal())
    assert.equal(1200000, #r:finish({ exit = 0, why = "exited" }).text)
  end)

  it("survives hostile lines", function()
    local r = opencode:reader()
    r:feed('{"type":"step_finish"}\n{"type":"step_finish","part":{"reason":5,"tokens":{"input":"x","cache":7},"cost":{}}}\n')
    r:feed('{"type":"error"}\n{"type":"error","error":{"name":3,"data":[1]}}\n{"type":"text","part":null}\n')
    r:feed('{"type":"tool_use","part":{"tool":[],"state":{"status":"error","error":{}}}}\n[1]\n{"type":7}\n{"type"\n')
    r:feed('{"type":"text","sessionID":"--share","part":{"text":"words"}}\n{"type":"text","sessionID":"ses_--x"}\n')
    r:feed(("["):rep(5000) .. "\n")
    local o = r:finish { exit = 0, why = "exited" }
    assert.equal("agent_error", o.reason)
    assert.is_nil(o.session_id) -- it would become a word of a command line
  end)

  it("tells progress", function()
    local r = reader_of { "ok" }
    local p = r:progress()
    assert.equal(3, p.turns)
    assert.equal(6700, p.tokens)
    assert.equal(DONE, p.action)
    r = opencode:reader()
    r:feed(slurp("opencode-ok.stdout"):match("^(.-\n.-\n.-\n)"))
    assert.equal("bash: printf 'hello\\n' > hello.txt && echo wrote", r:progress().action)
    r = opencode:reader()
    r:feed(slurp("opencode-stall.stdout"):match("^(.-\n.-\n)"))
    assert.truthy(r:progress().action:find("asked again", 1, true))
  end)

  describe("launches", function()
    local function config(o)
      o.brief, o.project = o.brief or "x", "/home/user/project"
      local plan = opencode:plan(o)
      return json.decode(plan.env.OPENCODE_CONFIG_CONTENT), plan
    end

    it("with the brief on stdin and nothing of it on the command line (bug-N7)", function()
      local brief = '--do "$(touch /tmp/x)" @file'
      local c, p = config { brief = brief, model = "m", env = { ANTHROPIC_API_KEY = "sk-secret", A = "b" } }
      assert.same({ "opencode", "run", "--format", "json" }, p.argv)
      assert.equal(brief, p.stdin)
      assert.equal("b", p.env.A)
      assert.same({}, p.files) -- nothing in the project
      assert.equal("disabled", c.share)
      assert.equal(false, c.autoupdate)
      assert.equal("allow", c.permission)
      assert.equal("allow", c.agent.build.permission)
      assert.equal("1", p.env.OPENCODE_DISABLE_MODELS_FETCH)
    end)

    it("without the key in its configuration, which it prints when it is wrong", function()
      local c, p = config { env = { ANTHROPIC_API_KEY = "sk-secret" } }
      assert.equal("{env:ANTHROPIC_API_KEY}", c.provider.anthropic.options.apiKey)
      assert.is_nil(p.env.OPENCODE_CONFIG_CONTENT:find("sk-secret", 1, true))
      assert.equal("sk-secret", p.env.ANTHROPIC_API_KEY)
    end)

    it("with the provider and model that are asked for", function()
      local both = { ANTHROPIC_API_KEY = "a", OPENAI_API_KEY = "o" }
      local function of(model, more)
        local env = {}
        for _, t in ipairs { both, more or {} } do
          for k, v in pairs(t) do env[k] = v ~= "" and v or nil end
        end
        local c = config { model = model, env = env }
        local id = c.enabled_providers[1]
        assert.equal(c.model, c.small_model)
        assert.same({}, c.provider[id].models[c.model:sub(#id + 2)])
        assert.same({ c.provider[id].options.baseURL }, opencode:endpoints(env, model))
        return c.model, c.provider[id].options.baseURL, c.provider[id].npm
      end
      assert.equal("anthropic/claude-sonnet-5", (of()))
      assert.equal("openai/gpt-5.6", (of(nil, { ANTHROPIC_API_KEY = "" })))
      assert.equal("openai/mine", (of(nil, { ANTHROPIC_API_KEY = "", OPENAI_MODEL = "mine" })))
      assert.equal("anthropic/m", (of("m", { OPENAI_API_KEY = "" })))
      assert.equal("anthropic/m", (of("anthropic/m", { ANTHROPIC_MODEL = "other" })))
      local name, url, npm = of("openai/m")
      assert.same({ "openai/m", "https://api.openai.com/v1", "@ai-sdk/openai" }, { name, url, npm })
      name, url, npm = of(nil, { OPENAI_BASE_URL = "http://127.0.0.1:9/v1/", OPENAI_MODEL = "meta/l" })
      assert.same({ "compatible/meta/l", "http://127.0.0.1:9/v1", "@ai-sdk/openai-compatible" }, { name, url, npm })
      name = of("meta/l", { OPENAI_BASE_URL = "http://h/v1", ANTHROPIC_API_KEY = "" })
      assert.equal("compatible/meta/l", name)
      name, url, npm = of("m", { ANTHROPIC_BASE_URL = "http://127.0.0.1:9", OPENAI_BASE_URL = "http://h/v1" })
      assert.same({ "anthropic/m", "http://127.0.0.1:9/v1", "@ai-sdk/anthropic" }, { name, url, npm })
      name, url = of("m", { ANTHROPIC_BASE_URL = "http://127.0.0.1:9/v1" })
      assert.same({ "anthropic/m", "http://127.0.0.1:9/v1" }, { name, url })
    end)

    it("with a bound on each request", function()
      local c = config { env = { ANTHROPIC_API_KEY = "k", API_TIMEOUT_MS = "5000" } }
      assert.equal(5000, c.provider.anthropic.options.chunkTimeout)
      assert.equal(5000, c.provider.anthropic.options.headerTimeout)
      c = config { env = { ANTHROPIC_API_KEY = "k", API_TIMEOUT_MS = "soon" } }
      assert.equal(300000, c.provider.anthropic.options.chunkTimeout)
    end)

    it("in a session that goes on", function()
      local p = opencode:plan { brief = "x", project = "/p", session_id = "ses_1", resume = true, env = {} }
      assert.same({ "--session", "ses_1" }, { p.argv[5], p.argv[6] })
      assert.equal(4, #opencode:plan({ brief = "x", project = "/p", session_id = "ses_1", env = {} }).argv)
    end)
  end)

  it("asks for a key by name", function()
    local ok, e = opencode:check {}
    assert.is_nil(ok)
    assert.truthy(e.message:find("ANTHROPIC_API_KEY or OPENAI_API_KEY", 1, true))
    assert.is_true(opencode:check { OPENAI_API_KEY = "k" })
    ok, e = opencode:check({ ANTHROPIC_API_KEY = "k" }, "openai/gpt-x")
    assert.is_nil(ok)
    assert.truthy(e.message:find("set OPENAI_API_KEY", 1, true))
    ok, e = opencode:check({}, "meta/llama")
    assert.is_nil(ok)
    assert.truthy(e.message:find("ANTHROPIC_API_KEY or OPENAI_API_KEY", 1, true))
  end)
end)
