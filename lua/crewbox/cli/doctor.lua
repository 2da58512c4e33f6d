-- SPDX-License-Identifier: MIT
-- crewbox doctor: what works on this machine, and what to do about what does not.
local core = require "crewbox.core"
local doctor = require "crewbox.doctor"
local json = require "crewbox.json"
local session = require "crewbox.cli.shell.session"
local show = require "crewbox.cli.shell.show"
local status = require "crewbox.cli.shell.status"
local term = require "crewbox.cli.shell.term"
local text = require "crewbox.cli.shell.text"

local M = {
  summary = "Check what works here, and say how to fix what does not.",
  description = "Checks this machine topic by topic: programs, state folder, store, provider, the isolation of a box and its " ..
    "limits, tried in a box of its own, network, agents. Nothing stays behind and no run is disturbed. Exit status 0 " ..
    "when runs would work, else 5.",
}

local WATCH_MS = 100

function M.define(command)
  command:flag("--json", "Print the report as one JSON object.")
  session.define_config(command)
end

local WORDS = { ok = { "green", "ok  " }, warn = { "yellow", "warn" }, fail = { "red", "FAIL" } }

local function print_report(report)
  local paint, topic = term.painter(1), nil
  local count = { ok = 0, warn = 0, fail = 0 }
  for _, check in ipairs(report.checks) do
    if check.topic ~= topic then print(paint("bold", check.topic)) end
    topic = check.topic
    count[check.state] = count[check.state] + 1
    local word = WORDS[check.state]
    print(("  %s  %s: %s"):format(paint(word[1], word[2]), check.name, text.line(check.text)))
    if check.fix then print("        fix: " .. text.line(check.fix)) end
  end
  print(("%s; %d ok, %d warn, %d FAIL"):format(report.works and "runs work here" or paint("red", "runs do not work here"),
    count.ok, count.warn, count.fail))
end

-- An interrupt cancels the checks; what they have made is taken away first.
local function watched(loop, fn)
  local task = loop:spawn(fn)
  local watcher = loop:spawn(function()
    while loop:sleep(WATCH_MS) do
      if core.sys.interrupted() then return task:cancel() end
    end
  end)
  local report, e = task:join()
  watcher:cancel()
  watcher:join()
  if e and e.traceback then error(e.traceback, 0) end
  return report, e
end

function M.run(args)
  core.sys.catch_interrupt()
  local report, e = session.loop(function(loop)
    local live = term.live()
    return watched(loop, function()
      local ctx = doctor.context { loop = loop, config = args.config }
      local found, why = doctor.run(ctx, function(topic) live:show("checking " .. topic) end)
      live:clear()
      return found, why
    end)
  end)
  if not report then
    if e.code == "cancelled" then e.exit_status = status.INTERRUPTED end
    return nil, e
  end
  if args.json then
    show.json { version = core.version, works = report.works, checks = json.array(report.checks) }
  else
    print_report(report)
  end
  return report.works and status.DONE or status.MISSING
end

return M
