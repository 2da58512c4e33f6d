-- SPDX-License-Identifier: MIT
-- The host for a plain Lua program: a small scheduler of coroutines over io:step and io:drain.
--
-- What crewbox.async asks of a host, and so what an adapter for another one (nginx, luv) gives:
--   host:spawn(fn) -> thread     runs fn in a light thread, not before spawn has returned
--   host:current() -> thread|nil the light thread that is running, nil outside of one
--   host:park(ms|nil) -> bool    [in a thread] suspends it until host:wake(thread), true, or for
--                                ms milliseconds, false. A wake that comes first is not lost
--   host:wake(thread)            never runs the thread at once
--   host:now_ms() -> number      monotonic
--   host:drive(done, wakes)      [outside a thread] lets threads run until done() is true. A host
--                                that owns the loop itself suspends the caller instead, and adds a
--                                thread for it to the list `wakes`: its threads are woken when
--                                done() may have become true
--   host.owns_loop               true: threads run whenever the host does, not only in drive
--   host:cannot_drive() -> why   optional: asked before drive, the reason why the caller cannot wait
--   host.ended                   true: threads do not run any more, spawn raises
--   host.deliver                 set by async: called with each completion of io:drain()
--   host.failed(thread, message) set by async: a thread died; message holds its traceback
local core = require "crewbox.core"

local M = {}

local Host = {}
Host.__index = Host

-- A binary heap of {at, thread, turn}; entries of a thread that parked again are stale and are
-- dropped when they come up.
local function heap_push(heap, entry)
  local i = #heap + 1
  heap[i] = entry
  while i > 1 do
    local up = math.floor(i / 2)
    if heap[up].at <= heap[i].at then break end
    heap[up], heap[i] = heap[i], heap[up]
    i = up
  end
end

local function heap_pop(heap)
  local top, last = heap[1], table.remove(heap)
  if #heap == 0 then return top end
  heap[1] = last
  local i = 1
  while true do
    local least = i
    for child = 2 * i, 2 * i + 1 do
      if heap[child] and heap[child].at < heap[least].at then least = child end
    end
    if least == i then return top end
    heap[least], heap[i] = heap[i], heap[least]
    i = least
  end
end

--- @param io userdata core.io()
function M.new(io)
  return setmetatable({
    io = io,
    ready = {},      -- threads to run in the next turn, with what park gives them
    timers = {},     -- heap
    threads = {},    -- coroutine -> thread
    running = nil,   -- the thread whose coroutine runs now
    deliver = nil,   -- set by async
    failed = nil,    -- set by async
    driving = false,
  }, Host)
end

function Host:now_ms()
  return core.sys.now_ms()
end

function Host:current()
  return self.running
end

function Host:spawn(fn)
  local thread = {
    co = coroutine.create(fn),
    turn = 0,         -- counts parks: a timer of an earlier park does not end a later one
    parked = false,
    woken = false,    -- a wake that came while it was not parked
  }
  self.ready[#self.ready + 1] = { thread = thread, turn = 0 }
  return thread
end

function Host:park(ms)
  local thread = self.running
  if not thread then error("park outside a thread", 2) end
  if thread.woken then
    thread.woken = false
    return true
  end
  thread.turn = thread.turn + 1
  thread.parked = true
  if ms then
    heap_push(self.timers, { at = self:now_ms() + math.max(ms, 0), thread = thread, turn = thread.turn })
  end
  return coroutine.yield()
end

function Host:wake(thread)
  if thread.parked then
    thread.parked = false
    self.ready[#self.ready + 1] = { thread = thread, turn = thread.turn, value = true }
  else
    thread.woken = true
  end
end

function Host:resume(thread, value)
  self.running = thread
  local ok, message = coroutine.resume(thread.co, value)
  self.running = nil
  if not ok then
    self.failed(thread, debug.traceback(thread.co, tostring(message)))
  end
end

-- Whoever is ready runs.
function Host:run_ready()
  local ready = self.ready
  self.ready = {}
  for _, r in ipairs(ready) do self:resume(r.thread, r.value) end
end

-- Waits for completions and timers, at most max_ms.
function Host:wait(max_ms)
  local wait = #self.ready > 0 and 0 or max_ms
  while self.timers[1] and (self.timers[1].turn ~= self.timers[1].thread.turn or not self.timers[1].thread.parked) do
    heap_pop(self.timers)
  end
  if self.timers[1] then
    local left = math.max(0, self.timers[1].at - self:now_ms())
    wait = wait < 0 and left or math.min(wait, left)
  end
  if self.io:step(math.ceil(wait)) then
    for _, c in ipairs(self.io:drain()) do self.deliver(c) end
  end
  local now = self:now_ms()
  while self.timers[1] and self.timers[1].at <= now do
    local t = heap_pop(self.timers)
    if t.thread.parked and t.turn == t.thread.turn then
      t.thread.parked = false
      self.ready[#self.ready + 1] = { thread = t.thread, turn = t.turn, value = false }
    end
  end
end

local TURN_MS = 1000 -- `done` is looked at at least this often

function Host:drive(done)
  if self.running then error("drive inside a thread", 2) end
  if self.driving then error("the loop is running already", 2) end
  self.driving = true
  local ok, message = pcall(function()
    self:run_ready()
    while not done() do
      self:wait(TURN_MS)
      self:run_ready()
    end
  end)
  self.driving = false
  if not ok then error(message, 0) end
end

return M
