-- SPDX-License-Identifier: MIT
-- Bytes of hostile origin made harmless for a terminal: an agent's output, its findings and the
-- names of its files may hold escapes that retitle a window, write the clipboard, move the
-- cursor or hide what was printed. Letters, newlines and tabs stay; colours are dropped; every
-- other control is shown in caret notation, so that one sees that something was there.
local M = {}

local REPLACEMENT = "\239\191\189" -- U+FFFD

local function caret(c)
  local b = c:byte()
  return "^" .. (b == 127 and "?" or string.char(b + 64))
end

-- Length of the valid UTF-8 character at i, or nil.
local function utf8_length(s, i)
  local a, b, c, d = s:byte(i, i + 3)
  local function tail(x) return x and x >= 128 and x < 192 end
  if a < 128 then return 1 end
  if a >= 194 and a < 224 then return tail(b) and 2 or nil end
  if a >= 224 and a < 240 then
    if not (tail(b) and tail(c)) then return nil end
    if (a == 224 and b < 160) or (a == 237 and b >= 160) then return nil end
    return 3
  end
  if a >= 240 and a < 245 then
    if not (tail(b) and tail(c) and tail(d)) then return nil end
    if (a == 240 and b < 144) or (a == 244 and b >= 144) then return nil end
    return 4
  end
  return nil
end

-- U+0080..9F are controls; U+200E/F, U+202A..E and U+2066..9 reorder what is shown.
local function is_control(char)
  local a, b, c = char:byte(1, 3)
  if #char == 2 then return a == 194 and b < 160 end
  return #char == 3 and a == 226 and ((b == 128 and (c == 142 or c == 143 or (c >= 170 and c <= 174))) or
    (b == 129 and c >= 166 and c <= 169))
end

local function clean_wide(s)
  local out, i = {}, 1
  while i <= #s do
    local n = utf8_length(s, i)
    local char = n and s:sub(i, i + n - 1)
    out[#out + 1] = (char and not is_control(char)) and char or REPLACEMENT
    i = i + (n or 1)
  end
  return table.concat(out)
end

--- @param s string any bytes
--- @return string text that a terminal only prints
function M.plain(s)
  s = s:gsub("\27%[[%d;:]*m", ""):gsub("\r+\n", "\n"):gsub("\r", "\n")
  s = s:gsub("[%z\1-\8\11-\31\127]", caret)
  return (s:gsub("[\128-\255]+", clean_wide))
end

--- The same for something that must stay on one line, at most `max` characters long.
--- @return string
function M.line(s, max)
  s = M.plain(s):gsub("%s+", " "):gsub("^ ", ""):gsub(" $", "")
  if not max or #s <= max then return s end
  local chars = {}
  for char in s:gmatch("[%z\1-\127\194-\244][\128-\191]*") do
    chars[#chars + 1] = char
    if #chars > max then
      return table.concat(chars, "", 1, math.max(0, max - 3)) .. "..."
    end
  end
  return s
end

--- Cleans a stream: what is cut in the middle of a character or of a colour waits for its rest.
--- @return fun(bytes: string?): string  nil ends the stream and gives what was held back
function M.stream()
  local held = ""
  return function(bytes)
    local s = held .. (bytes or "")
    held = ""
    if bytes then
      local from = s:find("\27%[?[%d;:]*$") or s:find("\r$") or s:find("[\194-\244][\128-\191]*$")
      if from and #s - from < 32 and not (s:byte(from) >= 128 and utf8_length(s, from)) then
        held, s = s:sub(from), s:sub(1, from - 1)
      end
    end
    return M.plain(s)
  end
end

return M
