-- SPDX-License-Identifier: MIT
-- What the benchmarks share: a folder of their own, programs that are started and surely ended,
-- medians, and the one form in which results are printed.
--
-- A result is a line of tabs: `row`, area, what was measured, ours, the peer's name, the peer's
-- figure, how many times better ours is. scripts/bench makes the table of them. A peer that is not there gives a row
-- that says "not measured"; no figure is ever made up.
local core = require "crewbox.core"

local M = {}

--- The folder of built programs.
M.build = assert(os.getenv "BENCH_BUILD", "BENCH_BUILD is not set: start this through scripts/bench")

--- A program of ours: of crewbox, or one that only measures.
function M.program(name)
  local path = M.build .. "/bench/" .. name
  return core.sys.stat(path) and path or M.build .. "/" .. name
end

function M.has(path) return core.sys.stat(path) ~= nil end

--- Runs fn(folder, own) with a folder that is removed and programs that are killed afterwards,
--- also when fn raises. own(argv, env?) starts a program that says a line when it is ready and
--- gives that line and its pid.
function M.session(fn)
  local folder = "/tmp/crewbox-bench-" .. core.sys.random_id(8)
  assert(core.sys.mkdirs(folder, 448)) -- 0700
  local pids = {}
  local function own(argv, env)
    local d = assert(core.sys.daemon { argv = argv, env = env, log = folder .. "/log", ready_timeout_ms = 20000 })
    pids[#pids + 1] = { pid = d.pid, start = core.sys.pid_start(d.pid) }
    return d.line, d.pid
  end
  local ok, e = xpcall(fn, debug.traceback, folder, own)
  for i = #pids, 1, -1 do
    local p = pids[i]
    core.sys.kill(p.pid, 15, p.start)
    local deadline = core.sys.now_ms() + 20000
    while core.sys.alive(p.pid, p.start) and core.sys.now_ms() < deadline do os.execute "sleep 0.02" end
    if core.sys.alive(p.pid, p.start) then core.sys.kill(p.pid, 9, p.start) end
  end
  core.sys.rmtree(folder)
  if not ok then error(e, 0) end
end

--- A command's standard output; nil and the status when it fails. Words are quoted here.
function M.capture(argv)
  local words = {}
  for i, w in ipairs(argv) do words[i] = "'" .. w:gsub("'", "'\\''") .. "'" end
  local p = assert(io.popen(table.concat(words, " ") .. "; echo :$?"))
  local out, status = p:read("*a"):match("^(.*):(%d+)\n$")
  p:close()
  if status ~= "0" then return nil, ("%s: exit status %s"):format(argv[1], status) end
  return out
end

--- The folder where the e2b SDK is installed, with our programs for it in it (Node looks for a
--- package beside the file that asks); nil when it is not there.
function M.sdk()
  local folder = M.build .. "/bench/sdk"
  if not M.has(folder .. "/node_modules/e2b/package.json") then return nil end
  for _, name in ipairs { "poll_e2b.mjs", "fleet_e2b.mjs", "launch_e2b.mjs" } do
    assert(core.sys.copy("bench/" .. name, folder .. "/" .. name, 420)) -- 0644
  end
  return folder
end

-- ---- figures ------------------------------------------------------------------------------

local function sorted(list)
  local copy = {}
  for i, v in ipairs(list) do copy[i] = v end
  table.sort(copy)
  return copy
end

--- The value below which a part of the list lies.
function M.quantile(list, part)
  local s = sorted(list)
  return s[math.max(1, math.ceil(#s * part))]
end

function M.median(list) return M.quantile(list, 0.5) end

--- The medians of each field over several results {name = number}.
function M.medians(results)
  local out = {}
  for name in pairs(results[1]) do
    local list = {}
    for i, r in ipairs(results) do list[i] = r[name] end
    out[name] = M.median(list)
  end
  return out
end

--- Numbers of a line of `name=value` words.
function M.numbers(line)
  local out = {}
  for name, value in line:gmatch("([%w_]+)=([%d.]+)") do out[name] = tonumber(value) end
  return out
end

local function show(v, unit)
  if not v then return "not measured" end
  if unit == "" then return ("%.3g"):format(v) end
  local digits = v >= 100 and 0 or v >= 10 and 1 or 2
  return ("%." .. digits .. "f %s"):format(v, unit)
end

--- Prints a result. The last column says how many times better ours is; below 1 the peer is.
--- @param theirs number? nil: the peer is missing
--- @param more_is_better boolean?
function M.row(area, what, unit, ours, peer, theirs, more_is_better)
  local times = "-"
  if peer and theirs and ours > 0 and theirs > 0 then
    times = ("%.2f"):format(more_is_better and ours / theirs or theirs / ours)
  end
  io.write(table.concat({ "row", area, what, show(ours, unit), peer or "-", peer and show(theirs, unit) or "-", times },
    "\t"), "\n")
  io.flush()
end

--- A remark below the table.
function M.note(text)
  io.write("note\t", text, "\n")
  io.flush()
end

return M
