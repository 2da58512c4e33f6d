-- SPDX-License-Identifier: MIT
-- OpenCode, headless. What it does was recorded from the real CLI, version 1.18.33
-- (spec/fixtures/opencode): the brief goes in on stdin, which it reads to the end before it does
-- anything; stdout is one JSON object a line. There is no last line that says "done": success is
-- exit status 0, no `error` line, and a last `step_finish` with the reason `stop`; where a prompt
-- became too long and was compacted, there is an `error` line and status 1, and the work is done
-- all the same. A broken stream, or a prompt that stays too long, makes it ask again for ever,
-- billed each time: the reader notices.
local err = require "crewbox.err"
local json = require "crewbox.json"
local lines = require "crewbox.harness.lines"
local words = require "crewbox.harness.words"

local first_line, is_table, number, sum, text = words.first_line, words.is_table, words.number, words.sum, words.text

local M = {
  name = "opencode",
  -- Secrets, taken from the caller's environment when set. One of them is enough.
  credentials = { "ANTHROPIC_API_KEY", "OPENAI_API_KEY" },
  -- Plain settings, taken along when set.
  settings = { "ANTHROPIC_BASE_URL", "ANTHROPIC_MODEL", "OPENAI_BASE_URL", "OPENAI_MODEL", "API_TIMEOUT_MS" },
  -- The template of this agent at E2B; locally a template of our own mounts the package.
  remote_template = "opencode",
  -- Its first line comes with the model's first answer. Before that it makes a database: 17 s on
  -- an idle machine, over a minute on a busy one; and a model that fails is asked again for 76 s.
  start_deadline_s = 300,
  stall_s = 900, -- told, never a kill: a long build inside one tool call prints nothing
  -- From the last word to the exit: 0.5 to 4.6 s were measured. A compaction ends like a last word
  -- and the run goes on half a second later; the end that was asked for is then taken back.
  grace_s = 60,
  package = { npm = "opencode-ai", version = "1.18.33", bin = "opencode" },
}

-- How each provider is asked. `compatible` is OpenAI's older protocol, which everything else that
-- calls itself compatible speaks; OpenCode's own `openai` speaks only the newer one.
local PROVIDERS = {
  anthropic = { key = "ANTHROPIC_API_KEY", url = "ANTHROPIC_BASE_URL", model = "ANTHROPIC_MODEL",
    npm = "@ai-sdk/anthropic", default_url = "https://api.anthropic.com/v1", default_model = "claude-sonnet-5" },
  openai = { key = "OPENAI_API_KEY", url = "OPENAI_BASE_URL", model = "OPENAI_MODEL",
    npm = "@ai-sdk/openai", default_url = "https://api.openai.com/v1", default_model = "gpt-5.6" },
}
local COMPATIBLE = { id = "compatible", npm = "@ai-sdk/openai-compatible", name = "OpenAI-compatible" }

-- Bound of one request, in milliseconds, to the first byte of its answer and then between two
-- pieces of it; API_TIMEOUT_MS sets another. Six tries later it is an error. Without a bound a
-- model that never answers hangs the run silently.
local REQUEST_MS = 300000

-- Caps. A run may set max_turns; the others end loops that OpenCode does not leave by itself.
local MAX_STEPS = 1000
local BROKEN_MAX = 5   -- answers in a row that broke off
local OVERFLOW_MAX = 3 -- prompts that were too long, with no work done in between
local ERROR_MAX = 10   -- other errors, likewise

-- ---- launching ---------------------------------------------------------------------------

local function set(v) return v ~= nil and v ~= "" end

-- The provider that model and environment ask for: the model's prefix says it, else the one key
-- that is set, else the one base URL; Anthropic where nothing tells them apart.
local function provider_of(env, model)
  local prefix, rest = (model or ""):match("^(%l+)/(.+)$")
  if prefix and PROVIDERS[prefix] then return prefix, rest end
  local one = PROVIDERS.anthropic
  local other = PROVIDERS.openai
  if set(env[one.key]) ~= set(env[other.key]) then return set(env[one.key]) and "anthropic" or "openai", model end
  if set(env[other.url]) and not set(env[one.url]) then return "openai", model end
  return "anthropic", model
end

