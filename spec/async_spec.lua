-- SPDX-License-Identifier: MIT
local async = require "crewbox.async"
local core = require "crewbox.core"

describe("async", function()
  local io, loop, died

  before_each(function()
    io = core.io()
    loop = async.new(io)
    died = {}
    loop.on_error = function(traceback) died[#died + 1] = traceback end
  end)

  after_each(function()
    assert.equal(0, loop.alive)
    assert.same({}, died)
    io:close()
  end)

  it("waits for an op and gives its value", function()
    assert.is_true(loop:call(function() return loop:await(io:sleep(1)) end))
  end)

  it("passes on the error of an op that could not be started", function()
    local value, e = loop:call(function() return loop:await(nil, { code = "closed" }) end)
    assert.is_nil(value)
    assert.equal("closed", e.code)
  end)

  it("gives every value of a call, nils in between and at the end too", function()
    local n = select("#", loop:call(function() return nil, 1, nil end))
    assert.equal(3, n)
  end)

  it("runs tasks side by side", function()
    local order = {}
    loop:call(function()
      local slow = loop:spawn(function()
        loop:sleep(60)
        order[#order + 1] = "slow"
      end)
      local fast = loop:spawn(function()
        loop:sleep(1)
        order[#order + 1] = "fast"
      end)
      slow:join()
      fast:join()
    end)
    assert.same({ "fast", "slow" }, order)
  end)

  it("gives a completion that came before anybody waited for it", function()
    assert.is_true(loop:call(function()
      local op = io:sleep(1)
      loop:sleep(30)
      return loop:await(op)
    end))
  end)

  it("ends a wait at its timeout and cancels the op", function()
    local value, e = loop:call(function() return loop:await(io:sleep(60000), 10) end)
    assert.is_nil(value)
    assert.equal("timeout", e.code)
    loop:call(function() -- the cancelled op leaves the core
      while io:work_count() > 0 do loop:sleep(1) end
    end)
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

  describe("a task", function()
    it("gives what its function returns to whoever joins it, also when it has ended", function()
      loop:call(function()
        local task = loop:spawn(function() return 1, nil, 3 end)
        loop:sleep(5)
        assert.same({ 1, nil, 3 }, { task:join() })
      end)
    end)

    it("that dies is told with its traceback to whoever joins it", function()
      loop:call(function()
        local function deep() error("broken inside") end
        local task = loop:spawn(function()
          loop:sleep(1)
          deep()
        end)
        local value, e = task:join()
        assert.is_nil(value)
        assert.equal("failed", e.code)
        assert.truthy(e.traceback:find("broken inside", 1, true))
        assert.truthy(e.traceback:find("async_spec.lua", 1, true))
      end)
    end)

    it("that dies while nobody joins it is told to on_error", function()
      loop:call(function()
        loop:spawn(function() error("alone") end)
        loop:sleep(5)
      end)
      assert.equal(1, #died)
      assert.truthy(died[1]:find("alone", 1, true))
      died = {}
    end)

    it("gets `cancelled` from its wait and from every later one", function()
      loop:call(function()
        local seen = {}
        local task = loop:spawn(function()
          for i = 1, 2 do
            local _, e = loop:sleep(60000)
            seen[i] = e.code
          end
        end)
        loop:sleep(1)
        task:cancel()
        task:join()
        assert.same({ "cancelled", "cancelled" }, seen)
      end)
    end)

    it("waits in a shield although it was cancelled", function()
      loop:call(function()
        local slept
        local task = loop:spawn(function()
          loop:sleep(60000)
          loop:shield(function() slept = loop:sleep(1) end)
        end)
        loop:sleep(1)
        task:cancel()
        task:join()
        assert.is_true(slept)
      end)
    end)

    it("may be joined with a timeout and goes on", function()
      loop:call(function()
        local task = loop:spawn(function()
          loop:sleep(40)
          return "done"
        end)
        local _, e = task:join(1)
        assert.equal("timeout", e.code)
        assert.equal("done", task:join())
      end)
    end)
  end)

  describe("with_timeout", function()
    it("bounds all waits in it together, the inner one first", function()
      loop:call(function()
        local inner, outer
        loop:with_timeout(30, function()
          loop:with_timeout(5, function() inner = select(2, loop:sleep(60000)).code end)
          outer = select(2, loop:sleep(60000)).code
        end)
        assert.same({ "timeout", "timeout" }, { inner, outer })
        assert.is_true(loop:sleep(1)) -- and nothing after it
      end)
    end)

    it("keeps the outer bound where the inner one is longer", function()
      loop:call(function()
        loop:with_timeout(5, function()
          loop:with_timeout(60000, function() assert.equal("timeout", select(2, loop:sleep(30000)).code) end)
        end)
      end)
    end)
  end)

  describe("a scope", function()
    it("waits for what it started", function()
      loop:call(function()
        local done = 0
        loop:scope(function(scope)
          for _ = 1, 3 do
            scope:spawn(function()
              loop:sleep(5)
              done = done + 1
            end)
          end
        end)
        assert.equal(3, done)
      end)
    end)

    it("cancels what it started when its body raises", function()
      loop:call(function()
        local code
        local ok, message = pcall(loop.scope, loop, function(scope)
          scope:spawn(function() code = select(2, loop:sleep(60000)).code end)
          loop:sleep(1)
          error("body")
        end)
        assert.is_false(ok)
        assert.truthy(tostring(message):find("body", 1, true))
        assert.equal("cancelled", code)
      end)
    end)

    it("raises with the traceback of what died in it", function()
      loop:call(function()
        local ok, message = pcall(loop.scope, loop, function(scope)
          scope:spawn(function() error("child died") end)
        end)
        assert.is_false(ok)
        assert.truthy(tostring(message):find("child died", 1, true))
      end)
    end)
  end)

  describe("a signal", function()
    it("wakes everybody who waits", function()
      loop:call(function()
        local signal, woken = loop:signal(), 0
        for _ = 1, 3 do
          loop:spawn(function()
            assert(signal:wait())
            woken = woken + 1
          end)
        end
        loop:sleep(1)
        signal:fire()
        loop:sleep(1)
        assert.equal(3, woken)
      end)
    end)

    it("keeps a fire for the next wait when nobody waits", function()
      loop:call(function()
        local signal = loop:signal()
        signal:fire()
        assert.is_true(signal:wait(1))
        assert.equal("timeout", select(2, signal:wait(1)).code)
      end)
    end)
  end)

  it("gives the values of an op with several completions one by one", function()
    local dir = os.tmpname()
    os.remove(dir)
    core.sys.mkdirs(dir, 448)
    loop:call(function()
      local path = dir .. "/s.sock"
      local stream = assert(loop:stream(io:serve { path = path }))
      for i = 1, 3 do
        local asked = loop:spawn(function() return loop:await(io:ask { path = path, line = "q" .. i, timeout_ms = 5000 }) end)
        local event
        repeat event = assert(stream:next(5000)) until event.line
        assert.equal("q" .. i, event.line)
        io:answer(event.conn, "a" .. i)
        assert.equal("a" .. i, assert(asked:join()).line)
      end
      stream:close()
      assert.is_nil(stream:next(1))
    end)
    core.sys.rmtree(dir)
  end)

  it("raises in the caller what a call raises, with its traceback", function()
    local ok, message = pcall(loop.call, loop, function()
      loop:sleep(1)
      error("from inside")
    end)
    assert.is_false(ok)
    assert.truthy(tostring(message):find("from inside", 1, true))
    assert.truthy(tostring(message):find("async_spec.lua", 1, true))
  end)

  it("refuses to wait outside a task", function()
    assert.has_error(function() loop:sleep(1) end)
    assert.has_error(function() loop:await(io:sleep(1)) end)
    loop:call(function() loop:sleep(5) end)
    loop.ops = {}
  end)
end)
