-- SPDX-License-Identifier: MIT
-- crewbox cancel: ends a run.
local err = require "crewbox.err"
local session = require "crewbox.cli.shell.session"
local status = require "crewbox.cli.shell.status"

local M = {
  summary = "End a run.",
  description = "Asks for the end of a run and waits until it is over: the agent is stopped, its box is gone. What it had " ..
    "written so far is kept as the run's result.",
}

local WAIT_S = 120

function M.define(command)
  session.define_run(command)
  session.define_config(command)
end

function M.run(args)
  return session.run(args, function(client, run)
    if run.state == "cancelled" then
      print(run.id .. " is cancelled already")
      return status.DONE
    end
    local asked, e = client:cancel(run.id)
    if e then return nil, e end
    if asked then
      run, e = client:wait(run.id, WAIT_S)
      if not run then return nil, e end
    end
    if run.state ~= "cancelled" then
      return nil, err.new("conflict", ("the run %s was over already: it %s"):format(run.id,
        run.state == "timed_out" and "ran out of time" or run.state == "lost" and "was lost" or run.state))
    end
    print(run.id .. " cancelled")
    return status.DONE
  end)
end

return M
