-- SPDX-License-Identifier: MIT
-- One stored log of a run, STATE/runs/ID/out.log or err.log: bytes of the box, masked once more.
-- The row says how many bytes of the box (`offset`) are in how many bytes of the file (`size`); a
-- crash between the two leaves the file too long, and opening cuts it back. Only whole lines are
-- taken, so that nothing to mask is cut in two; what has no line feed waits a moment.
local core = require "crewbox.core"

local M = {}

local Log = {}
Log.__index = Log

local HOLD_MS = 2000           -- for the rest of a line
local HOLD_BYTES = 256 * 1024
local FILE_MAX = 512 * 1024 * 1024

--- @param path string
--- @param redactor userdata
--- @param offset number bytes of the box that are stored
--- @param size number   bytes of the file that hold them
function M.open(path, redactor, offset, size)
  local st = core.sys.stat(path)
  local there = st and st.size or 0
  if there > size then
    local bytes = core.sys.read_file(path, FILE_MAX) or ""
    core.sys.write_file(path, bytes:sub(1, size), 384, false) -- 0600
  end
  return setmetatable({
    path = path,
    redactor = redactor,
    offset = offset,
    size = math.min(size, there),
    held = "",       -- bytes after `offset` that wait for their line feed
    held_at = nil,   -- since when
  }, Log)
end

--- Where the box's stream has to be read from.
function Log:next_offset()
  return self.offset + #self.held
end

local function write(log, bytes)
  local clean = log.redactor:mask(bytes)
  local ok, e = core.sys.append(log.path, clean)
  if not ok then return nil, e end
  log.size = log.size + #clean
  return clean
end

--- Takes the next bytes of the stream.
--- @param bytes string
--- @param last boolean? nothing follows: everything is stored
--- @return string? clean what was stored now
--- @return crewbox.Error? err the file cannot be written
function Log:add(bytes, last)
  local all = self.held .. bytes
  if all == "" then return "" end
  local now = core.sys.now_ms()
  self.held_at = self.held_at or now
  local cut = #all
  if not last and #all < HOLD_BYTES and now - self.held_at < HOLD_MS then
    cut = #all - #all:match("[^\n]*$")
  end
  if cut == 0 then
    self.held = all
    return ""
  end
  local clean, e = write(self, all:sub(1, cut))
  if not clean then
    self.held = all
    return nil, e
  end
  self.offset = self.offset + cut
  self.held = all:sub(cut + 1)
  self.held_at = self.held ~= "" and now or nil
  return clean
end

--- The bytes up to `to` are missing in the box: over its bound, or lost.
--- @return string? text what was stored
--- @return crewbox.Error? err
function Log:gap(to)
  local text = ""
  if self.held ~= "" then
    local clean, e = self:add("", true)
    if not clean then return nil, e end
    text = clean
  end
  if to <= self.offset then return text end
  local words = ("\n[crewbox: %d bytes of output were not kept]\n"):format(to - self.offset)
  local ok, e = core.sys.append(self.path, words)
  if not ok then return nil, e end
  self.size = self.size + #words
  self.offset = to
  return text .. words
end

--- What is stored, piece by piece.
function Log:pieces()
  local file = io.open(self.path, "rb")
  return function()
    local bytes = file and file:read(1024 * 1024)
    if not bytes and file then
      file:close()
      file = nil
    end
    return bytes
  end
end

return M
