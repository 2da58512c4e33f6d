-- SPDX-License-Identifier: MIT
local nearest = require "crewbox.config.nearest"

describe("config.nearest", function()
  local keys = { "api_key", "domain", "setup", "socket", "template", "type" }
  local cases = {
    { "tempalte", "template" }, { "templates", "template" }, { "api-key", "api_key" }, { "apikey", "api_key" },
    { "typ", "type" }, { "tpye", "type" }, { "Domain", "domain" }, { "zebra", nil }, { "", nil },
    { ("x"):rep(1000), nil },
  }
  for _, c in ipairs(cases) do
    it(("takes %q for %s"):format(c[1]:sub(1, 12), tostring(c[2])), function()
      assert.are.equal(c[2], nearest.nearest(c[1], keys))
    end)
  end

  it("writes its answer as a question behind an error", function()
    assert.are.equal(" (did you mean type?)", nearest.hint("tipe", keys))
    assert.are.equal("", nearest.hint("zebra", keys))
  end)
end)
