-- SPDX-License-Identifier: MIT
-- Whole runs, in process, on a crewboxd of the test's own with real boxes.
local core = require "crewbox.core"
local crewbox = require "crewbox"
local states = require "spec.support.state"

local SECRET = "zq9-FAKE+tok/en=77$x"

local function sh(command)
  local p = assert(io.popen(command .. "; echo $?", "r"))
  local out = p:read("*a")
  p:close()
  local body, status = out:match("^(.*\n?)(%d+)\n$")
  return body, tonumber(status)
end

describe("an engine in a Lua program", function()
  local s, engine

  setup(function()
    s = states.new()
    engine = assert(crewbox.open { state = s.state, config = s.config, environ = s:environ() })
    s.clients[1] = s:client()
  end)

  teardown(function()
    engine:close()
    s:close()
  end)

  local function run(request)
    request.agent = request.agent or "command"
    if not request.repo then request.no_repo = true end
    local r = assert(engine:run(request))
    local row = assert(r:wait(180))
    states.eventually("the end of the box", 120, function()
      engine.loop:call(engine.loop.sleep, engine.loop, 10)
      return s:boxes() == 0
    end)
    return row, r:result(), r
  end

  it("runs a command that succeeds and brings its output back", function()
    local row, result, r = run { brief = "echo to-out; echo to-err >&2; pwd; id -un" }
    assert.equal("succeeded", row.state)
    assert.is_nil(row.reason)
    assert.equal(0, row.outcome.exit)
    assert.is_true(row.outcome.success)
    assert.equal("to-out\n/home/user/project\nuser\n", s:read(row.id, "out.log"))
    assert.equal("to-err\n", s:read(row.id, "err.log"))
    assert.equal(s:read(row.id, "out.log"), result.outcome.text)
    assert.is_nil(result.findings)
    assert.is_nil(result.patch)
    local names = s:events(row.id)
    assert.equal("run_started", names[1])
    assert.equal("run_finished", names[#names])
    assert.equal(#names, #r:events())
    assert.is_true(row.outcome.timing.own_ms >= row.outcome.timing.launch_ms)
  end)

  it("tells a command that fails by its status", function()
    local row = run { brief = "echo nope; exit 3" }
    assert.equal("failed", row.state)
    assert.equal("agent_exit", row.reason)
    assert.equal(3, row.outcome.exit)
    assert.is_false(row.outcome.success)
  end)

  it("stores findings as they were written", function()
    local row, result = run { brief = "printf '# Done\\nall of it\\n' > ~/.crewbox/findings.md" }
    assert.equal("# Done\nall of it\n", result.findings)
    assert.equal("# Done\nall of it\n", row.outcome.text)
  end)

  it("brings what changed back as a patch that git applies", function()
    local repo = s:checkout { ["keep.txt"] = "same\n", ["edit.txt"] = "one\ntwo\n", ["gone.txt"] = "x\n", ["run.sh"] = "#!/bin/sh\n",
      [".gitignore"] = "build/\n" }
    local row, result = run { repo = repo, brief = [[
      cat edit.txt
      sed -i 's/two/three/' edit.txt; rm gone.txt; chmod +x run.sh
      mkdir -p new/deep build; printf 'caf\303\251' > "new/deep/a b.txt"; echo ignored > build/x
      printf '\000\001\002' > bin.dat
    ]] }
    assert.equal("succeeded", row.state)
    assert.equal("one\ntwo\n", s:read(row.id, "out.log"))
    assert.equal(5, row.outcome.changed)
    local _, status = sh(("cd '%s' && git apply --check '%s' 2>&1 && git apply '%s' 2>&1"):format(repo, result.patch, result.patch))
    assert.equal(0, status)
    assert.equal("one\nthree\n", core.sys.read_file(repo .. "/edit.txt"))
    assert.equal("caf\195\169", core.sys.read_file(repo .. "/new/deep/a b.txt"))
    assert.equal("\0\1\2", core.sys.read_file(repo .. "/bin.dat"))
    assert.is_nil(core.sys.stat(repo .. "/gone.txt"))
    assert.is_nil(core.sys.stat(repo .. "/build"))
    local listed = sh(("cd '%s' && ls -l run.sh"):format(repo))
    assert.truthy(listed:find("^-rwx"))
  end)

  it("sends no history and shows the tree as one commit", function()
    local repo = s:checkout { ["a.txt"] = "a\n" }
    local row = run { repo = repo, brief = "git log --oneline | wc -l; git status --short | wc -l" }
    assert.equal("1\n0\n", s:read(row.id, "out.log"))
    assert.equal(0, row.outcome.changed)
  end)

  it("ends the agent's stdin (bug-A1)", function()
    local row = run { brief = "cat >/dev/null; echo ended" }
    assert.equal("ended\n", s:read(row.id, "out.log"))
  end)

  it("hands a brief over byte for byte (bug-N7)", function()
    local brief = { "-p \"$(touch /tmp/x)\" '@file' `id` \\ \0 \255\254 \n" }
    local all = {}
    for i = 0, 255 do all[#all + 1] = string.char(i) end
    while #brief * 256 < 300 * 1024 do brief[#brief + 1] = table.concat(all) end
    brief = table.concat(brief)
    local row = run { brief = brief, options = { program = { "sh", "-c", "sha256sum; ls /tmp/x 2>&1 | wc -l" } } }
    assert.equal("succeeded", row.state)
    local out = s:read(row.id, "out.log")
    assert.equal(core.sys.sha256(brief), out:match("^%x+"))
    assert.equal(brief, s:read(row.id, "brief"))
  end)

  it("keeps a secret off every disk and every command line, and out of every log", function()
    local repo = s:checkout { ["a.txt"] = "a\n" }
    local r = assert(engine:run { agent = "command", repo = repo, env = { TOKEN = SECRET },
      brief = 'test -n "$TOKEN" || exit 9; echo "it is $TOKEN"; echo "$TOKEN" >&2; printf "%s" "$TOKEN" | base64; ' ..
        -- last, and only when we have looked: that file is the agent's own
        'until [ -e ~/looked ]; do sleep 0.1; done; echo "see $TOKEN" > ~/.crewbox/findings.md' })
    -- Look while it runs: the state folder holds the box's folders too.
    local looks = 0
    states.eventually("the agent", 120, function()
      engine.loop:call(engine.loop.sleep, engine.loop, 20)
      local row = r:row()
      if row.state == "running" then
        looks = looks + 1
        assert.same({}, states.processes(SECRET))
      end
      return row.state == "running" and (s:read(r.id, "out.log") or "") ~= ""
    end)
    assert.is_true(looks > 0)
    local found = sh(("grep -rlaF -e '%s' -e '%s' '%s' 2>/dev/null"):format(SECRET, "enE5LUZBS0UrdG9rL2VuPTc3JH", s.dir))
    sh(("for home in '%s'/boxd/boxes/*/home; do : >\"$home/looked\"; done"):format(s.state))
    assert.equal("", found)
    local row = assert(r:wait(180))
    assert.equal("succeeded", row.state)
    found = sh(("grep -rlaF -e '%s' -e '%s' '%s' 2>/dev/null"):format(SECRET, "enE5LUZBS0UrdG9rL2VuPTc3JH", s.dir))
    assert.equal("", found)
    assert.equal("it is [REDACTED:TOKEN]\n[REDACTED:TOKEN]\n", s:read(row.id, "out.log"))
    assert.equal("see [REDACTED:TOKEN]\n", s:read(row.id, "findings.md"))
    assert.same({ "TOKEN" }, { row.env_names[1] })
  end)

  for _, c in ipairs {
    { "as it is", 'echo "key = $TOKEN" > leak.txt' },
    { "in base64", 'printf "user:%s" "$TOKEN" | base64 > leak.txt' },
    { "in a name", 'mkdir -p "x/$(printf %s "$TOKEN" | tr / _)"; printf %s "$TOKEN" > x/y' },
  } do
    it("refuses a patch with a secret " .. c[1] .. " and stores none", function()
      local repo = s:checkout { ["a.txt"] = "a\n" }
      local row, result = run { repo = repo, env = { TOKEN = SECRET }, brief = c[2] }
      assert.equal("failed", row.state)
      assert.equal("contains_secret", row.reason)
      assert.truthy(row.outcome.error:find("TOKEN", 1, true))
      assert.is_nil(result.patch)
      assert.is_nil(core.sys.stat(s:file(row.id, "result.pack")))
      assert.equal("", (sh(("grep -rlaF '%s' '%s/runs' 2>/dev/null"):format(SECRET, s.state))))
    end)
  end

  it("names the secrets that are too short to be masked", function()
    local row, _, r = run { brief = "true", env = { PIN = "1234" } }
    assert.equal("succeeded", row.state)
    local named
    for _, event in ipairs(r:events()) do
      if event.event == "not_masked" then named = event.name end
    end
    assert.equal("PIN", named)
  end)

  it("ends a run at its limit", function()
    local row = run { brief = "echo begun; sleep 600", timeout_s = 1 }
    assert.equal("timed_out", row.state)
    assert.equal("guard", row.reason)
    assert.equal("begun\n", s:read(row.id, "out.log"))
  end)

  it("starts an agent that froze once more, then says so (bug-A5)", function()
    local harness = require "crewbox.harness.command"
    harness.start_deadline_s = 1
    local row, _, r = run { brief = "sleep 600" }
    harness.start_deadline_s = 0
    assert.equal("failed", row.state)
    assert.equal("stalled_start", row.reason)
    assert.equal(2, row.launch_seq)
    local launches = 0
    for _, event in ipairs(r:events()) do
      if event.event == "agent_started" then launches = launches + 1 end
    end
    assert.equal(2, launches)
  end)

  it("cancels a run", function()
    local r = assert(engine:run { agent = "command", no_repo = true, brief = "echo begun; sleep 600" })
    states.eventually("the agent", 120, function()
      engine.loop:call(engine.loop.sleep, engine.loop, 20)
      return r:row().state == "running"
    end)
    assert.is_true(r:cancel())
    local row = assert(r:wait(180))
    assert.equal("cancelled", row.state)
    assert.is_false(r:cancel())
  end)

  it("tells that an agent was stopped, and can still end it (bug-B5)", function()
    local r = assert(engine:run { agent = "command", no_repo = true, brief = "echo begun; kill -STOP $$" })
    local function stalled()
      for _, event in ipairs(r:events()) do
        if event.event == "stalled" then return event end
      end
    end
    states.eventually("the word that it is stopped", 120, function()
      engine.loop:call(engine.loop.sleep, engine.loop, 20)
      return stalled()
    end)
    assert.equal("stopped", stalled().why)
    assert.equal("running", r:row().state)
    assert.is_true(r:cancel())
    assert.equal("cancelled", assert(r:wait(180)).state)
  end)

  it("brings back all of five runs that ended while the host was busy (bug-D3)", function()
    local runs = {}
    for i = 1, 5 do runs[i] = assert(engine:run { agent = "command", no_repo = true, brief = "echo run " .. i }) end
    os.execute("sleep 3") -- the host does not let the loop run
    for i, r in ipairs(runs) do
      local row = assert(r:wait(180))
      assert.equal("succeeded", row.state)
      assert.equal("run " .. i .. "\n", s:read(row.id, "out.log"))
      assert.equal(1, states.count(s:events(row.id), "run_finished"))
    end
  end)

  it("keeps the beginning and the end of a flood", function()
    local row = run { brief = "echo first; head -c 3000000 /dev/zero | tr '\\0' x | fold -w 999; echo last" }
    local out = s:read(row.id, "out.log")
    assert.equal("first\n", out:sub(1, 6))
    assert.equal("last\n", out:sub(-5))
    assert.is_true(#out > 3000000)
  end)

  it("gives a run that goes on to the next engine when it closes", function()
    local other = assert(crewbox.open { state = s.state, config = s.config, environ = s:environ() })
    local r = assert(other:run { agent = "command", no_repo = true, brief = "echo begun; " .. states.HELD .. "; echo done" })
    states.eventually("the agent", 120, function()
      other.loop:call(other.loop.sleep, other.loop, 20)
      return r:row().state == "running"
    end)
    other:close()
    s:let_go()
    local row = assert(assert(engine:get(r.id)):wait(180))
    assert.equal("succeeded", row.state)
    assert.equal("begun\ndone\n", s:read(r.id, "out.log"))
  end)

  it("spoils nothing when it closes at any moment", function()
    local repo = s:checkout { ["a.txt"] = "a\n" }
    local runs = {}
    for i = 1, 12 do
      local other = assert(crewbox.open { state = s.state, config = s.config, environ = s:environ() })
      local r = assert(other:run { agent = "command", repo = repo, brief = "echo begun; echo b >> a.txt; sleep 0.1; echo done" })
      other.loop:call(other.loop.sleep, other.loop, i * 25) -- from before the box is there to after the end
      other:close()
      runs[i] = r.id
    end
    for _, id in ipairs(runs) do
      local row = assert(assert(engine:get(id)):wait(180))
      assert.equal("succeeded", row.state, row.outcome.error)
      assert.equal("begun\ndone\n", s:read(id, "out.log"))
      assert.equal(1, row.outcome.changed)
      assert.equal(1, states.count(s:events(id), "run_finished"))
    end
  end)

  it("says that a run which is not over has no result", function()
    local r = assert(engine:run { agent = "command", no_repo = true, brief = "sleep 0.5" })
    local result, e = r:result()
    assert.is_nil(result)
    assert.equal("conflict", e.code)
    assert.equal("timeout", select(2, r:wait(0)).code)
    assert(r:wait(180))
  end)
end)
