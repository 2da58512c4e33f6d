-- SPDX-License-Identifier: MIT
-- A person at a shell, from the brief to the applied patch: the real command, engine, box server and
-- boxes. One state folder for all, as one person has one.
local json = require "crewbox.json"
local shell = require "spec.support.shell"

local SECRET = "zq9-FAKE+tok/en=77$x"

describe("crewbox", function()
  local place, n = nil, 0
  setup(function() place = shell.place() end)
  teardown(function() place.remove() end)

  local function checkout(files)
    n = n + 1
    return place.checkout("repo" .. n, files or { ["a.txt"] = "one\n", ["test.sh"] = "grep -q two a.txt\n" })
  end
  -- Runs `script` as the agent `command` in a checkout.
  local function run(repo, script, ...)
    return place.crewbox { cwd = repo, "run", "--agent", "command", script, ... }
  end
  local function last() return json.decode(place.crewbox({ "runs", "-n", "1", "--json" }).out) end

  describe("run", function()
    local repo, r
    setup(function()
      repo = checkout()
      r = run(repo, "printf 'two\\n' >a.txt; sh test.sh && echo it works; mkdir -p ~/.crewbox; echo '# Done' >~/.crewbox/findings.md")
    end)

    it("prints the findings, and how it went on standard error", function()
      assert.are.equal(0, r.status, r.err)
      assert.are.equal("# Done\n", r.out)
      assert.is_truthy(r.err:find("r%w+ started; Ctrl%-C leaves it going\n"), r.err)
      assert.is_truthy(r.err:find("\n  M a.txt\n", 1, true), r.err)
      assert.is_truthy(r.err:find("\nr%w+ succeeded"), r.err)
      assert.is_truthy(r.err:find("take it with `crewbox apply r%w+`"), r.err)
    end)

    it("leaves the checkout alone until asked", function()
      assert.are.equal("one\n", shell.read(repo .. "/a.txt"))
    end)

    it("keeps the output as the log", function()
      local l = place.crewbox { "logs", "last" }
      assert.are.equal("it works\n", l.out, l.err)
    end)

    it("gives a patch that git takes", function()
      local p = place.crewbox { "result", "--patch", "last" }
      assert.are.equal(0, p.status, p.err)
      local check = place.run { "git", "apply", "--check", "-", cwd = repo, stdin = p.out }
      assert.are.equal(0, check.status, p.out .. check.err)
    end)

    it("applies it", function()
      local dry = place.crewbox { "apply", "--dry-run", "last" }
      assert.are.equal(0, dry.status, dry.err)
      assert.are.equal("one\n", shell.read(repo .. "/a.txt"))
      local a = place.crewbox { "apply", "--json", "last" }
      assert.are.equal(0, a.status, a.err)
      assert.are.equal("a.txt", json.decode(a.out).written[1])
      assert.are.equal("two\n", shell.read(repo .. "/a.txt"))
    end)

    it("knows a run by the beginning of its id", function()
      local id = last().id
      assert.are.equal(0, place.crewbox({ "result", id:sub(1, 8) }).status)
      local none = place.crewbox { "result", "rzzzzzz" }
      assert.are.equal(2, none.status)
      assert.is_truthy(none.err:find("there is no run rzzzzzz", 1, true))
    end)
  end)

  it("applies in one go with --apply", function()
    local repo = checkout()
    local r = run(repo, "echo two >a.txt; echo new >b.txt; chmod +x test.sh", "--apply")
    assert.are.equal(0, r.status, r.err)
    assert.are.equal("two\n", shell.read(repo .. "/a.txt"))
    assert.are.equal("new\n", shell.read(repo .. "/b.txt"))
    assert.are.equal(0, place.run({ "test", "-x", repo .. "/test.sh" }).status)
  end)

  it("refuses to apply over what was changed meanwhile, and writes nothing (bug-L7)", function()
    local repo = checkout()
    assert.are.equal(0, run(repo, "echo two >a.txt; echo new >b.txt").status)
    shell.write(repo .. "/a.txt", "mine\n")
    local a = place.crewbox { "apply", "last" }
    assert.are.equal(2, a.status)
    assert.is_truthy(a.err:find("  refused a.txt: ", 1, true), a.err)
    assert.is_truthy(a.err:find("crewbox: nothing was written to [^\n]+; the patch is in /[^\n]+\n$"), a.err)
    assert.are.equal("mine\n", shell.read(repo .. "/a.txt"))
    assert.is_false(shell.exists(repo .. "/b.txt"))
  end)

  it("says which files stay here (bug-K1)", function()
    local repo = checkout { ["a.txt"] = "a\n", [".env"] = "TOKEN=x\n" }
    local r = run(repo, "ls -A")
    assert.are.equal(0, r.status, r.err)
    assert.is_truthy(r.err:find("\nnot sent: .env (", 1, true), r.err)
    assert.is_nil(r.out:find(".env", 1, true))
  end)

  it("says 1 for a run that failed, with its reason", function()
    local r = place.crewbox { "run", "--no-repo", "--agent", "command", "echo half way; exit 7" }
    assert.are.equal(1, r.status, r.err)
    assert.is_truthy(r.err:find("failed: agent_exit: the command exited with status 7", 1, true), r.err)
    assert.are.equal("half way\n", r.out)
    assert.are.equal(1, place.crewbox({ "result", "last" }).status)
    assert.are.equal(1, place.crewbox({ "wait", "last" }).status)
  end)

  it("ends a run at its --timeout", function()
    local r = place.crewbox { "run", "--no-repo", "--agent", "command", "--timeout", "1s", "sleep 300" }
    assert.are.equal(1, r.status, r.err)
    assert.are.equal("timed_out", last().state)
  end)

  it("detaches, follows, cancels", function()
    local d = place.crewbox { "run", "--no-repo", "--agent", "command", "--detach", "echo begun; sleep 300" }
    assert.are.equal(0, d.status, d.err)
    local id = d.out:match "^(r%w+)\n$"
    assert.is_truthy(id, d.out)
    assert.is_truthy(place.crewbox({ "runs", "-a" }).out:find(id, 1, true))
    local unfinished = place.crewbox { "result", id }
    assert.are.equal(2, unfinished.status)
    assert.is_truthy(unfinished.err:find("is not over: `crewbox wait " .. id .. "`", 1, true), unfinished.err)
    local follow = place.run { "sh", "-c", ("%s/crewbox logs -f %s | head -n 1"):format(os.getenv "CREWBOX_BUILD", id) }
    assert.are.equal("begun\n", follow.out, follow.err)
    local c = place.crewbox { "cancel", id }
    assert.are.equal(0, c.status, c.err)
    assert.are.equal(id .. " cancelled\n", c.out)
    assert.are.equal(3, place.crewbox({ "wait", id }).status)
    assert.are.equal(id .. " is cancelled already\n", place.crewbox({ "cancel", id }).out)
    assert.is_nil(place.crewbox({ "runs", "-a" }).out:find(id, 1, true))
  end)

  it("prints objects with --json", function()
    local repo = checkout()
    local r = run(repo, "echo two >a.txt", "--json", "--apply")
    assert.are.equal(0, r.status, r.err)
    local o = json.decode(r.out)
    assert.are.same({ "succeeded", true, "command", true }, { o.state, o.over, o.agent, o.outcome.success })
    assert.are.equal(1, o.outcome.changed)
    assert.are.same({ "a.txt", "modified" }, { o.outcome.changes[1].path, o.outcome.changes[1].change })
    assert.are.equal("a.txt", o.applied.written[1])
    assert.is_true(shell.exists(o.patch))
    assert.are.equal(o.id, json.decode(place.crewbox({ "wait", "--json", "last" }).out).id)
  end)

  it("takes everything back on Ctrl-C before the run is handed over", function()
    -- A git that does not answer keeps the packing of the tree from its end.
    local repo = checkout()
    os.execute("mkdir -p " .. place.dir .. "/slow")
    shell.write(place.dir .. "/slow/git", "#!/bin/sh\n: >\"$HOME/asked\"\nexec sleep 60\n")
    os.execute("chmod +x " .. place.dir .. "/slow/git")
    local before = place.run { "sh", "-c", "ls " .. shell.quoted(place.state .. "/runs") }
    local r = place.run { "sh", "-c", ([[
      PATH=%s:$PATH %s/crewbox run --agent command true 2>err & pid=$!
      i=0; until [ -e "$HOME/asked" ] || [ $i -ge 200 ]; do sleep 0.05; i=$((i+1)); done
      kill -INT $pid; wait $pid; echo $?; cat err >&2; rm err]]):format(place.dir .. "/slow", os.getenv "CREWBOX_BUILD"), cwd = repo }
    assert.are.equal("130\n", r.out, r.err)
    assert.are.equal("crewbox: interrupted; nothing was started\n", r.err)
    local after = place.run { "sh", "-c", "ls " .. shell.quoted(place.state .. "/runs") }
    assert.are.equal(before.out, after.out)
  end)

  it("leaves the run going on Ctrl-C and says how to get back", function()
    local r = place.run { "sh", "-c", ([[
      %s/crewbox run --no-repo --agent command 'echo up; while [ ! -e ~/stop ]; do sleep 0.1; done' 2>err & pid=$!
      i=0; until grep -q started err || [ $i -ge 200 ]; do sleep 0.05; i=$((i+1)); done
      kill -INT $pid; wait $pid; echo $?; cat err >&2]]):format(os.getenv "CREWBOX_BUILD") }
    assert.are.equal("130\n", r.out, r.err)
    local id = r.err:match "the run goes on; get back to it with `crewbox wait (r%w+)`, end it with `crewbox cancel r%w+`\n$"
    assert.is_truthy(id, r.err)
    assert.is_false(last().over)
    assert.are.equal(0, place.crewbox({ "cancel", id }).status)
  end)

  it("shows a live line on a terminal", function()
    -- The command ends when its line was seen on the terminal, or after a minute without.
    os.execute(("rm -f %s/out; (n=0; until grep -aqs 'step one' %s/out || [ $n -ge 600 ]; do sleep 0.1; n=$((n + 1)); done; "
      .. "for home in %s/boxd/boxes/*/home; do : >\"$home/seen\"; done) &"):format(place.dir, place.dir, place.state))
    local r = place.run { "script", "-qec", os.getenv "CREWBOX_BUILD" ..
      "/crewbox run --no-repo --agent command 'echo step one; until [ -e ~/seen ]; do sleep 0.1; done'", "/dev/null",
      env = { TERM = "xterm" }, seconds = 120 }
    assert.is_truthy(r.out:find("\r\27%[K%d:%d%d  %a+[^\r\n]*: step one"), ("%q"):format(r.out .. r.err))
    assert.is_truthy(r.out:find("\27[32msucceeded\27[0m", 1, true))
    r = place.run { "script", "-qec", os.getenv "CREWBOX_BUILD" ..
      "/crewbox run --no-repo --agent command true", "/dev/null", env = { TERM = "xterm", NO_COLOR = "1" } }
    assert.is_nil(r.out:find("\27[32m", 1, true))
  end)

  it("neutralises what could act on a terminal (bug-N3)", function()
    local repo = checkout()
    local r = run(repo, [[printf '\033]52;c;AAAA\a\033[2K\rALL OK\n'; printf x >"$(printf 'a\033[2Kb')"
      mkdir -p ~/.crewbox; printf '\033]0;title\aHello\n' >~/.crewbox/findings.md]])
    assert.are.equal(0, r.status, r.err)
    local logs = place.crewbox { "logs", "last" }
    for _, text in ipairs { r.out, r.err, logs.out } do assert.is_nil(text:find("\27", 1, true), ("%q"):format(text)) end
    assert.are.equal("^[]0;title^GHello\n", r.out)
    assert.is_truthy(r.err:find("  A a^[[2Kb\n", 1, true), r.err)
    assert.are.equal("^[]52;c;AAAA^G^[[2K\nALL OK\n", logs.out)
    assert.are.equal("\27]52;c;AAAA\a\27[2K\rALL OK\n", place.crewbox({ "logs", "--raw", "last" }).out)
  end)

  it("tells what of the agent's work is not in the patch (bug-L5)", function()
    local r = run(checkout(), "ln -s /etc/passwd evil; ln -s a.txt good")
    assert.are.equal(0, r.status, r.err)
    assert.is_truthy(r.err:find("\nnote: evil was left out of the patch: ", 1, true), r.err)
    assert.is_truthy(r.err:find("\n  A good\n", 1, true), r.err)
    assert.is_nil(r.err:find("  A evil", 1, true))
  end)

  it("takes the brief byte for byte, from a file and from standard input (bug-N7)", function()
    shell.write(place.dir .. "/any.yaml", "providers: {sandbox: {agents: {command: {program: [sh, -c, 'cat >got']}}}}\n")
    local brief = "-p \"$(touch /tmp/x)\" @file 'q' \0 \255\254 \n" .. ("x"):rep(300 * 1024) .. "\n\n"
    shell.write(place.dir .. "/brief", brief)
    for _, words in ipairs { { "--brief-file", place.dir .. "/brief" }, { "-", stdin = brief } } do
      local repo = checkout()
      words.cwd, words.env = repo, { CREWBOX_CONFIG = place.dir .. "/any.yaml" }
      for i, w in ipairs { "run", "--apply", "--agent", "command" } do table.insert(words, i, w) end
      local r = place.crewbox(words)
      assert.are.equal(0, r.status, r.err)
      local got = shell.read(repo .. "/got")
      -- The agent gets the person's bytes first, whatever the harness adds behind them.
      assert.is_true(got:sub(1, #brief) == brief, "the brief was changed")
    end
  end)

  it("keeps a value of --env out of everything it stores (bug-I1)", function()
    local repo = checkout()
    local r = place.crewbox { cwd = repo, env = { TOKEN = SECRET }, "run", "--agent", "command", "--env", "TOKEN",
      [[echo "token $TOKEN"; printf %s "$TOKEN" | base64; mkdir -p ~/.crewbox; echo "I used $TOKEN" >~/.crewbox/findings.md]] }
    assert.are.equal(0, r.status, r.err)
    assert.are.equal("I used [REDACTED:TOKEN]\n", r.out)
    local logs = place.crewbox { "logs", "last" }
    assert.are.equal("token [REDACTED:TOKEN]\n[REDACTED:TOKEN]\n", logs.out)
    local found = place.run { "grep", "-rlF", "-e", SECRET, "-e", "enE5LUZBS0UrdG9r", place.state }
    assert.are.equal("", found.out)
  end)

  it("refuses a patch that holds such a value", function()
    local repo = checkout()
    local r = place.crewbox { cwd = repo, env = { TOKEN = SECRET }, "run", "--agent", "command", "--env", "TOKEN",
      "printf '%s' \"$TOKEN\" >leak.txt" }
    assert.are.equal(1, r.status, r.err)
    assert.is_truthy(r.err:find("contains_secret", 1, true), r.err)
    assert.is_nil(r.err:find("zq9", 1, true))
    assert.are.equal(2, place.crewbox({ "result", "--patch", "last" }).status)
  end)

  it("leaves neither box nor engine when all is done", function()
    local function running() return json.decode(place.crewbox({ "engine", "--status", "--json" }).out).running end
    local function boxes()
      return place.run({ "sh", "-c", "ls -A " .. shell.quoted(place.state) .. "/boxd/boxes 2>/dev/null; true" }).out
    end
    for _ = 1, 150 do -- an engine leaves some seconds after its last run, a box's folder goes after the box
      if not running() and boxes() == "" then break end
      place.run { "sleep", "0.1" }
    end
    assert.is_false(running())
    assert.are.equal("", boxes())
  end)

  it("asks nobody about boxes once a run is over (bug-E3)", function()
    -- Nothing runs any more: a verb that wanted a box, or to keep one awake, would have to start it all.
    for _, line in ipairs(place.processes()) do os.execute("kill -KILL " .. line:match "^%d+") end
    for _ = 1, 100 do
      if #place.processes() == 0 then break end
      place.run { "sleep", "0.1" }
    end
    for _, words in ipairs { { "runs" }, { "logs", "last" }, { "result", "last" }, { "wait", "last" }, { "runs", "--json" } } do
      local r = place.crewbox(words)
      assert.is_true(r.status <= 1, r.err) -- 1: the run that was asked after has failed
    end
    assert.are.same({}, place.processes())
  end)
end)
