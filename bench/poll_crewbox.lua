-- SPDX-License-Identifier: MIT
-- One process that polls through the core, for bench/poll.lua: `poll_crewbox.lua MODE IN_FLIGHT
-- SECONDS SOCKET|URL`. Prints polls, seconds, CPU seconds of the process and its peak memory.
--
-- Modes: `watch`: runs that are watched, told to Lua each time; `read`, `timeout`, `health`:
-- the verbs, each answer through Lua.
local core = require "crewbox.core"

local mode, in_flight, seconds, address = arg[1], tonumber(arg[2]), tonumber(arg[3]), arg[4]
local WARM_S = 1
local RUN = "r000000000000"

local io_ = assert(core.io())
local settings = { connect_timeout_ms = 20000 }
if address:sub(1, 1) == "/" then
  settings.socket = address
else
  settings.api_url, settings.sandbox_url, settings.api_key = address, address, "bench"
end
local p = assert(core.provider(io_, settings.socket and "local" or "e2b", settings))

local function box(i) return { id = ("i%09d"):format(i), token = "t0000000000000000" } end

local function peak_kb()
  for line in io.lines "/proc/self/status" do
    local kb = line:match "^VmHWM:%s+(%d+)"
    if kb then return tonumber(kb) end
  end
end

local function report(polls, wall_ms, cpu)
  print(("polls=%d seconds=%.3f cpu=%.3f rss_kb=%d"):format(polls, wall_ms / 1000, cpu, peak_kb()))
end

local VERBS = {
  read = function(i)
    return p:read { box = box(i), path = "/home/user/.crewbox/runs/" .. RUN .. "/state", max_bytes = 8193 }
  end,
  timeout = function(i) return p:timeout { id = box(i).id, timeout_s = 900 } end,
  health = function() return p:health {} end,
}

-- Drives what is in flight for a time; on_one(completion) is called for each answer.
local function drive(till_ms, on_one)
  while core.sys.now_ms() < till_ms do
    io_:step(1000)
    for _, c in ipairs(io_:drain()) do on_one(c) end
  end
end

-- After a second of warming up, the count, the clock and the CPU are taken together.
local function measure(on_one, count)
  local now = core.sys.now_ms()
  drive(now + WARM_S * 1000, on_one)
  local polls, cpu, at = count(), os.clock(), core.sys.now_ms()
  drive(at + seconds * 1000, on_one)
  report(count() - polls, core.sys.now_ms() - at, os.clock() - cpu)
end

local done = 0
local function good(c)
  if c.err then error(tostring(c.err), 0) end
  done = done + 1
end

if mode == "watch" then
  -- Far more runs than places at the shortest interval: every place is always taken.
  local w = assert(core.watch(io_, { max_parallel = math.floor(in_flight * 4 / 3) }))
  for i = 1, in_flight * 10 do
    assert(w:run { provider = p, box = box(i), run = ("r%012d"):format(i), launch_seq = 1, interval_ms = 50,
      run_dir = ("/home/user/.crewbox/runs/r%012d"):format(i) })
  end
  measure(good, function() return done end)
  w:close()
else
  local verb = VERBS[mode]
  local n = 0
  local function more()
    n = n + 1
    assert(verb(n % 1000))
  end
  for _ = 1, in_flight do more() end
  measure(function(c)
    good(c)
    more()
  end, function() return done end)
end
io_:close()
