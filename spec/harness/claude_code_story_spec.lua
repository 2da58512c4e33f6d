-- SPDX-License-Identifier: MIT
local story = require "crewbox.harness.claude_code_story"

local function told(case)
  local out = {}
  for line in io.lines("spec/fixtures/claude_code/" .. case .. ".stdout") do out[#out + 1] = story.tell(line) end
  return table.concat(out, "\n")
end

describe("harness.claude_code_story", function()
  it("tells words, calls and what came back", function()
    assert.are.equal("(model claude-opus-4-8[1m])\n> mcp__s__ping_stdio\n> mcp__h__ping_http\n    pong-stdio\n    pong-http\n" ..
      "pinged both\n(done)", told "claude-mcp")
  end)

  it("tells how it ended", function()
    assert.are.equal("(ended: Not logged in \194\183 Please run /login)", told "claude-no-key")
    assert.is_truthy(told("claude-max-turns-stream"):find("(ended: error_max_turns)", 1, true))
  end)

  it("says something sensible, or nothing, about every recorded line", function()
    local p = assert(io.popen "ls spec/fixtures/claude_code/*.stdout")
    for file in p:lines() do
      for line in io.lines(file) do
        local said = story.tell(line)
        assert.is_true(said == nil or (type(said) == "string" and not said:find('^%s*{"type"')), file)
      end
    end
    p:close()
  end)

  local odd = {
    { "what is not JSON", "plain words", "plain words" },
    { "nothing", "  ", nil },
    { "an unknown event", '{"type":"brand_new"}', nil },
    { "content that is a number", '{"type":"assistant","message":{"content":7}}', nil },
    { "blocks that are no blocks", '{"type":"assistant","message":{"content":[1,null,"x",{"type":"text","text":5}]}}', nil },
    { "content that is text", '{"type":"user","message":{"content":"hello"}}', "hello" },
    { "an escape before the line (bug-A11)", '\27]0;x\a{"type":"result","is_error":false}', "(done)" },
  }
  for _, c in ipairs(odd) do
    it("takes " .. c[1], function() assert.are.equal(c[3], story.tell(c[2])) end)
  end

  it("shows only the first lines of a long result", function()
    local said = story.tell('{"type":"user","message":{"content":[{"type":"tool_result","content":"' .. ("line\\n"):rep(50) .. '"}]}}')
    local _, n = said:gsub("\n", "\n")
    assert.are.equal(8, n)
    assert.is_truthy(said:find("\n    ...$"))
  end)
end)
