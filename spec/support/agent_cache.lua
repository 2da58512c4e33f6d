-- SPDX-License-Identifier: MIT
-- The real coding-agent CLIs, installed with the real npm by `crewbox agents install`, in one cache
-- for all specs of a test run (spec/run makes it and takes it away). Without npm's registry the
-- specs that need it fail and say so.
local M = {}

local BUILD = assert(os.getenv "CREWBOX_BUILD", "spec/run sets CREWBOX_BUILD")

--- The cache's folder.
function M.dir()
  return (assert(os.getenv "CREWBOX_TEST_CACHE", "spec/run sets CREWBOX_TEST_CACHE: the folder for installed agents"))
end

--- Makes sure that an agent is there.
--- @param name string
--- @return string dir of the cache
function M.with(name)
  local command = ("CREWBOX_CACHE='%s' timeout 900 '%s/crewbox' agents install %s 2>&1; echo \"status $?\""):format(M.dir(), BUILD, name)
  local p = assert(io.popen(command))
  local said = p:read("*a")
  p:close()
  if not said:find("status 0\n$") then error(name .. " could not be installed: " .. said, 2) end
  return M.dir()
end

return M
