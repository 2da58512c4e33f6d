-- SPDX-License-Identifier: MIT
-- doctor, limits: what a box cannot use more of than it should, measured in a box. hard: the kernel
-- keeps it, for this box alone. soft: kept, but shared with others or not to be relied on. absent:
-- nothing keeps it.
local inside = require "crewbox.doctor.inside"
local isolation = require "crewbox.doctor.isolation"

local M = { name = "limits" }

local MIB = 1024 * 1024

local function size(bytes) return ("%d MiB"):format(math.floor(bytes / MIB)) end

local function tmpfs(say, facts, point)
  local bytes = facts.sizes[point]
  if bytes then return say("ok", point, ("hard: %s, in memory"):format(size(bytes))) end
  say("warn", point, "cannot be told: df is not in the box")
end

local function rlimit(say, facts, key, name, format)
  local limit = facts.limits[key]
  if not limit then return say("warn", name, "cannot be told: /proc/self/limits is not readable in the box") end
  if not limit.hard then return say("warn", name, "absent", "nothing to do: this host grants no lower one") end
  say("ok", name, format(limit))
end

local OWN = "run few agents at a time, or start crewboxd below a limit of your own (systemd-run --scope -p %s crewboxd ...) and " ..
  "name its socket in providers.sandbox.socket"
local ABSENT = {
  { "memory", "a box may use all memory of this machine; when it runs out, boxes go before other programs", OWN:format "MemoryMax=8G" },
  { "cpu", "a box may use all processors", OWN:format "CPUQuota=400%" },
  { "disk", "a box may fill the file system of the state folder", "set CREWBOX_STATE to a folder on a file system of its own" },
}

function M.run(ctx, say)
  local l = isolation.lab(ctx, say, "limits")
  if not l then return end
  local facts, e = inside.look(ctx, l)
  if not facts then return say("warn", "limits", "not checked: " .. e.message) end
  tmpfs(say, facts, "/tmp")
  tmpfs(say, facts, "/dev/shm")
  rlimit(say, facts, "core", "core dumps", function(limit)
    return limit.hard == 0 and "hard: none are written" or ("hard: %d bytes"):format(limit.hard)
  end)
  rlimit(say, facts, "files", "open files", function(limit) return ("hard: %d a process"):format(limit.hard) end)
  rlimit(say, facts, "locked", "locked memory", function(limit) return ("hard: %s a process"):format(size(limit.hard)) end)
  rlimit(say, facts, "processes", "processes", function(limit)
    return ("soft: %d, for all boxes of one user together"):format(limit.hard)
  end)
  for _, entry in ipairs(ABSENT) do say("warn", entry[1], "absent: " .. entry[2], entry[3]) end
end

return M
