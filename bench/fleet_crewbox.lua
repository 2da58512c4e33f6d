-- SPDX-License-Identifier: MIT
-- One process that looks after COUNT running boxes, for bench/fleet.lua: `fleet_crewbox.lua COUNT
-- SOCKET STEADY_S TICKS`. Each run has its watch (15 s) and its lease (900 s), as the engine gives
-- them. Prints memory per run; then, for ticks at which all boxes are due at the same instant, how
-- long after it each was told, and the CPU of a tick; then the CPU and the polls of a stretch of
-- the usual, spread polling.
local clock = require "bench_clock"
local core = require "crewbox.core"
local lib = require "bench.lib"

local count, socket, steady_s, ticks = tonumber(arg[1]), arg[2], tonumber(arg[3]), tonumber(arg[4])
local INTERVAL_MS, LEASE_S = 15000, 900

local function resident_kb()
  collectgarbage()
  collectgarbage()
  for line in io.lines "/proc/self/status" do
    local kb = line:match "^VmRSS:%s+(%d+)"
    if kb then return tonumber(kb) end
  end
end

local io_ = assert(core.io())
local p = assert(core.provider(io_, "local", { socket = socket }))
local w = assert(core.watch(io_, { max_parallel = 64 }))

local ops, is_run = {}, {}
local polls, told_at = 0, {}

local function take(till_ms, enough)
  while core.sys.now_ms() < till_ms and not (enough and enough()) do
    io_:step(math.max(0, math.min(1000, till_ms - core.sys.now_ms())))
    for _, c in ipairs(io_:drain()) do
      if c.err then error(tostring(c.err), 0) end
      if is_run[c.op] then
        polls = polls + 1
        told_at[#told_at + 1] = clock() * 1000
      end
    end
  end
end

-- The threads, the sockets and the pools are there before anything is counted.
local function start(i)
  local box = { id = ("i%09d"):format(i), token = "t0000000000000000" }
  local run = ("r%012d"):format(i)
  local op = assert(w:run { provider = p, box = box, run = run, launch_seq = 1, interval_ms = INTERVAL_MS,
    run_dir = "/home/user/.crewbox/runs/" .. run })
  ops[#ops + 1], is_run[op] = op, true
  assert(w:lease { provider = p, box = box, lease_s = LEASE_S })
end
for i = 1, 64 do start(i) end
take(core.sys.now_ms() + 20000, function() return polls >= 64 end)
local before = resident_kb()
for i = 65, count do start(i) end
take(core.sys.now_ms() + 60000, function() return polls >= count end)
take(core.sys.now_ms() + 1000)
local kb = (resident_kb() - before) / (count - 64)

local late, cpu_tick = {}, {}
for tick = 1, ticks do
  told_at = {}
  local at, cpu = clock() * 1000, os.clock()
  for _, op in ipairs(ops) do w:poke(op) end
  take(core.sys.now_ms() + 20000, function() return #told_at >= count end)
  assert(#told_at >= count, "a tick did not end")
  if tick > 1 then
    for _, t in ipairs(told_at) do late[#late + 1] = t - at end
    cpu_tick[#cpu_tick + 1] = (os.clock() - cpu) * 1000
  end
end

-- What was poked is due again an interval later, all of it at once: let the jitter spread it.
take(core.sys.now_ms() + INTERVAL_MS * 1.2)
polls = 0
local at, cpu = core.sys.now_ms(), os.clock()
take(at + steady_s * 1000)
local seconds = (core.sys.now_ms() - at) / 1000
print(("kb=%.2f p50=%.1f p99=%.1f most=%.1f cpu_tick=%.2f share=%.3f polls=%d seconds=%.3f"):format(kb,
  lib.quantile(late, 0.5), lib.quantile(late, 0.99), lib.quantile(late, 1), lib.median(cpu_tick),
  (os.clock() - cpu) / seconds * 100, polls, seconds))
w:close()
io_:close()
