-- SPDX-License-Identifier: MIT
-- The one flat format that two programs agree on (docs/reference/interfaces.md section 5):
-- `NAME SP LENGTH LF BYTES LF`, again and again. Names may repeat.
local M = {}

--- @param list {[1]: string, [2]: string|number}[]
--- @return string bytes
function M.encode(list)
  local out = {}
  for _, r in ipairs(list) do
    local value = type(r[2]) == "number" and ("%d"):format(r[2]) or r[2]
    out[#out + 1] = ("%s %d\n%s\n"):format(r[1], #value, value)
  end
  return table.concat(out)
end

--- @param bytes string from anywhere: anything may stand in it
--- @return {[1]: string, [2]: string}[]? list nil when the bytes are not records
function M.decode(bytes)
  local list, at = {}, 1
  while at <= #bytes do
    local name, length, from = bytes:match("^([a-z][a-z0-9_]*) (%d+)\n()", at)
    if not name or #name > 32 or #length > 10 then return nil end
    local last = from + tonumber(length)
    if bytes:sub(last, last) ~= "\n" then return nil end
    list[#list + 1] = { name, bytes:sub(from, last - 1) }
    at = last + 1
  end
  return list
end

return M
