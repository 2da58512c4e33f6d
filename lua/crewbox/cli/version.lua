-- SPDX-License-Identifier: MIT
-- crewbox version: what is running.
local core = require "crewbox.core"
local status = require "crewbox.cli.shell.status"

local M = { summary = "Print the version." }

function M.define() end

function M.run()
  print("crewbox " .. core.version)
  return status.DONE
end

return M
