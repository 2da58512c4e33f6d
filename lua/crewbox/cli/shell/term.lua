-- SPDX-License-Identifier: MIT
-- What the verbs print with: colour only on a terminal, and the one live line that a following
-- verb keeps rewriting at the bottom of standard error.
local core = require "crewbox.core"

local M = {}

local CODES = { bold = "1", dim = "2", red = "31", green = "32", yellow = "33", cyan = "36" }

local function wants_colour(fd)
  local env = core.sys.environ()
  return core.sys.isatty(fd) and (env.NO_COLOR or "") == "" and env.TERM ~= "dumb"
end

--- @param fd number 1 or 2
--- @return fun(name: string, text: string): string paint
function M.painter(fd)
  local on = wants_colour(fd)
  return function(name, text)
    if not on then return text end
    return ("\27[%sm%s\27[0m"):format(assert(CODES[name], "no such colour"), text)
  end
end

--- @return boolean
function M.is_terminal(fd) return core.sys.isatty(fd) end

local Live = {}
Live.__index = Live

--- A live line on standard error. Off a terminal `show` does nothing and `say` prints lines.
--- @return table live  with :show(text), :clear(), :say(line)
function M.live()
  return setmetatable({
    on = core.sys.isatty(2) and core.sys.environ().TERM ~= "dumb",
    shown = false,
  }, Live)
end

--- Replaces the live line. `text` holds no control characters and no colours.
function Live:show(text, width_of)
  if not self.on then return end
  local width = math.max(20, core.sys.term_width() or 80) - 1
  if (width_of or #text) > width then text = require("crewbox.cli.shell.text").line(text, width) end
  io.stderr:write("\r\27[K", text)
  io.stderr:flush()
  self.shown = true
end

function Live:clear()
  if not self.shown then return end
  io.stderr:write("\r\27[K")
  io.stderr:flush()
  self.shown = false
end

--- Prints a line that stays.
function Live:say(line)
  self:clear()
  io.stderr:write(line, "\n")
  io.stderr:flush()
end

return M
