-- SPDX-License-Identifier: MIT
-- A box of crewboxd beside a sandbox of bubblewrap with the same namespaces, in turns: start, run
-- `true`, end; and one more `true` in a box that runs, which bubblewrap has no way for.
local clock = require "bench_clock"
local core = require "crewbox.core"
local lib = require "bench.lib"

local ROUNDS, WARM = 30, 3
local WAIT_MS = 60000
local who = core.sys.uid() == 0 and "as root" or "as an ordinary user"

-- As near to a box's own view as bubblewrap gets without layers: it cannot install software.
local BWRAP = { "bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--hostname", "box",
  "--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64",
  "/lib64", "--symlink", "usr/sbin", "/sbin", "--ro-bind", "/etc", "/etc", "--proc", "/proc", "--dev", "/dev",
  "--tmpfs", "/tmp", "--tmpfs", "/home/user", "--chdir", "/home/user", "--clearenv", "/usr/bin/true" }

lib.session(function(folder, own)
  local socket = folder .. "/api.sock"
  own { lib.program "crewboxd", "--state", folder .. "/state", "--socket", socket, "--init", lib.program "crewbox-init" }
  local io_ = assert(core.io())
  local p = assert(core.provider(io_, "local", { socket = socket }))

  local function wait(op)
    assert(op)
    local deadline = core.sys.now_ms() + WAIT_MS
    while core.sys.now_ms() < deadline do
      for _, c in ipairs(io_:drain()) do
        if c.op == op then return c.value, c.err end
      end
      io_:step(1000)
    end
    error "an op did not end"
  end
  local function timed(list, op)
    local at = clock()
    local value, e = wait(op)
    assert(value, tostring(e))
    assert(value.exit == nil or value.exit == 0, value.stderr)
    local ms = (clock() - at) * 1000
    if list then list[#list + 1] = ms end
    return value, ms
  end

  local with_bwrap = lib.capture { "sh", "-c", "command -v bwrap" } ~= nil
  if with_bwrap then
    local value = wait(io_:spawn { argv = BWRAP })
    if not value or value.exit ~= 0 then
      lib.note("box: bubblewrap does not work " .. who .. ": " .. tostring(value and value.stderr):gsub("%s+$", ""))
      with_bwrap = false
    end
  end

  -- The first box of a state folder waits for the base layer that all later ones share.
  local cold, cold_ms = timed(nil, p:create { nonce = "n" .. core.sys.random_id(23), timeout_s = 120 })
  timed(nil, p:kill { id = cold.id })

  local create, first, again, kill, all, bwrap, bare = {}, {}, {}, {}, {}, {}, {}
  for round = 1, ROUNDS + WARM do
    local kept = round > WARM
    local function into(list) return kept and list or nil end
    local box, a = timed(into(create), p:create { nonce = "n" .. core.sys.random_id(23), timeout_s = 120 })
    local _, b = timed(into(first), p:exec { box = box, cmd = "/usr/bin/true" })
    timed(into(again), p:exec { box = box, cmd = "/usr/bin/true" })
    local _, c = timed(into(kill), p:kill { id = box.id })
    if kept then all[#all + 1] = a + b + c end
    if with_bwrap then timed(into(bwrap), io_:spawn { argv = BWRAP }) end
    timed(into(bare), io_:spawn { argv = { "/usr/bin/true" } })
  end
  local m = lib.median
  local peer = "bubblewrap"
  local theirs = with_bwrap and m(bwrap) or nil
  lib.row("box", "start, run true, end, " .. who, "ms", m(all), peer, theirs)
  lib.row("box", "start until true has run, " .. who, "ms", m(create) + m(first), peer, theirs)
  lib.row("box", "true in a running box, " .. who, "ms", m(again), peer .. ", a new one", theirs)
  lib.note(("box: %s: create %.1f ms, first exec %.1f ms, kill %.1f ms; a bare spawn of true %.1f ms; the very first box, which "
    .. "builds the base layer, %.0f ms"):format(who, m(create), m(first), m(kill), m(bare), cold_ms))
  p:close()
  io_:close()
end)
