-- SPDX-License-Identifier: MIT
-- SIGKILL at every named point between the row and acceptance, and of every process that takes
-- part. After each: the right typed outcome, accepted exactly once, no box and no process left.
local core = require "crewbox.core"
local crewbox = require "crewbox"
local fault = require "crewbox.engine.fault"
local starter = require "crewbox.engine.starter"
local states = require "spec.support.state"

local SECRET = "zq9-FAKE+tok/en=77$x"

-- Points at which the agent may have been started: what needs memory is in the box by then.
local AFTER_START = {}
do
  local after = false
  for _, name in ipairs(fault.POINTS) do
    if name == "starting_written" then after = true end
    AFTER_START[name] = after
  end
end

describe("a run whose engine is killed", function()
  local s, mark

  setup(function() s = states.new() end)
  teardown(function() s:close() end)

  before_each(function()
    mark = "61" .. core.sys.random_id(10):gsub("%D", "7") -- seconds to sleep: seen in command lines
  end)

  after_each(function()
    s:end_engine()
    s:close_clients()
    assert.same({}, states.processes(mark))
  end)

  local function brief()
    return ("echo begun; echo changed >> f.txt; (exec sleep %s) & echo $TOKEN; sleep 0.3; " ..
      "echo report > ~/.crewbox/findings.md; exit 3"):format(mark)
  end

  -- Starts a run whose engine dies at a point, then another engine; gives the final row.
  local function through(point, request)
    local c = s:client { CREWBOX_FAULT = point }
    local id = assert(c:run(request))
    states.eventually("the death of the engine at " .. point, 120, function() return not s:engine_pid() end)
    local later = s:client()
    local run = assert(later:wait(id, 180))
    states.eventually("the end of every box", 120, function() return s:boxes() == 0 end)
    return run
  end

  local function check_once(run)
    assert.is_truthy(run.accepted_at)
    assert.equal(1, states.count(s:events(run.id), "run_finished"))
    assert.equal(1, states.count(s:events(run.id), "run_started"))
  end

  for _, point in ipairs(fault.POINTS) do
    it("at " .. point .. " ends as if it had not been (bug-D5)", function()
      local repo = s:checkout { ["f.txt"] = "first\n" }
      local run = through(point, { agent = "command", brief = brief(), repo = repo })
      assert.equal("failed", run.state)
      assert.equal("agent_exit", run.reason)
      assert.equal(3, run.outcome.exit)
      assert.equal("report\n", s:read(run.id, "findings.md"))
      assert.equal("begun\n\n", s:read(run.id, "out.log"))
      assert.equal(1, run.outcome.changed)
      assert.truthy(s:read(run.id, "patch"):find("+changed", 1, true))
      check_once(run)
    end)

    it("at " .. point .. " with a secret: " .. (AFTER_START[point] and "goes on, masked" or "says what it has lost"), function()
      local run = through(point, { agent = "command", brief = brief(), no_repo = true, env = { TOKEN = SECRET } })
      assert.equal("failed", run.state)
      if AFTER_START[point] then
        assert.equal("agent_exit", run.reason)
        assert.equal("begun\n[REDACTED:TOKEN]\n", s:read(run.id, "out.log"))
      elseif run.reason ~= "agent_exit" then -- or the client handed the values over again
        assert.equal("credentials_gone", run.reason)
        assert.truthy(run.outcome.text:find("TOKEN", 1, true))
      end
      check_once(run)
    end)
  end

  it("at finished_seen still refuses a secret in its changes", function()
    local repo = s:checkout { ["f.txt"] = "first\n" }
    local run = through("finished_seen", { agent = "command", brief = "echo $TOKEN > leak.txt", repo = repo, env = { TOKEN = SECRET } })
    assert.equal("contains_secret", run.reason)
    assert.is_nil(s:read(run.id, "patch"))
    check_once(run)
  end)

  it("twice at the same point still ends", function()
    local c = s:client { CREWBOX_FAULT = "box_recorded" }
    local id = assert(c:run { agent = "command", brief = brief(), no_repo = true })
    for _ = 1, 2 do
      states.eventually("the death of the engine", 120, function() return not s:engine_pid() end)
      c.loop:call(starter.ask, c, { op = "wake" })
    end
    states.eventually("the death of the engine", 120, function() return not s:engine_pid() end)
    local run = assert(s:client():wait(id, 180))
    assert.equal("agent_exit", run.reason)
    states.eventually("the end of every box", 120, function() return s:boxes() == 0 end)
  end)
end)

