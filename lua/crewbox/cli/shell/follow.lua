-- SPDX-License-Identifier: MIT
-- Follows a run to its end: on a terminal one line that keeps changing, elsewhere a line when
-- something has changed. Ctrl-C leaves the run going.
local core = require "crewbox.core"
local err = require "crewbox.err"
local figures = require "crewbox.cli.shell.figures"
local status = require "crewbox.cli.shell.status"
local term = require "crewbox.cli.shell.term"
local text = require "crewbox.cli.shell.text"

local M = {}

local TICK_S = 0.5   -- how often the clock of the live line moves
local QUIET_S = 30   -- without a terminal: a line at least this often
local SPACING_S = 3  -- ... and at most this often while only the action changes

local function progress_text(run)
  local p = type(run.progress) == "table" and run.progress or {}
  local parts = { p.phase and text.line(tostring(p.phase), 40) or run.state }
  if type(p.turns) == "number" and p.turns > 0 then parts[#parts + 1] = figures.count(p.turns, "turn") end
  if type(p.tokens) == "number" and p.tokens > 0 then parts[#parts + 1] = figures.short(p.tokens) .. " tokens" end
  local line = table.concat(parts, ", ")
  if type(p.action) == "string" and p.action ~= "" then line = line .. ": " .. text.line(p.action, 120) end
  return line, parts[1]
end

-- Says on a pipe what is new, but not every wink of it.
local function sayer(live, began)
  local said, said_phase, said_at = nil, nil, 0
  return function(run)
    local now = core.sys.wall()
    local line, phase = progress_text(run)
    local due = phase ~= said_phase or (line ~= said and now - said_at >= SPACING_S) or now - said_at >= QUIET_S
    if not due then return end
    said, said_phase, said_at = line, phase, now
    live:say(("%s  %s"):format(figures.elapsed(now - began), line))
  end
end

--- @param client table
--- @param run table a row
--- @return table? run the final row
--- @return crewbox.Error? err with `exit_status` 130 when a person pressed Ctrl-C
function M.follow(client, run)
  core.sys.catch_interrupt()
  local live = term.live()
  local began = run.created_at
  local say = sayer(live, began)
  local watch = client:watch(run.id)
  while true do
    local row, e = watch:next(TICK_S)
    if row then run = row end
    if e and e.code == "cancelled" then
      live:clear()
      return nil, err.new("cancelled", ("the run goes on; get back to it with `crewbox wait %s`, end it with `crewbox cancel %s`")
        :format(run.id, run.id), { exit_status = status.INTERRUPTED })
    end
    if e and e.code ~= "timeout" then
      live:clear()
      return nil, e
    end
    if watch.over then
      live:clear()
      return run
    end
    if live.on then
      live:show(("%s  %s"):format(figures.elapsed(core.sys.wall() - began), (progress_text(run))))
    else
      say(run)
    end
  end
end

return M
