-- SPDX-License-Identifier: MIT
local text = require "crewbox.cli.shell.text"

describe("cli text of hostile origin (bug-N3)", function()
  local cases = {
    { "words, newlines and tabs", "a\tb\nc", "a\tb\nc" },
    { "letters of every script", "caf\195\169 \230\151\165 \240\159\152\128", "caf\195\169 \230\151\165 \240\159\152\128" },
    { "colours", "\27[1;31mred\27[0m", "red" },
    { "a clipboard write", "\27]52;c;AAAA\a", "^[]52;c;AAAA^G" },
    { "a line erased and overwritten", "\27[2K\rALL OK", "^[[2K\nALL OK" },
    { "a window title", "\27]0;mine\27\\", "^[]0;mine^[\\" },
    { "line ends of DOS", "a\r\nb\r\n", "a\nb\n" },
    { "backspaces", "rm -rf /\b\b\b\bls", "rm -rf /^H^H^H^Hls" },
    { "NUL and DEL", "a\0b\127", "a^@b^?" },
    { "8-bit controls as UTF-8", "\194\155 31m", "\239\191\189 31m" },
    { "8-bit controls as bytes", "\155 31m", "\239\191\189 31m" },
    { "text that runs backwards", "\226\128\174gpj.exe", "\239\191\189gpj.exe" },
    { "half a character", "a\195", "a\239\191\189" },
    { "an over-long slash", "\192\175", "\239\191\189\239\191\189" },
    { "a surrogate", "\237\160\128", "\239\191\189\239\191\189\239\191\189" },
  }
  for _, c in ipairs(cases) do
    it("makes harmless: " .. c[1], function() assert.are.equal(c[3], text.plain(c[2])) end)
  end

  it("gives the same in one piece and cut at every byte", function()
    local s = "caf\195\169 \27[1;31mred\27[0m \230\151\165\r\nx \240\159\152\128 \27]0;t\a end\r"
    local whole = text.plain(s)
    for i = 0, #s do
      local feed = text.stream()
      assert.are.equal(whole, feed(s:sub(1, i)) .. feed(s:sub(i + 1)) .. feed(nil), "cut at " .. i)
    end
    local feed, out = text.stream(), {}
    for i = 1, #s do out[#out + 1] = feed(s:sub(i, i)) end
    assert.are.equal(whole, table.concat(out) .. feed(nil))
  end)

  it("keeps something on one line and within its width, never half a character", function()
    assert.are.equal("a b c", text.line(" a\n\tb \r\nc "))
    assert.are.equal("\195\169\195\169...", text.line(("\195\169"):rep(9), 5))
    assert.are.equal(("\195\169"):rep(5), text.line(("\195\169"):rep(5), 5))
  end)
end)
