-- SPDX-License-Identifier: MIT
-- crewbox apply: takes the changes of a run into its checkout, or refuses and writes nothing.
local apply = require "crewbox.cli.shell.apply"
local session = require "crewbox.cli.shell.session"
local show = require "crewbox.cli.shell.show"
local status = require "crewbox.cli.shell.status"

local M = {
  summary = "Apply the patch of a run to its checkout.",
  description = "Writes the changes of a run into the checkout it was started from. A file that was changed there since is " ..
    "a refusal, and one refusal means that nothing is written.",
}

function M.define(command)
  session.define_run(command)
  command:option("--repo", "Another checkout than the run's own."):argname "<dir>"
  command:flag("--dry-run", "Only say whether it would work.")
  command:flag("--json", "Print what was written as one JSON object.")
  session.define_config(command)
end

function M.run(args)
  return session.run(args, function(client, run)
    local result, e = client:result(run.id)
    if not result then return nil, e end
    local applied
    applied, e = apply.apply(client, result, { repo = args.repo, dry_run = args.dry_run, quiet = args.json })
    if not applied then return nil, e end
    if args.json then show.json(applied) end
    return status.DONE
  end)
end

return M
