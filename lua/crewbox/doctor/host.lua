-- SPDX-License-Identifier: MIT
-- doctor, host: kernel, distribution, whether this is a container, and the switches for user
-- namespaces. What boxes really can do here is tried by isolation.lua.
local M = { name = "host" }

local KERNEL = { 5, 12 } -- mount_setattr

local function kernel(ctx, say)
  local release = (ctx.read "/proc/sys/kernel/osrelease" or ""):match("^%S+")
  local major, minor = (release or ""):match("^(%d+)%.(%d+)")
  if not major then return say("warn", "kernel", "which kernel this is cannot be told: /proc/sys/kernel/osrelease is not readable") end
  local old = tonumber(major) < KERNEL[1] or (tonumber(major) == KERNEL[1] and tonumber(minor) < KERNEL[2])
  if old then
    return say(ctx.remote and "warn" or "fail", "kernel", ("Linux %s is too old for local boxes"):format(release),
      ("run a kernel from %d.%d on, or use providers.sandbox.type e2b"):format(KERNEL[1], KERNEL[2]))
  end
  say("ok", "kernel", "Linux " .. release)
end

local function distribution(ctx, say)
  local text = ctx.read "/etc/os-release" or ""
  local name = ("\n" .. text):match('\nPRETTY_NAME="?([^"\n]*)')
  say("ok", "distribution", name or "not told (no /etc/os-release)")
end

--- What says that this is a container, nil when nothing does.
function M.container(ctx)
  if ctx.read "/.dockerenv" then return "/.dockerenv is there" end
  if ctx.read "/run/.containerenv" then return "/run/.containerenv is there" end
  local kind = (ctx.read "/run/systemd/container" or ctx.environ.container or ""):match("^[%w_-]+")
  if kind then return kind end
  return (ctx.read "/proc/1/cgroup" or ""):match("/(docker)[/-]") or (ctx.read "/proc/1/cgroup" or ""):match("/(kubepods)")
end

local function container(ctx, say)
  local why = M.container(ctx)
  if not why then return say("ok", "container", "nothing says that this is a container") end
  say("ok", "container", ("this is a container (%s); whether boxes work in it is tried below"):format(why))
end

local function number(ctx, path) return tonumber(ctx.read(path) or "") end

local function namespaces(ctx, say)
  if ctx.remote then return end
  local found = false
  local function off(text, fix)
    found = true
    say("warn", "user namespaces", text, fix)
  end
  if number(ctx, "/proc/sys/user/max_user_namespaces") == 0 then
    off("user.max_user_namespaces is 0", "sudo sysctl -w user.max_user_namespaces=15000")
  end
  if ctx.uid ~= 0 and number(ctx, "/proc/sys/kernel/unprivileged_userns_clone") == 0 then
    off("kernel.unprivileged_userns_clone is 0", "sudo sysctl -w kernel.unprivileged_userns_clone=1")
  end
  if ctx.uid ~= 0 and number(ctx, "/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == 1 then
    off("AppArmor restricts unprivileged user namespaces (kernel.apparmor_restrict_unprivileged_userns is 1)",
      "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0")
  end
  if found then return end
  local most = number(ctx, "/proc/sys/user/max_user_namespaces")
  say("ok", "user namespaces", most and ("no switch forbids them (user.max_user_namespaces is %d)"):format(most)
    or "no switch that forbids them can be seen")
end

function M.run(ctx, say)
  kernel(ctx, say)
  distribution(ctx, say)
  container(ctx, say)
  namespaces(ctx, say)
end

return M
