-- SPDX-License-Identifier: MIT
-- doctor, state: the folder everything is kept in, the file system below it, its sockets.
local core = require "crewbox.core"
local lab = require "crewbox.doctor.lab"
local mounts = require "crewbox.doctor.mounts"
local paths = require "crewbox.paths"
local prepare = require "crewbox.engine.prepare"

local M = { name = "state" }

local MIB = 1024 * 1024
local LOW = 1024 * MIB
local ELSEWHERE = "set CREWBOX_STATE to a folder elsewhere"

-- File systems that cannot be the upper layer of an overlay, with who says so: the kernel refuses
-- overlay itself, and those without the extended attributes and file types that it needs.
local NO_UPPER = { overlay = true, nfs = true, nfs4 = true, cifs = true, smb3 = true, vfat = true, exfat = true, ["9p"] = true,
  vboxsf = true, ntfs = true, ntfs3 = true, fuseblk = true, ecryptfs = true, squashfs = true }

local function private(ctx, say)
  local st = core.sys.stat(ctx.state)
  if st.type ~= "dir" then
    return say("fail", "folder", ctx.state .. " is no folder", ELSEWHERE .. ", or move that file away")
  end
  if st.uid ~= ctx.uid then
    return say("fail", "folder", ("%s belongs to user id %d, not to you (%d)"):format(ctx.state, st.uid, ctx.uid),
      ELSEWHERE .. ", or chown it")
  end
  if st.mode % 64 ~= 0 then
    return say("warn", "folder", ("%s has mode %o: others may look into it"):format(ctx.state, st.mode),
      ("chmod 700 '%s'"):format(ctx.state))
  end
  say("ok", "folder", ctx.state .. " is there and yours alone")
end

-- Proven by writing, in the folder or in the nearest one above it.
local function writable(ctx, say, above)
  local probe = ("%s/.crewbox-doctor-%s.tmp"):format(above == "/" and "" or above, core.sys.random_id(6))
  local ok, e = core.sys.write_file(probe, "x", 384)
  core.sys.unlink(probe)
  if not ok then
    return say("fail", "writable", e.message, e.code == "disk_full" and "free some space there, or " .. ELSEWHERE or ELSEWHERE)
  end
  say("ok", "writable", above == ctx.state and "files can be made in it" or ("it can be made in %s"):format(above))
end

local function carrier(ctx, say, above)
  if ctx.remote then return end
  local real = core.sys.realpath(above) or above
  local mount = mounts.of(mounts.parse(ctx.read "/proc/self/mountinfo" or ""), real)
  if not mount then
    return say("warn", "file system", "which file system it is on cannot be told: /proc/self/mountinfo is not readable")
  end
  if NO_UPPER[mount.type] then
    return say("fail", "file system", ("it is on %s (%s), which cannot carry a box's layers"):format(mount.type, mount.point),
      ELSEWHERE .. " on ext4, xfs, btrfs or tmpfs, for instance /dev/shm/crewbox")
  end
  say("ok", "file system", ("%s, mounted on %s"):format(mount.type, mount.point))
end

local function space(say, above)
  local free, e = core.sys.free_bytes(above)
  if not free then return say("warn", "space", "free space cannot be told: " .. e.message) end
  local text = ("%d MiB free"):format(math.floor(free / MIB))
  if free < prepare.FREE_MIN then
    return say("fail", "space", ("%s, a run needs %d"):format(text, prepare.FREE_MIN / MIB), "free some space there, or " .. ELSEWHERE)
  end
  if free < LOW then return say("warn", "space", text .. ": little for an agent's work", "free some space there, or " .. ELSEWHERE) end
  say("ok", "space", text)
end

local function sockets(ctx, say)
  local longest = paths.engine_socket(ctx.state)
  if not ctx.remote then
    local boxd = ctx.sandbox.socket ~= "" and ctx.sandbox.socket or paths.boxd_socket(ctx.state)
    if #boxd > #longest then longest = boxd end
  end
  local ok, e = paths.check_socket(longest)
  if ok then return say("ok", "sockets", ("the longest path has %d of %d bytes"):format(#longest, paths.SOCKET_MAX)) end
  say("fail", "sockets", e.message, "set CREWBOX_STATE to a shorter folder, for instance /tmp/crewbox-$USER")
end

function M.run(ctx, say)
  if not ctx.state then
    return say("fail", "folder", ctx.state_error.message, "export CREWBOX_STATE=$PWD/.crewbox-state, or set HOME")
  end
  local there = core.sys.stat(ctx.state)
  if there then
    private(ctx, say)
  else
    say("ok", "folder", ctx.state .. " is not there yet; the first run makes it")
  end
  sockets(ctx, say)
  local above = lab.nearest(ctx.state)
  if not above then return say("fail", "writable", "no folder above it is there", ELSEWHERE) end
  if there and there.type ~= "dir" then return end
  writable(ctx, say, above)
  carrier(ctx, say, above)
  space(say, above)
end

return M
