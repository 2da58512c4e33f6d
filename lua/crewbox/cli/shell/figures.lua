-- SPDX-License-Identifier: MIT
-- Numbers as a person reads them.
local M = {}

--- 65 -> "1:05", 7322 -> "2:02:02"
--- @param seconds number
--- @return string
function M.elapsed(seconds)
  local s = math.max(0, math.floor(seconds))
  local h, m = math.floor(s / 3600), math.floor(s % 3600 / 60)
  if h > 0 then return ("%d:%02d:%02d"):format(h, m, s % 60) end
  return ("%d:%02d"):format(m, s % 60)
end

local STEPS = { { 86400, "d" }, { 3600, "h" }, { 60, "min" }, { 1, "s" } }

--- 7200 -> "2 h ago"
--- @param seconds number
--- @return string
function M.ago(seconds)
  for _, step in ipairs(STEPS) do
    if seconds >= step[1] then return ("%d %s ago"):format(math.floor(seconds / step[1]), step[2]) end
  end
  return "now"
end

--- 950 -> "950", 12345 -> "12.3k", 2500000 -> "2.5M"
--- @param n number
--- @return string
function M.short(n)
  if n < 1000 then return ("%d"):format(n) end
  if n < 999950 then return ("%.1fk"):format(n / 1000) end
  return ("%.1fM"):format(n / 1000000)
end

--- 1 -> "1 file", 3 -> "3 files"
--- @return string
function M.count(n, noun)
  return ("%d %s%s"):format(n, noun, n == 1 and "" or "s")
end

return M
