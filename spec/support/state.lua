-- SPDX-License-Identifier: MIT
-- A state folder of a test and what is needed around it: a private crewboxd, an engine process on
-- demand, git checkouts, and a proof at the end that nothing is left running.
--
-- CREWBOX_TEST_SOCKET: use the crewboxd that answers there instead of one of the test's own.
local client = require "crewbox.engine.client"
local core = require "crewbox.core"
local json = require "crewbox.json"
local paths = require "crewbox.paths"
local starter = require "crewbox.engine.starter"

local M = {}

local State = {}
State.__index = State

local function mktemp(name)
  -- Short, because sockets lie in it.
  local dir = ("/tmp/cb-%s-%s"):format(name, core.sys.random_id(6))
  assert(core.sys.mkdirs(dir, 448))
  return dir
end

--- @param o {environ?: table<string, string>, sandbox?: string}?  sandbox: more of providers.sandbox, as Lua
function M.new(o)
  o = o or {}
  local self = setmetatable({ dir = mktemp("t"), extra = o.environ or {}, clients = {} }, State)
  self.state = self.dir .. "/state"
  self.config = self.dir .. "/crewbox.lua"
  local socket = os.getenv("CREWBOX_TEST_SOCKET")
  self.own_server = not socket
  assert(core.sys.write_file(self.config, ("return { providers = { sandbox = { type = 'local', socket = %q, %s } } }")
    :format(socket or "", o.sandbox or ""), 384, false))
  return self
end

--- The environment of a caller, with more.
function State:environ(more)
  local env = core.sys.environ()
  for _, t in ipairs { self.extra, more or {} } do
    for k, v in pairs(t) do env[k] = v end
  end
  env.CREWBOX_STATE, env.CREWBOX_CONFIG = self.state, self.config
  return env
end

--- A client whose engine process gets `more` in its environment.
function State:client(more)
  local c = assert(client.open { state = self.state, config = self.config, environ = self:environ(more) })
  self.clients[#self.clients + 1] = c
  return c
end

--- A git checkout with files {path = bytes}, committed.
function State:checkout(files)
  local repo = ("%s/repo%s"):format(self.dir, core.sys.random_id(4))
  assert(core.sys.mkdirs(repo, 493))
  for path, bytes in pairs(files) do
    local folder = path:match("^(.*)/[^/]*$")
    if folder then assert(core.sys.mkdirs(repo .. "/" .. folder, 493)) end
    assert(core.sys.write_file(repo .. "/" .. path, bytes, 420, false))
  end
  local git = ("cd '%s' && git init -q -b main && git add -A && git -c user.name=t -c user.email=t@example.com " ..
    "-c commit.gpgsign=false commit -q -m start"):format(repo)
  assert(os.execute(git .. " >/dev/null 2>&1"))
  return repo
end

function State:file(run, name) return paths.run_file(self.state, run, name) end

function State:read(run, name) return core.sys.read_file(self:file(run, name), 64 * 1024 * 1024) end

--- A command of an agent that waits until the spec says `let_go`.
M.HELD = "until [ -e ~/let-go ]; do sleep 0.05; done"

--- Lets agents go on that wait with `HELD`, in every box of this state.
function State:let_go()
  os.execute(("for home in '%s'/boxd/boxes/*/home; do [ ! -d \"$home\" ] || : >\"$home/let-go\"; done"):format(self.state))
end

--- Names of the events of a run, in order.
function State:events(run)
  local names = {}
  for line in (self:read(run, "events.jsonl") or ""):gmatch("[^\n]+") do
    names[#names + 1] = json.decode(line).event
  end
  return names
end

function M.count(list, word)
  local n = 0
  for _, w in ipairs(list) do
    if w == word then n = n + 1 end
  end
  return n
end

-- ---- processes ----------------------------------------------------------------------------

--- Pids of living processes whose command line holds a text (zombies do not count).
function M.processes(text)
  local found = {}
  for _, name in ipairs(core.sys.list("/proc")) do
    if name:find("^%d+$") and tonumber(name) ~= core.sys.pid() then
      local f = io.open("/proc/" .. name .. "/cmdline", "rb")
      local line = f and f:read("*a") or ""
      if f then f:close() end
      if line:find(text, 1, true) then
        local s = io.open("/proc/" .. name .. "/stat", "rb")
        local stat = s and s:read("*a") or ""
        if s then s:close() end
        if stat ~= "" and not stat:find("%) Z ") then found[#found + 1] = tonumber(name) end
      end
    end
  end
  return found
end

--- Waits for a condition; raises after `seconds`.
function M.eventually(what, seconds, condition)
  local deadline = core.sys.now_ms() + seconds * 1000
  while true do
    local value = condition()
    if value then return value end
    if core.sys.now_ms() > deadline then error("did not come within " .. seconds .. " s: " .. what, 2) end
    os.execute("sleep 0.02")
  end
end

--- The engine process of this state folder, nil when there is none.
function State:engine_pid()
  local c = self.clients[1]
  local rows = c and c.loop:call(c.store.engines, c.store) or {}
  for _, row in ipairs(rows) do
    if core.sys.alive(row.pid, row.pid_start) and row.pid ~= core.sys.pid() then return row.pid end
  end
end

--- Rows of boxes that are not gone.
function State:boxes()
  local c = self.clients[1]
  return c.loop:call(c.store.count_boxes, c.store)
end

--- Whether two processes live in one pid namespace, which for a box's processes is the box.
function M.same_namespace(a, b)
  local p = assert(io.popen(("readlink /proc/%d/ns/pid /proc/%d/ns/pid"):format(a, b)))
  local one, other = p:read("*l"), p:read("*l")
  p:close()
  return one ~= nil and one == other
end

--- Ends the engine process, if there is one, and waits until it is gone.
function State:end_engine()
  local engine = self:engine_pid()
  if not engine then return end
  core.sys.kill(engine, "TERM")
  M.eventually("the end of the engine", 120, function() return not core.sys.alive(engine) end)
end

function State:close_clients()
  for _, c in ipairs(self.clients) do c:close() end
  self.clients = {}
end

local function server_pids(self)
  return M.processes(paths.boxd(self.state))
end

--- Ends everything and removes the folder.
function State:close()
  local c = self.clients[1] or self:client()
  if self:boxes() > 0 then c.loop:call(starter.ask, c, { op = "wake" }) end
  M.eventually("the end of every box", 120, function() return self:boxes() == 0 end)
  self:end_engine()
  self:close_clients()
  for _, pid in ipairs(server_pids(self)) do core.sys.kill(pid, "TERM") end
  M.eventually("the end of the box server", 120, function() return #server_pids(self) == 0 end)
  core.sys.rmtree(self.dir)
end

return M
