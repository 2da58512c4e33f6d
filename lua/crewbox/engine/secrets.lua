-- SPDX-License-Identifier: MIT
-- Which values of a run's environment are secrets, and the redactor made of them. Values live in
-- memory only.
local core = require "crewbox.core"

local M = {}

-- Values that are plainly no secret: masking a path or a host in every log would hide the log.
local function is_public(value)
  if value:find("^/[%w._/+-]*$") and value:find("/", 2, true) then return true end -- a path
  if value:find("^%a[%w+.-]*://[%w._%[%]:-]+[%w._/~%%-]*$") then return true end -- a URL without user or query
  return value:find("^@[%w_.-]+$") ~= nil -- a handle
end

--- @param values table<string, string>
--- @param settings string[] names whose values are settings, not secrets
--- @return {name: string, value: string}[] secrets sorted by name
function M.list(values, settings)
  local plain = {}
  for _, name in ipairs(settings or {}) do plain[name] = true end
  local list = {}
  for name, value in pairs(values) do
    -- A setting that carries a password in its URL is a secret all the same.
    local with_user = value:find("://[^/?#]*@") ~= nil
    if (not plain[name] or with_user) and not is_public(value) then
      list[#list + 1] = { name = name, value = value }
    end
  end
  table.sort(list, function(a, b) return a.name < b.name end)
  return list
end

--- @return userdata redactor
--- @return string[] skipped names whose values are too short to be masked
function M.redactor(list)
  local redactor, skipped = core.redactor(list)
  return redactor, skipped or {}
end

return M
