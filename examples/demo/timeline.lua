-- SPDX-License-Identifier: MIT
-- Starts the demo's run, shows its way as a timeline, and half way ends the engine process with
-- SIGKILL and starts it again. Called by `run`; exits 0 when the run has succeeded, through two
-- engines, and was delivered once.
local argparse = require "argparse"
local client = require "crewbox.engine.client"
local core = require "crewbox.core"
local events = require "crewbox.engine.events"
local figures = require "crewbox.cli.shell.figures"
local starter = require "crewbox.engine.starter"
local term = require "crewbox.cli.shell.term"
local text = require "crewbox.cli.shell.text"

local parser = argparse("timeline.lua")
for _, name in ipairs { "--agent", "--repo", "--brief", "--id-file" } do parser:option(name):count(1) end
local args = parser:parse()

local TICK_S = 0.1
local HALF_WAY_TURNS = 3 -- of the six of fix.json
local HALF_WAY_S = 4     -- for an agent that counts no turns

local paint = term.painter(1)
local live = term.live()
local began = core.sys.now_ms()

local function seconds() return (core.sys.now_ms() - began) / 1000 end

local function mark(what, colour)
  live:clear()
  local line = text.line(what, 100)
  print(("%s  %s"):format(paint("dim", ("%6.2f s"):format(seconds())), colour and paint(colour, line) or line))
  io.stdout:flush()
end

local function give_up(e)
  live:clear()
  io.stderr:write("crewbox demo: ", text.line(e.message), "\n")
  os.exit(1)
end

local c, e = client.open()
if not c then give_up(e) end

local brief
brief, e = core.sys.read_file(args.brief, 1024 * 1024)
if not brief then give_up(e) end

-- The box server, and the base layer that all its boxes share, come with the first box: an empty one,
-- so that the figures of the run are those of every later run.
local first
first, e = c:run { brief = "true", no_repo = true, agent = "command", title = "an empty box" }
if not first then give_up(e) end
local ready
ready, e = c:wait(first, 60)
if not ready then give_up(e) end
if ready.state ~= "succeeded" then give_up { message = "no box: " .. tostring(ready.outcome.error) } end
mark(("the box server is up on a private socket; its first box, with the base layer, took %d ms")
  :format(ready.outcome.timing.own_ms))

local id
id, e = c:run { brief = brief, repo = args.repo, agent = args.agent, title = "fix the failing test" }
if not id then give_up(e) end
core.sys.write_file(args.id_file, id .. "\n", 384, false)

local function engine_pid()
  local answer = c.loop:call(starter.ask_running, c, { op = "status" })
  return answer and answer.pid
end

local engine = engine_pid()
mark(("%s: brief and working tree are packed, engine %s has the run"):format(id, tostring(engine)))

local killed -- pid of the engine that was

-- Words for the engine's events; others are not shown.
local WORDS = {
  box_live = function() return not killed and "a box is there" end,
  agent_started = function(ev) return ("the agent starts in it, %d ms after the engine took the run"):format(ev.launch_ms or 0) end,
  progress = function(ev) return ev.action and "  " .. ev.action end,
}

local shown, last_action = 0, nil
local function show_events()
  local list = events.read(c.state, id)
  for i = shown + 1, #list do
    local ev = list[i]
    local words = WORDS[ev.event] and WORDS[ev.event](ev)
    if words and not (ev.event == "progress" and words == last_action) then
      mark(words)
      if ev.event == "progress" then last_action = words end
    end
  end
  shown = #list
end

local function half_way(run)
  if run.state ~= "running" then return false end
  local turns = run.progress.turns
  if turns then return turns >= HALF_WAY_TURNS end
  return core.sys.wall() - run.started_at >= HALF_WAY_S
end

local function wait_gone(pid, start)
  for _ = 1, 200 do
    if not core.sys.alive(pid, start) then return end
    c.loop:call(c.loop.sleep, c.loop, 10)
  end
end

local function kill_engine()
  killed = engine_pid()
  if not killed then give_up { message = "the engine was gone before it could be killed" } end
  local start = core.sys.pid_start(killed)
  core.sys.kill(killed, "KILL")
  wait_gone(killed, start)
  mark(("engine %d was killed with SIGKILL; the agent works on in its box"):format(killed), "yellow")
  local _, why = c.loop:call(starter.ask, c, { op = "wake" })
  if why then give_up(why) end
  local pid = engine_pid()
  if not pid or pid == killed then give_up { message = "the engine did not come back" } end
  mark(("engine %d was started and takes the run up where it is"):format(pid), "yellow")
end

local watch = c:watch(id)
local run = assert(c:find(id))
while not watch.over do
  local row, why = watch:next(TICK_S)
  if why and why.code ~= "timeout" then give_up(why) end
  run = row or run
  show_events()
  if not killed and half_way(run) then kill_engine() end
  local p = run.progress
  live:show(("%6.1f s  %s%s"):format(seconds(), run.state, p.tokens and (", %s tokens"):format(figures.short(p.tokens)) or ""))
end
show_events()
live:clear()

local delivered = 0
for _, ev in ipairs(events.read(c.state, id)) do
  if ev.event == "run_finished" then delivered = delivered + 1 end
end
mark(("%s: %s, delivered %s"):format(id, run.state, delivered == 1 and "once" or delivered .. " times"),
  run.state == "succeeded" and "green" or "red")
if run.outcome and run.outcome.error then mark(run.outcome.error, "red") end
local ok = run.state == "succeeded" and delivered == 1 and killed ~= nil
if not killed then mark("the engine was not killed: the run was over too soon", "red") end
c:close()
os.exit(ok and 0 or 1)