describe("a run", function()
  local s, mark, c

  setup(function() s = states.new() end)
  teardown(function() s:close() end)

  before_each(function()
    mark = "62" .. core.sys.random_id(10):gsub("%D", "7")
    c = s:client()
  end)

  after_each(function()
    states.eventually("the end of every box", 120, function() return s:boxes() == 0 end)
    s:close_clients()
    assert.same({}, states.processes(mark))
  end)

  -- A run that sleeps, once its agent can be seen.
  local function sleeping()
    local id = assert(c:run { agent = "command", brief = "echo begun; exec sleep " .. mark, no_repo = true })
    states.eventually("the agent", 120, function()
      return #states.processes("sleep\0" .. mark) > 0 and c:find(id).state == "running" and s:read(id, "out.log") == "begun\n"
    end)
    return id
  end

  local function kill(text)
    local pids = states.processes(text)
    assert.is_true(#pids > 0)
    for _, pid in ipairs(pids) do core.sys.kill(pid, "KILL") end
  end

  it("whose agent is killed failed by that signal", function()
    local id = sleeping()
    kill("sleep\0" .. mark)
    local run = assert(c:wait(id, 180))
    assert.equal("failed", run.state)
    assert.equal("signal", run.reason)
    assert.equal(9, run.outcome.signal)
    assert.equal("begun\n", s:read(id, "out.log"))
  end)

  it("whose supervisor is killed is lost, with what it said so far (bug-B1, bug-B7)", function()
    local id = sleeping()
    kill("crewbox-" .. id)
    local run = assert(c:wait(id, 180))
    assert.equal("lost", run.state)
    assert.equal("supervisor_lost", run.reason)
    assert.equal("begun\n", s:read(id, "out.log"))
  end)

  if not os.getenv("CREWBOX_TEST_SOCKET") then
    it("whose box init is killed is lost, with what it said so far", function()
      local id = sleeping()
      -- The init that is pid 1 of the agent's own pid namespace: others on this machine are not ours.
      local agent = states.processes("sleep\0" .. mark)[1]
      for _, pid in ipairs(states.processes("crewbox-init")) do
        if states.same_namespace(pid, agent) then core.sys.kill(pid, "KILL") end
      end
      local run = assert(c:wait(id, 180))
      assert.equal("lost", run.state)
      assert.equal("box_lost", run.reason)
      assert.equal("begun\n", s:read(id, "out.log"))
    end)

    it("goes on when the box server is killed", function()
      local id = assert(c:run { agent = "command", brief = "echo begun; " .. states.HELD .. "; echo done", no_repo = true })
      states.eventually("the agent", 120, function() return c:find(id).state == "running" end)
      kill("crewboxd\0--state\0" .. s.state)
      s:let_go()
      local run = assert(c:wait(id, 180))
      assert.equal("succeeded", run.state)
      assert.equal("begun\ndone\n", s:read(id, "out.log"))
    end)
  end

  it("goes to another engine when its own is stopped for longer than its lease (bug-D1)", function()
    local id = assert(c:run { agent = "command", no_repo = true, brief = "echo begun; " .. states.HELD .. "; echo done" })
    states.eventually("the agent", 120, function() return c:find(id).state == "running" end)
    local first = c:find(id).claim_owner
    local stopped = s:engine_pid()
    core.sys.kill(stopped, "STOP")
    local engine = assert(crewbox.open { state = s.state, config = s.config, environ = s:environ() })
    states.eventually("the other engine", 120, function()
      engine.loop:call(engine.loop.sleep, engine.loop, 100)
      local owner = c:find(id).claim_owner
      return owner and owner ~= first
    end)
    s:let_go()
    local row = assert(assert(engine:get(id)):wait(180))
    assert.equal("succeeded", row.state)
    assert.is_true(row.epoch > 1)
    core.sys.kill(stopped, "CONT")
    -- Awake again it finds that the run is not its own any more, and leaves when it has nothing to do.
    states.eventually("the end of the first engine", 120, function() return not core.sys.alive(stopped) end)
    engine:close()
    assert.is_not.equal(first, nil)
    assert.equal("begun\ndone\n", s:read(id, "out.log"))
    assert.equal(1, states.count(s:events(id), "run_finished"))
  end)

  it("is cancelled with everything it started", function()
    local id = assert(c:run { agent = "command", no_repo = true,
      brief = ("trap '' TERM; setsid sleep %s & echo begun; sleep %s"):format(mark, mark) })
    states.eventually("the agent", 120, function() return #states.processes("sleep\0" .. mark) >= 2 end)
    assert.is_true(c:cancel(id))
    local run = assert(c:wait(id, 180))
    assert.equal("cancelled", run.state)
    assert.equal("cancelled", run.reason)
    assert.is_false(c:cancel(id))
  end)
end)
