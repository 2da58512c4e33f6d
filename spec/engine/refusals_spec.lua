-- SPDX-License-Identifier: MIT
-- What is wrong is said in one line that tells what to do, before anything is spent: no row, no
-- folder, no box.
local client = require "crewbox.engine.client"
local core = require "crewbox.core"
local prepare = require "crewbox.engine.prepare"
local states = require "spec.support.state"

describe("a run that cannot be", function()
  local s, config

  before_each(function()
    s = states.new()
    config = { providers = { sandbox = { type = "local" } } }
  end)

  after_each(function()
    for _, c in ipairs(s.clients) do c:close() end
    core.sys.rmtree(s.dir)
  end)

  local function open(environ)
    local c, e = client.open { state = s.state, config = config, environ = s:environ(environ) }
    s.clients[#s.clients + 1] = c
    return c, e
  end

  local function refused(request, environ)
    local c = assert(open(environ))
    local id, e = c:run(request)
    assert.is_nil(id)
    assert.is_nil(e.message:find("\n", 1, true))
    assert.same({}, assert(c:list()))
    assert.same({}, assert(core.sys.list(s.state .. "/runs")))
    assert.equal(0, c.loop:call(c.store.count_boxes, c.store))
    return e
  end

  local function says(e, code, text)
    assert.equal(code, e.code)
    assert.truthy(e.message:find(text, 1, true), e.message)
  end

  local KEY = { ANTHROPIC_API_KEY = "sk-ant-not-a-real-key", ANTHROPIC_AUTH_TOKEN = "", CLAUDE_CODE_OAUTH_TOKEN = "",
    ANTHROPIC_BASE_URL = "" }
  local NO_KEY = { ANTHROPIC_API_KEY = "", ANTHROPIC_AUTH_TOKEN = "", CLAUDE_CODE_OAUTH_TOKEN = "", ANTHROPIC_BASE_URL = "" }

  it("names the nearest agent", function()
    says(refused { brief = "x", no_repo = true, agent = "claud-code" }, "invalid", "did you mean claude-code?")
  end)

  it("wants a brief", function()
    says(refused { brief = " \n", no_repo = true, agent = "command" }, "invalid", "empty")
    says(refused { brief = ("x"):rep(prepare.BRIEF_MAX + 1), no_repo = true, agent = "command" }, "too_large", "most")
  end)

  it("takes no secret in the brief, in any form, and does not repeat it", function()
    local value = "zq9-FAKE+tok/en=77$x"
    for _, brief in ipairs { "use " .. value, "curl -H 'Authorization: Basic enE5LUZBS0UrdG9rL2VuPTc3JHg='" } do
      local e = refused({ brief = brief, no_repo = true, agent = "command", env = { "TOK" } }, { TOK = value })
      says(e, "contains_secret", "write $TOK instead")
      assert.is_nil(e.message:find("zq9", 1, true))
    end
  end)

  it("wants a checkout or the word that there is none", function()
    says(refused { brief = "x", agent = "command" }, "invalid", "--no-repo")
  end)

  it("wants a folder that is a checkout", function()
    assert(core.sys.mkdirs(s.dir .. "/plain", 448))
    says(refused { brief = "x", agent = "command", repo = s.dir .. "/plain" }, "not_a_checkout", "not a git checkout")
    says(refused { brief = "x", agent = "command", repo = s.dir .. "/absent" }, "not_found", "absent")
  end)

  it("names the variable that is not set", function()
    says(refused { brief = "x", no_repo = true, agent = "command", env = { "CREWBOX_NO_SUCH" } }, "invalid", "CREWBOX_NO_SUCH")
  end)

  it("refuses a name that is none, without its value", function()
    local e = refused { brief = "x", no_repo = true, agent = "command", env = { "NAME=hunter22" } }
    says(e, "invalid", "NAME=...")
    assert.is_nil(e.message:find("hunter22", 1, true))
  end)

  it("refuses a value that no environment can hold", function()
    says(refused { brief = "x", no_repo = true, agent = "command", env = { A = "a\0b" } }, "invalid", "NUL")
    says(refused { brief = "x", no_repo = true, agent = "command", env = { A = "a\255b" } }, "invalid", "UTF-8")
    says(refused { brief = "x", no_repo = true, agent = "command", env = { A = ("a"):rep(131070) } }, "too_large", "131069")
  end)

  it("names the credentials that are missing", function()
    says(refused({ brief = "x", no_repo = true, agent = "claude-code" }, NO_KEY), "invalid", "ANTHROPIC_API_KEY")
  end)

  it("names the command that installs the agent", function()
    local env = { CREWBOX_CACHE = s.dir .. "/cache" }
    for k, v in pairs(KEY) do env[k] = v end
    says(refused({ brief = "x", no_repo = true, agent = "claude-code" }, env), "not_found", "crewbox agents install claude-code")
  end)

  it("refuses a model on this machine's loopback for a remote box", function()
    config.providers.sandbox = { type = "e2b", api_key = "e2b_not_a_key" }
    local env = {}
    for k, v in pairs(KEY) do env[k] = v end
    env.ANTHROPIC_BASE_URL = "http://127.0.0.1:8080"
    says(refused({ brief = "x", no_repo = true, agent = "claude-code" }, env), "invalid", "loopback")
  end)

  it("names where a key for E2B belongs", function()
    config.providers.sandbox = { type = "e2b" }
    says(refused({ brief = "x", no_repo = true, agent = "command" }, { E2B_API_KEY = "" }), "unauthorized", "E2B_API_KEY")
  end)

  it("says that a full disk is full", function()
    local before = prepare.FREE_MIN
    prepare.FREE_MIN = 2 ^ 62
    local e = refused { brief = "x", no_repo = true, agent = "command" }
    prepare.FREE_MIN = before
    says(e, "disk_full", "free some")
  end)

  it("says that nobody answers at a configured socket", function()
    config.providers.sandbox.socket = s.dir .. "/nobody.sock"
    says(refused { brief = "x", no_repo = true, agent = "command" }, "unreachable", "no crewboxd answers")
  end)

  it("says where the box server is looked for", function()
    says(refused({ brief = "x", no_repo = true, agent = "command" }, { CREWBOX_LIBEXEC = s.dir .. "/nowhere" }), "not_found",
      "crewboxd is not in")
  end)

  it("says why the box server did not start, in the server's own words", function()
    -- A folder where the server wants to put its key.
    assert(core.sys.mkdirs(s.state .. "/boxd/lock", 448))
    local e = refused { brief = "x", no_repo = true, agent = "command" }
    assert.truthy(e.message:find("the box server did not start", 1, true), e.message)
  end)

  it("says that a socket path is too long", function()
    s.state = s.dir .. "/" .. ("d"):rep(120)
    local c, e = open()
    assert.is_nil(c)
    says(e, "invalid", "shorter")
  end)

  it("says that the state folder cannot be made", function()
    assert(core.sys.write_file(s.dir .. "/file", "x", 384, false))
    s.state = s.dir .. "/file/state"
    local c, e = open()
    assert.is_nil(c)
    assert.truthy(e.message:find("state folder", 1, true), e.message)
  end)

  it("names the nearest configuration key", function()
    config.providers.sandbox.tempalte = "x"
    local c, e = open()
    assert.is_nil(c)
    says(e, "invalid", "template")
  end)

  it("raises for a field of a request that does not exist", function()
    local c = assert(open())
    assert.has_error(function() c:run { breif = "x", no_repo = true } end)
    assert.has_error(function() c:run { brief = 7, no_repo = true } end)
  end)
end)
