-- SPDX-License-Identifier: MIT
-- Runs a command on a copy of a git checkout in a box and prints the patch it made.
--   eval "$(build/crewbox env)"; lua5.4 examples/run_from_lua.lua DIR "make fmt"
local crewbox = require "crewbox"

local engine = assert(crewbox.open { state = os.getenv "CREWBOX_STATE" })
local run = assert(engine:run {
  agent = "command",
  repo = arg[1] or ".",
  brief = arg[2] or "make check",
})
local over = assert(run:wait())
local result = assert(run:result())
print(over.state, result.outcome.changed .. " changed", result.outcome.text)
if result.patch then
  for line in io.lines(result.patch) do print(line) end
end
engine:close()
