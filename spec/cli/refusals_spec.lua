-- SPDX-License-Identifier: MIT
-- Bad input to `crewbox run`: one line that says what to do, before anything is spent, and nothing
-- half-made stays behind: no row, no folder of a run, no process.
local shell = require "spec.support.shell"

local PRINT = { "run", "--agent", "command", "true" } -- a good request but for its place

local function with(words, ...)
  local list = {}
  for _, w in ipairs(words) do list[#list + 1] = w end
  for _, w in ipairs { ... } do list[#list + 1] = w end
  return list
end

describe("crewbox run refuses", function()
  local place, repo
  before_each(function()
    place = shell.place()
    repo = place.checkout("repo", { ["a.txt"] = "a\n" })
  end)
  after_each(function() place.remove() end)

  -- status: expected; pattern: plain text of the one line
  local function refused(r, status, pattern)
    assert.are.equal(status, r.status, r.out .. r.err)
    assert.is_truthy(r.err:find "^crewbox: [^\n]+\n$", ("%q"):format(r.err))
    assert.is_truthy(r.err:find(pattern, 1, true), r.err)
    assert.are.equal("", r.out)
    local left = place.run { "sh", "-c", "ls -A " .. shell.quoted(place.state .. "/runs") .. " 2>/dev/null; true" }
    assert.are.equal("", left.out, "a run's folder is left")
    assert.are.same({}, place.processes())
  end
  local function no_row()
    local r = place.crewbox { "runs", "--json" }
    assert.are.equal("", r.out, r.err)
  end

  local cases = {
    { "a missing key of the agent", { "run", "fix it" }, 2, "claude-code needs a key: set ANTHROPIC_API_KEY" },
    { "an agent that is not installed", { "run", "fix it", env = { ANTHROPIC_API_KEY = "sk-fake-key" } }, 5,
      "run `crewbox agents install claude-code`" },
    { "an unknown agent", { "run", "fix it", "--agent", "claude-cod" }, 2, "unknown agent claude-cod (did you mean claude-code?)" },
    { "a variable that is not set", with(PRINT, "--env", "NOPE_TOKEN"), 2, "NOPE_TOKEN is not set in the environment" },
    { "a checkout that is not there", with(PRINT, "--repo", "gone"), 2, "--repo gone is no folder" },
    { "a checkout that is a file", with(PRINT, "--repo", "a.txt"), 2, "--repo a.txt is no folder" },
    { "a folder that is no checkout", with(PRINT, "--repo", "/tmp"), 2, "--no-repo" },
  }
  for _, c in ipairs(cases) do
    it(c[1], function()
      local words = { cwd = repo }
      for k, v in pairs(c[2]) do words[k] = v end
      refused(place.crewbox(words), c[3], c[4])
      no_row()
    end)
  end

  it("a folder that is no checkout, named by being in it", function()
    refused(place.crewbox(with(PRINT)), 2, "--no-repo")
    no_row()
  end)

  it("a checkout that cannot be read", function()
    -- As root every folder can be read; a repository git refuses to read stands for it there.
    os.execute("chmod 000 " .. repo .. "; printf x >" .. repo .. "/.git/HEAD; chmod 000 " .. repo)
    refused(place.crewbox(with(PRINT, "--repo", "repo")), 2, "repo")
    os.execute("chmod 700 " .. repo)
    no_row()
  end)

  it("a provider without its key", function()
    shell.write(place.work .. "/crewbox.yaml", "providers: {sandbox: {type: e2b}}\n")
    local r = place.crewbox(with(PRINT, "--no-repo"))
    refused(r, 5, "no key for E2B: set E2B_API_KEY")
    no_row()
  end)

  it("a model on the loopback of this machine with a remote provider", function()
    shell.write(place.work .. "/crewbox.yaml", "providers: {sandbox: {type: e2b}}\n")
    local r = place.crewbox { "run", "--no-repo", "fix it", env = {
      E2B_API_KEY = "e2b_fake_key_of_nobody", ANTHROPIC_API_KEY = "sk-fake-key", ANTHROPIC_BASE_URL = "http://127.0.0.1:8080" } }
    refused(r, 2, "on this machine's loopback (127.0.0.1:8080)")
    no_row()
  end)

  it("an unknown configuration key", function()
    shell.write(repo .. "/crewbox.yaml", "providers: {sandbox: {tempalte: x}}\n")
    refused(place.crewbox { cwd = repo, PRINT[1], PRINT[2], PRINT[3], PRINT[4] }, 2, "did you mean template?")
  end)

  it("a box server that is not there", function()
    os.execute("mkdir " .. place.dir .. "/empty")
    refused(place.crewbox { cwd = repo, env = { CREWBOX_LIBEXEC = place.dir .. "/empty" }, PRINT[1], PRINT[2], PRINT[3], PRINT[4] }, 5,
      "crewboxd is not in")
    no_row()
  end)

  it("a box server that does not start", function()
    os.execute("mkdir " .. place.dir .. "/broken")
    shell.write(place.dir .. "/broken/crewboxd", "#!/bin/sh\necho 'no namespaces here' >&2\nexit 1\n")
    os.execute("chmod +x " .. place.dir .. "/broken/crewboxd")
    refused(place.crewbox { cwd = repo, env = { CREWBOX_LIBEXEC = place.dir .. "/broken" }, PRINT[1], PRINT[2], PRINT[3], PRINT[4] }, 5,
      "the box server did not start: no namespaces here")
    no_row()
  end)

  it("a box server of the configuration that does not answer", function()
    shell.write(place.dir .. "/c.yaml", "providers: {sandbox: {socket: " .. place.dir .. "/nobody.sock}}\n")
    refused(place.crewbox { cwd = repo, env = { CREWBOX_CONFIG = place.dir .. "/c.yaml" }, PRINT[1], PRINT[2], PRINT[3], PRINT[4] }, 5,
      "no crewboxd answers at " .. place.dir .. "/nobody.sock")
    no_row()
  end)

  it("a socket path that is too long", function()
    local long = place.dir .. "/" .. ("x"):rep(100)
    refused(place.crewbox { cwd = repo, env = { CREWBOX_STATE = long }, PRINT[1], PRINT[2], PRINT[3], PRINT[4] }, 2,
      "set CREWBOX_STATE to a shorter folder")
    assert.is_false(shell.exists(long .. "/runs/r"))
  end)

  it("a state folder that cannot be made", function()
    shell.write(place.dir .. "/file", "")
    local r = place.crewbox { cwd = repo, env = { CREWBOX_STATE = place.dir .. "/file/state" }, PRINT[1], PRINT[2], PRINT[3], PRINT[4] }
    refused(r, 5, "the state folder " .. place.dir .. "/file/state cannot be made")
  end)

  it("a full disk", function()
    os.execute("mkdir " .. place.state)
    local command = ("mount -t tmpfs -o size=4m none %s && cd %s && exec %s/crewbox run --agent command true"):format(
      shell.quoted(place.state), shell.quoted(repo), os.getenv "CREWBOX_BUILD")
    local r = place.run { "unshare", "--user", "--map-root-user", "--mount", "sh", "-c", command }
    refused(r, 5, "MiB left")
  end)
end)
