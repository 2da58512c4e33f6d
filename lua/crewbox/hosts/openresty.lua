-- SPDX-License-Identifier: MIT
-- The host for nginx with its Lua module (OpenResty): what hosts/plain.lua asks of a host, by light
-- threads of one timer a worker. hosts/openresty_engine.lua puts an engine on it.
--
-- Requests come and go, so nothing of the loop runs in one: a task runs in a light thread of the
-- timer, and a request that waits for it waits on a semaphore. A client that hangs up ends the
-- request, never the task. Light threads are used again: nginx keeps a record of every one that a
-- timer ever had. The core wakes us by a byte on a private unix socket, which a cosocket reads:
-- nginx has no way to watch a descriptor that is not its own.
--
-- Public functions of nginx's Lua module only. Nothing here blocks the worker.
local core = require "crewbox.core"
local semaphore = require "ngx.semaphore"

local M = {}

local Host = {}
Host.__index = Host

local EXIT_LOOK_MS = 200      -- between two looks whether the worker has been told to leave
local FOR_EVER_S = 1000000    -- nginx's timers hold 24 days
local RETRY_MS = { 50, 100, 200, 500, 1000 } -- after a wake socket that failed
local LEAVE_MS = 60000        -- for `leaving` and what runs then
local CONNECT_MS = 5000

-- Where a request may wait; everywhere else the module raises by itself, in words that do not help.
local CANNOT_WAIT = { init = true, init_worker = true, set = true, header_filter = true, body_filter = true, log = true,
  balancer = true, exit_worker = true }

local function log(level, ...) ngx.log(level, "crewbox: ", ...) end

--- @param io userdata core.io() of this very process
--- @param dir string a folder only this user can enter: the wake socket lies there for a moment
function M.new(io, dir)
  return setmetatable({
    io = io,
    dir = dir,
    owns_loop = true,
    running = setmetatable({}, { __mode = "k" }), -- coroutine -> thread
    queue = {},        -- threads that no seat has taken yet
    seats = {},        -- idle light threads
    work = semaphore.new(), -- posted when `queue` needs a new seat
    alive = 0,         -- threads that have not ended
    sockets = 0,       -- how many wake sockets there have been
    tries = 0,         -- that failed one after the other
    leaving = nil,     -- set by the user of this host: called once, when the worker leaves; starts what cleans up
    ended = false,     -- the light threads are to end
    deliver = nil,     -- set by async
    failed = nil,      -- set by async
  }, Host)
end

function Host:now_ms()
  return core.sys.now_ms()
end

function Host:current()
  local co = coroutine.running()
  return co and self.running[co]
end

-- ---- threads ------------------------------------------------------------------------------

-- fn is nil for a request that waits.
local function new_thread(fn)
  return {
    fn = fn,
    sema = nil,     -- of the seat it runs on
    parked = false,
    woken = false,  -- a wake that came while it was not parked
  }
end

local function suspend(thread, ms)
  if thread.woken then
    thread.woken = false
    return true
  end
  thread.sema = thread.sema or semaphore.new()
  thread.parked = true
  local ok = thread.sema:wait(ms and math.max(ms, 1) / 1000 or FOR_EVER_S)
  if not ok and not thread.parked then
    ok = thread.sema:wait(0) -- a wake of the very moment the time was over: its post is still there
  end
  thread.parked = false
  return ok == true
end

function Host:park(ms)
  local thread = self:current()
  if not thread then error("park outside a thread", 2) end
  return suspend(thread, ms)
end

function Host:wake(thread)
  if thread.parked then
    thread.parked = false
    thread.sema:post(1)
  else
    thread.woken = true
  end
end

