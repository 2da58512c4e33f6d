-- SPDX-License-Identifier: MIT
-- Exit statuses of the command line (docs/reference/interfaces.md section 9), and which of them
-- an error or the end of a run means.
local M = {
  DONE = 0,
  FAILED = 1,
  USAGE = 2,
  CANCELLED = 3,
  LOST = 4,
  MISSING = 5,
  INTERRUPTED = 130,
}

M.HELP = [[
Exit status: 0 done; 1 the run failed; 2 usage or bad input; 3 the run was cancelled;
4 the run or its box was lost; 5 something the command needs is missing;
130 interrupted by Ctrl-C, the run goes on.]]

local OF_STATE = {
  succeeded = M.DONE, failed = M.FAILED, timed_out = M.FAILED, cancelled = M.CANCELLED, lost = M.LOST,
}

--- @param state string a final state of a run
--- @return number
function M.of_state(state) return OF_STATE[state] or M.FAILED end

-- What is not the person's words but the world's; every other code is about what was asked for.
local WORLD = {}
for _, code in ipairs { "unreachable", "unauthorized", "not_found", "rate_limited", "quota", "provider", "protocol", "timeout",
  "cancelled", "closed", "no_memory", "system", "busy", "unsupported", "isolation_unavailable", "disk_full", "corrupt" } do
  WORLD[code] = true
end

--- @param e crewbox.Error an error that stopped a verb
--- @return number
function M.of_error(e)
  if e.exit_status then return e.exit_status end
  return WORLD[e.code] and M.MISSING or M.USAGE
end

return M
