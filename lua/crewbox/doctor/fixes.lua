-- SPDX-License-Identifier: MIT
-- From the reason why a host cannot isolate a box (src/box names it) to the command or setting that
-- changes it. Pure.
local M = {}

M.OTHERWISE = "see docs/how-to/troubleshooting.md, or use boxes elsewhere: providers.sandbox.type e2b"

-- First match counts.
local FIXES = {
  { "unprivileged user namespaces are switched off",
    "sudo sysctl -w kernel.unprivileged_userns_clone=1 kernel.apparmor_restrict_unprivileged_userns=0 (those that are there), " ..
    "or run as root" },
  { "user.max_", "sudo sysctl -w user.max_user_namespaces=15000 (and the other user.max_*_namespaces that are low)" },
  { "overlay file system", "set CREWBOX_STATE to a folder on a volume or a tmpfs, for instance /dev/shm/crewbox" },
  { "parts of /proc are covered", "run crewbox outside of the container, or give it an unmasked /proc " ..
    "(docker run --security-opt systempaths=unconfined)" },
  { "write [ug]id_map", "give the container CAP_SETUID and CAP_SETGID, or run crewbox in it as an ordinary user" },
  { "give to the box", "this root holds too few user ids (a rootless container?): run crewbox as an ordinary user, or outside of it" },
  { "a container's filter", "let the container make namespaces (docker run --security-opt seccomp=unconfined), or run outside of it" },
  { "mount calls of Linux 5%.12", "run a kernel from 5.12 on, and allow unprivileged user namespaces" },
  { "CONFIG_SECCOMP_FILTER", "run a kernel built with CONFIG_SECCOMP_FILTER" },
  { "crewbox%-init", "run `make` in the source tree, or install crewbox again" },
  { "mounts below /usr", "unmount what is not needed below /usr" },
}

--- @param reason string
--- @return string fix
function M.of(reason)
  for _, entry in ipairs(FIXES) do
    if reason:find(entry[1]) then return entry[2] end
  end
  return M.OTHERWISE
end

return M
