-- SPDX-License-Identifier: MIT
-- The stream of OpenCode as a person reads it: what it says, what it calls, the first lines of what
-- came back, and why it stopped. `crewbox logs` prints this; `crewbox logs --raw` the stream itself.
local words = require "crewbox.harness.words"

local is_table, text = words.is_table, words.text

local M = {}

-- Reasons with which a step ends that a person should know of.
local ENDS = {
  length = "(the answer was cut off by its length limit)",
  unknown = "(the answer broke off)",
}

local function part_of(o) return is_table(o.part) and o.part or {} end

local events = {
  text = function(o)
    local part = part_of(o)
    return part.synthetic == true and "(the prompt was compacted)" or text(part.text)
  end,
  tool_use = function(o)
    local part = part_of(o)
    local state = is_table(part.state) and part.state or {}
    local said = words.indented(text(state.output) or text(state.error) or "")
    return "> " .. words.call(part.tool, state.input) .. (said and "\n" .. said or "")
  end,
  step_finish = function(o) return ENDS[part_of(o).reason] end,
  error = function(o)
    local e = is_table(o.error) and o.error or {}
    local data = is_table(e.data) and e.data or {}
    return ("(an error: %s)"):format(text(data.message) or text(e.name) or "no words")
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
