-- SPDX-License-Identifier: MIT
-- Cuts an agent's stdout into whole lines, however the bytes arrive, and takes terminal escapes
-- off them: some agents put window titles in front of a JSON line.
local M = {}

local Lines = {}
Lines.__index = Lines

-- A line longer than this is dropped, not parsed: no agent needs it and it bounds memory.
local LINE_MAX = 32 * 1024 * 1024

--- @return table lines with `feed(bytes)`, an iterator over whole lines, and `rest()`
function M.new()
  return setmetatable({ parts = {}, size = 0, dropping = false, dropped = 0 }, Lines)
end

--- Iterates over the lines that `bytes` completes. A torn last line waits for the next call.
--- @param bytes string
--- @return fun(): string?
function Lines:feed(bytes)
  local at = 1
  return function()
    while true do
      local nl = bytes:find("\n", at, true)
      local piece = bytes:sub(at, nl and nl - 1 or nil)
      at = nl and nl + 1 or #bytes + 1
      if not self.dropping then
        self.parts[#self.parts + 1] = piece
        self.size = self.size + #piece
        if self.size > LINE_MAX then
          self.parts, self.size, self.dropping = {}, 0, true
          self.dropped = self.dropped + 1
        end
      end
      if not nl then return nil end
      if self.dropping then
        self.dropping = false
      else
        local line = table.concat(self.parts)
        self.parts, self.size = {}, 0
        return line
      end
    end
  end
end

--- What is left without a newline: the last line of a stream that ended without one.
--- @return string
function Lines:rest()
  local line = table.concat(self.parts)
  self.parts, self.size = {}, 0
  return line
end

--- Takes escape sequences and other control bytes off the front and inside of a line.
--- @param line string
--- @return string
function M.plain(line)
  if not line:find("[%z\1-\8\11-\31\127]") then return line end
  line = line:gsub("\27%][^\7\27]*\7", "")      -- OSC ... BEL
    :gsub("\27%][^\7\27]*\27\\", "")            -- OSC ... ST
    :gsub("\27%[[%d;:?]*[%a@`]", "")            -- CSI
    :gsub("\27.", "")
    :gsub("[%z\1-\8\11-\31\127]", "")
  return line
end

return M
