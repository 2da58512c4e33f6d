-- SPDX-License-Identifier: MIT
-- The engine's socket (docs/reference/interfaces.md section 8): one JSON object a line each way,
-- only from the same user. Values of `run` stay in memory.
local core = require "crewbox.core"
local json = require "crewbox.json"
local paths = require "crewbox.paths"

local M = {}

local verbs = {}

function verbs.run(engine, q)
  local values = type(q.env) == "table" and q.env or {}
  -- The engine that was asked first may have died with the run in its hands.
  local dropped, why = engine.store:drop_dead_engines(engine.fence.owner, core.sys.wall(), core.sys.alive)
  if not dropped then return nil, why end
  local job, e = engine:adopt(q.id, { values = values, from = q.claim, api_key = q.api_key })
  if not job then return nil, e end
  return {}
end

function verbs.cancel(engine, q)
  return { known = engine:cancel(q.id) }
end

function verbs.wake(engine)
  engine:sweep_soon()
  return {}
end

function verbs.status(engine)
  local runs = {}
  for id in pairs(engine.jobs) do runs[#runs + 1] = id end
  table.sort(runs)
  return { pid = core.sys.pid(), epoch = engine.fence.epoch, runs = json.array(runs) }
end

local function answer(engine, line)
  local q = json.decode(line)
  local verb = type(q) == "table" and verbs[q.op]
  if not verb then return { ok = false, code = "invalid", message = "not a question this engine knows" } end
  if (q.op == "run" or q.op == "cancel") and type(q.id) ~= "string" then
    return { ok = false, code = "invalid", message = "no id" }
  end
  local value, e = verb(engine, q)
  if not value then return { ok = false, code = e.code, message = e.message } end
  value.ok = true
  return value
end

--- Serves until `stop`. What is asked is answered in a task of its own.
--- @return {stop: fun()}? endpoint
--- @return crewbox.Error? err
function M.serve(engine)
  local path = paths.engine_socket(engine.state)
  local loop = engine.loop
  local stream, e = loop:stream(loop.io:serve { path = path })
  if not stream then return nil, e end
  local endpoint = { busy = 0, failed = nil }
  local task = loop:spawn(function()
    while true do
      local event, why = stream:next()
      if not event then
        endpoint.failed = why
        break
      end
      if event.line then
        endpoint.busy = endpoint.busy + 1
        loop:spawn(function()
          local ok, value = pcall(answer, engine, event.line)
          endpoint.busy = endpoint.busy - 1
          if not ok then
            engine:log(tostring(value))
            value = { ok = false, code = "system", message = "a defect of the engine; its log has the trace" }
          end
          loop.io:answer(event.conn, json.encode(value))
        end)
      end
    end
    stream:close()
  end)
  function endpoint.stop() task:cancel() end
  return endpoint
end

return M
