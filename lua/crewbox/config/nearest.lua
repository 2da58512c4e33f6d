-- SPDX-License-Identifier: MIT
-- Finds the known word that a mistyped one most likely means.
local M = {}

-- Restricted Damerau-Levenshtein: "tempalte" is one slip away from "template", not two.
local function distance(a, b)
  local before, row = nil, {}
  for j = 0, #b do row[j] = j end
  for i = 1, #a do
    local new = { [0] = i }
    for j = 1, #b do
      local same = a:byte(i) == b:byte(j)
      local best = math.min(row[j] + 1, new[j - 1] + 1, row[j - 1] + (same and 0 or 1))
      if before and j > 1 and a:byte(i) == b:byte(j - 1) and a:byte(i - 1) == b:byte(j) then
        best = math.min(best, before[j - 2] + 1)
      end
      new[j] = best
    end
    before, row = row, new
  end
  return row[#b]
end

--- @param word string
--- @param known string[]
--- @param max number? most slips that still count; default a third of the word, at least 1
--- @return string? nearest nil when nothing is near enough
function M.nearest(word, known, max)
  if #word > 64 then return nil end
  max = max or math.max(1, math.floor(#word / 3))
  local best, best_distance
  for _, candidate in ipairs(known) do
    local d = distance(word, candidate)
    if d <= max and (not best or d < best_distance or (d == best_distance and candidate < best)) then
      best, best_distance = candidate, d
    end
  end
  return best
end

--- " (did you mean X?)" or an empty string, to be put behind an error.
--- @return string
function M.hint(word, known, max)
  local near = M.nearest(word, known, max)
  return near and (" (did you mean %s?)"):format(near) or ""
end

return M
