-- SPDX-License-Identifier: MIT
-- Errors of the world, as the core makes them: a table {code, message, ...} whose tostring is
-- "code: message". Nobody reads the text to decide; `code` is for that. Codes are listed in
-- docs/reference/interfaces.md, section 9.
local core = require "crewbox.core"

local M = {}

--- Makes an error.
--- @param code string      one of the codes of interfaces.md, section 9
--- @param message string   lower case, no full stop, says what to do next
--- @param extra? table     further fields: status, retry_after_ms, unknown, reason, ...
--- @return crewbox.Error
function M.new(code, message, extra)
  if type(code) ~= "string" or type(message) ~= "string" then
    error("err.new: code and message must be strings", 2)
  end
  local e = {}
  for k, v in pairs(extra or {}) do e[k] = v end
  e.code, e.message = code, message
  return setmetatable(e, core.error_mt)
end

--- Is x such an error?
function M.is(x)
  return type(x) == "table" and getmetatable(x) == core.error_mt
end

--- The same error with "text: " before its message; e itself stays as it was. Anything that is
--- not such an error (what a pcall caught) becomes one of code `system`.
function M.wrap(e, text)
  if not M.is(e) then
    return M.new("system", text .. ": " .. tostring(e))
  end
  return M.new(e.code, text .. ": " .. tostring(e.message), e)
end

return M
