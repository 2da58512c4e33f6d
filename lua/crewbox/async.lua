-- SPDX-License-Identifier: MIT
-- Waiting in direct style. The C core gives ops and completions; here a task (a coroutine of the
-- host) waits for them, so that a function that waits looks like one that does not. Stands on a
-- host (hosts/plain.lua says what a host is) and owns the map from an op to the task that waits.
--
-- Waiting functions give `nil, err`. A cancelled task gets `cancelled` from every wait until it
-- ends, except inside `loop:shield`; a passed deadline gives `timeout`. An op that is given up is
-- cancelled in the core and its late completion is thrown away.
local err = require "crewbox.err"

local M = {}

local unpack = table.unpack or unpack -- luacheck: ignore
local function pack(...) return { n = select("#", ...), ... } end

local CANCELLED = "the task was cancelled"

local Loop = {}
Loop.__index = Loop

--- @param core_io userdata core.io()
--- @param host table? default: the plain host
function M.new(core_io, host)
  host = host or require("crewbox.hosts.plain").new(core_io)
  local loop = setmetatable({
    io = core_io,
    host = host,
    ops = {},     -- op -> what waits for it, see Loop:entry
    tasks = {},   -- thread -> task
    alive = 0,    -- tasks that have not ended
    on_error = nil, -- called with the traceback of a task that died while nobody joined it
  }, Loop)
  loop.on_error = function(traceback) io.stderr:write("crewbox: ", traceback, "\n") end
  host.deliver = function(completion) loop:deliver(completion) end
  host.failed = function(thread, message) loop:failed(thread, message) end
  return loop
end

-- ---- tasks -------------------------------------------------------------------------------

local Task = {}
Task.__index = Task

function Loop:finish(task)
  self.tasks[task.thread] = nil
  self.alive = self.alive - 1
  task.done = true
  for _, joiner in ipairs(task.joiners) do self.host:wake(joiner) end
end

function Loop:failed(thread, message)
  local task = self.tasks[thread]
  if not task then error(message, 0) end -- the host broke its promise
  task.error = err.new("failed", message:match("^[^\n]*"), { traceback = message })
  if #task.joiners == 0 and not task.quiet then self.on_error(message) end
  self:finish(task)
end

--- Starts fn(...) as a task of its own; it does not run before the caller waits.
--- @return table task with `task:join(timeout_ms?)` and `task:cancel()`
function Loop:spawn(fn, ...)
  local args = pack(...)
  local task = setmetatable({
    loop = self,
    thread = nil,      -- of the host
    done = false,
    results = nil,     -- packed, once it has returned
    error = nil,       -- once it has died
    cancelled = false,
    shielded = 0,      -- depth of loop:shield
    deadline = nil,    -- the nearest of loop:with_timeout, monotonic ms
    joiners = {},
    quiet = false,     -- somebody will join it: its death is told there
  }, Task)
  self.alive = self.alive + 1
  task.thread = self.host:spawn(function()
    task.results = pack(fn(unpack(args, 1, args.n)))
    self:finish(task)
  end)
  self.tasks[task.thread] = task
  return task
end

--- The task that runs now, nil outside of any.
function Loop:task()
  local thread = self.host:current()
  return thread and self.tasks[thread] or nil
end

-- Whether the caller is no task, but in a host that owns the loop: there it can wait for a task
-- that waits in its place (a request of nginx). Elsewhere waiting outside a task is a mistake: it
-- would drive the loop from within whatever called.
local function is_guest(loop)
  return loop.host.owns_loop == true and loop:task() == nil
end

local function here(loop, what)
  local task = loop:task()
  if not task then error(what .. " outside a task: use loop:call", 3) end
  return task
end

-- Why the current task may not wait any longer, or how long it may.
local function limit(loop, task, deadline)
  if task.cancelled and task.shielded == 0 then return nil, err.new("cancelled", CANCELLED) end
  if task.deadline and (not deadline or task.deadline < deadline) then deadline = task.deadline end
  if not deadline then return true end
  local left = deadline - loop.host:now_ms()
  if left <= 0 then return nil, err.new("timeout", "gave up waiting") end
  return true, left
end

-- Parks until woken, for at most until deadline. true, or nil and why it must not wait on.
local function park(loop, task, deadline)
  local ok, left = limit(loop, task, deadline)
  if not ok then return nil, left end
  loop.host:park(left)
  return true
end

local function deadline_of(loop, timeout_ms)
  return timeout_ms and loop.host:now_ms() + timeout_ms or nil
end

