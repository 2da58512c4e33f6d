-- SPDX-License-Identifier: MIT
-- What a box looks like from inside: one script of sh that a box's user runs, and its answer as a
-- table. The script only opens what it must not reach, it writes nothing there.
local core = require "crewbox.core"
local lab = require "crewbox.doctor.lab"

local M = {}

-- Sections "@NAME" of lines. What may be missing in a box's toolchain leaves its section empty.
M.SCRIPT = [[
exec 2>/dev/null
echo @ids; id -u; id -g
echo @map; cat /proc/self/uid_map
echo @status; cat /proc/self/status
echo @ns; for n in user mnt pid ipc uts net cgroup; do echo "$n $(readlink /proc/self/ns/$n)"; done
echo @mountinfo; cat /proc/self/mountinfo
echo @limits; cat /proc/self/limits
echo @df; df -kP /tmp /dev/shm "$HOME"
echo @net; cat /proc/net/dev
echo @procs; for p in /proc/[0-9]*; do echo "${p#/proc/} $(cat $p/comm)"; done
try() { if (eval "$2") >/dev/null; then echo "$1 yes"; else echo "$1 no"; fi; }
echo @reach
try kcore 'head -c 1 /proc/kcore | grep -q .'
try kallsyms 'grep -q . /proc/kallsyms'
try pid1 'cat /proc/1/environ'
try pid1root 'ls /proc/1/root/'
try doctor 'ls -d "$CB_DIR"'
try canary ': >>"$CB_DIR/canary"'
try root 'mkdir /crewbox-doctor'
try opt 'mkdir /opt/crewbox-doctor'
try hostname ': >>/proc/sys/kernel/hostname'
try sysrq ': >>/proc/sysrq-trigger'
try newns 'unshare --user true'
echo @own
for f in "/tmp/$CB_MARK" "/usr/local/bin/$CB_MARK" "/etc/$CB_MARK" "$HOME/$CB_MARK"; do
  if echo box >"$f"; then echo "$f"; fi
done
]]

local function lines_of(text)
  local list = {}
  for line in (text or ""):gmatch("[^\n]+") do list[#list + 1] = line end
  return list
end

-- "name value" and "name:<tab>value" lines.
local function pairs_of(text)
  local map = {}
  for _, line in ipairs(lines_of(text)) do
    local name, value = line:match("^(%S-):?%s+(.*)$")
    if name then map[name] = value end
  end
  return map
end

local LIMITS = { core = "Max core file size", files = "Max open files", processes = "Max processes", locked = "Max locked memory" }

local function limits_of(text)
  local map = {}
  for _, line in ipairs(lines_of(text)) do
    for key, label in pairs(LIMITS) do
      if line:sub(1, #label) == label then
        local soft, hard = line:sub(#label + 1):match("^%s+(%S+)%s+(%S+)")
        map[key] = { soft = tonumber(soft), hard = tonumber(hard) }
      end
    end
  end
  return map
end

-- df -kP: bytes of the whole by mount point.
local function sizes_of(text)
  local map = {}
  for _, line in ipairs(lines_of(text)) do
    local kib, point = line:match("^%S+%s+(%d+)%s+%d+%s+%-?%d+%s+%S+%s+(/.*)$")
    if kib then map[point] = tonumber(kib) * 1024 end
  end
  return map
end

--- @param answer string what the script printed
--- @return table facts {ids, map, status, ns, mountinfo, limits, sizes, interfaces, procs, reach, own}
function M.parse(answer)
  local sections, at = {}, nil
  for line in answer:gmatch("([^\n]*)\n") do
    local name = line:match("^@(%l+)$")
    if name then
      at, sections[name] = name, {}
    elseif at then
      table.insert(sections[at], line)
    end
  end
  local function text(name) return table.concat(sections[name] or {}, "\n") end
  local interfaces = {}
  for _, line in ipairs(lines_of(text "net")) do interfaces[#interfaces + 1] = line:match("^%s*([%w._-]+):") end
  return {
    ids = lines_of(text "ids"), map = text "map", status = pairs_of(text "status"), ns = pairs_of(text "ns"),
    mountinfo = text "mountinfo", limits = limits_of(text "limits"), sizes = sizes_of(text "df"), interfaces = interfaces,
    procs = lines_of(text "procs"), reach = pairs_of(text "reach"), own = lines_of(text "own"),
  }
end

--- Looks, once a lab.
--- @async
--- @return table? facts, with `mark`: the name of the files that were made
--- @return crewbox.Error? err
function M.look(ctx, l)
  if l.facts then return l.facts end
  local mark = "crewbox-doctor-" .. core.sys.random_id(12)
  core.sys.write_file(l.dir .. "/canary", "untouched", 420) -- 0644
  local answer, e = lab.run(ctx, l, M.SCRIPT, { CB_DIR = l.dir, CB_MARK = mark })
  if not answer then return nil, e end
  l.facts = M.parse(answer)
  l.facts.mark = mark
  return l.facts
end

return M
