-- SPDX-License-Identifier: MIT
local story = require "crewbox.harness.opencode_story"

local function told(case)
  local out = {}
  for line in io.lines("spec/fixtures/opencode/opencode-" .. case .. ".stdout") do out[#out + 1] = story.tell(line) end
  return table.concat(out, "\n")
end

describe("harness.opencode_story", function()
  it("tells words, calls and what came back", function()
    assert.are.equal("hi\n> bash: echo x > b\n    (no output)\nall done", told "anthropic")
    assert.is_truthy(told("permission-ask"):find("\n    The user rejected permission", 1, true))
  end)

  it("tells what went wrong", function()
    assert.are.equal("(an error: invalid x-api-key)", told "401")
    assert.are.equal("cut by length\n(the answer was cut off by its length limit)", told "max-tokens")
    assert.are.equal("this will be c\n(the answer broke off)\nsecond try whole", told "truncate-once")
    assert.is_truthy(told("compacted"):find("(an error: prompt is too long)\nt\n(the prompt was compacted)\nall done", 1, true))
  end)

  it("says something sensible, or nothing, about every recorded line", function()
    local p = assert(io.popen "ls spec/fixtures/opencode/*.stdout")
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
    { "a part that is none", '{"type":"text","part":7}', nil },
    { "a call without anything", '{"type":"tool_use","part":{"state":3}}', "> tool" },
    { "a reason that is no text", '{"type":"step_finish","part":{"reason":{}}}', nil },
    { "an error without words", '{"type":"error","error":[]}', "(an error: no words)" },
    { "an escape before the line (bug-A11)", '\27]0;x\a{"type":"text","part":{"text":"hi"}}', "hi" },
  }
  for _, c in ipairs(odd) do
    it("takes " .. c[1], function() assert.are.equal(c[3], story.tell(c[2])) end)
  end
end)
