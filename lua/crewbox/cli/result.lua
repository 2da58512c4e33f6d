-- SPDX-License-Identifier: MIT
-- crewbox result: findings, figures and patch of a run that is over.
local core = require "crewbox.core"
local err = require "crewbox.err"
local session = require "crewbox.cli.shell.session"
local show = require "crewbox.cli.shell.show"
local status = require "crewbox.cli.shell.status"
local term = require "crewbox.cli.shell.term"
local text = require "crewbox.cli.shell.text"

local M = {
  summary = "Print the findings or the patch of a run that is over.",
  description = "Prints the agent's findings on standard output and the rest on standard error. The exit status is that " ..
    "of the run; with --patch it is 0 when the patch was printed.",
}

local PATCH_MAX = 512 * 1024 * 1024

function M.define(command)
  session.define_run(command)
  command:flag("--patch", "Print the patch instead, as `git apply` takes it.")
  command:flag("--json", "Print the result as one JSON object.")
  session.define_config(command)
end

local function patch(result)
  if not result.patch then
    return nil, err.new("conflict", ("the run %s has no patch: it had no checkout, or changed nothing"):format(result.run.id))
  end
  local bytes, e = core.sys.read_file(result.patch, PATCH_MAX)
  if not bytes then return nil, e end
  io.stdout:write(term.is_terminal(1) and text.plain(bytes) or bytes)
  return status.DONE
end

function M.run(args)
  if args.patch and args.json then
    return nil, err.new("invalid", "--patch and --json exclude each other; the object of --json names the patch's file")
  end
  return session.run(args, function(client, run)
    local result, e = client:result(run.id)
    if not result then return nil, e end
    if args.patch then return patch(result) end
    if args.json then show.json(show.result_object(result)) else show.result(result) end
    return status.of_state(run.state)
  end)
end

return M
