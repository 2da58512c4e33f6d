-- SPDX-License-Identifier: MIT
-- doctor, isolation: each layer that keeps a box away from this machine, looked at from inside a
-- box that is made for it, and the proof that a write outside does not arrive.
local core = require "crewbox.core"
local fixes = require "crewbox.doctor.fixes"
local inside = require "crewbox.doctor.inside"
local mounts = require "crewbox.doctor.mounts"

local M = { name = "isolation" }

local BROKEN = "do not run agents here; report it as a defect of crewbox, with the output of `crewbox doctor --json`"

local function host_namespaces(ctx)
  local script = "for n in user mnt pid ipc uts net cgroup; do echo \"$n $(readlink /proc/self/ns/$n)\"; done"
  local out = ctx.spawn { argv = { "sh", "-c", script }, timeout_ms = 10000 }
  local map = {}
  for name, id in (out and out.stdout or ""):gmatch("(%l+) (%S+)") do map[name] = id end
  return map
end

-- ---- layers: fn(facts, host) -> true and what holds, false and what does not -----------------

local function apart(facts, host, names)
  for _, name in ipairs(names) do
    if not facts.ns[name] or facts.ns[name] == host[name] then return false, ("the %s namespace is this machine's"):format(name) end
  end
  return true
end

local function read_type(list, point)
  local mount = mounts.of(list, point)
  return mount and mount.point == point and mount.type or nil
end

local LAYERS = {
  { "user namespace", function(facts, host)
    local ok, why = apart(facts, host, { "user" })
    if not ok then return false, why end
    if facts.ids[1] ~= "1000" then return false, "an agent is not uid 1000 but " .. tostring(facts.ids[1]) end
    return true, "own; an agent is uid 1000 in it and one unprivileged id outside"
  end },
  { "mounts", function(facts, host)
    local ok, why = apart(facts, host, { "mnt" })
    if not ok then return false, why end
    local list = mounts.parse(facts.mountinfo)
    for _, point in ipairs { "/usr", "/etc" } do
      if read_type(list, point) ~= "overlay" then return false, point .. " is not an overlay of the box's own" end
    end
    if read_type(list, "/") ~= "tmpfs" then return false, "the root is not the box's own" end
    return true, "own root; /usr and /etc are overlays, carried by the state folder's file system"
  end },
  { "processes", function(facts, host)
    local ok, why = apart(facts, host, { "pid" })
    if not ok then return false, why end
    if #facts.procs == 0 or not facts.procs[1]:find "^1 crewbox%-init" then return false, "pid 1 of the box is not crewbox-init" end
    return true, ("own; %d can be seen, all of the box"):format(#facts.procs)
  end },
  { "network", function(facts, host)
    local ok, why = apart(facts, host, { "net" })
    if not ok then return false, why end
    if #facts.interfaces ~= 1 or facts.interfaces[1] ~= "lo" then
      return false, "interfaces beside lo: " .. table.concat(facts.interfaces, ", ")
    end
    return true, "own; its only interface is lo"
  end },
  { "ipc, uts, cgroup", function(facts, host)
    local ok, why = apart(facts, host, { "ipc", "uts", "cgroup" })
    return ok, ok and "own" or why
  end },
  { "privileges", function(facts)
    for _, name in ipairs { "CapEff", "CapPrm", "CapBnd" } do
      if (facts.status[name] or "?"):find "[^0]" then return false, ("%s is %s"):format(name, tostring(facts.status[name])) end
    end
    if facts.status.NoNewPrivs ~= "1" then return false, "no_new_privs is off" end
    return true, "an agent has no capabilities and can gain none (no_new_privs)"
  end },
  { "seccomp", function(facts)
    if facts.status.Seccomp ~= "2" then return false, "no filter of system calls" end
    if facts.reach.newns ~= "no" then return false, "an agent can make a user namespace of its own" end
    return true, "a filter of system calls is on; namespaces cannot be made inside"
  end },
  { "hidden /proc", function(facts)
    for _, name in ipairs { "kcore", "kallsyms", "pid1", "pid1root", "sysrq", "hostname" } do
      if facts.reach[name] ~= "no" then return false, ("%s can be reached"):format(name) end
    end
    return true, "kernel files and pid 1 are out of reach, /proc/sys is read-only"
  end },
}

-- ---- the proof -----------------------------------------------------------------------------

local OUTSIDE = { "canary", "doctor", "root", "opt" }

local function write_outside(say, l, facts)
  local bad = {}
  for _, name in ipairs(OUTSIDE) do
    if facts.reach[name] ~= "no" then bad[#bad + 1] = name end
  end
  if core.sys.read_file(l.dir .. "/canary", 64) ~= "untouched" then bad[#bad + 1] = "the canary was changed" end
  for _, dir in ipairs { "/tmp/", "/usr/local/bin/", "/etc/" } do
    local path = dir .. facts.mark
    if core.sys.stat(path, true) then
      bad[#bad + 1] = path .. " arrived here"
      core.sys.unlink(path)
    end
  end
  if #bad > 0 then return say("fail", "write outside", "the walls do not hold: " .. table.concat(bad, ", "), BROKEN) end
  if #facts.own < 4 then
    return say("fail", "write outside", "a box cannot write in all of its own /tmp, /usr, /etc and home", fixes.OTHERWISE)
  end
  say("ok", "write outside", "fails; what a box wrote to /tmp, /usr/local, /etc and home did not arrive on this machine")
end

-- Not a layer of ours yet; told because the design of the walls asks for it.
local function landlock(ctx, say)
  local list = ctx.read "/sys/kernel/security/lsm"
  local kernel = not list and "whether the kernel has it cannot be told" or list:find("landlock", 1, true) and "the kernel has it"
    or "the kernel does not have it"
  say("warn", "Landlock", "not used by this version (" .. kernel .. ")", "nothing to do: the other layers do not need it")
end

--- The lab, or nil after it was said why there is none. For the topics that need a box.
--- @return table? lab
function M.lab(ctx, say, name, tell_reason)
  if ctx.remote then
    say("ok", name, "not checked here: boxes come from E2B, which isolates them itself")
    return nil
  end
  local l, e = ctx.lab()
  local reason = not l and e.message or l.isolation.state == "unavailable" and l.isolation.reason
    or not l.box and l.box_error.message
  if not reason then return l end
  if tell_reason then
    say("fail", name, tostring(reason), fixes.of(tostring(reason)))
  else
    say("warn", name, "not checked: no box can be made, see isolation")
  end
end

function M.run(ctx, say)
  local l = M.lab(ctx, say, "box", true)
  if not l then return end
  say("ok", "box", l.private and "one can be made here" or ("one can be made by the server at %s"):format(ctx.sandbox.socket))
  local facts, e = inside.look(ctx, l)
  if not facts then return say("fail", "layers", "a command in a box fails: " .. e.message, fixes.OTHERWISE) end
  local host = host_namespaces(ctx)
  for _, layer in ipairs(LAYERS) do
    local ok, text = layer[2](facts, host)
    if ok then say("ok", layer[1], text) else say("fail", layer[1], text, BROKEN) end
  end
  write_outside(say, l, facts)
  landlock(ctx, say)
end

return M
