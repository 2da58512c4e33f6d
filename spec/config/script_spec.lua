-- SPDX-License-Identifier: MIT
local script = require "crewbox.config.script"

describe("config.script", function()
  it("gives what the chunk returns", function()
    assert.are.same({ a = { 1, "x" } }, script.run("local n = 1 return { a = { n, 'x' } }", "c.lua"))
  end)

  local refused = {
    { "bytecode", string.dump(function() return {} end), "bytecode" },
    { "a syntax error, with its line", "return {\n a = = 1 }", "c.lua:2:" },
    { "a call of what is not there, with its line", "\nreturn os.getenv 'HOME'", "c.lua:2:" },
    { "io", "return io.open '/etc/passwd'", "io" },
    { "require", "return require 'os'", "require" },
    { "the string methods, which no budget can interrupt", "return ('x'):rep(1e9)", "string" },
    { "an endless loop", "while true do end", "too many instructions" },
    { "an endless recursion", "local function f() return f() end return f()", "too many instructions" },
    { "a value that doubles without end", "local s = 'x' for _ = 1, 60 do s = s .. s end return s", "too much memory" },
    { "a table that grows without end", "local t = {} local i = 0 while true do i = i + 1 t[i] = {} end", "too " },
  }
  for _, c in ipairs(refused) do
    it("refuses " .. c[1], function()
      local value, problem = script.run(c[2], "c.lua")
      assert.is_nil(value)
      assert.is_truthy(problem:find(c[3], 1, true), problem)
    end)
  end

  it("leaves strings and hooks as they were", function()
    script.run("while true do end", "c.lua")
    script.run("return nil .. 'x'", "c.lua")
    assert.are.equal("aaa", ("a"):rep(3))
    assert.is_nil((debug.gethook()))
  end)

  it("shares nothing with the globals", function()
    script.run("leaked = 1", "c.lua")
    assert.is_nil(rawget(_G, "leaked"))
  end)
end)
