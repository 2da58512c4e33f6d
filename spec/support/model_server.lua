-- SPDX-License-Identifier: MIT
-- The scripted model server of the demo, for specs: the real wire formats, words known before.
-- What its script can say is at the top of examples/demo/model-server.mjs.
local core = require "crewbox.core"
local json = require "crewbox.json"
local states = require "spec.support.state"

local M = {}
M.__index = M

local SERVER = "examples/demo/model-server.mjs"

--- @param script table
--- @return table server {url}
function M.start(script)
  local dir = "/tmp/cb-model-" .. core.sys.random_id(6)
  assert(core.sys.mkdirs(dir, 448))
  local self = setmetatable({ dir = dir, log = dir .. "/requests" }, M)
  assert(core.sys.write_file(dir .. "/script", json.encode(script), 384, false))
  local environ = core.sys.environ()
  self.daemon = assert(core.sys.daemon {
    argv = { "/usr/bin/env", "node", SERVER, "--port", "0", "--script", dir .. "/script", "--log", self.log, "--bodies" },
    env = { PATH = environ.PATH, HOME = dir }, log = dir .. "/log", ready_timeout_ms = 30000,
  })
  self.pid_start = core.sys.pid_start(self.daemon.pid)
  self.url = assert(self.daemon.line:match("^model%-server ready (http://%S+)$"), self.daemon.line)
  return self
end

--- What was asked: the log's lines, oldest first; a request has `method`, `path` and `body`.
--- @param prefix string? only of this session of the script
function M:requests(prefix)
  local list = {}
  for line in (core.sys.read_file(self.log, 256 * 1024 * 1024) or ""):gmatch("[^\n]+") do
    local o = json.decode(line)
    if o.method == "POST" and (not prefix or o.prefix == prefix) then list[#list + 1] = o end
  end
  return list
end

function M:stop()
  local function there() return core.sys.alive(self.daemon.pid, self.pid_start) end
  if there() then core.sys.kill(self.daemon.pid, "KILL", self.pid_start) end
  states.eventually("the end of the model server", 20, function() return not there() end)
  core.sys.rmtree(self.dir)
end

return M
