-- SPDX-License-Identifier: MIT
-- Runs a real CLI against a model that fails in every way the scripted server knows, each in a box
-- of its own, all at once, and checks how each run was judged.
local agent_cache = require "spec.support.agent_cache"
local assert = require "luassert"
local core = require "crewbox.core"
local model_server = require "spec.support.model_server"
local states = require "spec.support.state"

local M = {}
M.__index = M

M.WAIT_S = 300 -- for all runs together: they were begun at the same moment

local function fault(f, times) return { text = "this will not arrive as a whole", fault = f, times = times or "forever" } end
local function status(code, kind, times)
  return fault({ status = code, type = kind, message = "scripted " .. code, headers = { ["retry-after"] = "1" } }, times)
end

local SLEEP = "7061" .. core.sys.random_id(8):gsub("%D", "4") -- seconds: seen on command lines
local DONE = { text = "all is done" }

--- What the model does, by the name of the case.
M.scripts = {
  fine = { turns = { { text = "I write.", bash = "echo new > f.txt" }, DONE } },
  key = { require_key = "another-key", turns = { DONE } },
  limited = { turns = { status(429, "rate_limit_error", 2), DONE } },
  broken = { turns = { status(500, "api_error") } },
  overloaded = { turns = { status(529, "overloaded_error") } },
  too_long = { turns = { fault { status = 400, type = "invalid_request_error", message = "prompt is too long" } } },
  truncated = { turns = { fault { kind = "truncate" } } },
  truncated_once = { turns = { fault({ kind = "truncate" }, 1), DONE } },
  stalled = { turns = { fault { kind = "stall" } } },
  hanging = { turns = { fault { kind = "hang" } } },
  cut = { turns = { { text = "cut off by its len", stop = "max_tokens", times = "forever" } } },
  tool_fails = { turns = { { text = "I try.", bash = "echo no >&2; exit 3" }, DONE } },
  endless = { turns = { { text = "Once more.", bash = "true", times = "forever" } } },
  cancelled = { turns = { { text = "I wait.", bash = "sleep " .. SLEEP .. " & sleep " .. SLEEP, times = "forever" } } },
}

--- @param agent string
--- @param o table {key: string, settings: table<string, string>, url: string (name of the setting
---   with the model's URL), suffix: string?, model: string?, cases: table}
---   A case: {state?, reason?, error?, timeout_s?, options?}; without a reason it succeeds.
function M.new(agent, o)
  return setmetatable({ agent = agent, o = o, runs = {} }, M)
end

--- Begins all runs.
function M:start()
  local o = self.o
  local cache = agent_cache.with(self.agent)
  self.model = model_server.start { side = "a title", sessions = M.scripts, turns = { DONE } }
  self.s = states.new()
  local environ = { CREWBOX_CACHE = cache, ANTHROPIC_API_KEY = "", ANTHROPIC_BASE_URL = "", OPENAI_API_KEY = "", OPENAI_BASE_URL = "" }
  environ[o.key] = "not-a-key-of-anybody"
  for k, v in pairs(o.settings) do environ[k] = v end
  self.client = self.s:client(environ)
  for name, case in pairs(o.cases) do
    self.runs[name] = assert(self.client:run {
      agent = self.agent, model = o.model, brief = "Do what the script says.", repo = self.s:checkout { ["f.txt"] = "old\n" },
      env = { [o.url] = ("%s/%s%s"):format(self.model.url, name, o.suffix or "") },
      timeout_s = case.timeout_s, options = case.options,
    })
  end
end

function M:stop()
  if self.s then self.s:close() end
  if self.model then self.model:stop() end
end

--- Names of the cases, in an order that is always the same.
function M:names()
  local names = {}
  for name in pairs(self.o.cases) do names[#names + 1] = name end
  table.sort(names)
  return names
end

--- Waits for the end of one run and checks it.
function M:check(name)
  local case, id = self.o.cases[name], self.runs[name]
  if case.cancel then
    states.eventually("the tool of the agent", M.WAIT_S, function() return #states.processes("sleep\0" .. SLEEP) >= 2 end)
    assert(self.client:cancel(id))
  end
  local row = assert(self.client:wait(id, M.WAIT_S))
  local said = ("%s: %s"):format(tostring(row.reason), tostring(row.outcome.error))
  assert.equal(case.state or (case.reason and "failed" or "succeeded"), row.state, said)
  assert.equal(case.reason, row.reason, said)
  if case.error then assert.truthy((row.outcome.error or ""):find(case.error, 1, true), row.outcome.error) end
  if not case.reason then assert.equal("all is done", row.outcome.text) end
  if case.changed then assert.equal(case.changed, row.outcome.changed) end
  if case.cancel then assert.same({}, states.processes("sleep\0" .. SLEEP)) end
  assert.equal(1, states.count(self.s:events(id), "run_finished"))
end

--- Checks that nothing of all the runs is left.
function M:check_empty()
  states.eventually("the end of every box", 60, function() return self.s:boxes() == 0 end)
end

return M
