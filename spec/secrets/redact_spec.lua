-- SPDX-License-Identifier: MIT
-- The redactor as Lua sees it: forms, cuts, names, closing. The proof of every cut is
-- spec/c/redact_test.c.
local core = require "crewbox.core"

local S = "zq9-FAKE+tok/en=77$x"
local T = "ghp_EXAMPLE00000000000000000000000000EXAMPLE"

local function hex(s) return (s:gsub(".", function(c) return ("%02x"):format(c:byte()) end)) end

local function base64(s)
  local abc = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
  local out = {}
  for i = 1, #s, 3 do
    local a, b, c = s:byte(i, i + 2)
    local n = a * 65536 + (b or 0) * 256 + (c or 0)
    local quad = {}
    for k = 4, 1, -1 do
      local v = n % 64
      n = (n - v) / 64
      quad[k] = abc:sub(v + 1, v + 1)
    end
    if not b then quad[3] = "=" end
    if not c then quad[4] = "=" end
    out[#out + 1] = table.concat(quad)
  end
  return table.concat(out)
end

local function percent(s)
  return (s:gsub("[^%w._~-]", function(c) return ("%%%02X"):format(c:byte()) end))
end

describe("core.redactor", function()
  local r = core.redactor { { name = "S", value = S } }

  it("masks the value where it stands", function()
    assert.equal("key=[REDACTED:S];", r:mask("key=" .. S .. ";"))
    assert.equal("nothing", r:mask("nothing"))
    assert.equal("", r:mask(""))
  end)

  it("masks a value cut at every index, in two and three pieces (bug-F1)", function()
    local text = "a" .. S .. "b\n"
    for i = 0, #text do
      for j = i, #text do
        local s = r:stream()
        local out = s:feed(text:sub(1, i)) .. s:feed(text:sub(i + 1, j)) .. s:feed(text:sub(j + 1))
        assert.equal("a[REDACTED:S]b\n", out .. s:finish())
      end
    end
    local s, out = r:stream(), {}
    for i = 1, #text do out[#out + 1] = s:feed(text:sub(i, i)) end
    assert.equal("a[REDACTED:S]b\n", table.concat(out) .. s:finish())
  end)

  it("masks base64 at every alignment (bug-F3)", function()
    for _, before in ipairs { "", "x", "xx", "user:", "a:b" } do
      for _, after in ipairs { "", "\n", "zz" } do
        local text = base64(before .. S .. after)
        for _, form in ipairs { text, (text:gsub("=", "")), (text:gsub("+", "-"):gsub("/", "_")) } do
          local out = r:mask("Basic " .. form .. " ")
          assert.truthy(out:find("[REDACTED:S]", 1, true), form)
          assert.is_nil(out:find(base64(S):sub(3, 20), 1, true))
        end
      end
    end
  end)

  it("masks percent-encoding in any hex case (bug-F5)", function()
    assert.equal("?t=[REDACTED:S]", r:mask("?t=" .. percent(S)))
    assert.equal("?t=[REDACTED:S]", r:mask("?t=" .. percent(S):gsub("%%%x%x", string.lower)))
    assert.equal("?t=[REDACTED:S]", r:mask("?t=" .. hex(S):gsub("..", "%%%0")))
    local spaced = core.redactor { { name = "P", value = "two words/x" } }
    assert.equal("q=[REDACTED:P]&", spaced:mask("q=two+words%2Fx&"))
  end)

  it("masks hex in both cases", function()
    assert.equal("[REDACTED:S]", r:mask(hex(S)))
    assert.equal("[REDACTED:S]", r:mask(hex(S):upper()))
  end)

  it("masks whatever the syntax around it (bug-F17)", function()
    assert.equal('{"KEY":"[REDACTED:S]"}', r:mask('{"KEY":"' .. S .. '"}'))
    assert.equal("KEY: [REDACTED:S]\n", r:mask("KEY: " .. S .. "\n"))
    assert.equal("KEY=[REDACTED:S]\n", r:mask("KEY=" .. S .. "\n"))
  end)

  it("holds a finished line back never, a prefix always", function()
    local s = r:stream()
    assert.equal("a finished line\n", s:feed("a finished line\n"))
    assert.equal("x ", s:feed("x " .. S:sub(1, 5)))
    assert.equal(5, s:held())
    assert.equal(S:sub(1, 5), s:finish())
  end)

  it("takes the longest of nested values, lines of long ones and shapes (bug-F15, F11, F9)", function()
    local many = core.redactor {
      { name = "A", value = "abcd1234" }, { name = "B", value = "abcd1234efgh" },
      { name = "L", value = "line-one-1\nline-two-2\n" },
    }
    assert.equal("[REDACTED:B] [REDACTED:A]e", many:mask("abcd1234efgh abcd1234e"))
    assert.equal("1 [REDACTED:L]\n2 [REDACTED:L]\n", many:mask("1 line-one-1\n2 line-two-2\n"))
    assert.equal("[REDACTED:github_token]", many:mask(T))
    local key = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj"
    assert.equal("     1\t[REDACTED:private_key]\n     5\tx\n", many:mask(
      "     1\t-----BEGIN PRIVATE KEY-----\n     2\t" .. key .. "\n     3\tabcd\n" ..
      "     4\t-----END PRIVATE KEY-----\n     5\tx\n"))
  end)

  it("keeps JSON valid when the value is made of its syntax (bug-F7)", function()
    local value = 'pa"ss\\wo/rd\n!'
    local q = core.redactor { { name = "Q", value = value } }
    assert.equal('{"a":"[REDACTED:Q]","b":1}', q:mask('{"a":"pa\\"ss\\\\wo/rd\\n!","b":1}'))
    assert.equal('{"a":"[REDACTED:Q]","b":1}', q:mask('{"a":"pa\\u0022ss\\u005Cwo\\/rd\\u000a!","b":1}'))
  end)

  it("names what is too short, and shows no value when it fails (bug-F13)", function()
    local _, skipped = core.redactor {
      { name = "LONG", value = S }, { name = "SHORT", value = "1234567" }, { name = "NONE", value = "" },
    }
    assert.same({ "SHORT", "NONE" }, skipped)
    local big = S .. ("x"):rep(300 * 1024)
    local none, err = core.redactor { { name = "BIG", value = big } }
    assert.is_nil(none)
    assert.equal("too_large", err.code)
    assert.is_nil(tostring(err):find("zq9", 1, true))
    local ok, message = pcall(core.redactor, { { name = "N", value = 5, other = S } })
    assert.is_false(ok)
    assert.is_nil(message:find("zq9", 1, true))
  end)

  it("finds an exact value in any form and says its name only", function()
    assert.is_nil(r:find("nothing " .. T))
    assert.equal("S", r:find("x" .. S))
    assert.equal("S", r:find(base64("x" .. S)))
    assert.equal("S", r:find(hex(S)))
    assert.equal("github_token", core.redact_shape("x " .. T))
    assert.is_nil(core.redact_shape("x"))
    local s = r:stream()
    s:feed("a " .. S:sub(1, 10))
    assert.is_nil(s:found())
    s:feed(S:sub(11))
    s:finish()
    assert.equal("S", s:found())
  end)

  it("is safe after close, in any order", function()
    local one = core.redactor { { name = "S", value = S } }
    local s = one:stream()
    s:feed("abc")
    one:close()
    one:close()
    local none, err = s:feed("x")
    assert.is_nil(none)
    assert.equal("closed", err.code)
    none, err = one:mask("x")
    assert.is_nil(none)
    assert.equal("closed", err.code)
    s:close()
    s:close()
    for _ = 1, 50 do
      core.redactor({ { name = "S", value = S } }):stream():feed("zq9-FA")
    end
    collectgarbage()
    collectgarbage()
  end)
end)
