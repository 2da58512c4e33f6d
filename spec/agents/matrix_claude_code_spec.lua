-- SPDX-License-Identifier: MIT
-- The real Claude Code with a model that fails in every way: `make test-agents`.
local matrix = require("spec.support.fault_matrix").new("claude-code", {
  key = "ANTHROPIC_API_KEY",
  url = "ANTHROPIC_BASE_URL",
  settings = { CLAUDE_CODE_MAX_RETRIES = "2", API_TIMEOUT_MS = "8000" },
  cases = {
    fine = { changed = 1 },
    key = { reason = "agent_error", error = "Invalid API key" },
    limited = {},
    broken = { reason = "agent_error", error = "500" },
    overloaded = { reason = "agent_error", error = "529" },
    too_long = { reason = "agent_error", error = "too long" },
    truncated = { reason = "agent_error" },
    truncated_once = {},
    -- It waits for ever for the rest of an answer, whatever API_TIMEOUT_MS says.
    stalled = { state = "timed_out", reason = "guard", timeout_s = 60 },
    hanging = { reason = "agent_error", error = "timed out" },
    cut = { reason = "agent_error", error = "exceeded" },
    tool_fails = {},
    endless = { reason = "limit", options = { max_turns = 3 } },
    cancelled = { cancel = true, state = "cancelled", reason = "cancelled" },
  },
})

describe("the real claude-code", function()
  setup(function() matrix:start() end)
  teardown(function() matrix:stop() end)
  for _, name in ipairs(matrix:names()) do
    it("ends as it should when the model is " .. name, function() matrix:check(name) end)
  end
  it("leaves no box", function() matrix:check_empty() end)
end)
