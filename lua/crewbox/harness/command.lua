-- SPDX-License-Identifier: MIT
-- Any command as a coding agent. Without a configured program the brief itself is an `sh`
-- script, byte for byte, with an empty stdin; with one, the program gets the brief on stdin.
-- Success is exit status 0. Its report is the findings file if it wrote one, else the end of
-- its output.
local lines = require "crewbox.harness.lines"

local M = {
  name = "command",
  credentials = {},
  settings = {},
  remote_template = nil, -- the provider's default
  start_deadline_s = 0,  -- a command may be silent for as long as it likes
  stall_s = 0,
  grace_s = 0,
  raw_brief = true,      -- no instructions are added to the brief
  package = nil,
}

local TAIL_MAX = 16 * 1024

function M:check()
  return true
end

function M:endpoints()
  return {}
end

--- @param o table {brief, env, run_dir, options?: {program?: string[]}}
--- @return crewbox.HarnessPlan
function M:plan(o)
  local program = o.options and o.options.program
  local env = {}
  for name, value in pairs(o.env or {}) do env[name] = value end
  if program then
    return { argv = program, env = env, stdin = o.brief, files = {}, streams = "split" }
  end
  local script = o.run_dir .. "/script"
  return { argv = { "sh", script }, env = env, stdin = nil, streams = "split",
    files = { { path = script, data = o.brief } } }
end

local Reader = {}
Reader.__index = Reader

function M:reader()
  return setmetatable({ tail = "", total = 0, lines = 0, last = nil }, Reader)
end

function Reader:feed(bytes)
  self.total = self.total + #bytes
  self.tail = (self.tail .. bytes):sub(-TAIL_MAX)
  for line in bytes:gmatch("[^\n]+") do self.last = line end
end

function Reader:terminal()
  return false
end

function Reader:progress()
  local last = self.last and lines.plain(self.last):sub(1, 120)
  return { turns = nil, action = last, tokens = nil }
end

--- @return crewbox.Outcome
function Reader:finish(f)
  local findings = f.findings and f.findings:find("%S") and f.findings or nil
  local out = { success = f.exit == 0 and not f.signal, notes = {} }
  if not out.success then
    out.reason = f.signal and "signal" or "agent_exit"
    out.error = f.signal and "the command was ended by signal " .. f.signal or
      "the command exited with status " .. tostring(f.exit)
  end
  if self.total > #self.tail then
    out.notes[#out.notes + 1] = ("only the last %d of %d bytes of output are shown"):format(#self.tail, self.total)
  end
  out.text = findings or self.tail
  return out
end

return M
