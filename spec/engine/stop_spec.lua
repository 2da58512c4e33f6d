-- SPDX-License-Identifier: MIT
-- Ending a run that goes on: what replaces what, and what can be taken back. A loop of the real
-- kind; the box is a table that notes what it was asked.
local async = require "crewbox.async"
local core = require "crewbox.core"
local stop = require "crewbox.engine.stop"

describe("a request to end a run", function()
  local loop, job, asked

  before_each(function()
    loop = async.new(core.io())
    asked = {}
    job = {
      engine = { loop = loop }, box = { id = "b" }, run_dir = "/r", watch_op = 1,
      poke = function() end,
      try = function(_, fn) return fn() end,
      provider = { verbs = {
        upload = function(_, o)
          asked[#asked + 1] = o.files[1].path
          return loop.io:sleep(0)
        end,
        kill = function()
          asked[#asked + 1] = "kill"
          return loop.io:sleep(0)
        end,
      } },
    }
  end)

  after_each(function()
    if job.stopper then job.stopper:cancel() end
    loop:call(function() if job.stopper then job.stopper:join() end end)
    loop.io:close()
  end)

  local function after(ms) loop:call(function() loop:sleep(ms) end) end

  it("reaches the box when its delay has passed", function()
    assert.is_true(stop.ask(job, "terminal", 1))
    after(100)
    assert.same({ "/r/stop" }, asked)
    assert.is_true(job.stop_sent)
  end)

  it("can be taken back before, and asked again", function()
    stop.ask(job, "terminal", 60000)
    stop.withdraw(job, "terminal")
    assert.is_nil(job.stopping)
    after(20)
    assert.same({}, asked)
    assert.is_true(stop.ask(job, "terminal", 1))
    after(100)
    assert.same({ "/r/stop" }, asked)
    stop.withdraw(job, "terminal") -- too late
    assert.equal("terminal", job.stopping)
  end)

  it("is replaced by a loop's and that by a person's, never the other way", function()
    assert.is_true(stop.ask(job, "terminal", 60000))
    assert.is_false(stop.ask(job, "terminal", 1))
    assert.is_true(stop.ask(job, "loop", 60000))
    assert.is_false(stop.ask(job, "terminal", 1))
    stop.withdraw(job, "terminal")
    assert.equal("loop", job.stopping)
    assert.is_true(stop.ask(job, "cancel", 1))
    assert.is_false(stop.ask(job, "loop", 1))
    after(100)
    assert.equal("cancel", job.stopping)
    assert.same({ "/r/stop" }, asked)
  end)
end)
