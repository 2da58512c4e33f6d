-- SPDX-License-Identifier: MIT
-- Lua 5.4 only; both VMs run this.
-- luacheck: read globals math.type math.tointeger math.maxinteger math.mininteger
local core = require "crewbox.core"
local err = require "crewbox.err"
local json = require "crewbox.json"

local INTEGERS = math.type ~= nil

describe("crewbox.json", function()
  describe("decode", function()
    it("bug-Q7: gives integers exactly", function()
      local v = assert(json.decode '[9007199254740992,9007199254740993,-9007199254740993,1234567890123456,12345678901234567890]')
      if INTEGERS then
        assert.equal("9007199254740993", ("%d"):format(v[2]))
        assert.equal("-9007199254740993", ("%d"):format(v[3]))
        for i = 1, 4 do assert.equal("integer", math.type(v[i])) end
      else
        assert.equal("9007199254740993", v[2])
        assert.equal("-9007199254740993", v[3])
      end
      assert.equal(1234567890123456, v[4])
      assert.equal("12345678901234567890", v[5])
      assert.equal(9007199254740992, tonumber(v[1]))
    end)

    it("gives small integers as integers and fractions as they are", function()
      local v = assert(json.decode '{"a":1,"b":-0.5,"c":1e3,"d":0}')
      assert.same({ a = 1, b = -0.5, c = 1000, d = 0 }, v)
      if INTEGERS then
        assert.equal("integer", math.type(v.a))
        assert.equal("integer", math.type(v.d))
        assert.equal("float", math.type(v.b))
      end
    end)

    it("bug-Q7: keeps empty lists apart from empty objects", function()
      for _, text in ipairs { "[]", "{}", '{"a":[],"b":{},"c":[[],{}]}', '[ [ ] ,{ }]' } do
        assert.equal((text:gsub(" ", "")), json.encode(assert(json.decode(text))))
      end
    end)

    it("leaves text alone that looks like what it repairs", function()
      local text = [=[{"[]":"[] 12345678901234567890","k":"a\"[]\\"}]=]
      assert.same({ ["[]"] = "[] 12345678901234567890", k = 'a"[]\\' }, (json.decode(text)))
    end)

    it("gives null as json.null", function()
      local v = assert(json.decode '{"a":null,"b":[null]}')
      assert.equal(json.null, v.a)
      assert.equal(json.null, v.b[1])
      assert.equal(core.null, json.null)
      assert.equal(json.null, (json.decode "null"))
    end)

    it("takes half a surrogate pair for U+FFFD", function()
      assert.same({ "a\239\191\189b", "\240\159\152\128", "\\ud800" },
        (json.decode [==[["a\ud800b","\ud83d\ude00","\\ud800"]]==]))
      assert.same({ "\239\191\189" }, (json.decode [==[["\udc00"]]==]))
    end)

    for _, text in ipairs {
      "", "[", "[1,]", "{a:1}", '{"a":}', "[1 2]", "nul", "NaN", "[NaN]", "[Infinity]", "[0x10]", '"a', '["a\\"]', "[] []",
      "[1,2", '{"a":1}x', ("["):rep(300) .. ("]"):rep(300), '"\\u12"', "[[],", '{"a":[]', "[-]",
    } do
      it("refuses " .. text:sub(1, 20), function()
        local v, e = json.decode(text)
        assert.is_nil(v)
        assert.is_true(err.is(e))
        assert.equal("protocol", e.code)
      end)
    end

    it("raises for what is no string", function()
      assert.has_error(function() json.decode(nil) end)
    end)
  end)

  describe("encode", function()
    for _, case in ipairs {
      { "a\0b", [["a\u0000b"]] }, { "\"\\\n\t\r\b\f/\127", [["\"\\\n\t\r\b\f/\u007f"]] },
      { "caf\195\169", '"caf\195\169"' }, { "\255a\195", '"\239\191\189a\239\191\189"' },
      { "\237\160\128", '"\239\191\189\239\191\189\239\191\189"' }, -- a surrogate in UTF-8
      { 1, "1" }, { -5, "-5" }, { 1.5, "1.5" }, { 0.1, "0.1" }, { 3.0, "3" }, { 2 ^ 53, "9007199254740992" },
      { 1e300, "1e+300" }, { 1 / 3, "0.3333333333333333" }, { true, "true" }, { false, "false" }, { json.null, "null" },
      { {}, "{}" }, { json.array {}, "[]" }, { json.array(), "[]" }, { json.object {}, "{}" }, { { 1, 2 }, "[1,2]" },
      { { b = 1, a = { json.null } }, '{"a":[null],"b":1}' },
    } do
      it("writes " .. case[2]:gsub("[^ -~]", "?"), function()
        assert.equal(case[2], json.encode(case[1]))
      end)
    end

    it("bug-Q7: writes every number so that it reads back the same", function()
      local numbers = { 0.1 + 0.2, 1e-7, 123456789.123456789, 2 ^ 60, -1e15, 5e-324, 1.7976931348623157e308 }
      if INTEGERS then numbers[#numbers + 1] = math.maxinteger or 0; numbers[#numbers + 1] = math.mininteger end
      for _, n in ipairs(numbers) do
        assert.equal(n, tonumber(json.encode(n)))
      end
    end)

    it("raises for what JSON cannot say", function()
      local loop = {}
      loop.loop = loop
      for _, v in ipairs { print, { print }, 0 / 0, { 1 / 0 }, { 1, 2, [5] = 3 }, { 1, a = 2 }, { [2] = 1 },
        { [true] = 1 }, coroutine.create(print), loop, io.stdout } do
        assert.has_error(function() json.encode(v) end)
      end
      assert.has_error(function() json.encode(nil) end)
      assert.has_error(function() json.encode(json.array { a = 1 }) end)
    end)

    it("goes with the core's values both ways", function()
      assert.equal(core.array, getmetatable(json.array {}))
      assert.equal("[]", json.encode(core.as_array {}))
    end)
  end)
end)

describe("crewbox.err", function()
  it("makes errors like the core's", function()
    local e = err.new("busy", "somebody has it", { retry_after_ms = 5 })
    assert.equal("busy: somebody has it", tostring(e))
    assert.equal(5, e.retry_after_ms)
    assert.is_true(err.is(e))
    local _, other = core.sys.read_file "/nowhere"
    assert.is_true(err.is(other))
    assert.is_false(err.is { code = "busy" })
    assert.is_false(err.is "busy")
    assert.has_error(function() err.new("busy") end)
  end)

  it("wraps without changing what it wraps", function()
    local e = err.new("busy", "x", { status = 409 })
    local w = err.wrap(e, "start r1")
    assert.equal("start r1: x", w.message)
    assert.equal(409, w.status)
    assert.equal("x", e.message)
    assert.equal("system", err.wrap("boom", "run").code)
  end)
end)
