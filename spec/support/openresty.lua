-- SPDX-License-Identifier: MIT
-- An nginx of a spec's own, on a unix socket in a folder of its own; ended and removed with it.
local async = require "crewbox.async"
local core = require "crewbox.core"
local json = require "crewbox.json"
local states = require "spec.support.state"

local M = {}
M.__index = M

local ROOT = core.sys.realpath(".")
local BUILD = assert(os.getenv "CREWBOX_BUILD", "spec/run sets CREWBOX_BUILD")

local function folder()
  local dir = "/tmp/cb-ngx-" .. core.sys.random_id(6)
  assert(core.sys.mkdirs(dir, 448))
  return dir
end

local function server(dir)
  local io = core.io()
  return setmetatable({
    dir = dir,
    state = dir .. "/state",
    socket = dir .. "/http",
    io = io,
    loop = async.new(io),
  }, M)
end

local function sh(command)
  local p = assert(io.popen(command .. " 2>&1"))
  local out = p:read("*a")
  p:close()
  return out
end

--- The example gateway.
function M.example()
  local self = server(folder())
  local out = sh(("CREWBOX_BUILD='%s' CREWBOX_LIBEXEC='%s' examples/openresty/start '%s' 'unix:%s'"):format(BUILD, BUILD, self.dir,
    self.socket))
  self:await_start(out)
  return self
end

--- spec/support/openresty_app.lua with two workers.
function M.app()
  local self = server(folder())
  assert(core.sys.mkdirs(self.state, 448))
  local conf = ([[
load_module /usr/lib/nginx/modules/ndk_http_module.so;
load_module /usr/lib/nginx/modules/ngx_http_lua_module.so;
%s
worker_processes 2;
pid DIR/nginx.pid;
error_log DIR/error.log notice;
env PATH;
env CREWBOX_LIBEXEC;
events { worker_connections 256; }
http {
  access_log off;
  client_body_temp_path DIR/body;
  proxy_temp_path DIR/proxy;
  fastcgi_temp_path DIR/fastcgi;
  uwsgi_temp_path DIR/uwsgi;
  scgi_temp_path DIR/scgi;
  lua_package_path "ROOT/lua/?.lua;ROOT/lua/?/init.lua;ROOT/?.lua;;";
  lua_package_cpath "BUILD/lua/5.1/?.so;;";
  init_by_lua_block { require("spec.support.openresty_app").in_master("DIR/state") }
  init_worker_by_lua_block { require("spec.support.openresty_app").in_worker("DIR/state") }
  server {
    listen unix:DIR/http;
    location / {
      content_by_lua_block { require("spec.support.openresty_app").answer() }
      log_by_lua_block { require("spec.support.openresty_app").logged() }
    }
  }
}]]):format(core.sys.uid() == 0 and "user root;" or ""):gsub("DIR", self.dir):gsub("ROOT", ROOT):gsub("BUILD", BUILD)
  assert(core.sys.write_file(self.dir .. "/nginx.conf", conf, 384, false))
  self:await_start(sh(("CREWBOX_LIBEXEC='%s' nginx -p '%s' -c '%s/nginx.conf'"):format(BUILD, self.dir, self.dir)))
  return self
end

function M:await_start(out)
  local ok, message = pcall(states.eventually, "nginx: " .. out, 20, function()
    self.pid = tonumber(core.sys.read_file(self.dir .. "/nginx.pid", 64) or "")
    return self.pid and core.sys.stat(self.socket)
  end)
  if not ok then
    message = message .. self:log()
    self.io:close()
    core.sys.rmtree(self.dir)
    error(message, 0)
  end
  self.pid_start = core.sys.pid_start(self.pid)
end

--- One request on a connection of its own. Within a task of self.loop, or from plain code.
--- @return table? answer {status, body, json}
--- @return crewbox.Error? err
function M:ask(path, o)
  o = o or {}
  return self.loop:call(function()
    local answer, e = self.loop:await(self.io:http {
      url = "http://nginx" .. path, unix_socket = self.socket, method = o.body and "POST" or "GET", body = o.body,
      timeout_ms = o.timeout_ms or 60000, fresh = true,
    })
    if not answer then return nil, e end
    answer.json = json.decode(answer.body)
    return answer
  end)
end

--- Pids of the living workers that take requests: children of the master that are no zombies.
function M:workers()
  local pids = {}
  for word in (core.sys.read_file(("/proc/%d/task/%d/children"):format(self.pid, self.pid), 4096) or ""):gmatch("%d+") do
    if core.sys.alive(tonumber(word)) then pids[#pids + 1] = tonumber(word) end
  end
  table.sort(pids)
  return pids
end

--- Has nginx load its configuration again; returns when the old workers are gone.
function M:reload(wait)
  local old = self:workers()
  core.sys.kill(self.pid, "HUP", self.pid_start)
  if wait == false then return old end
  self:await_gone(old)
end

function M:await_gone(pids)
  for _, pid in ipairs(pids) do
    states.eventually("the end of an old worker", 60, function() return not core.sys.alive(pid) end)
  end
end

function M:log()
  return core.sys.read_file(self.dir .. "/error.log", 16 * 1024 * 1024) or ""
end

--- Ends nginx as a service manager does, then the box server, and removes the folder.
function M:close()
  -- Runs are over before their boxes are: those are killed in the background.
  states.eventually("the end of every box", 60, function() return #(core.sys.list(self.state .. "/boxd/boxes") or {}) == 0 end)
  core.sys.kill(self.pid, 3, self.pid_start) -- QUIT
  states.eventually("the end of nginx", 60, function() return not core.sys.alive(self.pid, self.pid_start) end)
  for _, pid in ipairs(states.processes(self.state .. "/boxd")) do core.sys.kill(pid, "TERM") end
  states.eventually("the end of the box server", 20, function() return #states.processes(self.state .. "/boxd") == 0 end)
  self.io:close()
  core.sys.rmtree(self.dir)
end

return M
