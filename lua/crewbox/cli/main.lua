-- SPDX-License-Identifier: MIT
-- The command line: reads the words, finds the verb (one file each beside this one), turns its
-- answer into an exit status and an error into one line on standard error.
local VERBS = { "run", "runs", "logs", "wait", "result", "apply", "cancel", "agents", "redact", "doctor", "engine", "env", "version" }

local argparse = require "argparse"
local status = require "crewbox.cli.shell.status"
local text = require "crewbox.cli.shell.text"

local function build()
  local parser = argparse("crewbox", "Runs coding agents in isolated boxes: the working tree goes in, findings and a patch come out.")
    :epilog("`crewbox VERB --help` tells more about a verb.\n\n" .. status.HELP)
    :command_target("verb")
    :require_command(false)
    :add_help "-h --help"
    :usage_max_width(100)
    :help_max_width(100)
  parser:flag("--version", "Print the version and exit."):target "print_version"
  local verbs = {}
  for _, name in ipairs(VERBS) do
    local verb = require("crewbox.cli." .. name)
    local command = parser:command(name):summary(verb.summary):description(verb.description or verb.summary)
      :add_help "-h --help"
    command:epilog((verb.epilog and verb.epilog .. "\n\n" or "") .. status.HELP)
    verb.define(command)
    verbs[name] = verb
  end
  return parser, verbs
end

local function complain(message)
  io.stdout:flush()
  io.stderr:write("crewbox: ", text.line(tostring(message)), "\n")
end

local function help_of(words, verbs)
  for _, word in ipairs(words) do
    if verbs[word] then return ("crewbox %s --help"):format(word) end
  end
  return "crewbox --help"
end

local function run(words)
  local parser, verbs = build()
  local ok, args = parser:pparse(words)
  if not ok then
    complain(("%s; see %s"):format(args, help_of(words, verbs)))
    return status.USAGE
  end
  if args.print_version then return verbs.version.run(args) end
  if not args.verb then
    complain("no verb given; see crewbox --help")
    return status.USAGE
  end
  local code, e = verbs[args.verb].run(args)
  if code then return code end
  complain(e.message)
  return status.of_error(e)
end

local function traceback(e)
  return debug.traceback(tostring(e), 2)
end

local M = {}

--- @param words string[] the command line without the program's name
--- @return number status
function M.main(words)
  local ok, code = xpcall(run, traceback, words)
  if not ok and tostring(code):find("^[^\n]*interrupted!") then -- the interpreter's own answer to Ctrl-C
    io.stderr:write("crewbox: interrupted\n")
    code = status.INTERRUPTED
  elseif not ok then
    -- A defect of ours: the trace is what a report needs.
    io.stderr:write("crewbox: this is a defect, please report it: ", tostring(code), "\n")
    code = status.MISSING
  end
  io.stdout:flush()
  return code
end

return M
