-- SPDX-License-Identifier: MIT
-- Each real CLI once, in a box, from `crewbox run` to the applied patch. The model is a scripted
-- server; the CLI, its wire format, its tool calls and the box are real.
local agent_cache = require "spec.support.agent_cache"
local model_server = require "spec.support.model_server"
local shell = require "spec.support.shell"

local KEY = "not-a-key-of-anybody-0123456789"
-- What a command line would take for something else. The shell must never see it.
local BRIEF = "--do \"it\" in f.txt, it's $(touch /tmp/cb-brief) `x` \\n und Straße"

local SCRIPT = {
  require_key = KEY,
  side = "a title",
  turns = {
    { text = "I change the file.", bash = "cd ~/project && echo new > f.txt", usage = { input = 100, output = 10 } },
    { text = "Now the report.", bash = "mkdir -p ~/.crewbox && printf '# Done\\n\\nf.txt is new.\\n' > ~/.crewbox/findings.md",
      usage = { input = 200, output = 20 } },
    { text = "All is done.", usage = { input = 300, output = 30 } },
  },
}

-- agent, the protocol that is spoken, how the model is reached
local AGENTS = {
  { "claude-code", "messages", key = "ANTHROPIC_API_KEY", url = "ANTHROPIC_BASE_URL" },
  { "opencode", "messages", key = "ANTHROPIC_API_KEY", url = "ANTHROPIC_BASE_URL", model = "scripted-model" },
  { "opencode", "chat/completions", key = "OPENAI_API_KEY", url = "OPENAI_BASE_URL", suffix = "/v1", model = "scripted-model" },
}

for _, a in ipairs(AGENTS) do
  describe(("the real %s by %s"):format(a[1], a[2]), function()
    local place, model, repo

    setup(function()
      local cache = agent_cache.with(a[1])
      place = shell.place()
      place.cache = cache
      model = model_server.start(SCRIPT)
      repo = place.checkout("repo", { ["f.txt"] = "old\n" })
    end)

    teardown(function()
      if place then place.remove() end
      if model then model:stop() end
    end)

    it("does a task from the brief to the applied patch", function()
      local words = { cwd = repo, seconds = 300, stdin = BRIEF, "run", "-", "--agent", a[1], "--apply", "--json", "--timeout", "240s",
        env = { CREWBOX_CACHE = place.cache, [a.key] = KEY, [a.url] = model.url .. (a.suffix or "") } }
      if a.model then
        words[#words + 1] = "--model"
        words[#words + 1] = a.model
      end
      local r = place.crewbox(words)
      assert.are.equal(0, r.status, r.err .. r.out)
      assert.are.equal("new\n", shell.read(repo .. "/f.txt"))
      local result = require("crewbox.json").decode(r.out)
      assert.are.equal("succeeded", result.state)
      assert.are.equal("# Done\n\nf.txt is new.\n", result.outcome.text)
      assert.are.equal(60, result.outcome.usage.output)
      assert.is_truthy(result.outcome.session_id)
      -- Nothing but the agent's own change: no configuration of ours in the project.
      assert.are.equal(" M f.txt\n", place.run({ "git", "status", "--porcelain", cwd = repo }).out)

      -- The brief came to the model byte for byte, by the protocol that was meant, with tools.
      local asked = 0
      for _, request in ipairs(model:requests()) do
        assert.is_truthy(request.path:find(a[2], 1, true), request.path)
        local body = require("crewbox.json").encode(request.body)
        if body:find(require("crewbox.json").encode(BRIEF):sub(2, -2), 1, true) then asked = asked + 1 end
      end
      assert.is_true(asked >= 3)
      assert.is_false(shell.exists "/tmp/cb-brief")
      -- The key is in nothing that was stored.
      local found = place.run { "grep", "-rlF", KEY, place.state }
      assert.are.equal("", found.out)
    end)
  end)
end