-- A base URL as the AI SDK wants it. Anthropic's variable is used without `/v1`, OpenAI's with it.
local function url_of(id, provider, env)
  local url = env[provider.url]
  if not set(url) then return provider.default_url end
  url = url:gsub("/+$", "")
  if id == "anthropic" and not url:find("/v1$") then url = url .. "/v1" end
  return url
end

--- Which model is asked, where, and with which key.
--- @param env table<string, string>
--- @param model string? as the person gave it: MODEL, or anthropic/MODEL, or openai/MODEL
--- @return {id: string, npm: string, name: string?, model: string, url: string, key: string}
local function choose(env, model)
  local id, rest = provider_of(env, set(model) and model or nil)
  local provider = PROVIDERS[id]
  local c = {
    id = id, npm = provider.npm, name = nil, key = provider.key, url = url_of(id, provider, env),
    model = rest or (set(env[provider.model]) and env[provider.model]) or provider.default_model,
  }
  if id == "openai" and not c.url:find("^https://api%.openai%.com[:/]") then
    c.id, c.npm, c.name = COMPATIBLE.id, COMPATIBLE.npm, COMPATIBLE.name
  end
  return c
end

--- @param env table<string, string> the environment the agent will get
--- @param model string?
--- @return true? ok
--- @return crewbox.Error? err `invalid`
function M:check(env, model)
  local c = choose(env, model)
  if set(env[c.key]) then return true end
  local either = PROVIDERS[(model or ""):match("^(%l+)/.")] and c.key or "ANTHROPIC_API_KEY or OPENAI_API_KEY"
  return nil, err.new("invalid", ("opencode needs a key: set %s in the environment"):format(either))
end

--- URLs of the model, for the network rules of a box.
--- @param env table<string, string>
--- @param model string?
--- @return string[]
function M:endpoints(env, model)
  return { choose(env, model).url }
end

-- The whole configuration. The key stays in the environment: OpenCode prints its configuration
-- when it cannot read it.
local function config_of(c, env)
  local bound = tonumber(env.API_TIMEOUT_MS) or 0
  bound = bound >= 1 and bound < 2 ^ 31 and math.floor(bound) or REQUEST_MS
  local name = ("%s/%s"):format(c.id, c.model)
  return {
    model = name,
    small_model = name, -- makes the session's title; another one might not exist at that URL
    share = "disabled",
    autoupdate = false,
    permission = "allow",
    agent = { build = { permission = "allow" } }, -- a project may have set it for this agent alone
    enabled_providers = json.array { c.id },
    provider = json.object { [c.id] = {
      npm = c.npm,
      name = c.name,
      options = { baseURL = c.url, apiKey = ("{env:%s}"):format(c.key), timeout = false,
        headerTimeout = bound, chunkTimeout = bound },
      models = json.object { [c.model] = json.object {} },
    } },
  }
end

