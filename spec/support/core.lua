-- SPDX-License-Identifier: MIT
-- What specs of the C core share: waiting for an op with a bound, a temporary folder, the
-- server that misbehaves, and the count of what must not leak.
local core = require "crewbox.core"

local M = {}

M.BOUND_MS = 20000

--- Waits for the next completion of an op. Those of other ops are kept for their own wait.
local function waiter(io)
  local kept = {}
  return function(op, why)
    assert(op, why)
    local deadline = core.sys.now_ms() + M.BOUND_MS
    while true do
      for i, c in ipairs(kept) do
        if c.op == op then return table.remove(kept, i) end
      end
      local left = deadline - core.sys.now_ms()
      assert(left > 0, "no completion of op " .. op .. " in time")
      io:step(left)
      for _, c in ipairs(assert(io:drain())) do kept[#kept + 1] = c end
    end
  end
end

--- An io with what goes with it: `h.io`; `h.next(op)` -> completion; `h.wait(op)` -> value, err.
function M.open()
  local h = { io = assert(core.io()) }
  h.next = waiter(h.io)
  function h.wait(op, why)
    local c
    repeat c = h.next(op, why) until not c.more
    return c.value, c.err
  end
  return h
end

--- A folder of its own below /tmp; `M.remove(folder)` takes it away.
function M.folder()
  local path = "/tmp/crewbox-spec-" .. core.sys.random_id(12)
  assert(core.sys.mkdirs(path, 448)) -- 0700
  return path
end

function M.remove(folder)
  assert(core.sys.rmtree(folder))
end

--- Starts spec/support/http_peer.c, built into folder: its pid and its port or socket.
function M.peer(folder, socket)
  local program = folder .. "/http_peer"
  if not core.sys.stat(program) then
    local built = os.execute("cc -std=gnu11 -D_GNU_SOURCE -O1 -pthread -o " .. program ..
      " spec/support/http_peer.c")
    assert(built == true or built == 0, "http_peer does not compile")
  end
  local d = assert(core.sys.daemon {
    argv = { program, socket }, log = folder .. "/http_peer.log", ready_timeout_ms = M.BOUND_MS,
  })
  return { pid = d.pid, address = d.line, stop = function() core.sys.kill(d.pid, "KILL") end }
end

--- Open descriptors and threads of this process.
function M.held()
  collectgarbage()
  collectgarbage()
  local fds, threads = #core.sys.list "/proc/self/fd", #core.sys.list "/proc/self/task"
  return { fds = fds, threads = threads }
end

--- True once no more is held than `before`. A thread is gone from /proc a moment after its join.
function M.nothing_leaked(before)
  local deadline = core.sys.now_ms() + M.BOUND_MS
  local now
  -- ThreadSanitizer starts a thread of its own with the first of ours.
  local foreign = os.getenv "CREWBOX_SANITIZED" and 1 or 0
  repeat
    now = M.held()
    if now.fds <= before.fds and now.threads <= before.threads + foreign then return true end
  until core.sys.now_ms() > deadline
  return nil, ("fds %d -> %d, threads %d -> %d"):format(before.fds, now.fds, before.threads, now.threads)
end

return M
