-- SPDX-License-Identifier: MIT
-- The redactor as a filter over pieces of an endless input: as bytes, as JSON lines that stay JSON
-- lines, or only counting. Pure but for the core's redactor; what is held back is bounded.
local json = require "crewbox.json"

local M = {}

local LINE_MAX = 16 * 1024 * 1024 -- a longer line is masked as bytes
local MARKER = "[REDACTED:"
local MARKER_PATTERN = "^%[REDACTED:([%w_.%-]+)%]"
local MARKER_MAX = 80             -- bytes of the longest marker

-- Calls fn(name) for every marker in s from `at` on; gives the place behind the last one.
local function each_marker(s, at, fn)
  while true do
    local from = s:find(MARKER, at, true)
    if not from then return at end
    local name = s:match(MARKER_PATTERN, from)
    if name then fn(name) end
    at = from + (name and #MARKER + #name + 1 or 1)
  end
end

-- ---- bytes ---------------------------------------------------------------------------------

--- @param redactor userdata core.redactor
--- @return {feed: fun(self, bytes: string): string, finish: fun(self): string} filter
function M.bytes(redactor)
  local stream = redactor:stream()
  return {
    feed = function(_, bytes) return stream:feed(bytes) end,
    finish = function() return stream:finish() end,
  }
end

-- ---- JSON lines ----------------------------------------------------------------------------

local Lines = {}
Lines.__index = Lines

--- Lines that are valid JSON stay valid JSON, one line each. Where a marker would break one (a value
--- that is a bare number, say), the whole line becomes `{"crewbox_redacted":[names]}`. Other lines
--- are masked as bytes, also what spans several of them.
--- @param redactor userdata core.redactor
function M.lines(redactor)
  return setmetatable({
    redactor = redactor,
    between = redactor:stream(), -- over what is not a record
    records = redactor:stream(), -- over one record at a time
    idle = true,                 -- `between` holds nothing and has no shape open
    held = {},                   -- pieces of a line that has no end yet
    held_size = 0,
    too_long = false,            -- within a line that is masked as bytes for its length
    out = {},
    at_start = true,             -- the output so far ends with a newline, or there is none
  }, Lines)
end

function Lines:put(s)
  if s == "" then return end
  self.out[#self.out + 1] = s
  self.at_start = s:byte(-1) == 10
end

function Lines:take()
  local out = table.concat(self.out)
  self.out = {}
  return out
end

-- What a line is. Only JSON that begins and ends itself may end a stretch of other lines: a line of
-- digits can as well be the inside of a private key.
local CLOSES = { [123] = 125, [91] = 93, [34] = 34 } -- {} [] ""
local function kind_of(line)
  local first = line:match("^[ \t]*()")
  local closes = CLOSES[line:byte(first)]
  if closes then
    local last = line:match("()[ \t\r\n]*$", math.max(first + 1, #line - 8))
    return last and line:byte(last - 1) == closes and last - 1 > first and "record" or "other"
  end
  return line:find("^%-?%d[%d.eE+-]*[ \t\r\n]*$", first) and "number" or "other"
end

-- Place of the last newline up to `stop`, from the end on: a greedy pattern walks all of a piece.
local WINDOW = 1024
local function last_newline(s, stop)
  while stop > 0 do
    local from = math.max(1, stop - WINDOW + 1)
    local found, at = nil, s:find("\n", from, true)
    while at and at <= stop do
      found, at = at, s:find("\n", at + 1, true)
    end
    if found then return found end
    stop = from - 1
  end
end

local function last_line(bytes) return bytes:sub((last_newline(bytes, #bytes - 1) or 0) + 1) end

local function is_json(text) return json.decode(text) ~= nil end

local function replacement(masked)
  local names, seen = json.array {}, {}
  each_marker(masked, 1, function(name)
    if not seen[name] then names[#names + 1] = name end
    seen[name] = true
  end)
  return json.encode { crewbox_redacted = names }
end

function Lines:other(bytes)
  self:put(self.between:feed(bytes))
  self.idle = false
end

-- The stretch of other lines is over; what comes begins a line of its own.
function Lines:settle()
  if not self.idle then self:put(self.between:finish()) end
  self.idle = true
  if not self.at_start then self:put "\n" end
end

-- A line as it goes out; `line` and `masked` have the same ending.
local function mended(line, masked)
  if masked == line or kind_of(line) == "other" or not is_json(line) then return masked end
  local text = masked:gsub("[\r\n]+$", "")
  if not text:find("\n", 1, true) and is_json(text) then return masked end
  return replacement(masked) .. line:match("[\r\n]*$", math.max(1, #line - 1))
end

function Lines:record(line)
  self:settle()
  self:put(mended(line, self.records:feed(line) .. self.records:finish()))
end

function Lines:number(line)
  local masked = self.redactor:mask(line)
  if masked == line then return self:other(line) end
  self:settle()
  self:put(mended(line, masked))
end

-- The lines of a piece and of its masked form, told apart at the markers: what lies between two is
-- the same in both. nil when a marker has taken the end of a line.
local function paired(bytes, masked)
  local out, i, j = {}, 1, 1
  while j <= #masked do
    local marker = masked:find(MARKER, j, true)
    local start = marker and math.max(j, (last_newline(masked, marker) or 0) + 1) or #masked + 1
    out[#out + 1] = masked:sub(j, start - 1)
    i, j = i + start - j, start
    if marker then
      local line_end, masked_end = bytes:find("\n", i, true) or #bytes, masked:find("\n", j, true) or #masked
      out[#out + 1] = mended(bytes:sub(i, line_end), masked:sub(j, masked_end))
      i, j = line_end + 1, masked_end + 1
    end
  end
  return i == #bytes + 1 and table.concat(out) or nil
end

-- One or more whole lines.
function Lines:whole(bytes)
  -- Mostly a piece can be taken at once. Its last line must be a record, or something may begin in
  -- it that the next piece ends.
  if self.idle and self.at_start and kind_of(last_line(bytes)) == "record" then
    local masked = self.redactor:mask(bytes)
    local clean = masked == bytes and bytes or paired(bytes, masked)
    if clean then return self:put(clean) end
  end
  local at, run = 1, nil -- run: where a stretch of other lines began
  local function other_until(stop)
    if run then self:other(bytes:sub(run, stop)) end
    run = nil
  end
  while at <= #bytes do
    local stop = bytes:find("\n", at, true) or #bytes
    local line = bytes:sub(at, stop)
    local kind = kind_of(line)
    if kind == "other" then
      run = run or at
    else
      other_until(at - 1)
      if kind == "record" then self:record(line) else self:number(line) end
    end
    at = stop + 1
  end
  other_until(#bytes)
end

--- @param bytes string the next piece, cut anywhere
--- @return string clean what is settled, whole lines as soon as they are there
function Lines:feed(bytes)
  if self.too_long then
    local stop = bytes:find("\n", 1, true)
    self:other(bytes:sub(1, stop or -1))
    if not stop then return self:take() end
    self.too_long = false
    bytes = bytes:sub(stop + 1)
  end
  local last = last_newline(bytes, #bytes)
  if last then
    self.held[#self.held + 1] = bytes:sub(1, last)
    self:whole(table.concat(self.held))
    bytes = bytes:sub(last + 1)
    self.held, self.held_size = {}, 0
  end
  if bytes ~= "" then
    self.held[#self.held + 1] = bytes
    self.held_size = self.held_size + #bytes
  end
  if self.held_size > LINE_MAX then
    self:settle()
    self:other(table.concat(self.held))
    self.held, self.held_size, self.too_long = {}, 0, true
  end
  return self:take()
end

--- @return string clean the rest
function Lines:finish()
  if self.held_size > 0 then self:whole(table.concat(self.held)) end
  self.held, self.held_size = {}, 0
  self:put(self.between:finish())
  return self:take()
end

-- ---- counting ------------------------------------------------------------------------------

local Count = {}
Count.__index = Count

--- Gives nothing out, and counts what would be masked.
--- @param redactor userdata core.redactor
--- @return table counter feed, finish, and `counter:result()`
function M.count(redactor)
  return setmetatable({
    stream = redactor:stream(),
    pending = "",      -- input whose output has not come
    changed = false,
    counts = {},
    tails = { "", "" } -- ends of input and output that may hold the begin of a marker
  }, Count)
end

-- Markers that were there before are not ours: what the input has is taken off.
function Count:markers(which, bytes, step)
  local s = self.tails[which] .. bytes
  local at = each_marker(s, 1, function(name) self.counts[name] = (self.counts[name] or 0) + step end)
  self.tails[which] = s:sub(math.max(at, #s - MARKER_MAX + 1))
end

function Count:compare(bytes, out)
  self:markers(1, bytes, -1)
  self:markers(2, out, 1)
  if self.changed then return end
  local before = self.pending .. bytes
  self.changed = before:sub(1, #out) ~= out
  self.pending = self.changed and "" or before:sub(#out + 1)
end

function Count:feed(bytes)
  self:compare(bytes, self.stream:feed(bytes))
  return ""
end

function Count:finish()
  self:compare("", self.stream:finish())
  if self.pending ~= "" then self.changed = true end
  return ""
end

--- @return boolean found something would be masked
--- @return {name: string, count: number}[] list sorted by name
function Count:result()
  local list = {}
  for name, count in pairs(self.counts) do
    if count > 0 then list[#list + 1] = { name = name, count = count } end
  end
  table.sort(list, function(a, b) return a.name < b.name end)
  return self.changed, list
end

return M
