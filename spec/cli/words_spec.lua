-- SPDX-License-Identifier: MIT
-- The command line before anything happens: help, wrong words, configuration files.
local shell = require "spec.support.shell"

local VERBS = { "run", "runs", "logs", "wait", "result", "apply", "cancel", "agents", "redact", "doctor", "engine", "env", "version" }

describe("crewbox", function()
  local place
  setup(function() place = shell.place() end)
  teardown(function() place.remove() end)

  local function one_line(r)
    assert.is_truthy(r.err:find("^crewbox: [^\n]+\n$"), ("%q"):format(r.err))
    return r.err
  end

  it("tells its verbs and exit statuses", function()
    local r = place.crewbox { "--help" }
    assert.are.equal(0, r.status)
    for _, verb in ipairs(VERBS) do assert.is_truthy(r.out:find("\n   " .. verb .. " ", 1, true), verb) end
    assert.is_truthy(r.out:find("Exit status: 0 done; 1 the run failed; 2 usage", 1, true))
    assert.are.equal("", r.err)
  end)

  for _, verb in ipairs(VERBS) do
    it("tells about " .. verb, function()
      local r = place.crewbox { verb, "--help" }
      assert.are.equal(0, r.status, r.err)
      assert.is_truthy(r.out:find("Usage: crewbox " .. verb, 1, true))
      assert.is_truthy(r.out:find("Exit status:", 1, true))
    end)
  end

  it("says its version", function()
    local r = place.crewbox { "version" }
    assert.is_truthy(r.out:find("^crewbox %d+%.%d+%.%d+\n$"))
    assert.are.same(r, place.crewbox { "--version" })
  end)

  it("prints exports with which Lua finds it", function()
    -- The module of a sanitizer build loads only into the interpreter made for it.
    for _, lua in ipairs(os.getenv "CREWBOX_SANITIZED" and { "5.4" } or { "5.4", "luajit" }) do
      local r = place.crewbox { "env", "--lua", lua }
      assert.are.equal(0, r.status, r.err)
      local say = place.run { "sh", "-c", r.out .. (lua == "5.4" and "lua5.4" or "luajit") ..
        [[ -e 'print(require("crewbox.core").version, (require("crewbox.harness").names()[1]))']] }
      assert.is_truthy(say.out:find("^%d+%.%d+%.%d+%s+claude%-code\n$"), say.out .. say.err)
    end
  end)

  local refused = {
    { "no verb", {}, "no verb given" },
    { "an unknown verb", { "rnu" }, "unknown command 'rnu'" },
    { "an unknown option", { "run", "--detahc", "x" }, "unknown option '--detahc' Did you mean '--detach'" },
    { "a verb without its run", { "wait" }, "missing argument 'id'" },
    { "too many words", { "run", "fix", "this" }, "too many arguments" },
    { "no brief", { "run" }, "no brief" },
    { "two briefs", { "run", "x", "--brief-file", "y" }, "not both" },
    { "an empty brief", { "run", "--no-repo", "--agent", "command", " \n" }, "the brief is empty" },
    { "a brief that is not there", { "run", "--brief-file", "nope.md" }, "nope.md cannot be read" },
    { "repo and no repo", { "run", "x", "--repo", ".", "--no-repo" }, "exclude each other" },
    { "apply without a checkout", { "run", "x", "--apply", "--no-repo" }, "--apply needs a checkout" },
    { "apply and detach", { "run", "x", "--apply", "--detach" }, "--apply waits" },
    { "a value in --env", { "run", "x", "--env", "TOKEN=zq9-FAKE+tok/en=77$x" }, "not TOKEN=VALUE" },
    { "a timeout of nothing", { "run", "x", "--timeout", "0" }, "--timeout takes seconds" },
    { "a timeout that is no time", { "run", "x", "--timeout", "soon" }, "--timeout takes seconds" },
    { "a limit that is no number", { "runs", "-n", "all" }, "--limit takes a whole number" },
    { "an unknown action of agents", { "agents", "remove" }, "agents knows only install" },
    { "an install of nothing", { "agents", "install" }, "install which agent" },
    { "an install of an unknown agent", { "agents", "install", "claude" }, "unknown agent \"claude\"" },
    { "an install of what is built in", { "agents", "install", "command" }, "needs no installation" },
    { "a version that is a path", { "agents", "install", "claude-code", "--version", "../../x" }, "is no exact version" },
    { "a version that is an option", { "agents", "install", "claude-code", "--version=--global" }, "is no exact version" },
    { "a configuration that is not there", { "runs", "--config", "nope.yaml" }, "--config names nope.yaml" },
    { "patch and json", { "result", "last", "--patch", "--json" }, "exclude each other" },
  }
  for _, c in ipairs(refused) do
    it("refuses " .. c[1] .. " in one line", function()
      local r = place.crewbox(c[2])
      assert.are.equal(2, r.status, r.err)
      assert.is_truthy(one_line(r):find(c[3], 1, true), r.err)
      assert.are.equal("", r.out)
      assert.is_nil(r.err:find("zq9", 1, true))
    end)
  end

  describe("with a configuration", function()
    local function with(name, text, words, env)
      shell.write(place.work .. "/" .. name, text)
      words = words or { "runs" }
      words.env = env
      local r = place.crewbox(words)
      os.remove(place.work .. "/" .. name)
      return r
    end

    local bad = {
      { "an unknown key", "crewbox.yaml", "providers:\n  sandbox:\n    tempalte: x\n",
        "./crewbox.yaml: unknown key providers.sandbox.tempalte (did you mean template?)" },
      { "YAML that cannot be read", "crewbox.yaml", "a: [1\nb: 2\n", "./crewbox.yaml:" },
      { "a name that is not set", "crewbox.yaml", "providers: {sandbox: {template: '${NOPE}'}}",
        "providers.sandbox.template: NOPE is not set in the environment" },
      { "a key of the other type (bug-O3)", "crewbox.yaml", "providers: {sandbox: {type: local, api_key: k}}",
        "api_key is only for type e2b" },
      { "a list", "crewbox.yaml", "- a\n", "the configuration must have names as keys, not 1" },
      { "text", "crewbox.yaml", "hello\n", "must be a table" },
      { "Lua that does not parse", "crewbox.lua", "return {\n", "./crewbox.lua:" },
      { "Lua that reaches out", "crewbox.lua", "\nos.execute('true')", "./crewbox.lua:2:" },
      { "Lua that does not end", "crewbox.lua", "while true do end", "too many instructions" },
      { "Lua that returns nothing", "crewbox.lua", "local x = 1", "must return a table" },
    }
    for _, c in ipairs(bad) do
      it("refuses " .. c[1] .. " in one line", function()
        local r = with(c[2], c[3])
        assert.are.equal(2, r.status, r.out .. r.err)
        assert.is_truthy(one_line(r):find(c[4], 1, true), r.err)
      end)
    end

    it("takes YAML and Lua, comments, nulls and other sections", function()
      assert.are.equal(0, with("crewbox.yaml", "# nothing\n").status)
      assert.are.equal(0, with("crewbox.yaml", "providers:\n  sandbox:\n    template: ~\nroles: {dev: {x: 1}}\n").status)
      assert.are.equal(0, with("crewbox.lua", "return { providers = { sandbox = { template = 'x' } } }").status)
      assert.are.equal(0, with("company.yaml", "{}").status)
    end)

    it("does not read a file that merely lies in the folder, and says so", function()
      local r = with("crewbox.yaml", "providers: {sandbox: {type: e2b, api_url: 'http://127.0.0.1:9', api_key: '${PATH}'}}",
        { "run", "--no-repo", "--agent", "claude-code", "x" }, { CREWBOX_CONFIG = false })
      assert.is_truthy(r.err:find("ANTHROPIC_API_KEY", 1, true), r.err) -- not an e2b run
      assert.is_truthy(r.err:find("./crewbox.yaml is not used unless it is named: --config ./crewbox.yaml", 1, true), r.err)
    end)

    it("reads the file that CREWBOX_CONFIG names", function()
      shell.write(place.dir .. "/own.yaml", "providers: {sandbox: {typ: local}}")
      local r = with("crewbox.yaml", "{}", nil, { CREWBOX_CONFIG = place.dir .. "/own.yaml" })
      assert.is_truthy(one_line(r):find("own.yaml: unknown key providers.sandbox.typ (did you mean type?)", 1, true))
      r = with("crewbox.yaml", "{}", nil, { CREWBOX_CONFIG = place.dir .. "/gone.yaml" })
      assert.is_truthy(one_line(r):find("CREWBOX_CONFIG names", 1, true))
    end)

    it("reads the person's own file last", function()
      os.execute("mkdir -p " .. place.home .. "/.config/crewbox")
      shell.write(place.home .. "/.config/crewbox/crewbox.yaml", "providers: {sandbox: {typ: local}}")
      local r = place.crewbox { "runs" }
      os.remove(place.home .. "/.config/crewbox/crewbox.yaml")
      assert.is_truthy(one_line(r):find("crewbox/crewbox.yaml: unknown key", 1, true))
    end)
  end)

  it("knows no run where there is none", function()
    for _, words in ipairs { { "wait", "last" }, { "result", "r1" }, { "logs", "r1" }, { "cancel", "r1" }, { "apply", "r1" } } do
      local r = place.crewbox(words)
      assert.are.equal(2, r.status, r.err)
      assert.is_truthy(one_line(r):find("there is no run", 1, true), r.err)
    end
    local r = place.crewbox { "runs", "--json" }
    assert.are.equal(0, r.status)
    assert.are.equal("", r.out)
  end)

  it("uses no colour off a terminal", function()
    local r = place.crewbox { "agents", env = { TERM = "xterm" } }
    assert.are.equal(0, r.status)
    assert.is_nil(r.out:find("\27", 1, true))
    assert.is_truthy(r.out:find("claude%-code%s+not installed: run crewbox agents install claude%-code"))
  end)
end)
