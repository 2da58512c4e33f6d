-- SPDX-License-Identifier: MIT
-- docs/how-to/troubleshooting.md quotes messages; each must be one that the sources can print.
local shell = require "spec.support.shell"

-- Messages of other programs, which an agent sees in a box.
local FOREIGN = { ["curl: (6) Could not resolve host: packages.example.com"] = true,
  ["getaddrinfo ENOTFOUND packages.example.com"] = true, ["Temporary failure in name resolution"] = true }

-- All sources as one text, with string literals that are continued put together and what format
-- fills in cut out.
local function sources()
  local pipe = assert(io.popen "cat $(find src lua -name '*.c' -o -name '*.lua')")
  local text = pipe:read "*a"
  pipe:close()
  return (text:gsub('"%s*%.*%s*\n%s*%.*%s*"', ""))
end

describe("troubleshooting", function()
  local text, page = sources(), assert(shell.read "docs/how-to/troubleshooting.md")
  -- What stands between names, numbers and clauses: those are put together at run time.
  local function parts_of(line)
    local list = {}
    line = line:gsub("%.%.%.", "\1"):gsub("%d+", "\1"):gsub("[:;] ", "\1")
    for part in line:gmatch "[^\1]+" do
      part = part:match "^[%s:;.)(]*(.-)[%s:;.)(]*$"
      if #part > 3 then list[#list + 1] = part end
    end
    return list
  end
  local count = 0
  for line in page:gmatch "\n    ([^\n ][^\n]*)" do
    if not FOREIGN[line] and not line:find "^%a+:$" and not line:find "^allow: " then
      count = count + 1
      it("quotes a real message: " .. line:sub(1, 80), function()
        for _, part in ipairs(parts_of(line)) do assert.is_truthy(text:find(part, 1, true), part) end
      end)
    end
  end
  it("quotes at all", function() assert.is_true(count > 25, tostring(count)) end)
end)
