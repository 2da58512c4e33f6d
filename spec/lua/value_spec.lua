-- SPDX-License-Identifier: MIT
-- Values crossing into the core and back, with SQLite as the mirror: its parameters and rows are
-- the same JSON trees that every op takes and gives.
-- Lua 5.4 only; both VMs run this.
-- luacheck: read globals math.type math.tointeger math.maxinteger math.mininteger
local core = require "crewbox.core"
local help = require "spec.support.core"

describe("crewbox.core values", function()
  local folder, before, h, db

  setup(function()
    before = help.held()
    folder = help.folder()
    h = help.open()
    db = assert(core.store(h.io, folder .. "/db"))
  end)

  teardown(function()
    db:close()
    h.io:close()
    help.remove(folder)
    db, h = nil, nil
    assert.is_true(help.nothing_leaked(before))
  end)

  local function through(value)
    return assert(h.wait(db:query("SELECT ? AS v", { value }))).rows[1].v
  end

  for _, case in ipairs {
    { "", "" }, { "text", "text" }, { "a\0b\255", "a\0b\255" }, { "123", "123" },
    { 0, 0 }, { -1, -1 }, { 1.5, 1.5 }, { 2 ^ 53 - 1, 2 ^ 53 - 1 }, { 1e300, 1e300 }, { true, 1 }, { false, 0 },
  } do
    it("carries " .. tostring(case[1]):gsub("[^ -~]", "?"), function()
      assert.equal(case[2], through(case[1]))
    end)
  end

  it("bug-Q7: carries integers of 64 bits", function()
    local v = assert(h.wait(db:query "SELECT 9007199254740993 a, -9223372036854775807 - 1 b, 9007199254740992 c")).rows[1]
    if math.type then
      assert.equal("9007199254740993 -9223372036854775808", ("%d %d"):format(v.a, v.b))
      assert.equal(math.mininteger, through(math.mininteger))
    else
      assert.equal("9007199254740993", v.a)
      assert.equal("-9223372036854775808", v.b)
    end
    assert.equal(9007199254740992, v.c)
  end)

  it("takes a float that is an integer for one, on both VMs", function()
    assert.equal("integer", h.wait(db:query("SELECT typeof(?) t", { 3.0 })).rows[1].t)
    assert.equal("real", h.wait(db:query("SELECT typeof(?) t", { 3.5 })).rows[1].t)
  end)

  it("has one null, the light userdata that lua-cjson has too", function()
    assert.equal("userdata", type(core.null))
    assert.equal(require("cjson").null, core.null)
    assert.is_nil(through(core.null))
  end)

  it("marks lists, so that empty ones stay lists", function()
    local v = assert(h.wait(db:query "SELECT 1 WHERE 0"))
    assert.equal(core.array, getmetatable(v.rows))
    assert.equal(core.array, getmetatable(core.as_array {}))
    assert.has_error(function() core.as_array "x" end)
  end)

  it("raises for values that cannot cross", function()
    local deep = {}
    for _ = 1, 40 do deep = { deep } end
    local loop = {}
    loop[1] = loop
    for _, v in ipairs { print, 0 / 0, 1 / 0, deep, loop, { [1] = 1, [3] = 3 }, { 1, a = 2 }, { [true] = 1 }, { [2] = 1 },
      coroutine.create(print), io.stdout } do
      assert.has_error(function() db:query("SELECT ?", { v }) end)
    end
  end)

  it("has errors with fields and a text", function()
    local _, e = h.wait(h.io:http { url = "http://127.0.0.1:1/" })
    assert.equal("unreachable", e.code)
    assert.equal(111, e.errno)
    assert.equal("unreachable: " .. e.message, tostring(e))
    assert.equal("?: ?", tostring(setmetatable({}, core.error_mt)))
  end)

  it("says what it is", function()
    assert.is_truthy(core.version:match "^%d+%.%d+%.%d+$")
  end)
end)
