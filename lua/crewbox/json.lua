-- SPDX-License-Identifier: MIT
-- JSON, exactly: the one place that knows lua-cjson. Version 2.1.0 (Debian's) reads every number
-- as a double and "[]" as "{}", writes 14 digits, and takes NaN and hexadecimal for numbers. Here
-- integers come back as integers (as text where the VM cannot hold them, like everywhere in the
-- core), an empty list stays a list, and numbers are written so that they read back the same.
-- Of Lua 5.4 only, asked for before use.
-- luacheck: read globals math.type math.tointeger
local cjson = require("cjson.safe").new()
local core = require "crewbox.core"
local err = require "crewbox.err"

local M = {}

local DEPTH = 128 -- of nesting, both ways
local EXACT = 9007199254740992
local INTEGERS = math.type ~= nil -- the VM has an integer type

cjson.decode_max_depth(DEPTH)
cjson.decode_invalid_numbers(false)

--- JSON null inside a value. The same as core.null.
M.null = core.null

local object_mt = { __name = "crewbox.object" }

--- Marks t (default: a new table) as a list and gives it back; says what an empty table is.
function M.array(t)
  return setmetatable(t or {}, core.array)
end

--- Marks t as an object. Without a mark, an empty table is one already.
function M.object(t)
  return setmetatable(t or {}, object_mt)
end

-- Writing -----------------------------------------------------------------------------------

local ESCAPES = { ['"'] = '\\"', ["\\"] = "\\\\", ["\b"] = "\\b", ["\f"] = "\\f", ["\n"] = "\\n",
  ["\r"] = "\\r", ["\t"] = "\\t" }

local function escape(c)
  return ESCAPES[c] or ("\\u%04x"):format(c:byte())
end

-- Well-formed sequences by their first byte (Unicode 15, table 3-7).
local SEQUENCES = {
  "^[\194-\223][\128-\191]()", "^\224[\160-\191][\128-\191]()",
  "^[\225-\236\238\239][\128-\191][\128-\191]()", "^\237[\128-\159][\128-\191]()",
  "^\240[\144-\191][\128-\191][\128-\191]()", "^[\241-\243][\128-\191][\128-\191][\128-\191]()",
  "^\244[\128-\143][\128-\191][\128-\191]()",
}

local function sequence_end(s, at)
  for _, pattern in ipairs(SEQUENCES) do
    local stop = s:match(pattern, at)
    if stop then return stop end
  end
end

-- JSON is UTF-8: a byte that is not becomes U+FFFD, as in every text decoder.
local function repair(s)
  local out, from = {}, 1
  while true do
    local at = s:find("[\128-\255]", from)
    if not at then break end
    out[#out + 1] = s:sub(from, at - 1)
    local stop = sequence_end(s, at)
    out[#out + 1] = stop and s:sub(at, stop - 1) or "\239\191\189"
    from = stop or at + 1
  end
  out[#out + 1] = s:sub(from)
  return table.concat(out)
end

local function write_string(s)
  if s:find("[\128-\255]") then s = repair(s) end
  return '"' .. s:gsub('[%c"\\]', escape) .. '"'
end

local function write_number(n)
  if INTEGERS and math.type(n) == "integer" then return ("%d"):format(n) end
  if n ~= n or n == math.huge or n == -math.huge then
    error("json.encode: a number that is not finite", 0)
  end
  if n == math.floor(n) and n >= -EXACT and n <= EXACT then return ("%.0f"):format(n) end
  for digits = 15, 17 do
    local text = ("%." .. digits .. "g"):format(n)
    if digits == 17 or tonumber(text) == n then return text end
  end
end

local write

local function write_array(t, depth)
  local out, count = {}, 0
  for i = 1, #t do
    if t[i] == nil then error("json.encode: a list with a hole", 0) end
    out[i] = write(t[i], depth)
  end
  for _ in pairs(t) do count = count + 1 end
  if count ~= #out then error("json.encode: a list with a hole or with named fields", 0) end
  return "[" .. table.concat(out, ",") .. "]"
end

local function write_object(t, depth)
  local keys, out = {}, {}
  for k in pairs(t) do
    if type(k) ~= "string" then
      error("json.encode: a key that is neither a name nor part of a list", 0)
    end
    keys[#keys + 1] = k
  end
  table.sort(keys) -- the same value always gives the same bytes
  for i, k in ipairs(keys) do
    out[i] = write_string(k) .. ":" .. write(t[k], depth)
  end
  return "{" .. table.concat(out, ",") .. "}"
end

function write(v, depth)
  local kind = type(v)
  if kind == "string" then return write_string(v) end
  if kind == "number" then return write_number(v) end
  if kind == "boolean" then return tostring(v) end
  if v == M.null then return "null" end
  if kind ~= "table" then error("json.encode: a " .. kind .. " is no JSON", 0) end
  if depth > DEPTH then error("json.encode: nested too deeply", 0) end
  local mt = getmetatable(v)
  if mt == core.array or (mt ~= object_mt and v[1] ~= nil) then
    return write_array(v, depth + 1)
  end
  return write_object(v, depth + 1)
end

--- The JSON text of a value, on one line, keys sorted. Bytes that are not UTF-8 become U+FFFD.
--- Raises for what JSON cannot say: functions, NaN, lists with holes.
--- @return string
function M.encode(value)
  local ok, text = pcall(write, value, 1)
  if not ok then error(text, 2) end
  return text
end

-- Reading -----------------------------------------------------------------------------------

-- What cjson would lose goes past it as marked strings. The mark is random for each process and
-- starts with a zero byte: no input can hold it by design or chance.
local NONCE = core.sys.random_id(20) .. ":"
local MARK, MARK_TEXT = "\0" .. NONCE, "\\u0000" .. NONCE
local LIST_MARK = MARK .. "[]"
local LONG = ("%d"):rep(16) -- digits from which a double may not be enough

-- End of the string that starts at `from`, nil when it has none.
local function string_end(text, from)
  local at = from
  while true do
    at = text:find('["\\]', at + 1)
    if not at then return nil end
    if text:sub(at, at) == '"' then return at end
    at = at + 1
  end
end

local function mark_losses(text)
  local out, at = {}, 1
  while true do
    local from = text:find('["%[%-%d]', at)
    if not from then break end
    out[#out + 1] = text:sub(at, from - 1)
    local first = text:sub(from, from)
    local piece, stop
    if first == '"' then
      stop = string_end(text, from)
      if not stop then return text end -- torn: cjson says so
      piece, at = text:sub(from, stop), stop + 1
    elseif first == "[" then
      stop = text:match("^%[%s*%]()", from)
      piece, at = stop and '["' .. MARK_TEXT .. '[]"]' or "[", stop or from + 1
    else
      piece = text:match("^[%-%d%.eE%+]+", from)
      at = from + #piece
      if piece:match "^%-?[1-9]%d+$" and piece:find(LONG) then
        piece = '"' .. MARK_TEXT .. piece .. '"'
      end
    end
    out[#out + 1] = piece
  end
  out[#out + 1] = text:sub(at)
  return table.concat(out)
end

local function exact_integer(digits)
  local n = tonumber(digits)
  if INTEGERS then return math.type(n) == "integer" and n or digits end
  return ("%.0f"):format(n) == digits and n or digits
end

local restore

local function restore_table(t)
  if #t == 1 and t[1] == LIST_MARK then return M.array {} end
  local list = t[1] ~= nil
  for k, v in pairs(t) do t[k] = restore(v) end
  return list and M.array(t) or t
end

function restore(v)
  local kind = type(v)
  if kind == "table" then return restore_table(v) end
  if kind == "string" and v:sub(1, #MARK) == MARK then return exact_integer(v:sub(#MARK + 1)) end
  if kind == "number" and INTEGERS then return math.tointeger(v) or v end
  return v
end

-- Half of a surrogate pair, as JavaScript writes it for broken text, becomes U+FFFD: cjson
-- refuses the whole document for it.
local function mend_surrogates(text)
  local out, at = {}, 1
  while true do
    local from = text:find("\\", at, true)
    if not from then break end
    local stop = from + 1 -- of this escape: one character, or u and four digits
    local piece
    if text:match("^\\u[dD][89abAB]%x%x\\u[dD][c-fC-F]%x%x", from) then
      stop = from + 11
    elseif text:match("^\\u[dD][89a-fA-F]%x%x", from) then
      stop, piece = from + 5, "\\ufffd"
    end
    out[#out + 1] = text:sub(at, from - 1)
    out[#out + 1] = piece or text:sub(from, stop)
    at = stop + 1
  end
  out[#out + 1] = text:sub(at)
  return table.concat(out)
end

--- The value of a JSON text. null inside is json.null; integers beyond what the VM holds exactly
--- are their digits as a string; lists are marked so that they are written as lists again.
--- @return any? value
--- @return crewbox.Error? err  `protocol`
function M.decode(text)
  if type(text) ~= "string" then error("json.decode: a string expected", 2) end
  local source = text
  if text:find "%[%s*%]" or text:find(LONG) then source = mark_losses(text) end
  local value, why = cjson.decode(source)
  if value == nil and source:find "\\u[dD][89a-fA-F]" then
    value, why = cjson.decode(mend_surrogates(source))
  end
  if value == nil then
    return nil, err.new("protocol", "not JSON: " .. (tostring(why):gsub("%c", "?")))
  end
  return restore(value)
end

return M
