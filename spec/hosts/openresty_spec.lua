-- SPDX-License-Identifier: MIT
-- Real nginx with two workers on one state folder. nginx runs these workers as root where the spec
-- does: they must own the state folder.
local core = require "crewbox.core"
local json = require "crewbox.json"
local openresty = require "spec.support.openresty"
local states = require "spec.support.state"

-- Asks until both workers have answered; answers by pid.
local function of_both(server, path)
  local by_pid, n = {}, 0
  states.eventually("answers of both workers", 20, function()
    local facts = assert(server:ask(path)).json
    if not by_pid[facts.pid] then n = n + 1 end
    by_pid[facts.pid] = facts
    return n == 2
  end)
  return by_pid
end

local function count(text, word)
  local n = 0
  for _ in text:gmatch(word) do n = n + 1 end
  return n
end

local function events(server, id)
  return core.sys.read_file(("%s/runs/%s/events.jsonl"):format(server.state, id), 1024 * 1024) or ""
end

describe("crewbox in nginx", function()
  local server

  setup(function() server = openresty.app() end)
  teardown(function() server:close() end)

  local function final(id)
    local row
    states.eventually("the end of run " .. id, 120, function()
      row = assert(server:ask("/row?id=" .. id)).json
      return row.over
    end)
    return row
  end

  it("bug-Q3: loaded before the workers are forked, it works in each of them", function()
    for _, facts in pairs(of_both(server, "/facts")) do
      assert.truthy(facts.refused:find("belongs into init_worker_by_lua", 1, true), facts.refused)
    end
    local waits
    for _ = 1, 6 do -- of whichever worker takes it
      waits = assert(server:ask("/waits?path=" .. server.dir .. "/line")).json
      assert.same({ slept = true, op = true, timeout = "timeout", signal = true, joined = "value", died = waits.died,
        raised = "raised here", nested = 20, stream = true }, waits)
      assert.truthy(waits.died:find("boom", 1, true))
    end
  end)

  it("waits in timers and light threads, and says where nginx cannot wait", function()
    states.eventually("timers of both workers", 20, function()
      for _, facts in pairs(of_both(server, "/facts")) do
        if not (facts.seen.timer and facts.seen.thread and facts.seen.log_phase) then return false end
        assert.truthy(facts.seen.init_worker:find("nginx cannot wait in its phase init_worker", 1, true))
        assert.truthy(facts.seen.log_phase:find("nginx cannot wait in its phase log", 1, true))
      end
      return true
    end)
  end)

  it("hears the exit status of every child although nginx reaps them all", function()
    assert.equal(0, assert(server:ask("/children")).json.wrong)
  end)

  it("goes on with a task whose client hangs up", function()
    local _, e = server:ask("/hang_up", { timeout_ms = 50 })
    assert.equal("timeout", e.code)
    states.eventually("the end of the task", 20, function()
      for _, facts in pairs(of_both(server, "/facts")) do
        if facts.seen.after_hang_up then return true end
      end
    end)
  end)

  it("uses its light threads again", function()
    assert.truthy(assert(server:ask("/tasks")).json.seats < 30)
  end)

  it("takes a tree in and brings a patch out", function()
    local repo = server.dir .. "/repo"
    assert(core.sys.mkdirs(repo, 493))
    assert(core.sys.write_file(repo .. "/a.txt", "one\n", 420, false))
    os.execute(("cd %s && git init -q && git add -A && git -c user.name=t -c user.email=t@example.com commit -q -m a"):format(repo))
    local run = assert(server:ask("/run?repo=" .. repo, { body = "echo two >> a.txt" })).json
    assert.truthy(run.id, run.message)
    local row = final(run.id)
    assert.equal("succeeded", row.state, row.text)
    assert.truthy(row.patch and row.patch:find("\n+two\n", 1, true), row.text)
  end)

  it("gives the box server none of nginx's descriptors", function()
    local pids = states.processes(server.state .. "/boxd")
    assert.truthy(#pids > 0)
    -- Inodes of the socket nginx listens on and of every connection through it.
    local http = {}
    for line in core.sys.read_file("/proc/net/unix", 1024 * 1024):gmatch("[^\n]+") do
      local inode, path = line:match("(%d+) (/%S+)$")
      if path == server.socket then http["socket:[" .. inode .. "]"] = true end
    end
    assert.truthy(next(http))
    for _, pid in ipairs(pids) do
      local p = assert(io.popen(("ls -l /proc/%d/fd 2>/dev/null"):format(pid)))
      for line in p:lines() do assert.falsy(http[line:match("-> (.*)$")], line) end
      p:close()
    end
  end)

  it("loses no value of a run whose agent has not started when its worker leaves", function()
    local secret = "value-" .. core.sys.random_id(16)
    local run = assert(server:ask("/run?secret=" .. secret, { body = "echo $SECRET; sleep 1; echo end" })).json
    assert.truthy(run.id, run.message)
    server:reload()
    local row = final(run.id)
    assert.equal("succeeded", row.state, row.text)
    local log = core.sys.read_file(("%s/runs/%s/out.log"):format(server.state, run.id), 65536)
    assert.equal("[REDACTED:SECRET]\nend\n", log)
  end)

  it("takes over what a killed worker had", function()
    local run = assert(server:ask("/run", { body = "echo begin; sleep 2; echo end" })).json
    states.eventually("a running agent", 60, function() return events(server, run.id):find("agent_started", 1, true) end)
    core.sys.kill(run.pid, "KILL")
    local row = final(run.id)
    assert.equal("succeeded", row.state, row.text)
    assert.equal(1, count(events(server, run.id), '"run_finished"'))
  end)

  it("tells a request that waits when its worker leaves", function()
    local run = assert(server:ask("/run", { body = "sleep 3" })).json
    local answer
    server.loop:call(function()
      local waiting = server.loop:spawn(function() return server:ask("/wait?id=" .. run.id) end)
      server.loop:sleep(200)
      server:reload(false)
      answer = assert(waiting:join(60000))
    end)
    -- Ended with the worker, or by the run, which another worker has by then.
    assert.truthy(answer.json.code == "cancelled" or answer.json.code == "closed" or answer.json.state == "succeeded", answer.body)
    assert.equal("succeeded", final(run.id).state)
  end)

  it("answers a handler that outlives the engine of its worker", function()
    local run = assert(server:ask("/run", { body = "true" })).json
    final(run.id)
    local answer
    server.loop:call(function()
      local late = server.loop:spawn(function() return server:ask("/late?id=" .. run.id) end)
      server.loop:sleep(200)
      server:reload(false)
      answer = assert(late:join(60000))
    end)
    assert.same({ "closed", "closed", "closed" }, answer.json)
  end)

  it("logs no errors of its own", function()
    for line in server:log():gmatch("[^\n]+") do
      assert.falsy(line:find("%[error%]") or line:find("%[crit%]") or line:find("%[alert%]") and not line:find("exited on signal 9"), line)
    end
    for _, name in ipairs(core.sys.list(server.state)) do assert.falsy(name:find("^wake%-"), name) end
  end)
end)

describe("examples/openresty", function()
  local server
  local RUNS = 20

  setup(function() server = openresty.example() end)
  teardown(function() server:close() end)

  -- Pings one after the other until stop() is true; their times in ms, sorted.
  local function pings(stop)
    local times = {}
    repeat
      local before = core.sys.now_ms()
      local answer = assert(server:ask("/ping", { timeout_ms = 20000 }))
      assert.equal("pong\n", answer.body)
      times[#times + 1] = core.sys.now_ms() - before
      server.loop:sleep(2)
    until stop(#times)
    table.sort(times)
    return times
  end

  local function words(times)
    return ("%d pings, p50 %d ms, p99 %d ms, most %d ms"):format(#times, times[math.ceil(#times * 0.5)],
      times[math.ceil(#times * 0.99)], times[#times])
  end

  -- A worker that leaves may say "ask again".
  local function post(brief)
    for _ = 1, 50 do
      local answer = assert(server:ask("/runs", { body = brief }))
      if answer.status == 201 then return answer.json.id end
      assert.equal(503, answer.status, answer.body)
      server.loop:sleep(100)
    end
    error("no worker takes the run")
  end

  it("bug-Q1: 20 runs of two workers finish over a reload while pings are answered", function()
    local alone, during
    local ids, rows, over = {}, {}, false
    server.loop:call(function()
      alone = pings(function(n) return n >= 300 end)
      server.loop:scope(function(scope)
        scope:spawn(function() during = pings(function() return over end) end)
        local tasks = {}
        for i = 1, RUNS do
          tasks[i] = scope:spawn(function() ids[i] = post(("echo begin %d; sleep 1; echo end %d"):format(i, i)) end)
        end
        tasks[1]:join()
        server:reload(false) -- some are being prepared, some launched, some not asked for yet
        for i = 1, RUNS do
          tasks[i]:join()
          local deadline = core.sys.now_ms() + 120000
          repeat
            rows[i] = assert(server:ask("/runs/" .. ids[i])).json
            server.loop:sleep(50)
          until rows[i].outcome or core.sys.now_ms() > deadline
        end
        over = true
      end)
    end)
    for i = 1, RUNS do
      assert.equal("succeeded", rows[i].state, json.encode(rows[i]))
      local log = assert(server:ask(("/runs/%s/log"):format(ids[i])))
      assert.equal(("begin %d\nend %d\n"):format(i, i), log.body)
      local told = events(server, ids[i])
      assert.equal(1, count(told, '"run_started"'))
      assert.equal(1, count(told, '"agent_started"'))
      assert.equal(1, count(told, '"run_finished"'))
    end
    assert.equal(RUNS, #assert(server:ask("/runs")).json)
    print(("nginx without runs: %s\nnginx with %d runs: %s"):format(words(alone), RUNS, words(during)))
  end)

  it("answers what is wrong with what it is for", function()
    local answer = assert(server:ask("/runs", { body = " " }))
    assert.equal(400, answer.status)
    assert.equal("invalid", answer.json.code)
    assert.equal(404, assert(server:ask("/runs/r000000000000")).status)
  end)
end)