-- A light thread that runs one thread after the other.
local function seat_body(host, thread)
  local co = coroutine.running()
  local seat = { sema = semaphore.new(), thread = thread }
  while not host.ended or seat.thread do
    local now = seat.thread
    if now then
      seat.thread = nil
      now.sema = seat.sema
      host.running[co] = now
      local ok, message = xpcall(now.fn, function(m) return debug.traceback(tostring(m), 2) end)
      host.alive = host.alive - 1
      host.running[co] = nil
      if not ok then host.failed(now, message) end
      seat.thread = table.remove(host.queue, 1)
    else
      host.seats[#host.seats + 1] = seat
      while not seat.thread and not host.ended do seat.sema:wait(FOR_EVER_S) end
    end
  end
end

function Host:spawn(fn)
  if self.ended then error("this worker of nginx has left: no task can run in it any more", 3) end
  local thread = new_thread(fn)
  self.alive = self.alive + 1
  local seat = table.remove(self.seats)
  if seat then
    seat.thread = thread
    seat.sema:post(1)
  else
    self.queue[#self.queue + 1] = thread
    self.work:post(1)
  end
  return thread
end

-- Only a light thread of the timer can make more of them.
local function seat_maker(host)
  while not host.ended do
    host.work:wait(FOR_EVER_S)
    while host.queue[1] do
      local thread = table.remove(host.queue, 1)
      local ok, message = ngx.thread.spawn(seat_body, host, thread)
      if not ok then
        log(ngx.ERR, "no light thread: ", message)
        table.insert(host.queue, 1, thread)
        ngx.sleep(0.1)
      end
    end
  end
end

function Host:cannot_drive()
  local phase = ngx.get_phase()
  return CANNOT_WAIT[phase] and "nginx cannot wait in its phase " .. phase .. ": spawn a task instead" or nil
end

function Host:drive(done, wakes)
  if self:current() then error("drive inside a thread", 2) end
  local me = new_thread(nil)
  wakes[#wakes + 1] = me
  while not done() do suspend(me, nil) end
end

-- ---- completions --------------------------------------------------------------------------

function Host:drain()
  local list, e = self.io:drain()
  if not list then return nil, e.message end
  for _, c in ipairs(list) do self.deliver(c) end
  return true
end

-- Connects to the core and hands out completions until the connection is lost or it is over.
local function attend(host)
  host.sockets = host.sockets + 1
  local path = ("%s/wake-%d-%d.sock"):format(host.dir, core.sys.pid(), host.sockets)
  local ok, e = host.io:wake_socket(path)
  if not ok then return nil, e.message end
  local sock = ngx.socket.tcp()
  sock:settimeouts(CONNECT_MS, CONNECT_MS, FOR_EVER_S * 1000)
  ok, e = sock:connect("unix:" .. path)
  if not ok then return nil, e end
  while not host.ended do
    local bytes
    bytes, e = sock:receiveany(4096)
    if not bytes and e ~= "timeout" then return nil, e end
    ok, e = host:drain()
    if not ok then return nil, e end
    host.tries = 0
  end
  sock:close()
  return true
end

local function listen(host)
  while not host.ended do
    local fine, ok, e = pcall(attend, host)
    if not fine or not ok then
      if host.ended then break end
      host.tries = math.min(host.tries + 1, #RETRY_MS)
      log(ngx.ERR, "the wake socket: ", tostring(not fine and ok or e), "; trying again")
      ngx.sleep(RETRY_MS[host.tries] / 1000)
      pcall(host.drain, host) -- what came meanwhile
    end
  end
end

-- ---- the life of a worker -------------------------------------------------------------------

local function finish(host)
  host.ended = true
  host.work:post(1)
  for _, seat in ipairs(host.seats) do seat.sema:post(1) end
  host.io:sleep(0) -- its completion is the byte that ends the reader
end

-- Looks whether nginx wants this worker to leave (reload, quit), lets the user of the host clean up,
-- and ends the light threads: as long as one is there the worker stays.
local function watch_exit(host)
  while not ngx.worker.exiting() do ngx.sleep(EXIT_LOOK_MS / 1000) end
  if host.leaving then
    local ok, message = xpcall(host.leaving, debug.traceback)
    if not ok then log(ngx.ERR, message) end
  end
  local deadline = host:now_ms() + LEAVE_MS
  while host.alive > 0 and host:now_ms() < deadline do ngx.sleep(0.01) end
  if host.alive > 0 then log(ngx.WARN, host.alive, " tasks did not end in time") end
  finish(host)
end

--- Begins to run threads. For init_worker_by_lua, once a worker.
--- @return true? started
--- @return string? why not
function Host:start()
  return ngx.timer.at(0, function(premature)
    if premature then return end
    ngx.thread.spawn(seat_maker, self)
    ngx.thread.spawn(watch_exit, self)
    listen(self)
  end)
end

return M
