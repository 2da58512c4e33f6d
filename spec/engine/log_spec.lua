-- SPDX-License-Identifier: MIT
local core = require "crewbox.core"
local log = require "crewbox.engine.log"

describe("a stored log", function()
  local path, redactor

  before_each(function()
    path = os.tmpname()
    os.remove(path)
    redactor = core.redactor { { name = "KEY", value = "zq9-FAKE+tok/en=77$x" } }
  end)

  after_each(function() os.remove(path) end)

  local function stored() return core.sys.read_file(path, 1024 * 1024) end

  it("takes whole lines and holds the rest", function()
    local l = log.open(path, redactor, 0, 0)
    assert.equal("one\n", l:add("one\ntw"))
    assert.equal(4, l.offset)
    assert.equal(6, l:next_offset())
    assert.equal("two\n", l:add("o\n"))
    assert.equal("end", l:add("end", true))
    assert.equal("one\ntwo\nend", stored())
    assert.equal(11, l.offset)
    assert.equal(11, l.size)
  end)

  it("takes what is too long to be held", function()
    local l = log.open(path, redactor, 0, 0)
    assert.equal(300 * 1024, #l:add(("x"):rep(300 * 1024)))
  end)

  it("masks once more, also a secret that comes in two pieces", function()
    local l = log.open(path, redactor, 0, 0)
    l:add("a zq9-FAKE+t")
    l:add("ok/en=77$x b\n")
    assert.equal("a [REDACTED:KEY] b\n", stored())
    assert.equal(25, l.offset) -- bytes of the box
    assert.equal(19, l.size)   -- bytes of the file
  end)

  it("says where bytes are missing and goes on behind them", function()
    local l = log.open(path, redactor, 0, 0)
    l:add("first\nhalf")
    l:gap(1000)
    l:add("last\n")
    assert.equal("first\nhalf\n[crewbox: 990 bytes of output were not kept]\nlast\n", stored())
    assert.equal(1005, l.offset)
    assert.equal(#stored(), l.size)
  end)

  it("is cut back to what the row knows after a crash between file and row (bug-D11)", function()
    local l = log.open(path, redactor, 0, 0)
    l:add("one\n")
    local offset, size = l.offset, l.size
    l:add("two\nthr", true) -- the row never heard of it
    l = log.open(path, redactor, offset, size)
    assert.equal(4, l:next_offset())
    assert.equal("one\n", stored())
    l:add("two\nthree\n")
    assert.equal("one\ntwo\nthree\n", stored())
  end)

  it("goes on where a machine that stopped has lost the end of the file", function()
    log.open(path, redactor, 0, 0):add("one\n")
    local l = log.open(path, redactor, 4, 4000)
    assert.equal(4, l.size)
    l:add("two\n")
    assert.equal("one\ntwo\n", stored())
  end)

  it("gives back what is stored", function()
    local l = log.open(path, redactor, 0, 0)
    local parts = {}
    for bytes in l:pieces() do parts[#parts + 1] = bytes end
    assert.same({}, parts)
    l:add("one\n")
    for bytes in l:pieces() do parts[#parts + 1] = bytes end
    assert.same({ "one\n" }, parts)
  end)
end)
