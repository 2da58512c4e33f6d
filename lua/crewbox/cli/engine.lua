-- SPDX-License-Identifier: MIT
-- crewbox engine: the process that looks after runs. The other verbs start it when it is needed and
-- it leaves when nothing is to be done; by hand it is for a service manager and for looking at it.
local client = require "crewbox.engine.client"
local figures = require "crewbox.cli.shell.figures"
local process = require "crewbox.engine.process"
local session = require "crewbox.cli.shell.session"
local show = require "crewbox.cli.shell.show"
local starter = require "crewbox.engine.starter"
local status = require "crewbox.cli.shell.status"

local M = {
  summary = "Run the engine in the foreground, or ask after it.",
  description = "Runs the process that looks after this user's runs, until nothing is left to do. Other verbs start it " ..
    "themselves; a run outlives it and is taken up by the next one.",
}

function M.define(command)
  command:flag("--status", "Only say whether one runs, and what it does.")
  command:flag("--json", "With --status: print one JSON object.")
  session.define_config(command)
end

local function ask(args)
  local c, e = client.open { config = args.config }
  if not c then return nil, e end
  local answer
  answer, e = c.loop:call(starter.ask_running, c, { op = "status" })
  c:close()
  if not answer and e.code ~= "unreachable" then return nil, e end
  if args.json then
    answer = answer or {}
    answer.ok, answer.running = nil, answer.pid ~= nil
    show.json(answer)
  elseif answer then
    print(("engine %d runs, %s"):format(answer.pid, figures.count(answer.active or 0, "active run")))
  else
    print("no engine runs; the next run starts one")
  end
  return status.DONE
end

function M.run(args)
  if args.status or args.json then return ask(args) end
  return process.main { config = args.config }
end

return M
