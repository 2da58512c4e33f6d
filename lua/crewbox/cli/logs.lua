-- SPDX-License-Identifier: MIT
-- crewbox logs: the stored, redacted output of a run.
local core = require "crewbox.core"
local err = require "crewbox.err"
local session = require "crewbox.cli.shell.session"
local status = require "crewbox.cli.shell.status"
local text = require "crewbox.cli.shell.text"

local M = {
  summary = "Print the output of a run.",
  description = "Prints what the agent wrote to its standard output, as stored: secrets are masked. Escapes that could " ..
    "act on a terminal are shown instead of sent; --raw gives the bytes.",
}

function M.define(command)
  session.define_run(command)
  command:flag("-f --follow", "Go on until the run is over.")
  command:flag("--err", "Standard error instead of standard output.")
  command:flag("--raw", "The bytes as they are stored.")
  session.define_config(command)
end

function M.run(args)
  return session.run(args, function(client, run)
    if args.follow then core.sys.catch_interrupt() end
    local clean = text.stream()
    for bytes in client:log(run.id, { follow = args.follow, stream = args.err and "err" or "out" }) do
      local ok, problem = io.stdout:write(args.raw and bytes or clean(bytes))
      io.stdout:flush()
      if not ok then return nil, err.new("system", "standard output: " .. tostring(problem)) end
    end
    if not args.raw then io.stdout:write(clean(nil)) end
    return core.sys.interrupted() and status.INTERRUPTED or status.DONE
  end)
end

return M
