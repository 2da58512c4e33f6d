-- SPDX-License-Identifier: MIT
-- Reads /proc/self/mountinfo. Pure.
local M = {}

-- \040 and its like.
local function unescape(s)
  return (s:gsub("\\(%d%d%d)", function(octal) return string.char(tonumber(octal, 8)) end))
end

--- @param text string
--- @return {point: string, root: string, type: string, options: string}[] list in order: the later covers the earlier
function M.parse(text)
  local list = {}
  for line in text:gmatch("[^\n]+") do
    local root, point, options, fstype = line:match("^%d+ %d+ %S+ (%S+) (%S+) (%S+).- %- (%S+)")
    if point then list[#list + 1] = { point = unescape(point), root = root, options = options, type = fstype } end
  end
  return list
end

local function holds(point, path)
  return point == "/" or path == point or path:sub(1, #point + 1) == point .. "/"
end

--- The mount that holds a path without links in it.
--- @return table? mount
function M.of(list, path)
  local found
  for _, mount in ipairs(list) do
    if holds(mount.point, path) and (not found or #mount.point >= #found.point) then found = mount end
  end
  return found
end

return M
