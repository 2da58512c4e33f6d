-- SPDX-License-Identifier: MIT
-- What one poll costs the polling side, 100 at a time, against a server that does next to nothing:
-- runs that are watched and single verbs of the core, beside the e2b SDK and beside curl_multi in
-- C alone. Every client is a process of its own; they take turns, medians count.
local lib = require "bench.lib"

local IN_FLIGHT, SECONDS, ROUNDS = 100, 3, 3
local SDK_SECONDS = 5 -- behind three to warm up: the SDK is slow until it has run for a while

lib.session(function(folder, own)
  local socket = folder .. "/s.sock"
  local port = assert(own({ lib.program "scripted_server", socket }):match "^ready (%d+)$")
  local url = "http://127.0.0.1:" .. port
  local sdk = lib.sdk()

  local clients = {
    { name = "watch", argv = { "lua5.4", "bench/poll_crewbox.lua", "watch", IN_FLIGHT, SECONDS, url } },
    { name = "read", argv = { "lua5.4", "bench/poll_crewbox.lua", "read", IN_FLIGHT, SECONDS, url } },
    { name = "timeout", argv = { "lua5.4", "bench/poll_crewbox.lua", "timeout", IN_FLIGHT, SECONDS, url } },
    { name = "health", argv = { "lua5.4", "bench/poll_crewbox.lua", "health", IN_FLIGHT, SECONDS, url } },
    { name = "curl", argv = { lib.program "peer_curl", IN_FLIGHT, SECONDS, url } },
  }
  for _, mode in ipairs(sdk and { "read", "setTimeout", "isRunning" } or {}) do
    clients[#clients + 1] = { name = "e2b " .. mode, argv = { "node", sdk .. "/poll_e2b.mjs", mode, IN_FLIGHT, SDK_SECONDS, url } }
  end

  local results = {}
  for _ = 1, ROUNDS do
    for _, c in ipairs(clients) do
      local words = {}
      for i, w in ipairs(c.argv) do words[i] = type(w) == "number" and ("%d"):format(w) or w end
      local n = lib.numbers(assert(lib.capture(words)))
      results[c.name] = results[c.name] or {}
      table.insert(results[c.name], { us = n.cpu / n.polls * 1e6, rate = n.polls / n.seconds, mb = n.rss_kb / 1024 })
    end
  end
  local at = {}
  for name, list in pairs(results) do at[name] = lib.medians(list) end
  local none = {}
  local function e2b(mode) return at["e2b " .. mode] or none end

  local peer = "e2b SDK files.read"
  lib.row("poll", "CPU per watched run's poll", "us", at.watch.us, peer, e2b("read").us)
  lib.row("poll", "watched runs' polls per second", "/s", at.watch.rate, peer, e2b("read").rate, true)
  lib.row("poll", "CPU per watched run's poll", "us", at.watch.us, "curl_multi in C", at.curl.us)
  lib.row("poll", "CPU per read", "us", at.read.us, peer, e2b("read").us)
  lib.row("poll", "CPU per read", "us", at.read.us, "curl_multi in C", at.curl.us)
  lib.row("poll", "CPU per renewed lease", "us", at.timeout.us, "e2b SDK setTimeout", e2b("setTimeout").us)
  lib.row("poll", "CPU per health check", "us", at.health.us, "e2b SDK isRunning", e2b("isRunning").us)
  lib.row("poll", "peak memory of the client", "MB", at.watch.mb, peer, e2b("read").mb)
  lib.note("poll: 100 at a time. A watched poll reads, parses, judges and tells Lua; a renewal of ours is two requests, " ..
    "the second reads back what the provider gave; the peers' polls end with the bytes")
end)
