-- SPDX-License-Identifier: MIT
-- Loaded by spec/run for every spec file (busted --helper): what the test process itself held
-- before the file and holds no more after it: open descriptors by kind, and threads. What is left
-- is an error of the file that names it. Processes and boxes are spec/support/reaper.c's.
local busted = require "busted"

local GRACE_S = 10 -- a joined thread leaves /proc a moment later

-- A closed io keeps its descriptors until it is collected, and the variables of a file hold the last
-- ones it had, of a server and of a client. Those are allowed: if they were open, their threads
-- would be told. A sanitizer may have a thread of its own.
local LAST_IO = { ["anon_inode:[eventfd]"] = 4, ["anon_inode:[eventpoll]"] = 2,
  thread = os.getenv "CREWBOX_SANITIZED" and 1 }

-- luv's default loop lives as long as the Lua state, and nothing closes it before.
local LUV = { ["anon_inode:[eventfd]"] = 1, ["anon_inode:[eventpoll]"] = 1, pipe = 4 }

--- What this process holds: kind of descriptor -> how many, and "thread" -> how many. Asked of a
--- shell, because plain Lua cannot read a link; its own pipe to us is left out.
local function held()
  local p = assert(io.popen([[readlink /proc/self/fd/1; ls /proc/$PPID/task | sed 's/.*/thread/'
    ls -l /proc/$PPID/fd 2>/dev/null | sed -n 's/.* -> //p']]))
  local own_pipe, counts = p:read "*l", {}
  for line in p:lines() do
    if line ~= own_pipe then
      -- Numbers of pipes and sockets say nothing; a file is told by its name.
      local kind = line:gsub(":%[%d+%]$", "")
      counts[kind] = (counts[kind] or 0) + 1
    end
  end
  p:close()
  return counts
end

local function more_than(before)
  collectgarbage()
  collectgarbage()
  local list = {}
  for kind, n in pairs(held()) do
    local was = before[kind] or 0
    local allowed = (LAST_IO[kind] or 0) + (package.loaded.luv and LUV[kind] or 0)
    if n > was + allowed then list[#list + 1] = ("%s: %d before, %d after"):format(kind, was, n) end
  end
  table.sort(list)
  return list
end

local before = held()

busted.subscribe({ "file", "end" }, function()
  local deadline = os.time() + GRACE_S
  local left = more_than(before)
  while #left > 0 and os.time() < deadline do
    os.execute "sleep 0.05"
    left = more_than(before)
  end
  if #left > 0 then error("left open by this file:\n    " .. table.concat(left, "\n    "), 0) end
  return nil, true
end)
