-- SPDX-License-Identifier: MIT
-- The host for programs on libuv's loop (luv): what hosts/plain.lua asks of a host, by coroutines that
-- callbacks of the loop resume. The core's descriptor is watched by a poll of the loop; nothing here
-- blocks it.
--
--   local uv = require "luv"
--   local io = require("crewbox.core").io()
--   local host = require("crewbox.hosts.luv").new(io)
--   local loop = require("crewbox.async").new(io, host)
--   loop:spawn(function() ... end)
--   uv.run()
--   host:close()
--
-- The watch does not keep uv.run going by itself: what waits for threads of this host does.
local core = require "crewbox.core"

local M = {}

local Host = {}
Host.__index = Host

--- @param io userdata core.io()
--- @param uv table? default: require "luv"
function M.new(io, uv)
  uv = uv or require "luv"
  local host = setmetatable({
    io = io,
    uv = uv,
    poll = uv.new_poll(io:fd()),
    turn = uv.new_idle(),   -- runs while threads are ready
    ready = {},             -- {thread, value} to resume in the next turn
    running = nil,          -- the thread whose coroutine runs now
    alive = 0,              -- threads that have not ended
    owns_loop = false,      -- a caller outside of threads may drive uv.run
    driving = false,
    closed = false,
    deliver = nil,          -- set by async
    failed = nil,           -- set by async
  }, Host)
  host.poll:start("r", function() host:drain() end)
  host.poll:unref()
  return host
end

function Host:now_ms()
  return core.sys.now_ms()
end

function Host:current()
  return self.running
end

function Host:drain()
  for _, c in ipairs(self.io:drain() or {}) do self.deliver(c) end
end

-- While a thread has not ended the loop has something to wait for.
local function count(host, by)
  host.alive = host.alive + by
  if host.alive > 0 then host.poll:ref() else host.poll:unref() end
end

local function resume(host, thread, value)
  host.running = thread
  local ok, message = coroutine.resume(thread.co, value)
  host.running = nil
  if coroutine.status(thread.co) ~= "dead" then return end
  if thread.timer then thread.timer:close() end
  count(host, -1)
  if not ok then host.failed(thread, debug.traceback(thread.co, tostring(message))) end
end

local function run_ready(host)
  local ready = host.ready
  host.ready = {}
  for _, r in ipairs(ready) do resume(host, r.thread, r.value) end
  if #host.ready == 0 and not host.closed then host.turn:stop() end
end

local function make_ready(host, thread, value)
  host.ready[#host.ready + 1] = { thread = thread, value = value }
  host.turn:start(function() run_ready(host) end)
end

function Host:spawn(fn)
  if self.closed then error("the host is closed", 2) end
  local thread = {
    co = coroutine.create(fn),
    parked = false,
    woken = false,  -- a wake that came while it was not parked
    timer = nil,    -- of the loop, made with the first bounded park
  }
  count(self, 1)
  make_ready(self, thread)
  return thread
end

function Host:park(ms)
  local thread = self.running
  if not thread then error("park outside a thread", 2) end
  if thread.woken then
    thread.woken = false
    return true
  end
  thread.parked = true
  if ms then
    thread.timer = thread.timer or self.uv.new_timer()
    self.uv.update_time()
    thread.timer:start(math.ceil(math.max(ms, 0)), 0, function()
      if not thread.parked then return end
      thread.parked = false
      make_ready(self, thread, false)
    end)
  end
  local value = coroutine.yield()
  if thread.timer then thread.timer:stop() end
  return value
end

function Host:wake(thread)
  if thread.parked then
    thread.parked = false
    make_ready(self, thread, true)
  else
    thread.woken = true
  end
end

--- For a program that wants to wait outside of threads, as with the plain host: runs the loop until
--- done(). Within a callback of the loop that is an error of libuv.
function Host:drive(done)
  if self.running then error("drive inside a thread", 2) end
  if self.driving then error("the loop is running already", 2) end
  self.driving = true
  local ok, message = pcall(function()
    while not done() do
      if not self.uv.run("once") and not done() then error("nothing is left that could end this wait") end
    end
  end)
  self.driving = false
  if not ok then error(message, 0) end
end

--- Takes its handles out of the loop; before io:close(). Threads that have not ended never will.
function Host:close()
  if self.closed then return end
  self.closed = true
  self.turn:stop()
  self.turn:close()
  self.poll:stop()
  self.poll:close()
  self.uv.run("nowait") -- libuv closes handles in a turn of its loop
end

return M
