-- SPDX-License-Identifier: MIT
-- The list of harnesses: how each coding agent is launched, read and judged finished. One file
-- an agent; a new one needs its file and a line here. What the engine asks of a harness is
-- written down in docs/how-to/add-a-harness.md.
local err = require "crewbox.err"

local M = {}

-- Public name -> module. Public names use "-", files "_".
local modules = {
  ["claude-code"] = "crewbox.harness.claude_code",
  ["command"] = "crewbox.harness.command",
  ["opencode"] = "crewbox.harness.opencode",
}

--- Adds a harness to the list, for a host that brings one of its own.
--- @param name string public name, `[a-z][a-z0-9-]*`
--- @param module string name that `require` finds; its table's `name` must be the public name
function M.add(name, module)
  if type(name) ~= "string" or not name:find("^[a-z][a-z0-9-]*$") then error("not a name of a harness: " .. tostring(name), 2) end
  if modules[name] and modules[name] ~= module then error("there is a harness called " .. name .. " already", 2) end
  modules[name] = module
end

--- Names of all harnesses, sorted.
--- @return string[]
function M.names()
  local list = {}
  for name in pairs(modules) do list[#list + 1] = name end
  table.sort(list)
  return list
end

--- @param name string public name
--- @return crewbox.Harness? harness
--- @return crewbox.Error? err `not_found`, naming what there is
function M.get(name)
  local module = modules[name]
  if not module then
    return nil, err.new("not_found",
      ("unknown agent %q; there is %s"):format(tostring(name), table.concat(M.names(), ", ")))
  end
  return require(module)
end

return M
