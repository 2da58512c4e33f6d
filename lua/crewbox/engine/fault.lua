-- SPDX-License-Identifier: MIT
-- Named points between a run's row and its acceptance where a test can kill the engine: with
-- CREWBOX_FAULT=NAME the process ends itself by SIGKILL there, as a crash would.
local core = require "crewbox.core"

local M = {}

--- The points in the order in which a run passes them.
M.POINTS = {
  "row_written",        -- the row is ours, nothing else is done
  "box_row_written",    -- intent and nonce are stored, no box was asked for
  "box_created",        -- the provider has a box, its id is not stored
  "box_recorded",       -- the box's id is stored
  "uploaded",           -- orders, brief, tree and supervisor are in the box
  "tree_applied",       -- the tree lies in ~/project
  "starting_written",   -- state `starting`, the supervisor was not asked for
  "supervisor_started", -- the supervisor runs, the row says `starting`
  "running_written",    -- state `running`
  "finished_seen",      -- the run is over in its box
  "collected",          -- findings, logs and result pack are on this side
  "result_written",     -- result and patch are on disk, not accepted
  "accepted",           -- final state stored, the box still lives
}

local known = {}
for _, name in ipairs(M.POINTS) do known[name] = true end

--- What CREWBOX_FAULT asks for; raises for a name that is no point.
--- @return string? name
function M.wanted()
  local name = os.getenv("CREWBOX_FAULT")
  if not name or name == "" then return nil end
  if not known[name] then
    error("CREWBOX_FAULT names no point: " .. name .. "; there is " .. table.concat(M.POINTS, ", "), 0)
  end
  return name
end

--- The engine is at this point now.
function M.at(name)
  if not known[name] then error("no such point: " .. tostring(name), 2) end
  if os.getenv("CREWBOX_FAULT") ~= name then return end
  core.sys.kill(core.sys.pid(), "KILL")
  while true do end -- the signal is on its way -- luacheck: ignore
end

return M
