-- SPDX-License-Identifier: MIT
-- 1,000 running boxes looked after by one process on one core, at an interval of 15 s; the server
-- has the other core. Beside it the e2b SDK reading the same 1,000 state files per tick.
local json = require "crewbox.json"
local lib = require "bench.lib"

local COUNT, STEADY_S, TICKS, INTERVAL_S = 1000, 30, 20, 15

local function pinned(core_number, argv)
  if lib.capture { "sh", "-c", "command -v taskset" } then
    table.insert(argv, 1, ("%d"):format(core_number))
    table.insert(argv, 1, "-c")
    table.insert(argv, 1, "taskset")
  end
  return argv
end

lib.session(function(folder, own)
  local socket = folder .. "/s.sock"
  local port = assert(own(pinned(1, { lib.program "scripted_server", socket })):match "^ready (%d+)$")
  local url = "http://127.0.0.1:" .. port
  local function asked()
    local out = assert(lib.capture { "curl", "-sS", "--max-time", "10", url .. "/bench/stats" })
    local n = 0
    for _, v in pairs(json.decode(out).requests) do n = n + v end
    return n
  end

  local function d(n) return ("%d"):format(n) end
  local before = asked()
  local ours = lib.numbers(assert(lib.capture(pinned(0,
    { "lua5.4", "bench/fleet_crewbox.lua", d(COUNT), socket, d(STEADY_S), d(TICKS) }))))
  local all = asked() - before
  local theirs, sdk = {}, lib.sdk()
  if sdk then
    theirs = lib.numbers(assert(lib.capture(pinned(0,
      { "node", "--expose-gc", sdk .. "/fleet_e2b.mjs", d(COUNT), url, d(STEADY_S), d(TICKS) }))))
  end
  local peer = "e2b SDK files.read"
  lib.row("fleet", "1,000 boxes due at once: told at the 99th percentile", "ms", ours.p99, peer, theirs.p99)
  lib.row("fleet", "1,000 boxes due at once: CPU of the tick", "ms", ours.cpu_tick, peer, theirs.cpu_tick)
  lib.row("fleet", "memory per run", "KB", ours.kb, "e2b SDK Sandbox", theirs.kb)
  lib.row("fleet", "share of one core, polls spread over 15 s", "%", ours.share, peer, theirs.share)
  lib.row("fleet", "requests per box and tick", "", ours.polls / COUNT / (ours.seconds / INTERVAL_S))
  lib.note(("fleet: %d requests in all: two per box to begin with (lease, read back), one per poll; a lease of 900 s " ..
    "adds two every ten minutes. Our memory is a watch, a lease and their Lua tables"):format(all))
end)
