-- SPDX-License-Identifier: MIT
-- The real OpenCode with a model that fails in every way: `make test-agents`.
local matrix = require("spec.support.fault_matrix").new("opencode", {
  key = "OPENAI_API_KEY",
  url = "OPENAI_BASE_URL",
  suffix = "/v1",
  model = "scripted-model",
  settings = { API_TIMEOUT_MS = "8000" },
  cases = {
    fine = { changed = 1 },
    key = { reason = "agent_error", error = "status 401" },
    limited = {},
    broken = { reason = "agent_error", error = "status 500" },
    overloaded = { reason = "agent_error", error = "status 529" },
    -- It would ask again for ever, billed each time.
    too_long = { reason = "agent_error", error = "compacting it did not help" },
    truncated = { reason = "truncated", error = "broke off 5 times" },
    truncated_once = {},
    stalled = { reason = "agent_error", error = "timed out" },
    hanging = { reason = "agent_error", error = "timed out" },
    cut = { reason = "truncated", error = "length" },
    tool_fails = {},
    endless = { reason = "limit", error = "3 turns", options = { max_turns = 3 } },
    cancelled = { cancel = true, state = "cancelled", reason = "cancelled" },
  },
})

describe("the real opencode", function()
  setup(function() matrix:start() end)
  teardown(function() matrix:stop() end)
  for _, name in ipairs(matrix:names()) do
    it("ends as it should when the model is " .. name, function() matrix:check(name) end)
  end
  it("leaves no box", function() matrix:check_empty() end)
end)
