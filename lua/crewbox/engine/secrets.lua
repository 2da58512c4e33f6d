-- SPDX-License-Identifier: MIT
-- Which values of a run's environment are secrets, and the redactor made of them. Values live in
-- memory only.
local core = require "crewbox.core"

local M = {}

local SHORT = 8

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
    -- Values too short to mask stay in the list: the redactor names them, so that a person is told.
    if (not plain[name] or with_user) and (#value < SHORT or core.is_secret(value)) then
      list[#list + 1] = { name = name:match("[^:]+$"), value = value } -- "setup:NAME" is NAME
    end
  end
  table.sort(list, function(a, b) return a.name < b.name end)
  return list
end

--- @return userdata redactor
--- @return string[] skipped names whose values are too short to be masked
function M.redactor(list)
  local redactor, skipped = core.redactor(list)
  if not redactor then error("redactor: " .. tostring(skipped)) end -- memory
  return redactor, skipped
end

return M
