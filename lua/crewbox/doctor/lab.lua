-- SPDX-License-Identifier: MIT
-- Where the doctor tries things: a folder beside the state (so that it lies on the same file
-- system), a crewboxd of its own there, and one box. All of it is gone afterwards; what a doctor
-- that was killed has left, the next one removes.
--
-- Where the configuration names a box server, the box is made there, and the private crewboxd only
-- serves as something on this machine's loopback that a forward rule can lead to.
local core = require "crewbox.core"
local err = require "crewbox.err"
local json = require "crewbox.json"
local local_server = require "crewbox.engine.local_server"
local paths = require "crewbox.paths"

local M = {}

local PREFIX = ".crewbox-doctor-"
local START_MS = 20000    -- the first start of a folder makes the base layer of boxes
local CHECK_MS = 30000    -- until the server knows whether it can isolate
local ASK_MS = 30000
local STOP_MS = 15000
local LEASE_S = 60        -- a box that nobody removes ends by itself
local FORWARD_PORT = 8899
local OLD_S = 300         -- after it, boxes of a killed doctor have ended too

--- Names a box may and may not look up. The first does not exist outside of the box's resolver.
M.ALLOWED = "allowed.crewbox-doctor.invalid"
M.REFUSED = "example.com"
M.FORWARD_PORT = FORWARD_PORT

-- ---- the folder ----------------------------------------------------------------------------

-- The state folder, or the nearest folder above it that is there.
function M.nearest(path)
  while true do
    local st = core.sys.stat(path)
    if st and st.type == "dir" then return path end
    local up = path:match("^(.+)/[^/]*$") or "/"
    if up == path then return nil end
    path = up
  end
end

local function owner_file(dir) return dir .. "/owner" end

local function write_owner(lab)
  local own, daemon = core.sys.pid(), lab.daemon
  return core.sys.write_file(owner_file(lab.dir), json.encode { pid = own, start = tostring(core.sys.pid_start(own)),
    socket = lab.socket, daemon = daemon and daemon.pid, daemon_start = daemon and tostring(daemon.start) }, 384) -- 0600
end

-- The owner of a folder that is there, nil when it cannot be told. Only of a folder that nobody else
-- can have made: the one above may be everybody's.
local function read_owner(ctx, dir)
  local st = core.sys.stat(dir, true)
  if not st or st.type ~= "dir" or st.uid ~= ctx.uid or st.mode % 64 ~= 0 then return nil end
  local owner = json.decode(core.sys.read_file(owner_file(dir), 4096) or "")
  local sane = type(owner) == "table" and type(owner.pid) == "number" and type(owner.start) == "string"
  return sane and owner or {}, core.sys.wall() - st.mtime
end

-- ---- the server ----------------------------------------------------------------------------

local function wait_gone(ctx, pid, start)
  local deadline = core.sys.now_ms() + STOP_MS
  while core.sys.alive(pid, start) do
    if core.sys.now_ms() > deadline then return false end
    if not ctx.loop:sleep(20) then return false end
  end
  return true
end

local function stop_daemon(ctx, pid, start)
  if not core.sys.alive(pid, start) then return end
  core.sys.kill(pid, "TERM", start)
  if wait_gone(ctx, pid, start) then return end
  core.sys.kill(pid, "KILL", start)
  wait_gone(ctx, pid, start)
end

-- Removes boxes by their label: also one whose maker never learnt that it was made.
local function remove_boxes(ctx, verbs, metadata)
  local found = ctx.loop:await(verbs:list { metadata = metadata, wait_ms = ASK_MS })
  for _, box in ipairs(found and found.boxes or {}) do ctx.loop:await(verbs:kill { id = box.id, wait_ms = ASK_MS }) end
end

local function remove_left_boxes(ctx, socket)
  local verbs = core.provider(ctx.io, "local", { socket = socket })
  if not verbs then return end
  remove_boxes(ctx, verbs, {})
  verbs:close()
end

-- A folder whose doctor has gone.
local function remove_left(ctx, dir, owner, age)
  local daemon = tonumber(owner.daemon)
  if daemon and core.sys.alive(daemon, owner.daemon_start) then
    local words = core.sys.read_file(("/proc/%d/cmdline"):format(daemon), 64 * 1024) or ""
    if not words:find(dir .. "/state", 1, true) then return end -- not what its owner file says
    remove_left_boxes(ctx, owner.socket)
    stop_daemon(ctx, daemon, owner.daemon_start)
  elseif age < OLD_S then
    return -- a box of it may still have to end by itself
  end
  core.sys.rmtree(dir)
end

