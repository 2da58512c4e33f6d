-- SPDX-License-Identifier: MIT
-- Answers that get lost between us and a provider. The provider here is scripted: what it is
-- about cannot be had from a real one on demand. Time is too.
local async = require "crewbox.async"
local box = require "crewbox.engine.box"
local core = require "crewbox.core"
local err = require "crewbox.err"
local store = require "crewbox.store"

describe("a box at a provider that loses answers", function()
  local io, loop, dir, db, engine, provider, calls, boxes, now

  -- An op that is over: what the loop of this test waits for.
  local function over(value, e) return { value = value, err = e } end

  before_each(function()
    io = core.io()
    loop = async.new(io)
    dir = os.tmpname()
    os.remove(dir)
    core.sys.mkdirs(dir, 448)
    db = assert(loop:call(store.open, loop, dir .. "/crewbox.db"))
    calls, boxes, now = {}, {}, 0
    local fence = { owner = "e1" }
    fence.epoch = assert(loop:call(db.add_engine, db, "e1", core.sys.wall()))
    local await = function(_, op) return op.value, op.err end
    engine = {
      store = db, fence = fence, state = dir, killing = {},
      now_ms = function() return now end,
      loop = setmetatable({ await = await, sleep = function(_, ms)
        now = now + ms
        return true
      end }, { __index = loop }),
      server_lost = function() end, log = function() end,
    }
    provider = { kind = "e2b", generation = "g", remote = true, sandbox = { default_timeout_seconds = 900, template = "base" }, verbs = {} }
    local function verb(name, fn)
      provider.verbs[name] = function(_, args)
        calls[#calls + 1] = name
        return over(fn(args))
      end
    end
    verb("list", function(args)
      local found = {}
      for _, b in ipairs(boxes) do
        if b.metadata.crewbox_nonce == args.metadata.crewbox_nonce and now >= b.seen_at then found[#found + 1] = b end
      end
      return { boxes = found }
    end)
    verb("kill", function(args)
      for i, b in ipairs(boxes) do
        if b.id == args.id then
          table.remove(boxes, i)
          return { gone = true, existed = true }
        end
      end
      return { gone = true, existed = false }
    end)
  end)

  after_each(function()
    db:close()
    io:close()
    core.sys.rmtree(dir)
  end)

  local function row(nonce) return { id = "b1", nonce = nonce, state = "creating" } end

  local function count(name)
    local n = 0
    for _, c in ipairs(calls) do
      if c == name then n = n + 1 end
    end
    return n
  end

  it("is found by its nonce although the list lags (bug-E1, bug-E5)", function()
    boxes[1] = { id = "x1", metadata = { crewbox_nonce = "n1" }, seen_at = 40000 }
    local found = loop:call(box.look, engine, provider, "n1")
    assert.equal("x1", found.id)
    assert.is_true(count("list") < 20)
  end)

  it("is given up after 75 seconds, not before", function()
    assert.is_false(loop:call(box.look, engine, provider, "n1"))
    assert.is_true(now > 55000 and now <= 75000)
  end)

  it("is not given up while nobody could look", function()
    provider.verbs.list = function() return over(nil, err.new("unreachable", "no")) end
    local found, e = loop:call(box.look, engine, provider, "n1")
    assert.is_nil(found)
    assert.equal("unreachable", e.code)
  end)

  it("is killed by its nonce when its id was never learnt (bug-E1)", function()
    loop:call(db.change, db, [[INSERT INTO box(id, provider, generation, nonce, state, created_at, updated_at)
      VALUES('b1', 'e2b', 'g', 'n1', 'creating', 0, 0)]])
    boxes[1] = { id = "x1", metadata = { crewbox_nonce = "n1" }, seen_at = 0 }
    assert.is_true(loop:call(box.kill, engine, provider, row("n1")))
    assert.same({}, boxes)
    assert.equal("gone", loop:call(db.box, db, "b1").state)
  end)

  it("is killed until the provider says that it is gone (bug-C13)", function()
    loop:call(db.change, db, [[INSERT INTO box(id, provider, generation, nonce, remote_id, state, created_at, updated_at)
      VALUES('b1', 'e2b', 'g', 'n1', 'x1', 'live', 0, 0)]])
    local left, kill = 3, provider.verbs.kill
    boxes[1] = { id = "x1", metadata = {}, seen_at = 0 }
    provider.verbs.kill = function(self, args)
      left = left - 1
      if left >= 0 then
        calls[#calls + 1] = "kill"
        return over(nil, err.new("conflict", "not now", { status = 409 }))
      end
      return kill(self, args)
    end
    local r = row("n1")
    r.remote_id = "x1"
    assert.is_true(loop:call(box.kill, engine, provider, r))
    assert.equal(4, count("kill"))
    assert.same({}, boxes)
  end)

  it("stays in the table when the provider never says so", function()
    loop:call(db.change, db, [[INSERT INTO box(id, provider, generation, nonce, remote_id, state, created_at, updated_at)
      VALUES('b1', 'e2b', 'g', 'n1', 'x1', 'live', 0, 0)]])
    provider.verbs.kill = function() return over(nil, err.new("unreachable", "no")) end
    local r = row("n1")
    r.remote_id = "x1"
    local gone, e = loop:call(box.kill, engine, provider, r)
    assert.is_nil(gone)
    assert.equal("unreachable", e.code)
    assert.equal("live", loop:call(db.box, db, "b1").state)
  end)
end)
