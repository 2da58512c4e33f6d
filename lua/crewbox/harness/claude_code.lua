-- SPDX-License-Identifier: MIT
-- Claude Code, headless. What it does was recorded from the real CLI, versions 2.1.197 and
-- 2.1.332 (spec/fixtures/claude_code): the brief goes in on stdin and stdin then ends; stdout is
-- one JSON object a line; the truth about the outcome is the last `result` line's `is_error`
-- together with the exit status, never its `subtype` alone.
local err = require "crewbox.err"
local lines = require "crewbox.harness.lines"
local words = require "crewbox.harness.words"

local first_line, is_table, number, sum, text = words.first_line, words.is_table, words.number, words.sum, words.text

local M = {
  name = "claude-code",
  -- Secrets, taken from the caller's environment when set. One of them is enough.
  credentials = { "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN" },
  -- Plain settings, taken along when set.
  settings = { "ANTHROPIC_BASE_URL", "ANTHROPIC_MODEL", "ANTHROPIC_SMALL_FAST_MODEL",
    "CLAUDE_CODE_MAX_RETRIES", "API_TIMEOUT_MS" },
  -- The template of this agent at E2B; locally a template of our own mounts the package.
  remote_template = "claude",
  start_deadline_s = 120, -- its first line comes within seconds; a loaded machine needs more
  stall_s = 900,          -- told, never a kill: a long build inside one tool call prints nothing
  grace_s = 10,           -- from the result line to the exit: 0.2 to 0.4 s were measured
  package = { npm = "@anthropic-ai/claude-code", version = "2.1.197", bin = "claude" },
}

local DEFAULT_URL = "https://api.anthropic.com"

--- @param env table<string, string> the environment the agent will get
--- @return true? ok
--- @return crewbox.Error? err `invalid`
function M:check(env)
  for _, name in ipairs(self.credentials) do
    if env[name] and env[name] ~= "" then return true end
  end
  return nil, err.new("invalid", "claude-code needs a key: set ANTHROPIC_API_KEY " ..
    "(or ANTHROPIC_AUTH_TOKEN, or CLAUDE_CODE_OAUTH_TOKEN) in the environment")
end

--- URLs of the model, for the network rules of a box.
--- @param env table<string, string>
--- @return string[]
function M:endpoints(env)
  local url = env.ANTHROPIC_BASE_URL
  return { url and url ~= "" and url or DEFAULT_URL }
end

--- @class crewbox.HarnessPlan
--- @field argv string[]
--- @field env table<string, string>
--- @field stdin string? bytes fed to the agent, then end-of-file; nil: /dev/null
--- @field files {path: string, data: string}[]
--- @field streams "split"|"merged"

