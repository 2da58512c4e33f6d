-- SPDX-License-Identifier: MIT
-- What run and wait do once a run is over: print the result, apply the patch if asked.
local apply = require "crewbox.cli.shell.apply"
local show = require "crewbox.cli.shell.show"
local status = require "crewbox.cli.shell.status"

local M = {}

--- @param client table
--- @param run table its final row
--- @param o {json: boolean?, apply: boolean?}
--- @return number? status
--- @return crewbox.Error? err
function M.finish(client, run, o)
  local result, e = client:result(run.id)
  if not result then return nil, e end
  local code = status.of_state(run.state)
  if not o.json then show.result(result) end
  local applied
  if o.apply and code == status.DONE then
    applied, e = apply.apply(client, result, { quiet = o.json })
  end
  if o.json then
    local object = show.result_object(result)
    object.applied = applied
    show.json(object)
  end
  if e then return nil, e end
  return code
end

return M
