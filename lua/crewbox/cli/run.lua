-- SPDX-License-Identifier: MIT
-- crewbox run: hands a brief and a working tree to a coding agent in a box and follows it.
local core = require "crewbox.core"
local err = require "crewbox.err"
local find = require "crewbox.config.find"
local finish = require "crewbox.cli.shell.finish"
local follow = require "crewbox.cli.shell.follow"
local session = require "crewbox.cli.shell.session"
local show = require "crewbox.cli.shell.show"
local status = require "crewbox.cli.shell.status"
local text = require "crewbox.cli.shell.text"

local M = {
  summary = "Run a coding agent on a working tree in a box.",
  description = "Sends the working tree (what git lists as tracked or not ignored, without secrets' files) and the brief " ..
    "into a fresh box, runs the agent there and brings back its findings and a patch. The run goes on when this " ..
    "command is interrupted.",
  epilog = [[Examples:
   crewbox run "fix the failing test"
   crewbox run --apply --brief-file task.md --env NPM_TOKEN
   git log -5 | crewbox run - --agent claude-code --detach
   crewbox run --agent command "make check"
A brief that begins with a dash goes behind --: crewbox run -- "-v is broken".
The agent's own credentials and settings (for claude-code ANTHROPIC_API_KEY, ANTHROPIC_BASE_URL
and others) are taken from the environment; any other variable needs --env.]],
}

local BRIEF_MAX = 8 * 1024 * 1024

function M.define(command)
  command:argument("brief", "What is to be done; `-` reads it from standard input."):args "?"
  command:option("--brief-file", "Read the brief from a file."):argname "<file>"
  command:option("--repo", "The checkout to send; default the current one."):argname "<dir>"
  command:flag("--no-repo", "Send no checkout.")
  command:option("--agent", "Which coding agent; `crewbox agents` lists them."):argname "<name>"
  command:option("--model", "Which model, in the agent's own words."):argname "<name>"
  command:option("--env", "Give the agent this variable of your environment."):argname("<name>"):count "*"
  command:option("--timeout", "End the run after that long: seconds, or 90s, 20m, 3h. Default: never."):argname "<time>"
  command:flag("--detach", "Print the id and return.")
  command:flag("--apply", "Apply the patch to the checkout when the run has succeeded.")
  command:flag("--json", "Print the result (with --detach the new run) as one JSON object.")
  session.define_config(command)
end

local function read_file(path)
  local bytes, e = core.sys.read_file(path, BRIEF_MAX)
  if bytes then return bytes end
  return nil, err.new("invalid", ("the brief %s cannot be read: %s"):format(path, e.message))
end

local function read_stdin()
  local bytes, e = core.sys.stdin(BRIEF_MAX)
  if bytes then return bytes end
  return nil, err.new("invalid", "the brief cannot be read from standard input: " .. e.message)
end

local function brief_of(args)
  if args.brief and args.brief_file then
    return nil, err.new("invalid", "give the brief as an argument or with --brief-file, not both")
  end
  if args.brief_file then return read_file(args.brief_file) end
  if args.brief == "-" then return read_stdin() end
  if args.brief then return args.brief end
  return nil, err.new("invalid", "no brief: give it as an argument, `-` for standard input, or with --brief-file FILE")
end

local UNIT = { [""] = 1, s = 1, m = 60, h = 3600 }

local function seconds_of(word)
  local number, unit = word:match("^(%d+%.?%d*)(%a?)$")
  local seconds = number and UNIT[unit] and tonumber(number) * UNIT[unit]
  if not seconds or seconds < 1 or seconds > 30 * 86400 then
    return nil, err.new("invalid", ("--timeout takes seconds from 1 on, or 90s, 20m, 3h; not %s"):format(word))
  end
  return seconds
end

local function check_words(args)
  if args.repo and args.no_repo then
    return nil, err.new("invalid", "--repo and --no-repo exclude each other")
  end
  if args.apply and args.no_repo then
    return nil, err.new("invalid", "--apply needs a checkout; leave out --no-repo")
  end
  if args.apply and args.detach then
    return nil, err.new("invalid", "--apply waits for the end, --detach does not; later `crewbox apply ID` takes the patch")
  end
  for _, name in ipairs(args.env) do
    if not name:find("^[%a_][%w_]*$") then
      return nil, err.new("invalid", ("--env takes the name of a variable and its value from your environment, not %s")
        :format(name:find("=", 1, true) and name:match("^[^=]*") .. "=VALUE" or name))
    end
  end
  return true
end

local function request_of(args)
  local ok, e = check_words(args)
  if not ok then return nil, e end
  local request = { agent = args.agent, model = args.model, env = args.env, no_repo = args.no_repo }
  if not args.no_repo then
    request.repo = args.repo or "."
    local st = core.sys.stat(request.repo)
    if not st or st.type ~= "dir" then
      return nil, err.new("invalid", ("--repo %s is no folder; name the checkout to send"):format(request.repo))
    end
  end
  if args.timeout then
    request.timeout_s, e = seconds_of(args.timeout)
    if not request.timeout_s then return nil, e end
  end
  request.brief, e = brief_of(args) -- last: standard input is not read for nothing
  if not request.brief then return nil, e end
  return request
end

local EXCLUDED_SHOWN = 5

-- Files of the checkout that stay here: secrets' files, links that lead out, ...
local function tell_excluded(run)
  local tree = run.options.tree
  local excluded = type(tree) == "table" and type(tree.excluded) == "table" and tree.excluded or {}
  for i, entry in ipairs(excluded) do
    if i > EXCLUDED_SHOWN then
      io.stderr:write(("  ... and %d more\n"):format(#excluded - EXCLUDED_SHOWN))
      return
    end
    io.stderr:write(("not sent: %s (%s)\n"):format(text.line(tostring(entry.path), 200), text.line(tostring(entry.reason), 80)))
  end
end

local TICK_MS = 100

-- Starts the run. Ctrl-C before it is handed over takes everything back.
local function start(client, request)
  core.sys.catch_interrupt()
  return client.loop:call(function()
    local task = client.loop:spawn(client.run, client, request)
    while not task.done do
      task:join(TICK_MS)
      if core.sys.interrupted() then task:cancel() end
    end
    local id, e = task:join()
    if e and e.code == "cancelled" then
      e = err.new("cancelled", "interrupted; nothing was started", { exit_status = status.INTERRUPTED })
    end
    return id, e
  end)
end

function M.run(args)
  local request, e = request_of(args)
  if not request then return nil, e end
  return session.client(args, function(client)
    local here = not client.config.source and find.unnamed()
    if here then io.stderr:write(("%s is not used unless it is named: --config %s\n"):format(here, here)) end
    local id
    id, e = start(client, request)
    if not id then
      if e.code == "not_a_checkout" then
        e = err.new(e.code, e.message .. "; name one with --repo DIR, or run without one with --no-repo")
      end
      return nil, e
    end
    local run
    run, e = client:find(id)
    if not run then return nil, e end
    if not args.detach then io.stderr:write(("%s started; Ctrl-C leaves it going\n"):format(id)) end
    tell_excluded(run)
    if args.detach then
      if args.json then show.json(show.object(run)) else print(id) end
      return status.DONE
    end
    run, e = follow.follow(client, run)
    if not run then return nil, e end
    return finish.finish(client, run, args)
  end)
end

return M