local function sweep(ctx, above)
  for _, name in ipairs(core.sys.list(above) or {}) do
    if name:sub(1, #PREFIX) == PREFIX then
      local dir = (above == "/" and "" or above) .. "/" .. name
      local owner, age = read_owner(ctx, dir)
      if owner and not (owner.pid and core.sys.alive(owner.pid, owner.start)) then remove_left(ctx, dir, owner, age) end
    end
  end
end

local function start_daemon(ctx, lab)
  local program, e = paths.program("crewboxd", ctx.environ)
  if not program then return nil, e end
  local started
  started, e = core.sys.daemon {
    argv = { program, "--state", lab.dir .. "/state", "--socket", lab.socket, "--listen", "127.0.0.1:0" },
    env = local_server.environment(ctx.environ), log = lab.dir .. "/log", ready_timeout_ms = START_MS,
  }
  if not started then return nil, err.new(e.code or "unreachable", "a box server does not start here: " .. e.message) end
  lab.daemon = { pid = started.pid, start = core.sys.pid_start(started.pid) }
  lab.loopback = started.line:match("^ready http://(127%.0%.0%.1:%d+)$")
  write_owner(lab)
  return true
end

-- What the server of boxes says of itself, once it knows.
local function settled(ctx, verbs)
  local deadline = core.sys.now_ms() + CHECK_MS
  while true do
    local health, e = ctx.loop:await(verbs:health { wait_ms = 5000 })
    if not health then return nil, e end
    local isolation = health.isolation
    if type(isolation) ~= "table" or isolation.state ~= "unknown" then return health end
    if core.sys.now_ms() > deadline then return nil, err.new("timeout", "the isolation check of the box server does not end") end
    local ok
    ok, e = ctx.loop:sleep(50)
    if not ok then return nil, e end
  end
end

local function make_box(ctx, lab)
  lab.metadata = { crewbox_doctor = core.sys.random_id(12) }
  lab.box, lab.box_error = ctx.loop:shield(function() -- a create that is given up could still make one
    return ctx.loop:await(lab.verbs:create {
      nonce = core.sys.random_id(24), template = "base", timeout_s = LEASE_S, metadata = lab.metadata, wait_ms = ASK_MS,
      allow = { M.ALLOWED .. ":443" },
      forward = lab.loopback and { { port = FORWARD_PORT, to = lab.loopback } } or nil,
    })
  end)
end

local function build(ctx, lab)
  local ok, e = start_daemon(ctx, lab)
  if not ok then return nil, e end
  local named = ctx.sandbox.socket ~= ""
  lab.private = not named
  lab.verbs, e = core.provider(ctx.io, "local", { socket = named and ctx.sandbox.socket or lab.socket })
  if not lab.verbs then return nil, e end
  lab.health, e = settled(ctx, lab.verbs)
  if not lab.health then return nil, e end
  local isolation = type(lab.health.isolation) == "table" and lab.health.isolation or {}
  lab.isolation = isolation
  if isolation.state ~= "unavailable" then make_box(ctx, lab) end
  return true
end

--- @async
--- @param ctx crewbox.DoctorContext
--- @return table? lab {dir, private, health, isolation, box or box_error, loopback}
--- @return crewbox.Error? err
function M.open(ctx)
  if not ctx.state then return nil, ctx.state_error end
  local above = M.nearest(ctx.state)
  if not above then return nil, err.new("not_found", "no folder above the state folder is there") end
  sweep(ctx, above)
  local name = PREFIX .. core.sys.random_id(8)
  local lab = { dir = ("%s/%s"):format(above == "/" and "" or above, name) }
  lab.socket = lab.dir .. "/s"
  if #lab.socket > paths.SOCKET_MAX then lab.socket = "/tmp/" .. name .. ".s" end
  local ok, e = core.sys.mkdirs(lab.dir, 448) -- 0700
  if ok then ok, e = write_owner(lab) end
  if ok then ok, e = build(ctx, lab) end
  if ok then return lab end
  M.close(ctx, lab)
  return nil, e
end

--- Runs a script of sh in the box as its user.
--- @async
--- @return string? stdout
--- @return crewbox.Error? err
function M.run(ctx, lab, script, env)
  local out, e = ctx.loop:await(lab.verbs:exec { box = lab.box, cmd = "sh", args = { "-c", script }, env = env,
    timeout_ms = ASK_MS })
  if not out then return nil, e end
  return out.stdout
end

--- Takes everything away again.
--- @async
function M.close(ctx, lab)
  ctx.loop:shield(function()
    if lab.metadata then remove_boxes(ctx, lab.verbs, lab.metadata) end
    if lab.verbs then lab.verbs:close() end
    if lab.daemon then stop_daemon(ctx, lab.daemon.pid, lab.daemon.start) end
    core.sys.rmtree(lab.dir)
    if core.sys.stat(lab.socket, true) then core.sys.unlink(lab.socket) end -- of a daemon that was killed
  end)
end

return M
