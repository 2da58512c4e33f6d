-- SPDX-License-Identifier: MIT
-- What readers of agents' event lines have in common: looking at values that may be anything, and
-- telling a person in one short line what an agent does.
local json = require "crewbox.json"
local lines = require "crewbox.harness.lines"

local M = {}

M.ACTION_MAX = 120

local RESULT_LINES = 8
local RESULT_WIDTH = 160

-- Which argument of a tool says most about a call of it.
local ACTION_FIELDS = { "command", "file_path", "filePath", "path", "pattern", "description", "prompt", "url" }

--- Whether v is a JSON object or list.
function M.is_table(v) return type(v) == "table" and v ~= json.null end

--- v, or 0 where it is no number that can be summed.
function M.number(v) return type(v) == "number" and v == v and v < math.huge and v > -math.huge and v or 0 end

--- a + b as number() takes them; a sum that is none of them any more begins again.
function M.sum(a, b) return M.number(M.number(a) + M.number(b)) end

--- v, or nil where it is no string.
function M.text(v) return type(v) == "string" and v or nil end

--- The first line of s without control bytes, cut after `max` bytes but never within a character.
--- @return string
function M.first_line(s, max)
  s = lines.plain((s:match("^%s*([^\r\n]*)") or ""))
  if #s <= max then return s end
  local cut = s:sub(1, max):gsub("[\192-\255][\128-\191]*$", function(last)
    local want = last:byte() >= 240 and 4 or last:byte() >= 224 and 3 or 2
    return #last == want and last or ""
  end)
  return cut .. "..."
end

--- A call of a tool in one line.
--- @param name any the tool
--- @param input any its arguments
--- @return string
function M.call(name, input)
  name = M.text(name) or "tool"
  if not M.is_table(input) then return name end
  for _, field in ipairs(ACTION_FIELDS) do
    if M.text(input[field]) then return name .. ": " .. M.first_line(input[field], M.ACTION_MAX) end
  end
  return name
end

--- The first lines of what a tool gave, indented; nil when there is none.
--- @param s string
--- @return string?
function M.indented(s)
  local out, left = {}, RESULT_LINES
  for line in s:gmatch("[^\n]+") do
    if left == 0 then
      out[#out + 1] = "    ..."
      break
    end
    out[#out + 1] = "    " .. M.first_line(line, RESULT_WIDTH)
    left = left - 1
  end
  return #out > 0 and table.concat(out, "\n") or nil
end

--- An event line as a table; nil for what is none. Terminal escapes and titles in front are skipped.
--- @return table? event with a string `type`
function M.event(raw)
  local line = lines.plain(raw)
  local from = line:find("{", 1, true)
  if not from then return nil end
  local o = json.decode(line:sub(from))
  return M.is_table(o) and M.text(o.type) and o or nil
end

return M
