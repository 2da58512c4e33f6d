-- SPDX-License-Identifier: MIT
local figures = require "crewbox.cli.shell.figures"

describe("cli figures", function()
  it("are short", function()
    assert.are.equal("0:00", figures.elapsed(-1))
    assert.are.equal("1:05", figures.elapsed(65.9))
    assert.are.equal("2:02:02", figures.elapsed(7322))
    assert.are.equal("now", figures.ago(0.2))
    assert.are.equal("59 s ago", figures.ago(59))
    assert.are.equal("2 h ago", figures.ago(7200))
    assert.are.equal("950", figures.short(950))
    assert.are.equal("12.3k", figures.short(12345))
    assert.are.equal("1.0M", figures.short(999999))
    assert.are.equal("1 file", figures.count(1, "file"))
    assert.are.equal("0 files", figures.count(0, "file"))
  end)
end)
