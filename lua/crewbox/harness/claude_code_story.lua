-- SPDX-License-Identifier: MIT
-- The stream of Claude Code as a person reads it: what it says, what it calls and the first lines
-- of what came back. `crewbox logs` prints this; `crewbox logs --raw` the stream itself.
local words = require "crewbox.harness.words"

local is_table, text = words.is_table, words.text

local M = {}

-- The content of a tool's result: text, or a list of blocks of which the text is told.
local function result_text(content)
  if text(content) then return content end
  local parts = {}
  for _, block in ipairs(is_table(content) and content or {}) do
    if is_table(block) then parts[#parts + 1] = text(block.text) end
  end
  return table.concat(parts, "\n")
end

local blocks = {
  text = function(block) return text(block.text) end,
  tool_use = function(block) return "> " .. words.call(block.name, block.input) end,
  tool_result = function(block) return words.indented(result_text(block.content)) end,
}

local function message(o)
  local content = is_table(o.message) and o.message.content
  if text(content) then return content end
  local out = {}
  for _, block in ipairs(is_table(content) and content or {}) do
    local say = is_table(block) and blocks[block.type]
    out[#out + 1] = say and say(block) or nil
  end
  return #out > 0 and table.concat(out, "\n") or nil
end

local events = {
  assistant = message,
  user = message,
  system = function(o)
    if o.subtype == "init" then return ("(model %s)"):format(text(o.model) or "unknown") end
    if o.subtype == "api_retry" then return ("(the model did not answer: %s; trying again)"):format(text(o.error) or "no reason") end
  end,
  result = function(o)
    return o.is_error == false and "(done)" or "(ended: " .. (text(o.result) or text(o.subtype) or "an error") .. ")"
  end,
}

--- @param line string one whole line of its standard output
--- @return string? told without a line feed at its end; nil when the line says nothing to a person
function M.tell(line)
  local o = words.event(line)
  if not o then return line:find("%S") and line or nil end
  local say = events[o.type]
  return say and say(o) or nil
end

return M
