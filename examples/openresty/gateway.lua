-- SPDX-License-Identifier: MIT
-- The handlers of the example gateway. One table a worker, made in init_worker_by_lua.
local json = require "crewbox.json"
local openresty = require "crewbox.openresty"

local M = {}

local engine -- of this worker

-- Which status an error of crewbox is for a client.
local STATUS = { invalid = 400, not_found = 404, too_large = 413, closed = 503, timeout = 503, disk_full = 507 }

local function answer(status, value)
  ngx.status = status
  ngx.header["Content-Type"] = "application/json"
  ngx.say(json.encode(value))
end

local function refuse(e)
  local status = STATUS[e.code] or 500
  if status == 503 then ngx.header["Retry-After"] = "1" end
  answer(status, { code = e.code, message = e.message })
end

function M.start()
  engine = assert(openresty.open())
end

-- The body, from memory or from the file nginx put it into.
local function body()
  ngx.req.read_body()
  local bytes = ngx.req.get_body_data()
  if bytes or not ngx.req.get_body_file() then return bytes or "" end
  local file = assert(io.open(ngx.req.get_body_file(), "rb"))
  bytes = file:read("*a")
  file:close()
  return bytes
end

--- POST: the body is a command; its run is made. GET: the last runs.
function M.runs()
  if ngx.req.get_method() == "POST" then
    local run, e = engine:run { agent = "command", brief = body(), no_repo = true }
    if not run then return refuse(e) end
    return answer(201, { id = run.id })
  end
  local rows, e = engine:runs { limit = 50 }
  if not rows then return refuse(e) end
  local list = json.array {}
  for i, row in ipairs(rows) do list[i] = { id = row.id, state = row.state, title = row.title } end
  answer(200, list)
end

--- What a run is doing, or what came of it.
function M.state(id)
  local run, e = engine:get(id)
  local row
  if run then row, e = run:row() end
  if not row then return refuse(e) end
  answer(200, {
    id = row.id, state = row.state, reason = row.reason, title = row.title, progress = row.progress, outcome = row.outcome,
  })
end

--- The stored log as text, as far as it goes.
function M.log(id)
  local run, e = engine:get(id)
  if not run then return refuse(e) end
  ngx.header["Content-Type"] = "text/plain; charset=utf-8"
  for bytes in run:log() do
    ngx.print(bytes)
    ngx.flush(true) -- waits while the client is slower than we are
  end
end

return M