--- Waits for its end. Gives what its function returned; nil and an error when it died
--- (`failed`, with `traceback`), or when this wait ended first.
function Task:join(timeout_ms)
  local loop = self.loop
  if not self.done and is_guest(loop) then
    self.quiet = true -- it may die before the task that joins it has begun
    return loop:call(self.join, self, timeout_ms)
  end
  if not self.done then
    local task = here(loop, "join")
    local deadline = deadline_of(loop, timeout_ms)
    self.joiners[#self.joiners + 1] = task.thread
    while not self.done do
      local ok, why = park(loop, task, deadline)
      if not ok and not self.done then
        for i, joiner in ipairs(self.joiners) do
          if joiner == task.thread then
            table.remove(self.joiners, i)
            break
          end
        end
        return nil, why
      end
    end
  end
  if self.error then return nil, self.error end
  return unpack(self.results, 1, self.results.n)
end

--- Asks it to end: its wait, and every later one, gives `cancelled`.
function Task:cancel()
  if self.done or self.cancelled then return end
  self.cancelled = true
  self.loop.host:wake(self.thread)
end

-- ---- ops ---------------------------------------------------------------------------------

-- What the loop knows of an op: completions that came, the thread that waits, whether the last
-- one came, whether nobody wants them any more.
function Loop:entry(op)
  local e = self.ops[op]
  if not e then
    e = { list = {}, first = 1, last = 0, thread = nil, ended = false, dropped = false }
    self.ops[op] = e
  end
  return e
end

function Loop:deliver(c)
  local e = self:entry(c.op)
  if not c.more then e.ended = true end
  if e.dropped then
    if e.ended then self.ops[c.op] = nil end
    return
  end
  e.last = e.last + 1
  e.list[e.last] = c
  if e.thread then self.host:wake(e.thread) end
end

function Loop:drop(op)
  local e = self:entry(op)
  if e.ended then
    self.ops[op] = nil
    return
  end
  e.dropped, e.list, e.thread = true, {}, nil
  self.io:cancel(op)
end

-- The next completion, or nil and why there is none; the op is left as it is.
local function take(loop, op, deadline)
  local task = here(loop, "await")
  local e = loop:entry(op)
  while true do
    local c = e.list[e.first]
    if c then
      e.list[e.first] = nil
      e.first = e.first + 1
      if not c.more then loop.ops[op] = nil end
      return c
    end
    e.thread = task.thread
    local ok, why = park(loop, task, deadline)
    e.thread = nil
    if not ok and not e.list[e.first] then return nil, why end
  end
end

--- Waits for an op's completion.
--- @param op number? nil with an error behind it is passed on: `await(p:kill{...})` is safe
--- @param timeout_ms number? after it the op is cancelled and the answer is `timeout`
--- @return any value
--- @return crewbox.Error? err
function Loop:await(op, timeout_ms)
  if op == nil then return nil, timeout_ms end
  if is_guest(self) then return self:call(self.await, self, op, timeout_ms) end
  local c, why = take(self, op, deadline_of(self, timeout_ms))
  if not c then
    self:drop(op)
    return nil, why
  end
  if c.err then return nil, c.err end
  if c.value == nil then return true end
  return c.value
end

local Stream = {}
Stream.__index = Stream

--- The next value; nil at the end; nil and an error when the op failed (which ends it) or, with
--- `timeout` or `cancelled`, when this wait ended first (which does not end it).
function Stream:next(timeout_ms)
  if self.ended then return nil end
  if is_guest(self.loop) then return self.loop:call(self.next, self, timeout_ms) end
  local c, why = take(self.loop, self.op, deadline_of(self.loop, timeout_ms))
  if not c then return nil, why end
  if not c.more then self.ended = true end
  if c.err then return nil, c.err end
  return c.value
end

--- Ends it early; safe to call twice and after its end.
function Stream:close()
  if self.ended then return end
  self.ended = true
  self.loop:drop(self.op)
end

--- For ops with several completions: `for value in stream do`, or `stream:next(ms)`.
--- @return table? stream
--- @return crewbox.Error? err when the op could not be started
function Loop:stream(op, why)
  if op == nil then return nil, why end
  return setmetatable({ loop = self, op = op, ended = false }, Stream)
end
Stream.__call = function(self) return self:next() end

--- @return true? slept
--- @return crewbox.Error? err `cancelled` or `timeout`
function Loop:sleep(ms)
  if is_guest(self) then return self:call(self.sleep, self, ms) end
  local task = here(self, "sleep")
  local deadline = deadline_of(self, ms)
  while true do
    local ok, left = limit(self, task)
    if not ok then return nil, left end
    local mine = deadline - self.host:now_ms()
    if mine <= 0 then return true end
    self.host:park(left and math.min(left, mine) or mine)
  end
end

-- ---- signals -----------------------------------------------------------------------------

local Signal = {}
Signal.__index = Signal

--- Something tasks wait for and others announce. A fire with nobody waiting is kept for the
--- next wait, so that "look, then wait" loses nothing.
function Loop:signal()
  return setmetatable({ loop = self, fired = false, threads = {} }, Signal)
end

function Signal:fire()
  if #self.threads == 0 then
    self.fired = true
    return
  end
  local threads = self.threads
  self.threads = {}
  for _, thread in ipairs(threads) do self.loop.host:wake(thread) end
end

--- @return true? fired
--- @return crewbox.Error? err `timeout` or `cancelled`
function Signal:wait(timeout_ms)
  local loop = self.loop
  if is_guest(loop) then return loop:call(self.wait, self, timeout_ms) end
  local task = here(loop, "wait")
  local deadline = deadline_of(loop, timeout_ms)
  if self.fired then
    self.fired = false
    return true
  end
  local mine = self.threads
  mine[#mine + 1] = task.thread
  while self.threads == mine do -- a fire replaces the list
    local ok, why = park(loop, task, deadline)
    if not ok and self.threads == mine then
      for i, thread in ipairs(mine) do
        if thread == task.thread then
          table.remove(mine, i)
          break
        end
      end
      return nil, why
    end
  end
  return true
end

-- ---- scopes ------------------------------------------------------------------------------

--- Calls fn(...) with a bound on everything it waits for, together.
--- @return any ... what fn returns; its waits give `timeout` once the time is over
function Loop:with_timeout(timeout_ms, fn, ...)
  local task = here(self, "with_timeout")
  local before = task.deadline
  local mine = self.host:now_ms() + timeout_ms
  if not before or mine < before then task.deadline = mine end
  local r = pack(pcall(fn, ...))
  task.deadline = before
  if not r[1] then error(r[2], 0) end
  return unpack(r, 2, r.n)
end

--- Calls fn(...) so that a cancel of this task and its deadlines do not end fn's waits: for
--- cleaning up. fn must bound its own waits.
function Loop:shield(fn, ...)
  local task = here(self, "shield")
  local before = task.deadline
  task.shielded, task.deadline = task.shielded + 1, nil
  local r = pack(pcall(fn, ...))
  task.shielded, task.deadline = task.shielded - 1, before
  if not r[1] then error(r[2], 0) end
  return unpack(r, 2, r.n)
end

local Scope = {}
Scope.__index = Scope

--- A task that ends with its scope.
function Scope:spawn(fn, ...)
  if self.closed then error("spawn in a scope that has ended", 2) end
  local task = self.loop:spawn(fn, ...)
  task.quiet = true
  self.tasks[#self.tasks + 1] = task
  return task
end

--- Calls fn(scope); what scope:spawn started has ended when this returns: by itself when fn
--- returned, cancelled when fn raised or this task was cancelled. A death of one of them raises
--- here.
function Loop:scope(fn)
  local scope = setmetatable({ loop = self, tasks = {}, closed = false }, Scope)
  local r = pack(pcall(fn, scope))
  local task = here(self, "scope")
  local failure = not r[1] and r[2] or nil
  local i = 1
  while i <= #scope.tasks do -- a child may spawn more while we join
    local child = scope.tasks[i]
    if failure or task.cancelled then child:cancel() end
    if child.done then
      i = i + 1
    else
      local _, why = child:join()
      if why and why.code ~= "failed" and not child.done then
        for j = i, #scope.tasks do scope.tasks[j]:cancel() end
        self:shield(function() child:join() end)
      end
    end
    if child.done and child.error and not failure then
      failure = child.error.traceback
    end
  end
  scope.closed = true
  if failure then error(failure, 0) end
  return unpack(r, 2, r.n)
end

--- Calls fn(...) and waits for it: from within a task directly, from outside by driving the
--- host until it has returned (other tasks run meanwhile), or, where the host owns the loop, by
--- waiting for a task of the loop. Raises what fn raises. `closed` once that loop has ended.
function Loop:call(fn, ...)
  if self:task() then return fn(...) end
  if self.host.ended then return nil, err.new("closed", "the loop has ended: this process is leaving") end
  local why = self.host.cannot_drive and self.host:cannot_drive()
  if why then error(why, 2) end
  local task = self:spawn(fn, ...)
  task.quiet = true
  self.host:drive(function() return task.done end, task.joiners)
  if task.error then error(task.error.traceback, 0) end
  return unpack(task.results, 1, task.results.n)
end

return M
