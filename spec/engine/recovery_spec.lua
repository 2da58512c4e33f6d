-- SPDX-License-Identifier: MIT
-- What an engine does with rows it finds: runs whose provider today's settings do not reach.
local core = require "crewbox.core"
local crewbox = require "crewbox"
local states = require "spec.support.state"

describe("a run of other provider settings", function()
  local s, c

  before_each(function()
    s = states.new()
    c = s:client()
  end)

  after_each(function() s:close() end)

  local function sql(text, params) return assert(c.loop:call(c.store.change, c.store, text, params)) end

  local function add(lease_until)
    assert(c.loop:call(c.store.add_run, c.store, { id = "rold", kind = "agent", agent = "command", title = "t", env_names = {},
      options = { provider = "local", generation = "of-another-time" }, claim_owner = "cx", claim_s = -100 }, core.sys.wall()))
    assert(core.sys.mkdirs(s.state .. "/runs/rold", 448))
    sql([[INSERT INTO box(id, provider, generation, nonce, remote_id, state, lease_until, created_at, updated_at)
      VALUES('bold', 'local', 'of-another-time', 'n', 'x', 'live', ?, 0, 0)]], { lease_until })
    sql("UPDATE run SET box_id = 'bold', state = 'running' WHERE id = 'rold'")
  end

  local function engine_for(ms)
    local engine = assert(crewbox.open { state = s.state, config = s.config, environ = s:environ(), log = function() end })
    engine.loop:call(engine.loop.sleep, engine.loop, ms)
    local idle = engine.loop:call(engine.inner.is_idle, engine.inner)
    engine:close()
    return idle
  end

  it("waits for an engine with the right ones while its box may live", function()
    add(core.sys.wall() + 600)
    assert.is_true(engine_for(300))
    assert.equal("running", c:find("rold").state)
    sql("UPDATE box SET lease_until = 1")
    engine_for(2500) -- two sweeps: the run, then its box
    assert.equal("lost", c:find("rold").state)
  end)

  it("is lost once the lease of its box has surely run out, and says why", function()
    add(core.sys.wall() - 600)
    engine_for(300)
    local row = c:find("rold")
    assert.equal("lost", row.state)
    assert.equal("box_lost", row.reason)
    assert.truthy(row.outcome.text:find("provider settings have changed", 1, true))
    engine_for(2500)
    assert.equal(0, s:boxes())
  end)
end)