--- @param o table {brief, model?, env, project, session_id?, resume?, options?}
--- @return crewbox.HarnessPlan
function M:plan(o)
  local options = o.options or {}
  local argv = { "claude", "-p", "--output-format", "stream-json", "--verbose",
    "--permission-mode", "bypassPermissions" }
  local function add(...)
    for _, word in ipairs { ... } do argv[#argv + 1] = word end
  end
  if o.model then add("--model", o.model) end
  if o.session_id then add(o.resume and "--resume" or "--session-id", o.session_id) end
  if options.max_turns then add("--max-turns", ("%d"):format(options.max_turns)) end
  if options.max_budget_usd then add("--max-budget-usd", tostring(options.max_budget_usd)) end

  local env = {
    -- One switch for telemetry, updates and the title request: no host but the model's is asked.
    CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC = "1",
    DISABLE_AUTOUPDATER = "1",
    -- The default of 10 makes a wrong key take three minutes to say so.
    CLAUDE_CODE_MAX_RETRIES = "4",
    -- Bounds one request: without it a model that never answers hangs the run silently.
    API_TIMEOUT_MS = "600000",
  }
  for name, value in pairs(o.env or {}) do env[name] = value end
  return { argv = argv, env = env, stdin = o.brief, files = {}, streams = "split" }
end

-- ---- reading -----------------------------------------------------------------------------

local Reader = {}
Reader.__index = Reader

--- A reader of one run's stdout.
function M:reader()
  return setmetatable({
    lines = lines.new(),
    result = nil,      -- the last result line
    session_id = nil,
    turns = 0,
    seen = {},         -- message ids; each content block repeats its message's id and usage
    tokens = 0,
    action = nil,
    retrying = nil,    -- the last api_retry, until something else comes
    mcp_failed = {},   -- names of MCP servers that did not connect
  }, Reader)
end

local handlers = {}

function handlers.system(r, o)
  if o.subtype == "init" then
    for _, server in ipairs(is_table(o.mcp_servers) and o.mcp_servers or {}) do
      if is_table(server) and server.status == "failed" and text(server.name) then
        r.mcp_failed[#r.mcp_failed + 1] = server.name
      end
    end
  elseif o.subtype == "api_retry" then
    r.retrying = ("retry %.0f of %.0f after %s"):format(number(o.attempt), number(o.max_retries),
      text(o.error) or ("status " .. tostring(o.error_status)))
  end
end

function handlers.assistant(r, o)
  local message = is_table(o.message) and o.message or {}
  r.retrying = nil
  local id = text(message.id)
  if id and not r.seen[id] then
    r.seen[id] = true
    r.turns = r.turns + 1
    local u = is_table(message.usage) and message.usage or {}
    r.tokens = sum(r.tokens, sum(u.input_tokens, sum(u.cache_read_input_tokens, u.cache_creation_input_tokens)))
  end
  for _, block in ipairs(is_table(message.content) and message.content or {}) do
    if is_table(block) and block.type == "tool_use" then
      r.action = words.call(block.name, block.input)
    elseif is_table(block) and block.type == "text" and text(block.text) then
      r.action = first_line(block.text, words.ACTION_MAX)
    end
  end
end

function handlers.result(r, o)
  r.result = o
end

function Reader:line(raw)
  local o = words.event(raw)
  if not o then return end
  self.session_id = text(o.session_id) or self.session_id
  local handle = handlers[o.type]
  if handle then handle(self, o) end -- types we do not know come with every version
end

--- @param bytes string stdout, cut anywhere
function Reader:feed(bytes)
  for line in self.lines:feed(bytes) do self:line(line) end
end

--- True once the agent has said its last word; the process should exit by itself now.
function Reader:terminal()
  return self.result ~= nil
end

--- @return {turns: number, action: string?, tokens: number}
function Reader:progress()
  return { turns = self.turns, action = self.retrying or self.action, tokens = self.tokens }
end

-- `usage` is zero when a broken stream was repeated without streaming; `modelUsage` still counts.
local function usage_of(result)
  local u = { input = 0, output = 0, cache_read = 0, cache_write = 0 }
  local models = is_table(result.modelUsage) and result.modelUsage or {}
  local found = false
  for _, m in pairs(models) do
    if is_table(m) then
      found = true
      u.input = sum(u.input, m.inputTokens)
      u.output = sum(u.output, m.outputTokens)
      u.cache_read = sum(u.cache_read, m.cacheReadInputTokens)
      u.cache_write = sum(u.cache_write, m.cacheCreationInputTokens)
    end
  end
  if not found and is_table(result.usage) then
    u.input = number(result.usage.input_tokens)
    u.output = number(result.usage.output_tokens)
    u.cache_read = number(result.usage.cache_read_input_tokens)
    u.cache_write = number(result.usage.cache_creation_input_tokens)
  end
  return u
end

local LIMITS = { error_max_turns = true, error_max_budget_usd = true }

local function error_of(result)
  local list = is_table(result.errors) and result.errors or {}
  return text(result.result) or text(list[1]) or text(result.subtype) or "no words"
end

--- @class crewbox.Outcome
--- @field success boolean
--- @field reason string?   one of the reasons in docs/reference/interfaces.md section 9
--- @field text string      the findings, else the agent's last words
--- @field error string?
--- @field usage table?     {input, output, cache_read, cache_write}; nil when unknown
--- @field cost_usd number?
--- @field session_id string?
--- @field turns number?
--- @field notes string[]

--- Judges a finished run from stream, exit status and findings together.
--- @param f table {exit?, signal?, why, findings?, stderr?, stopped_after_terminal?}
--- @return crewbox.Outcome
function Reader:finish(f)
  self:line(self.lines:rest())
  local findings = f.findings and f.findings:find("%S") and f.findings or nil
  local out = { success = false, notes = {}, session_id = self.session_id, turns = self.turns }
  local result = self.result
  -- After the terminal event the exit status of a process that had to be killed says nothing.
  local clean = f.exit == 0 or f.stopped_after_terminal == true

  if result then
    out.usage = usage_of(result)
    out.cost_usd = number(result.total_cost_usd) == result.total_cost_usd and result.total_cost_usd or nil
    out.turns = type(result.num_turns) == "number" and result.num_turns or self.turns
    if result.is_error == false and clean then
      out.success = true
    else
      out.reason = LIMITS[result.subtype] and "limit" or
        (result.is_error == false and (f.signal and "signal" or "agent_exit") or "agent_error")
      out.error = result.is_error == false and
        ("the agent reported success but ended with %s"):format(
          f.signal and "signal " .. f.signal or "status " .. tostring(f.exit)) or error_of(result)
    end
    local denied = is_table(result.permission_denials) and #result.permission_denials or 0
    if denied > 0 then
      out.notes[#out.notes + 1] = ("%d tool call(s) were denied by the agent's permissions"):format(denied)
    end
  elseif findings and f.exit == 0 then
    out.success = true
    out.notes[#out.notes + 1] = "the agent wrote its findings but no terminal event"
  elseif f.signal then
    out.reason, out.error = "signal", "the agent was ended by signal " .. f.signal
  elseif f.exit == 0 then
    out.reason, out.error = "no_result", "the agent exited with status 0 but said neither result nor findings"
  else
    out.reason = "agent_exit"
    local said = f.stderr and first_line(f.stderr, 400) or ""
    out.error = ("the agent exited with status %s%s"):format(tostring(f.exit), said ~= "" and ": " .. said or "")
  end
  if #self.mcp_failed > 0 then
    out.notes[#out.notes + 1] = "MCP servers that did not connect: " .. table.concat(self.mcp_failed, ", ")
  end
  if self.lines.dropped > 0 then
    out.notes[#out.notes + 1] = ("%d over-long output line(s) were not read"):format(self.lines.dropped)
  end
  out.text = findings or (result and text(result.result)) or out.error or ""
  return out
end

return M
