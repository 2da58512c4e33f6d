-- SPDX-License-Identifier: MIT
-- A Lua host that stood still for so long that another engine declared its engine dead, and then
-- nobody else took its runs.
local crewbox = require "crewbox"
local states = require "spec.support.state"

describe("an engine that was declared dead", function()
  local s, engine
  setup(function()
    s = states.new()
    engine = assert(crewbox.open { state = s.state, config = s.config, environ = s:environ(), log = function() end })
    s.clients[1] = s:client()
  end)
  teardown(function()
    engine:close()
    s:close()
  end)

  it("begins again as a new one and takes its runs to their end, once", function()
    local inner = engine.inner
    local r = assert(engine:run { agent = "command", no_repo = true, brief = "echo begun; " .. states.HELD .. "; echo done" })
    local function wait_for(what, condition)
      states.eventually(what, 120, function()
        engine.loop:call(engine.loop.sleep, engine.loop, 20)
        return condition()
      end)
    end
    wait_for("the agent", function() return r:row().state == "running" end)
    local before = inner.fence
    local c = s.clients[1]
    assert(c.loop:call(c.store.drop_engine, c.store, before.owner)) -- as an engine does that finds the lease over

    wait_for("the new beginning", function() return inner.fence.owner ~= before.owner end)
    assert.is_true(inner.fence.epoch > before.epoch)
    wait_for("the run in its hands", function() return r:row().claim_owner == inner.fence.owner end)
    s:let_go()
    local row = assert(r:wait(120))
    assert.equal("succeeded", row.state)
    assert.equal("begun\ndone\n", s:read(r.id, "out.log"))
    assert.equal(1, states.count(s:events(r.id), "run_finished"))
  end)
end)
