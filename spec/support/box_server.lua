-- SPDX-License-Identifier: MIT
-- A crewboxd of a spec's own: a private state folder and socket, ended and removed with the spec.
-- Ops are waited for one at a time, with a bound and a name in the message.
local core = require "crewbox.core"

local M = {}
M.__index = M

local WAIT_MS = 30000

local function program(name)
  local folder = os.getenv("CREWBOX_LIBEXEC")
  return assert(folder and folder ~= "" and folder, "CREWBOX_LIBEXEC names no folder") .. "/" .. name
end

--- @param tcp boolean? on loopback TCP with a key instead of a unix socket
function M.start(tcp)
  local pipe = assert(io.popen("mktemp -d /tmp/crewbox-spec-XXXXXX"))
  local dir = pipe:read("*l")
  pipe:close()
  local self = setmetatable({
    dir = dir,
    socket = dir .. "/s.sock",
    url = nil,    -- with tcp
    daemon = nil, -- {pid, line}
    io = core.io(),
    got = {},     -- completions by op that nobody asked for yet
  }, M)
  return self:begin(tcp)
end

--- Starts the daemon on the folder that is there.
function M:begin(tcp)
  local dir = self.dir
  self.daemon = assert(core.sys.daemon {
    argv = { program "crewboxd", "--state", dir .. "/state", tcp and "--listen" or "--socket",
      tcp and "127.0.0.1:0" or self.socket, "--init", program "crewbox-init" },
    log = dir .. "/log", ready_timeout_ms = 20000,
  })
  if tcp then
    self.url = assert(self.daemon.line:match("^ready (http://127%.0%.0%.1:%d+)$"), self.daemon.line)
  else
    assert(self.daemon.line == "ready " .. self.socket, self.daemon.line)
  end
  self.start_time = core.sys.pid_start(self.daemon.pid)
  return self
end

--- Ends the daemon as a crash would. Boxes go on.
function M:kill()
  core.sys.kill(self.daemon.pid, 9)
  self:wait_for(function() return not core.sys.alive(self.daemon.pid, self.start_time) end, "the end of crewboxd")
end

function M:provider(settings)
  settings = settings or {}
  if self.url then
    settings.api_url, settings.sandbox_url = self.url, self.url .. "/"
    settings.api_key = settings.api_key or assert(core.sys.read_file(self.dir .. "/state/key", 4096)):gsub("%s+$", "")
    return assert(core.provider(self.io, "e2b", settings))
  end
  settings.socket = self.socket
  return assert(core.provider(self.io, "local", settings))
end

--- The next completion of op: value, err, more.
function M:next(op, e)
  if not op then return nil, e end
  local until_ms = core.sys.now_ms() + WAIT_MS
  while true do
    local list = self.got[op]
    if list and list[1] then
      local c = table.remove(list, 1)
      return c.value, c.err, c.more
    end
    local left = until_ms - core.sys.now_ms()
    if left <= 0 then error("op " .. tostring(op) .. " gave nothing for " .. WAIT_MS .. " ms", 2) end
    self.io:step(left)
    for _, c in ipairs(self.io:drain()) do
      self.got[c.op] = self.got[c.op] or {}
      table.insert(self.got[c.op], c)
    end
  end
end

--- Waits until what `check` says is true, looking every 20 ms.
function M:wait_for(check, what)
  local until_ms = core.sys.now_ms() + WAIT_MS
  while not check() do
    if core.sys.now_ms() > until_ms then error("waited in vain for " .. what, 2) end
    self:next(self.io:sleep(20))
  end
end

--- Ends boxes, daemon and files. Everything of it is gone afterwards.
function M:stop()
  local p = self:provider()
  local boxes = self:next(p:list {})
  for _, box in ipairs(boxes and boxes.boxes or {}) do self:next(p:kill { id = box.id }) end
  p:close()
  core.sys.kill(self.daemon.pid, 15)
  self:wait_for(function() return not core.sys.alive(self.daemon.pid, self.start_time) end, "the end of crewboxd")
  self.io:close()
  os.execute("rm -rf '" .. self.dir .. "'")
end

return M
