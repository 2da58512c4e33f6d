-- SPDX-License-Identifier: MIT
-- Brings what a finished run left in its box to this side: findings, and what differs in the tree
-- as a patch. Everything from a box is bounded and checked; a secret in what would be applied is
-- a refusal.
local core = require "crewbox.core"
local err = require "crewbox.err"
local paths = require "crewbox.paths"
local provider = require "crewbox.engine.provider"
local records = require "crewbox.engine.records"
local tree = require "crewbox.tree"

local M = {}

local FINDINGS_MAX = 4 * 1024 * 1024
local RESULT_MAX = 128 * 1024 * 1024
local RANGE = 1024 * 1024
local COLLECT_MS = 10 * 60 * 1000

local function contains(name)
  return err.new("contains_secret", ("the changes contain the value of %s; no patch was stored"):format(name))
end

-- Reads a file of the box range by range. sink(bytes) -> true | nil, err
local function read_file(job, path, max, sink)
  local at = 0
  while true do
    local value, e = job:try(function()
      return job.engine.loop:await(job.provider.verbs:read { box = job.box, path = path, offset = at, max_bytes = RANGE })
    end)
    if not value then return nil, e end
    local size = tonumber(value.size) or 0
    if size > max then
      return nil, err.new("too_large", ("%s has %d bytes, the most is %d"):format(path:match("[^/]*$"), size, max))
    end
    if #value.data == 0 then return at end
    local ok
    ok, e = sink(value.data)
    if not ok then return nil, e end
    at = at + #value.data
    if at >= size then return at end
  end
end

--- The report, when the supervisor says there is one.
--- @async
--- @return string? findings
--- @return string? note why there is none although there should be
--- @return crewbox.Error? err nothing is known: try again later
function M.findings(job, state)
  local size = tonumber(state and state.findings_size)
  if not size or size <= 0 then return nil end
  local parts = {}
  local at, e = read_file(job, job.run_dir .. "/findings.md", FINDINGS_MAX, function(bytes)
    parts[#parts + 1] = bytes
    return true
  end)
  if not at and not provider.is_staying(e) then return nil, nil, e end
  if not at then return nil, "the findings could not be read: " .. e.message end
  local findings = table.concat(parts)
  if core.sys.sha256(findings) ~= state.findings_sha256 then
    return nil, "the findings are not what the supervisor wrote; they were left out"
  end
  return job.redactor:mask(findings)
end

-- The result pack on this side. contains_secret as soon as one is seen: nothing is kept then.
local function fetch(job, file)
  core.sys.unlink(file)
  local stream = job.redactor:stream()
  local size, e = read_file(job, job.run_dir .. "/result.pack", RESULT_MAX, function(bytes)
    stream:feed(bytes)
    local name = stream:found()
    if name then return nil, contains(name) end
    return core.sys.append(file, bytes)
  end)
  stream:finish()
  local name = stream:found()
  stream:close()
  if size and name then return nil, contains(name) end
  return size, e
end

local function pack_result(job)
  local value, e = job:exec {
    cmd = job.supervisor, timeout_ms = COLLECT_MS,
    args = { "tree-collect", "--project", job.home .. "/project", "--run-dir", job.run_dir,
      "--out", job.run_dir .. "/result.pack", "--max", ("%d"):format(RESULT_MAX) },
  }
  if not value then return nil, e end
  if value.exit ~= 0 then
    return nil, err.new("provider", "the changes could not be collected: " ..
      ((value.stderr or ""):match("[^\n]+") or "exit " .. tostring(value.exit or value.signal)))
  end
  local skipped = {}
  for _, r in ipairs(records.decode(value.stdout or "") or {}) do
    if r[1] == "skipped" then
      local reason, path = r[2]:match("^(%S+) (.*)$")
      if reason then skipped[#skipped + 1] = { path = path, reason = reason } end
    end
  end
  return skipped
end

--- The patch of a run with a tree. Its files stay in the folder of the run: result.pack, patch.
--- @async
--- @return {changed: table[], bytes: number, skipped: {path, reason}[]}? patch
--- @return crewbox.Error? err `contains_secret` and others; no patch is stored then
function M.patch(job)
  local file = function(name) return paths.run_file(job.engine.state, job.id, name) end
  local function none(e)
    core.sys.unlink(file("patch"))
    core.sys.unlink(file("result.pack"))
    return nil, e
  end
  local skipped, e = pack_result(job)
  if not skipped then return none(e) end
  local ok
  ok, e = fetch(job, file("result.pack"))
  if not ok then return none(e) end
  local patch
  patch, e = tree.patch(job.engine.loop, {
    base = file("tree.pack"), result = file("result.pack"), dir = file("compare"), patch = file("patch"),
    redactor = job.redactor,
  })
  job.engine.loop:await(job.engine.io:remove_tree { path = file("compare") })
  if not patch then return none(e) end
  patch.skipped = skipped
  return patch
end

return M
