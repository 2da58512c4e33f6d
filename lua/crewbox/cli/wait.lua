-- SPDX-License-Identifier: MIT
-- crewbox wait: gets back to a run and follows it to its end.
local finish = require "crewbox.cli.shell.finish"
local follow = require "crewbox.cli.shell.follow"
local session = require "crewbox.cli.shell.session"

local M = {
  summary = "Follow a run to its end and print its result.",
  description = "Follows a run to its end and prints its result. An engine that has gone is started again.",
}

function M.define(command)
  session.define_run(command)
  command:flag("--apply", "Apply the patch to the checkout when the run has succeeded.")
  command:flag("--json", "Print the result as one JSON object.")
  session.define_config(command)
end

function M.run(args)
  return session.run(args, function(client, run)
    local e
    if not run.accepted_at then
      run, e = follow.follow(client, run)
      if not run then return nil, e end
    end
    return finish.finish(client, run, args)
  end)
end

return M
