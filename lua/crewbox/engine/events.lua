-- SPDX-License-Identifier: MIT
-- What happens to a run, as lines of JSON in STATE/runs/ID/events.jsonl, each masked before it is
-- written or handed to a host.
local core = require "crewbox.core"
local json = require "crewbox.json"
local paths = require "crewbox.paths"

local M = {}

--- @param job table    of engine/job.lua
--- @param name string  run_started, box_live, progress, run_finished, ...
--- @param fields table?
function M.tell(job, name, fields)
  local event = { at = core.sys.wall(), event = name, run = job.id }
  for k, v in pairs(fields or {}) do event[k] = v end
  local line = job.redactor:mask(json.encode(event))
  core.sys.append(paths.run_file(job.engine.state, job.id, "events.jsonl"), line .. "\n")
  job.engine:publish(job, json.decode(line) or event)
end

--- Events of a run, oldest first. A torn last line, left by a crash, is not an event.
--- @return table[] events
function M.read(state, id)
  local bytes = core.sys.read_file(paths.run_file(state, id, "events.jsonl"), 64 * 1024 * 1024) or ""
  local list = {}
  for line in bytes:gmatch("([^\n]+)\n") do
    local event = json.decode(line)
    if type(event) == "table" then list[#list + 1] = event end
  end
  return list
end

--- Whether an event of that name was told, by this engine or one before it: once told, not again.
function M.has(job, name)
  for _, event in ipairs(M.read(job.engine.state, job.id)) do
    if event.event == name then return true end
  end
  return false
end

return M
