-- SPDX-License-Identifier: MIT
-- Walks a configuration along its schema: types, ranges, unknown keys, defaults, `${VAR}`.
-- Pure: it takes what it needs and changes nothing it is given.
local nearest = require "crewbox.config.nearest"

local M = {}

local DEPTH_MAX = 32 -- YAML aliases can make a table that contains itself

local function sorted_keys(t)
  local keys = {}
  for k in pairs(t) do keys[#keys + 1] = k end
  table.sort(keys, function(a, b) return tostring(a) < tostring(b) end)
  return keys
end

local function at(path, key)
  return path == "" and tostring(key) or path .. "." .. tostring(key)
end

-- What the person wrote, short enough for one line and without control characters.
local function shown(v)
  local s = type(v) == "table" and "a table" or tostring(v)
  s = s:gsub("%c", " ")
  return #s > 40 and s:sub(1, 37) .. "..." or s
end

local function copy(v)
  if type(v) ~= "table" then return v end
  local t = {}
  for k, x in pairs(v) do t[k] = copy(x) end
  return t
end

local function is_list(t)
  local n = 0
  for k in pairs(t) do
    if type(k) ~= "number" then return false end
    n = n + 1
  end
  return n == #t
end

local walk -- walk(value, spec, path, o) -> value or nil, message

local function resolved(value, spec, path, o)
  if not spec.resolve or not value:find("${", 1, true) then return value end
  local text, missing = o.resolve(value)
  if missing and missing[1] then
    return nil, ("%s: %s is not set in the environment"):format(path, table.concat(missing, ", "))
  end
  return text
end

local kinds = {}

function kinds.string(value, spec, path, o)
  if type(value) ~= "string" then
    return nil, ("%s must be text, not %s%s"):format(path, type(value) == "table" and "a table" or
      type(value) .. " " .. shown(value), type(value) == "table" and "" or " (put it in quotes)")
  end
  local problem
  value, problem = resolved(value, spec, path, o)
  if not value then return nil, problem end
  local show = spec.secret and "the value" or shown(value)
  if value:find("[%z\r\n]") and spec.resolve then
    return nil, ("%s must be one line"):format(path)
  end
  if spec.one_of then
    for _, word in ipairs(spec.one_of) do
      if value == word then return value end
    end
    return nil, ("%s must be one of %s, not %s%s"):format(path, table.concat(spec.one_of, ", "), show,
      nearest.hint(value, spec.one_of))
  end
  if spec.pattern and value ~= "" and not value:find(spec.pattern[1]) then
    return nil, ("%s must be %s, not %s"):format(path, spec.pattern[2], show)
  end
  return value
end

function kinds.number(value, spec, path)
  if type(value) ~= "number" or value ~= value then
    return nil, ("%s must be a number, not %s"):format(path, shown(value))
  end
  if spec.min and value < spec.min then
    return nil, ("%s must be at least %s, not %s"):format(path, shown(spec.min), shown(value))
  end
  if spec.max and value > spec.max then
    return nil, ("%s must be at most %s, not %s"):format(path, shown(spec.max), shown(value))
  end
  return value
end

function kinds.integer(value, spec, path)
  if type(value) ~= "number" or value ~= math.floor(value) then
    return nil, ("%s must be a whole number, not %s"):format(path, shown(value))
  end
  return kinds.number(value, spec, path)
end

function kinds.boolean(value, _, path)
  if type(value) ~= "boolean" then
    return nil, ("%s must be true or false, not %s"):format(path, shown(value))
  end
  return value
end

function kinds.list(value, spec, path, o)
  if type(value) ~= "table" or not is_list(value) then
    return nil, ("%s must be a list"):format(path)
  end
  local out = {}
  for i, item in ipairs(value) do
    local v, problem = walk(item, spec.item, ("%s[%d]"):format(path, i), o)
    if problem then return nil, problem end
    out[i] = v
  end
  if spec.min_items and #out < spec.min_items then
    return nil, ("%s must not be empty"):format(path)
  end
  return out
end

function kinds.map(value, spec, path, o)
  if type(value) ~= "table" then return nil, ("%s must be a table of names and values"):format(path) end
  local out = {}
  for _, key in ipairs(sorted_keys(value)) do
    if type(key) ~= "string" then return nil, ("%s must be a table of names and values"):format(path) end
    local v, problem = walk(value[key], spec.item, at(path, key), o)
    if problem then return nil, problem end
    out[key] = v
  end
  return out
end

-- In an open section a key that is nobody's is kept, but one slip from ours is a slip.
local function unknown(key, spec, path)
  if type(key) ~= "string" then
    return ("%s must have names as keys, not %s"):format(path == "" and "the configuration" or path, shown(key))
  end
  local known = sorted_keys(spec.fields)
  if spec.open then
    local near = nearest.nearest(key, known, 2)
    return near and ("unknown key %s (did you mean %s?)"):format(at(path, key), near)
  end
  return ("unknown key %s%s; known are %s"):format(at(path, shown(key)),
    nearest.hint(key, known), table.concat(known, ", "))
end

function kinds.section(value, spec, path, o)
  if type(value) ~= "table" then
    return nil, ("%s must be a table of keys and values, not %s"):format(path == "" and "the configuration" or path,
      shown(value))
  end
  local out = {}
  for _, key in ipairs(sorted_keys(value)) do
    if not spec.fields[key] then
      local problem = unknown(key, spec, path)
      if problem then return nil, problem end
      out[key] = value[key]
    end
  end
  for _, key in ipairs(sorted_keys(spec.fields)) do
    local field = spec.fields[key]
    local given = value[key]
    if given == nil and field.required then
      return nil, ("%s needs the key %s"):format(path, key)
    end
    if given == nil then given = copy(field.default) end
    if given ~= nil then
      local v, problem = walk(given, field, at(path, key), o)
      if problem then return nil, problem end
      out[key] = v
    end
  end
  return out
end

function walk(value, spec, path, o)
  if o.depth >= DEPTH_MAX then return nil, ("%s is nested too deeply"):format(path) end
  o.depth = o.depth + 1
  local v, problem = kinds[spec.type](value, spec, path, o)
  o.depth = o.depth - 1
  return v, problem
end

--- @param value any       as read
--- @param schema table    see schema.lua
--- @param resolve fun(text: string): string, string[] text with `${VAR}` replaced, and the names that are not set
--- @return table? checked  a new table with all defaults
--- @return string? problem one line, naming the key
function M.check(value, schema, resolve)
  return walk(value, schema, "", { resolve = resolve, depth = 0 })
end

return M
