-- SPDX-License-Identifier: MIT
-- What an agent prints is not to be trusted: every reader of a harness meets its recordings with
-- random mistakes in them, and lines of the right shape with values of the wrong one. Nothing
-- raises, the outcome has the types the engine counts on, and where bytes were cut never shows.
-- The mistakes come from a generator of our own with a fixed seed: the same on every machine.
local harnesses = require "crewbox.harness"
local json = require "crewbox.json"

local ROUNDS = 150

-- Park and Miller: exact in doubles, the same in every Lua.
local state = 20261130
local function random(n)
  state = (state * 16807) % 2147483647
  return state % n + 1
end

local function recordings(name)
  local list = {}
  local p = assert(io.popen("ls spec/fixtures/" .. name .. "/*.stdout 2>/dev/null"))
  for path in p:lines() do
    local f = assert(io.open(path, "rb"))
    list[#list + 1] = f:read("*a")
    f:close()
  end
  p:close()
  return list
end

local PIECES = { "\0", "\n", '"', "{", "}", "[", "]", ":", ",", "\\", "\\u0000", "\255", "null", "true", "-1", "1e999",
  "9007199254740993", '""', "{}", "[]", '"error"', '"result"', "\r\n", ("["):rep(3000), ("x"):rep(70000) }

local function mistaken(text)
  for _ = 1, random(6) do
    local at = random(#text + 1)
    local kind = random(4)
    if kind == 1 then -- something put in
      text = text:sub(1, at - 1) .. PIECES[random(#PIECES)] .. text:sub(at)
    elseif kind == 2 then -- something lost
      text = text:sub(1, at - 1) .. text:sub(at + random(80))
    elseif kind == 3 then -- a byte changed
      text = text:sub(1, at - 1) .. string.char(random(256) - 1) .. text:sub(at + 1)
    else -- a part told twice
      text = text .. text:sub(at, at + random(400))
    end
  end
  return text
end

local function value(depth)
  local kind = random(depth > 3 and 6 or 8)
  if kind == 1 then return true
  elseif kind == 2 then return json.null
  elseif kind == 3 then return random(1000) - 500
  elseif kind == 4 then return 1e300
  elseif kind == 5 then return ""
  elseif kind == 6 then return (PIECES[random(20)]:gsub("[\128-\255%z]", "?"))
  elseif kind == 7 then return { value(depth + 1), value(depth + 1) }
  end
  return { type = value(depth + 1), message = value(depth + 1) }
end

-- A line of a recording with one of its values replaced by anything.
local function twisted(line)
  local ok, event = pcall(json.decode, line)
  if not ok or type(event) ~= "table" then return line end
  local at = event
  for _ = 1, random(4) do
    local keys = {}
    for k in pairs(at) do keys[#keys + 1] = k end
    if #keys == 0 then break end
    table.sort(keys, function(a, b) return tostring(a) < tostring(b) end)
    local key = keys[random(#keys)]
    if type(at[key]) == "table" and random(3) > 1 then
      at = at[key]
    else
      at[key] = value(0)
      break
    end
  end
  local again, text = pcall(json.encode, event)
  return again and text or line
end

local function all_twisted(text)
  return (text:gsub("[^\n]+", function(line) return random(4) == 1 and twisted(line) or nil end))
end

local function outcome(harness, text, cut, f)
  local r = harness:reader({})
  for at = 1, #text, cut do
    r:feed(text:sub(at, at + cut - 1))
    r:progress()
    r:terminal()
    if r.stop_reason then r:stop_reason() end
  end
  return r:finish(f)
end

local function check(o)
  assert.equal("table", type(o))
  assert.equal("boolean", type(o.success))
  assert.is_true(o.success or type(o.reason) == "string")
  for _, key in ipairs { "text", "error", "session_id", "reason" } do
    assert.is_true(o[key] == nil or type(o[key]) == "string", key .. " is a " .. type(o[key]))
  end
  for _, key in ipairs { "cost_usd", "turns" } do
    assert.is_true(o[key] == nil or type(o[key]) == "number", key .. " is a " .. type(o[key]))
  end
  assert.is_true(o.usage == nil or type(o.usage) == "table")
  assert.truthy(json.encode(o)) -- it is stored as such
end

for _, name in ipairs(harnesses.names()) do
  describe("the reader of " .. name, function()
    local harness = assert(harnesses.get(name))
    local list = recordings((name:gsub("%-", "_")))
    if #list == 0 then list[1] = "some words\nand more\n" end

    for _, spoilt in ipairs { { "random mistakes", mistaken }, { "values of wrong types", all_twisted } } do
      it("takes " .. spoilt[1], function()
        for _ = 1, ROUNDS do
          local text = spoilt[2](list[random(#list)])
          local f = { exit = random(2) - 1, why = "exited", stderr = mistaken("an error\n") }
          local whole, cut = outcome(harness, text, #text + 1, f), outcome(harness, text, random(500), f)
          check(whole)
          assert.same(whole, cut)
        end
      end)
    end
  end)
end
