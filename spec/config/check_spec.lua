-- SPDX-License-Identifier: MIT
local check = require "crewbox.config.check"
local schema = require "crewbox.config.schema"

-- The resolver of these tests: knows two names.
local VALUES = { KEY = "k-${HOST}", HOST = "example.com" }
local function resolve(text)
  local missing = {}
  local out = text:gsub("%${([%a_][%w_]*)}", function(name)
    if not VALUES[name] then missing[#missing + 1] = name end
    return VALUES[name] or ""
  end)
  return out, missing
end

local function with(sandbox) return check.check({ providers = { sandbox = sandbox } }, schema, resolve) end

describe("config.check", function()
  it("fills in every default", function()
    local config = with {}
    local sandbox = config.providers.sandbox
    assert.are.equal("local", sandbox.type)
    assert.are.equal("claude-code", sandbox.default_coding_agent)
    assert.are.equal(900, sandbox.default_timeout_seconds)
    assert.are.same({ allow = {} }, sandbox.network)
    assert.are.same({}, sandbox.setup)
  end)

  it("gives each result tables of its own", function()
    local a, b = with {}, with {}
    a.providers.sandbox.network.allow[1] = "x:1"
    assert.are.same({}, b.providers.sandbox.network.allow)
  end)

  it("keeps sections that are not ours as they are", function()
    local roles = { dev = { sandbx = true } }
    local config = check.check({ roles = roles, providers = { llm = { x = 1 } } }, schema, resolve)
    assert.are.equal(roles, config.roles)
    assert.are.same({ x = 1 }, config.providers.llm)
  end)

  it("resolves a reference once", function()
    local sandbox = with({ type = "e2b", api_key = "${KEY}" }).providers.sandbox
    assert.are.equal("k-${HOST}", sandbox.api_key)
  end)

  it("resolves inside lists", function()
    assert.are.same({ "example.com:443" }, with({ network = { allow = { "${HOST}:443" } } }).providers.sandbox.network.allow)
  end)

  it("leaves the references of setup steps for the run", function()
    local step = { name = "tools", commands = { "echo ${NOPE} $HOME" } }
    assert.are.equal("echo ${NOPE} $HOME", with({ setup = { step } }).providers.sandbox.setup[1].commands[1])
  end)

  local refused = {
    { "an unknown key, naming the nearest", { tempalte = "x" }, "unknown key providers.sandbox.tempalte (did you mean template?)" },
    { "an unknown key with none near, naming all", { zebra = 1 }, "known are agents, api_key, api_url" },
    { "limits, which no key is for", { default_limits = {} }, "unknown key providers.sandbox.default_limits" },
    { "a number as a key", { "x" }, "providers.sandbox must have names as keys, not 1" },
    { "a mistyped kind", { type = "loacl" }, "must be one of local, e2b, not loacl (did you mean local?)" },
    { "an unknown agent", { default_coding_agent = "claude" }, "default_coding_agent must be one of claude-code, command" },
    { "a number where text is", { template = 12 }, "template must be text, not number 12 (put it in quotes)" },
    { "a table where text is", { template = {} }, "template must be text, not a table" },
    { "text where a number is", { default_timeout_seconds = "15m" }, "must be a number, not 15m" },
    { "no lease at all (bug-C5)", { default_timeout_seconds = 0 }, "must be at least 60, not 0" },
    { "a negative pause", { default_pause_ttl_seconds = -1 }, "must be at least 0" },
    { "not a number", { default_timeout_seconds = 0 / 0 }, "must be a number" },
    { "a host without a port", { network = { allow = { "example.com" } } }, "network.allow[1] must be NAME:PORT" },
    { "a list that is text", { network = { allow = "example.com:443" } }, "network.allow must be a list" },
    { "a list with holes", { setup = { [2] = { name = "x" } } }, "setup must be a list" },
    { "a program without words", { agents = { command = { program = {} } } }, "program must not be empty" },
    { "half a turn", { agents = { ["claude-code"] = { max_turns = 1.5 } } }, "max_turns must be a whole number" },
    { "a step without a name", { setup = { { commands = {} } } }, "setup[1] needs the key name" },
    { "a mistyped step", { setup = { { name = "x", command = "y" } } },
      "unknown key providers.sandbox.setup[1].command (did you mean commands?)" },
    { "a name that is not set", { template = "${NOPE}-${NADA}" }, "template: NOPE, NADA is not set in the environment" },
    { "a relative socket", { socket = "boxd.sock" }, "socket must be an absolute path" },
    { "a URL without a scheme", { api_url = "api.example.com" }, "api_url must be a URL" },
    { "two lines", { template = "a\nb" }, "template must be one line" },
    { "a sandbox that is text", "local", "providers.sandbox must be a table" },
  }
  for _, c in ipairs(refused) do
    it("refuses " .. c[1], function()
      local config, problem = with(c[2])
      assert.is_nil(config)
      assert.is_truthy(problem:find(c[3], 1, true), problem)
      assert.is_nil(problem:find("\n"))
    end)
  end

  it("takes a slip in the name of a section for a slip", function()
    local _, problem = check.check({ provider = { sandbox = {} } }, schema, resolve)
    assert.are.equal("unknown key provider (did you mean providers?)", problem)
    _, problem = check.check({ providers = { sanbox = {} } }, schema, resolve)
    assert.are.equal("unknown key providers.sanbox (did you mean sandbox?)", problem)
  end)

  it("does not repeat a key in its message (bug-G7)", function()
    local _, problem = with { type = "e2b", api_key = "zq9-FAKE+tok/en=77$x\n" }
    assert.is_truthy(problem:find("api_key must be one line", 1, true))
    assert.is_nil(problem:find("zq9", 1, true))
  end)

  it("ends on a table that holds itself", function()
    local t = {}
    t.network = t
    local config, problem = with(t)
    assert.is_nil(config)
    assert.is_string(problem)
  end)
end)

describe("the page docs/reference/configuration.md", function()
  local file = assert(io.open("docs/reference/configuration.md"))
  local page = file:read "*a"
  file:close()
  local function names(section, prefix, out)
    for key, field in pairs(section.fields) do
      if field.type == "section" then names(field, prefix .. key .. ".", out) else out[prefix .. key] = field end
    end
    return out
  end
  local fields = names(schema.fields.providers.fields.sandbox, "", {})

  it("has a row for each key, with its default", function()
    for key, field in pairs(fields) do
      local row = page:match("\n| `" .. key:gsub("%p", "%%%0") .. "` |([^\n]*)")
      assert.is_truthy(row, key .. " is missing")
      if type(field.default) == "number" then
        assert.is_truthy(row:find(("| %d |"):format(field.default), 1, true), key)
      end
    end
  end)

  it("has a row for nothing else", function()
    local keys = page:match("## Keys(.-)\n## ")
    for key in keys:gmatch("\n| `([%w_.-]+)` |") do assert.is_truthy(fields[key], key) end
  end)
end)
