-- SPDX-License-Identifier: MIT
-- crewbox runs: what is going on and what has been.
local core = require "crewbox.core"
local err = require "crewbox.err"
local figures = require "crewbox.cli.shell.figures"
local session = require "crewbox.cli.shell.session"
local show = require "crewbox.cli.shell.show"
local status = require "crewbox.cli.shell.status"
local term = require "crewbox.cli.shell.term"
local text = require "crewbox.cli.shell.text"

local M = {
  summary = "List runs, newest first.",
  epilog = "Every verb that takes a run takes its id, the beginning of one that no other run shares, or `last`.",
}

function M.define(command)
  command:flag("-a --active", "Only runs that have not ended.")
  command:option("-n --limit", "At most that many.", "20"):argname "<n>"
  command:flag("--json", "Print one JSON object a line.")
  session.define_config(command)
end

local COLOUR = { succeeded = "green", failed = "red", lost = "red", timed_out = "red", cancelled = "yellow" }

local function line(run, paint, now)
  local colour = COLOUR[run.state] or "cyan"
  local took = run.started_at and figures.elapsed((run.finished_at or now) - run.started_at) or "-"
  return ("%s  %s  %-11s  %8s  %9s  %s"):format(paint("bold", run.id), paint(colour, ("%-9s"):format(run.state)),
    run.agent, took, figures.ago(now - run.created_at), text.line(run.title or "", 60))
end

function M.run(args)
  local limit = tonumber(args.limit)
  if not limit or limit < 1 or limit ~= math.floor(limit) then
    return nil, err.new("invalid", ("--limit takes a whole number from 1 on, not %s"):format(args.limit))
  end
  return session.client(args, function(client)
    local runs, e = client:list { limit = limit, active = args.active }
    if not runs then return nil, e end
    local paint, now = term.painter(1), core.sys.wall()
    for _, run in ipairs(runs) do
      if args.json then show.json(show.object(run)) else print(line(run, paint, now)) end
    end
    if #runs == 0 and not args.json and term.is_terminal(1) then
      io.stderr:write(args.active and "no run is going on\n" or "no runs yet; start one with `crewbox run`\n")
    end
    return status.DONE
  end)
end

return M
