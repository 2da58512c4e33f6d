-- SPDX-License-Identifier: MIT
-- ${VAR} references, layers of an environment, what is a secret.
local core = require "crewbox.core"

local values = { A = "value", EMPTY = "", DOLLAR = "S3$USER!", NESTED = "${A}", [1] = "no" }

describe("core.resolve", function()
  for _, c in ipairs {
    { "${A}", "value", {} },
    { "x${A}y${A}", "xvalueyvalue", {} },
    { "${DOLLAR}", "S3$USER!", {}, "leaves a bare $NAME of a value alone (bug-G1)" },
    { "S3$USER!", "S3$USER!", {}, "leaves a bare $NAME alone (bug-G1)" },
    { "Bearer ${NOPE}", "Bearer ", { "NOPE" }, "names what is missing (bug-G3)" },
    { "${EMPTY}${NOPE}${NOPE}", "", { "EMPTY", "NOPE" }, "names each once, empty ones too" },
    { "${NESTED}", "${A}", {}, "resolves once" },
    { "${A:-default}", "${A:-default}", {}, "bug-G5, a default" },
    { "${env:A}", "${env:A}", {}, "bug-G5, a prefix" },
    { "$$", "$$", {}, "bug-G5, two dollars" },
    { "${}", "${}", {}, "bug-G5, nothing" },
    { "${A B}", "${A B}", {}, "bug-G5, a blank" },
    { "${A${B}}", "${A}", { "B" }, "bug-G5, nesting" },
    { "${A", "${A", {}, "bug-G5, unterminated" },
    { "$${A}", "$value", {}, "bug-G5, escaped in other languages" },
    { "a\0${A}\0", "a\0value\0", {}, "bytes stay bytes" },
  } do
    it(c[4] or ("turns " .. c[1] .. " into " .. c[2]), function()
      local text, missing = core.resolve(c[1], values)
      assert.equal(c[2], text)
      assert.same(c[3], missing)
    end)
  end

  it("raises for misuse", function()
    assert.has_error(function() core.resolve("x") end)
    assert.has_error(function() core.resolve({}, {}) end)
  end)
end)

describe("core.references", function()
  it("lists names once, in order", function()
    assert.same({ "B", "A" }, core.references("${B} ${A} ${B} $C ${D:-x}"))
    assert.same({}, core.references(""))
  end)
end)

describe("core.merge_env", function()
  it("lets later layers win (bug-G9)", function()
    assert.same({ KEY = "otel", A = "1", B = "2", C = "3" }, core.merge_env {
      { KEY = "llm", A = "1" }, { KEY = "identity" }, { KEY = "step", B = "2" },
      { KEY = "role", C = "3" }, { KEY = "otel" },
    })
    assert.same({}, core.merge_env {})
  end)

  it("raises for names and values that are none, without the value", function()
    assert.has_error(function() core.merge_env { { ["A=B"] = "x" } } end)
    local ok, message = pcall(core.merge_env, { { ["1X"] = "hunter2-secret" } })
    assert.is_false(ok)
    assert.is_nil(message:find("hunter2", 1, true))
    assert.has_error(function() core.merge_env { { A = 1 } } end)
    assert.has_error(function() core.merge_env { "x" } end)
  end)
end)

describe("core.is_secret", function()
  it("knows values from paths, addresses and handles", function()
    for _, v in ipairs { "hunter2-x", "https://u:p@h/", "/aB3cD4eF5gH6iJ7kL8mN9" } do
      assert.is_true(core.is_secret(v), v)
    end
    for _, v in ipairs { "short", "/usr/local/bin", "https://api.example.com/v1", "@backend-dev", "a@b.example" } do
      assert.is_false(core.is_secret(v), v)
    end
  end)
end)

describe("core.header_value", function()
  it("trims a trailing newline and refuses one inside, never showing the value (bug-G7)", function()
    assert.equal("zq9-FAKE", core.header_value("E2B_API_KEY", "zq9-FAKE\n"))
    local none, err = core.header_value("E2B_API_KEY", "zq9\r\nX: y")
    assert.is_nil(none)
    assert.equal("invalid", err.code)
    assert.truthy(tostring(err):find("E2B_API_KEY", 1, true))
    assert.is_nil(tostring(err):find("zq9", 1, true))
  end)
end)
