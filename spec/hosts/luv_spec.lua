-- SPDX-License-Identifier: MIT
local async = require "crewbox.async"
local core = require "crewbox.core"
local hosts = require "crewbox.hosts.luv"
local states = require "spec.support.state"
local uv = require "luv"

describe("crewbox on libuv's loop", function()
  local io, host, loop, died

  before_each(function()
    io = core.io()
    host = hosts.new(io, uv)
    loop = async.new(io, host)
    died = {}
    loop.on_error = function(traceback) died[#died + 1] = traceback end
  end)

  after_each(function()
    assert.equal(0, loop.alive)
    assert.equal(0, host.alive)
    host:close()
    io:close()
    local left = 0
    uv.walk(function() left = left + 1 end)
    assert.equal(0, left)
  end)

  it("waits in tasks while other handles of the loop go on", function()
    local ticks, got = 0, {}
    local timer = uv.new_timer()
    timer:start(1, 1, function() ticks = ticks + 1 end)
    loop:spawn(function()
      got.op = loop:await(io:sleep(30))
      got.slept = loop:sleep(30)
      local _, e = loop:await(io:sleep(60000), 10)
      got.timeout = e.code
      timer:close()
    end)
    uv.run() -- returns when nothing is left to wait for
    assert.same({ op = true, slept = true, timeout = "timeout" }, got)
    assert.truthy(ticks >= 5)
  end)

  it("wakes tasks for each other", function()
    local order = {}
    local signal = loop:signal()
    loop:spawn(function()
      signal:wait()
      order[#order + 1] = "second"
    end)
    loop:spawn(function()
      loop:sleep(5)
      order[#order + 1] = "first"
      signal:fire()
    end)
    uv.run()
    assert.same({ "first", "second" }, order)
  end)

  it("does not end a later wait by the timer of an earlier one", function()
    loop:call(function()
      local signal = loop:signal()
      loop:spawn(function() signal:fire() end)
      assert.is_true(signal:wait(20))
      local before = core.sys.now_ms()
      loop:sleep(60)
      assert.is_true(core.sys.now_ms() - before >= 60)
    end)
  end)

  it("tells the death of a task, and lets the others live", function()
    local lived
    loop:spawn(function() error("boom") end)
    loop:spawn(function() lived = loop:sleep(5) end)
    uv.run()
    assert.equal(1, #died)
    assert.truthy(died[1]:find("boom", 1, true))
    assert.is_true(lived)
  end)

  it("drives the loop for a caller outside of tasks", function()
    assert.equal(7, loop:call(function()
      loop:await(io:sleep(1))
      return 7
    end))
    assert.has_error(function()
      loop:call(function() return host:drive(function() return true end) end)
    end)
  end)

  it("is a host for an engine: a run goes to its end and the loop then stops", function()
    local crewbox = require "crewbox"
    local dir = "/tmp/cb-luv-" .. core.sys.random_id(6)
    local row, ticks = nil, 0
    local timer = uv.new_timer()
    timer:start(5, 5, function() ticks = ticks + 1 end)
    loop:spawn(function()
      local engine = assert(crewbox.open { state = dir, config = {}, loop = loop })
      local run = assert(engine:run { agent = "command", brief = "echo from luv", no_repo = true })
      row = assert(run:wait(60))
      engine:close()
      timer:close()
    end)
    uv.run()
    assert.equal("succeeded", row.state)
    assert.equal("from luv\n", core.sys.read_file(("%s/runs/%s/out.log"):format(dir, row.id), 1024))
    assert.truthy(ticks > 0)
    assert.same({}, died)
    for _, pid in ipairs(states.processes(dir .. "/boxd")) do core.sys.kill(pid, "TERM") end
    states.eventually("the end of the box server", 20, function() return #states.processes(dir .. "/boxd") == 0 end)
    core.sys.rmtree(dir)
  end)
end)
