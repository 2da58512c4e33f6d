-- SPDX-License-Identifier: MIT
-- What the nginx of spec/hosts/openresty_spec.lua serves: each path of the table below waits in one way.
local core = require "crewbox.core"
local json = require "crewbox.json"
local openresty = require "crewbox.openresty"

local M = {}

local refused -- what opening in the master said
local gateway
local seen = { log_phase = nil, timer = nil, thread = nil, after_hang_up = nil, init_worker = nil }

function M.in_master(state)
  local _, message = pcall(openresty.open, { state = state })
  refused = tostring(message)
end

function M.in_worker(state)
  gateway = assert(openresty.open { state = state, config = {}, log = function(line) ngx.log(ngx.NOTICE, "crewbox: ", line) end })
  local _, message = pcall(gateway.loop.sleep, gateway.loop, 1)
  seen.init_worker = tostring(message)
  ngx.timer.at(0, function()
    seen.timer = gateway.loop:sleep(5)
    local thread = ngx.thread.spawn(function() return gateway.loop:await(gateway.loop.io:sleep(5)) end)
    local _, value = ngx.thread.wait(thread)
    seen.thread = value
  end)
end

function M.logged()
  if ngx.var.uri == "/facts" then
    local _, message = pcall(gateway.loop.sleep, gateway.loop, 1)
    seen.log_phase = tostring(message)
  end
end

local paths = {}

function paths.ping() return { pong = true } end

function paths.facts()
  return { pid = ngx.worker.pid(), refused = refused, seen = seen, threads = gateway.loop.alive }
end

-- Every way of waiting, outside and inside of tasks.
function paths.waits()
  local loop = gateway.loop
  local got = {}
  got.slept = loop:sleep(5)
  got.op = loop:await(loop.io:sleep(5))
  local _, e = loop:await(loop.io:sleep(60000), 10)
  got.timeout = e.code
  local signal = loop:signal()
  loop:spawn(function()
    loop:sleep(5)
    signal:fire()
  end)
  got.signal = signal:wait(10000)
  got.joined = loop:spawn(function() return "value" end):join()
  _, e = loop:spawn(function() error("boom") end):join()
  got.died = e.message
  local _, raised = pcall(loop.call, loop, function() error("raised here") end)
  got.raised = tostring(raised):match("raised here")
  got.nested = loop:call(function()
    return loop:scope(function(scope)
      local n = 0
      for _ = 1, 20 do
        scope:spawn(function()
          if loop:sleep(1) then n = n + 1 end
        end)
      end
      return function() return n end
    end)()
  end)
  local stream = loop:stream(loop.io:serve { path = ngx.var.arg_path })
  got.stream = stream:next(10000).ready
  stream:close()
  return got
end

-- A child's status in a process whose SIGCHLD handler reaps all children.
function paths.children()
  local loop, wrong = gateway.loop, 0
  for _ = 1, 50 do
    local child = loop:await(loop.io:spawn { argv = { "sh", "-c", "exit 7" } })
    if not child or child.exit ~= 7 then wrong = wrong + 1 end
  end
  return { wrong = wrong }
end

-- The task goes on although the client has left.
function paths.hang_up()
  gateway.loop:call(function()
    gateway.loop:sleep(300)
    seen.after_hang_up = true
  end)
  return {}
end

-- Many tasks, one after the other: nginx keeps a record of each light thread of a timer.
function paths.tasks()
  local loop, highest = gateway.loop, 0
  for _ = 1, 300 do
    loop:call(function() loop:sleep(0) end)
    highest = math.max(highest, #gateway.host.seats)
  end
  return { seats = highest }
end

function paths.run()
  local run, e = gateway:run { agent = "command", brief = ngx.req.get_body_data(), no_repo = ngx.var.arg_repo == nil,
    repo = ngx.var.arg_repo, env = ngx.var.arg_secret and { SECRET = ngx.var.arg_secret } or nil }
  if not run then return { code = e.code, message = e.message } end
  return { id = run.id, pid = ngx.worker.pid() }
end

function paths.row()
  local run, e = gateway:get(ngx.var.arg_id)
  local row
  if run then row, e = run:row() end
  if not row then return { code = e.code, message = e.message } end
  local result = row.accepted_at and run:result()
  return { state = row.state, reason = row.reason, over = row.accepted_at ~= nil, text = row.outcome and row.outcome.text,
    patch = result and result.patch and core.sys.read_file(result.patch, 65536) }
end

function paths.wait()
  local run, e = gateway:get(ngx.var.arg_id)
  local row
  if run then row, e = run:wait(60) end
  return row and { state = row.state } or { code = e.code }
end

-- A handler that is still at work when its worker has left.
function paths.late()
  local run = gateway:get(ngx.var.arg_id)
  for _ = 1, 600 do
    if gateway.host.ended then break end
    ngx.sleep(0.05)
  end
  local codes = {}
  local function add(_, e) codes[#codes + 1] = e and e.code or "none" end
  add(gateway:runs())
  add(gateway.loop:sleep(1))
  add(run:row())
  return codes
end

function M.answer()
  ngx.req.read_body()
  local value = paths[ngx.var.uri:sub(2)]()
  ngx.say(json.encode(value))
end

return M
