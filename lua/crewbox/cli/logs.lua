-- SPDX-License-Identifier: MIT
-- crewbox logs: the stored, redacted output of a run.
local core = require "crewbox.core"
local err = require "crewbox.err"
local lines = require "crewbox.harness.lines"
local session = require "crewbox.cli.shell.session"
local status = require "crewbox.cli.shell.status"
local text = require "crewbox.cli.shell.text"

local M = {
  summary = "Print the output of a run.",
  description = "Prints what the agent wrote to its standard output, as stored: secrets are masked. Events of an agent that " ..
    "writes JSON are told in words, and escapes that could act on a terminal are shown instead of sent; --raw gives the bytes.",
}

function M.define(command)
  session.define_run(command)
  command:flag("-f --follow", "Go on until the run is over.")
  command:flag("--err", "Standard error instead of standard output.")
  command:flag("--raw", "The bytes as they are stored.")
  session.define_config(command)
end

-- An agent that writes events for programs has a story beside its harness, which tells each line.
local function story_of(run)
  local there, story = pcall(require, "crewbox.harness." .. run.agent:gsub("%-", "_") .. "_story")
  return there and story or nil
end

-- A filter: bytes in, what is to be printed out; nil ends it.
local function told(story)
  local whole = lines.new()
  return function(bytes)
    local out = {}
    for line in whole:feed(bytes or "\n") do
      local said = story.tell(line)
      if said then out[#out + 1] = text.plain(said) .. "\n" end
    end
    return table.concat(out)
  end
end

local function filter_of(args, run)
  if args.raw then return function(bytes) return bytes or "" end end
  local story = not args.err and story_of(run)
  return story and told(story) or text.stream()
end

function M.run(args)
  return session.run(args, function(client, run)
    if args.follow then core.sys.catch_interrupt() end
    local filter = filter_of(args, run)
    for bytes in client:log(run.id, { follow = args.follow, stream = args.err and "err" or "out" }) do
      local ok, problem = io.stdout:write(filter(bytes))
      io.stdout:flush()
      if not ok then return nil, err.new("system", "standard output: " .. tostring(problem)) end
    end
    io.stdout:write(filter(nil))
    return core.sys.interrupted() and status.INTERRUPTED or status.DONE
  end)
end

return M
