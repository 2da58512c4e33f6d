-- SPDX-License-Identifier: MIT
-- crewbox agents: which coding agents there are, and installing one.
local agents = require "crewbox.agents"
local err = require "crewbox.err"
local json = require "crewbox.json"
local session = require "crewbox.cli.shell.session"
local status = require "crewbox.cli.shell.status"
local term = require "crewbox.cli.shell.term"
local text = require "crewbox.cli.shell.text"

local M = {
  summary = "List coding agents, or install one.",
  description = "Lists the coding agents crewbox can drive and which are installed. `crewbox agents install NAME` fetches " ..
    "one with npm at the version crewbox was tested with, into a cache that boxes see read-only.",
}

function M.define(command)
  command:argument("action", "install"):args "?"
  command:argument("name", "Which agent to install."):args "?"
  command:option("--version", "Install this version instead of the tested one."):argname("<version>"):target "agent_version"
  command:flag("--json", "Print one JSON object a line.")
end

local function state_of(entry)
  if not entry.pinned then return "built in" end
  if not entry.current then return "not installed: run " .. agents.install_command(entry.name) end
  local also = #entry.versions > 1 and ("; also there: %s"):format(table.concat(entry.versions, ", ")) or ""
  local pinned = entry.current ~= entry.pinned and (" (tested: %s)"):format(entry.pinned) or ""
  return ("%s%s in %s%s"):format(entry.current, pinned, entry.dir, also)
end

local function list(args)
  local paint = term.painter(1)
  for _, entry in ipairs(agents.list()) do
    if args.json then
      print(json.encode { name = entry.name, tested = entry.pinned, version = entry.current, dir = entry.dir,
        installed = entry.pinned == nil or entry.current ~= nil, versions = json.array(entry.versions) })
    else
      print(("%s  %s"):format(paint("bold", ("%-12s"):format(entry.name)), text.line(state_of(entry))))
    end
  end
  return status.DONE
end

local function install(args)
  return session.loop(function(loop)
    local live = term.live()
    local doing, began = nil, os.time()
    local function tell(what)
      doing = what
      if live.on then live:show(what) else live:say(what) end
    end
    local ticker = loop:spawn(function()
      while loop:sleep(1000) do
        if doing then live:show(("%s (%d s)"):format(doing, os.time() - began)) end
      end
    end)
    local found, e = agents.install(loop, args.name, { version = args.agent_version, tell = tell })
    ticker:cancel()
    ticker:join()
    live:clear()
    if not found then return nil, e end
    if args.json then
      print(json.encode { name = found.name, version = found.version, dir = found.dir, sha256 = found.sha256, fresh = found.fresh })
    else
      print(("%s %s %s in %s"):format(found.name, found.version, found.fresh and "installed" or "is already installed", found.dir))
    end
    return status.DONE
  end)
end

function M.run(args)
  if not args.action then
    if args.agent_version then return nil, err.new("invalid", "--version goes with install; see crewbox agents --help") end
    return list(args)
  end
  if args.action ~= "install" then
    return nil, err.new("invalid", ("agents knows only install, not %s; see crewbox agents --help"):format(args.action))
  end
  if not args.name then return nil, err.new("invalid", "install which agent? `crewbox agents` lists them") end
  return install(args)
end

return M