--- @param o table {brief, model?, env, project, session_id?, resume?, options?}
--- @return crewbox.HarnessPlan
function M:plan(o)
  local argv = { "opencode", "run", "--format", "json" }
  if o.resume and o.session_id then
    argv[#argv + 1] = "--session"
    argv[#argv + 1] = o.session_id
  end
  local env = {
    OPENCODE_CONFIG_CONTENT = json.encode(config_of(choose(o.env or {}, o.model), o.env or {})),
    OPENCODE_DISABLE_MODELS_FETCH = "1", -- no host but the model's is asked
    OPENCODE_DISABLE_AUTOUPDATE = "1",
    OPENCODE_DISABLE_LSP_DOWNLOAD = "1",
  }
  for name, value in pairs(o.env or {}) do env[name] = value end
  return { argv = argv, env = env, stdin = o.brief, files = {}, streams = "split" }
end

-- ---- reading -----------------------------------------------------------------------------

local Reader = {}
Reader.__index = Reader

--- A reader of one run's stdout.
--- @param options table? of the run: max_turns, max_budget_usd
function M:reader(options)
  options = options or {}
  return setmetatable({
    lines = lines.new(),
    max_steps = options.max_turns or MAX_STEPS,
    max_cost = options.max_budget_usd,
    session_id = nil,
    steps = 0,
    open = false,      -- a step has begun and not ended
    reason = nil,      -- of the last step_finish
    quiet = false,     -- the last line may have been the last word
    said = nil,        -- the last words of the model
    action = nil,
    usage = { input = 0, output = 0, cache_read = 0, cache_write = 0 },
    cost = 0,
    err = nil,         -- the last error line
    denied = 0,        -- tool calls that were rejected for want of a person to ask
    broken = 0,        -- steps in a row that broke off
    overflows = 0,     -- since the last step that did some work
    errors = 0,        -- likewise
    too_long = nil,    -- the words of an overflow that it has not got over
    compacted = false, -- the next step is the first after a compaction
    compactions = 0,   -- that helped
    stop = nil,        -- {reason, error}: why it must be ended
  }, Reader)
end

local function must_stop(r, reason, message)
  r.stop = r.stop or { reason = reason, error = message }
end

local function error_words(e)
  local data = is_table(e.data) and e.data or {}
  local message = text(data.message) or text(e.message) or text(e.name) or "no words"
  local status = number(data.statusCode)
  return status > 0 and ("%s (status %.0f)"):format(message, status) or message
end

local handlers = {}

function handlers.step_start(r)
  if r.open then r.action = "the model's answer broke off; it is asked again" end
  r.open = true
end

function handlers.error(r, o)
  local e = is_table(o.error) and o.error or {}
  local said = error_words(e)
  r.quiet = true
  if e.name == "ContextOverflowError" then
    r.too_long, r.compacted = said, false
    r.overflows = r.overflows + 1
    if r.overflows >= OVERFLOW_MAX then
      must_stop(r, "agent_error", ("the prompt is too long for the model, and compacting it did not help %d times: %s")
        :format(r.overflows, said))
    end
    return
  end
  r.err = said
  r.errors = r.errors + 1
  if r.errors >= ERROR_MAX then
    must_stop(r, "agent_error", ("%d errors without any work in between, the last: %s"):format(r.errors, said))
  end
end

function handlers.text(r, o)
  local part = is_table(o.part) and o.part or {}
  if part.synthetic == true then
    if is_table(part.metadata) and part.metadata.compaction_continue == true then r.compacted = true end
    return
  end
  if not text(part.text) then return end
  r.said = part.text
  r.action = first_line(part.text, words.ACTION_MAX)
end

function handlers.tool_use(r, o)
  local part = is_table(o.part) and o.part or {}
  local state = is_table(part.state) and part.state or {}
  r.action = words.call(part.tool, state.input)
  if state.status == "error" and (text(state.error) or ""):find("rejected permission", 1, true) then
    r.denied = r.denied + 1
  end
end

local function count(r, part)
  local t = is_table(part.tokens) and part.tokens or {}
  local cache = is_table(t.cache) and t.cache or {}
  local u = r.usage
  u.input = sum(u.input, t.input)
  u.output = sum(u.output, sum(t.output, t.reasoning))
  u.cache_read = sum(u.cache_read, cache.read)
  u.cache_write = sum(u.cache_write, cache.write)
  r.cost = sum(r.cost, part.cost)
end

function handlers.step_finish(r, o)
  local part = is_table(o.part) and o.part or {}
  r.open = false
  r.steps = r.steps + 1
  r.reason = text(part.reason) or "unknown"
  count(r, part)
  local goes_on = r.reason == "tool-calls" or r.reason == "unknown"
  r.quiet = not goes_on
  if r.reason == "tool-calls" then r.errors, r.overflows = 0, 0 end
  if r.too_long and r.compacted and (r.reason == "stop" or r.reason == "tool-calls") then
    r.too_long, r.compactions = nil, r.compactions + 1
  end
  r.compacted = false
  r.broken = r.reason == "unknown" and r.broken + 1 or 0
  if r.broken >= BROKEN_MAX then
    must_stop(r, "truncated", ("the model's answer broke off %d times in a row"):format(r.broken))
  end
  -- A compaction counts as well: a run that does nothing else would have no end.
  if r.steps > r.max_steps or (goes_on and r.steps == r.max_steps) then
    must_stop(r, "limit", ("ended after %d turns, its limit"):format(r.steps))
  end
  if r.max_cost and r.cost >= r.max_cost and goes_on then
    must_stop(r, "limit", ("ended after %.2f USD, its limit is %.2f"):format(r.cost, r.max_cost))
  end
end

function Reader:line(raw)
  local o = words.event(raw)
  if not o then return end
  local id = text(o.sessionID)
  -- It becomes a word of a command line when the session goes on.
  if id and id:find("^ses_%w+$") then self.session_id = id end
  self.quiet = false
  local handle = handlers[o.type]
  if handle then handle(self, o) end -- types we do not know come with every version
end

--- @param bytes string stdout, cut anywhere
function Reader:feed(bytes)
  for line in self.lines:feed(bytes) do self:line(line) end
end

--- True when the last line can have been the last word. It may become false again.
function Reader:terminal()
  return self.quiet
end

--- Why the agent must be ended, which does not end by itself; nil while it may go on.
--- @return string? words
function Reader:stop_reason()
  return self.stop and self.stop.error
end

--- @return {turns: number, action: string?, tokens: number}
function Reader:progress()
  local u = self.usage
  return { turns = self.steps, action = self.action, tokens = u.input + u.cache_read + u.cache_write }
end

-- What the stream says, of an agent that ended by itself and well.
local function by_stream(r, findings)
  if r.reason == "stop" then return true end
  if r.reason == "length" then return false, "truncated", "the model's answer was cut off by its length limit" end
  if r.reason == "unknown" then return false, "truncated", "the model's answer broke off" end
  if r.denied > 0 then
    return false, "agent_error", ("%d tool call(s) were denied by the agent's permissions, and it stopped there"):format(r.denied)
  end
  if findings and (r.reason == nil or r.reason == "tool-calls") then
    return true, nil, "the agent wrote its findings but no last word"
  end
  if r.reason == nil then
    return false, "no_result", "the agent exited with status 0 but said neither result nor findings"
  end
  if r.reason == "tool-calls" then return false, "agent_error", "the agent stopped in the middle of its work" end
  return false, "agent_error", "the model ended its answer with " .. first_line(r.reason, 60)
end

local function judge(r, f, findings)
  -- After its last word the exit status of a process that had to be killed says nothing.
  -- Nor does a 1 that comes of an overflow it got over.
  local clean = f.exit == 0 or f.stopped_after_terminal == true or
    (f.exit == 1 and r.compactions > 0 and r.reason == "stop" and not r.too_long)
  if r.stop and not (clean and f.why == "exited") then return false, r.stop.reason, r.stop.error end
  if r.err or r.too_long then return false, "agent_error", r.err or r.too_long end
  if clean then return by_stream(r, findings) end
  if f.signal then return false, "signal", "the agent was ended by signal " .. f.signal end
  local said = f.stderr and first_line(f.stderr, 400) or ""
  return false, "agent_exit", ("the agent exited with status %s%s"):format(tostring(f.exit), said ~= "" and ": " .. said or "")
end

--- Judges a finished run from stream, exit status and findings together.
--- @param f table {exit?, signal?, why, findings?, stderr?, stopped_after_terminal?}
--- @return crewbox.Outcome
function Reader:finish(f)
  self:line(self.lines:rest())
  local findings = f.findings and f.findings:find("%S") and f.findings or nil
  local success, reason, message = judge(self, f, findings)
  local out = { success = success, reason = reason, notes = {}, session_id = self.session_id, turns = self.steps }
  if success then
    if message then out.notes[1] = message end
    if self.compactions > 0 then
      out.notes[#out.notes + 1] = ("the prompt became too long %d time(s); the agent compacted it and went on"):format(self.compactions)
    end
    if self.denied > 0 then
      out.notes[#out.notes + 1] = ("%d tool call(s) were denied by the agent's permissions"):format(self.denied)
    end
  else
    out.error = message
  end
  if self.steps > 0 then out.usage = self.usage end
  -- It prices models it knows; for others it says 0, which is no price.
  if self.cost > 0 then out.cost_usd = self.cost end
  if self.lines.dropped > 0 then
    out.notes[#out.notes + 1] = ("%d over-long output line(s) were not read"):format(self.lines.dropped)
  end
  out.text = findings or self.said or out.error or ""
  return out
end

return M
