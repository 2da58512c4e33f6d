-- SPDX-License-Identifier: MIT
-- The box of a run: asked for with the intent written first, found again by its nonce when the
-- answer was lost, kept alive by a lease from its creation on, killed by id until it is gone.
local core = require "crewbox.core"
local err = require "crewbox.err"
local events = require "crewbox.engine.events"
local fault = require "crewbox.engine.fault"
local local_server = require "crewbox.engine.local_server"
local provider = require "crewbox.engine.provider"

local M = {}

-- How long a lost create may still show up in a list. A provider's lists lag; crewboxd's do not,
-- but a create whose client died may still be on its way there.
local LOOK_MS = { remote = 75000, here = 3000 }
local LOOK_FIRST_MS, LOOK_MOST_MS = 200, 10000
local CREATE_TRIES = 4
local FRESH_MS = 2000 -- a server that answered so long ago is there
local KILL_TRIES = 6

local function wall() return core.sys.wall() end

-- ---- finding ------------------------------------------------------------------------------

local function list(engine, p, metadata)
  local value, e = engine.loop:await(p.verbs:list { metadata = metadata })
  if not value then return nil, e end
  return value.boxes
end

--- The box with a nonce, looked for until a lost create can no longer show up.
--- @async
--- @return table|false|nil found false: there is none
--- @return crewbox.Error? err nothing is known
function M.look(engine, p, nonce)
  local deadline = engine.now_ms() + LOOK_MS[p.remote and "remote" or "here"]
  local pause, known, failure = LOOK_FIRST_MS
  while true do
    local boxes, e = list(engine, p, { crewbox_nonce = nonce })
    if boxes and boxes[1] then return boxes[1] end
    known, failure = boxes ~= nil, e
    if e and e.code == "unreachable" then engine:server_lost(p) end
    if engine.now_ms() + pause > deadline then break end
    local ok
    ok, e = engine.loop:sleep(pause)
    if not ok then return nil, e end
    pause = math.min(pause * 2, LOOK_MOST_MS)
  end
  if known then return false end
  return nil, failure
end

-- BOX of a live box by its id. A box is gone when the provider says so twice.
local function info(job, remote_id)
  local misses = 0
  while true do
    local value, e = job:try(function()
      return job.engine.loop:await(job.provider.verbs:info { id = remote_id })
    end)
    if value then return value end
    if e.code ~= "not_found" then return nil, e end
    misses = misses + 1
    if misses == 2 then return nil, err.new("box_lost", "the box is gone: its provider does not know it any more") end
    local ok
    ok, e = job.engine.loop:sleep(500)
    if not ok then return nil, e end
  end
end

-- ---- making -------------------------------------------------------------------------------

local function template_of(job)
  local sandbox = job.provider.sandbox
  if sandbox.template ~= "" then return sandbox.template end
  if job.provider.remote then return job.harness.remote_template or "base" end
  local name, e = local_server.template(job.engine, job.harness)
  if not name then return nil, job:ends("failed", "start_failed", e.message) end
  return name
end

local function recorded(job, remote_id, domain)
  local lease = wall() + job.provider.sandbox.default_timeout_seconds
  local ok, e = job.engine.store:box_live(job.box_row.id, remote_id, domain or core.null, lease, job:fence(), wall())
  if not ok then return nil, e end
  job.box_row.remote_id, job.box_row.state = remote_id, "live"
  return true
end

-- The box of a row in `creating` that was found by its nonce.
local function found(job, box)
  local ok, e = recorded(job, box.id, box.domain)
  if not ok then return nil, e end
  job.box, e = info(job, box.id)
  if not job.box then return nil, e end
  return true
end

local function create(job, template)
  local row, options = job.box_row, job.row.options
  local forward = options.forward
  return job.engine.loop:await(job.provider.verbs:create {
    nonce = row.nonce,
    template = template,
    timeout_s = job.provider.sandbox.default_timeout_seconds,
    metadata = { crewbox_nonce = row.nonce, crewbox_box = row.id, crewbox_installation = job.engine.store.meta.installation },
    allow = options.allow,
    forward = forward and #forward > 0 and forward or nil,
  })
end

local function new_nonce(job)
  local nonce = core.sys.random_id(24)
  local ok, e = job.engine.store:box_new_nonce(job.box_row.id, nonce, job:fence(), wall())
  if not ok then return nil, e end
  job.box_row.nonce = nonce
  return true
end

-- From a row in `creating` to a live box. maybe: an earlier create may have got through.
local function make(job, maybe)
  local template, e = template_of(job)
  if not template then return nil, e end
  local last
  for try = 1, CREATE_TRIES do
    if maybe then
      local box
      box, e = M.look(job.engine, job.provider, job.box_row.nonce)
      if box then return found(job, box) end
      if box == nil then return nil, e end
      local ok
      ok, e = new_nonce(job)
      if not ok then return nil, e end
    end
    local ok
    ok, e = job:checkpoint()
    if not ok then return nil, e end
    local box
    box, last = create(job, template)
    if box then
      fault.at("box_created")
      ok, e = recorded(job, box.id, box.domain)
      if not ok then return nil, e end
      job.box = box
      return true
    end
    if last.code == "unreachable" then job.engine:server_lost(job.provider) end
    maybe = last.unknown == true or last.code == "timeout"
    if not maybe and not provider.is_passing(last) then break end
    if try < CREATE_TRIES then
      ok, e = job.engine.loop:sleep(math.min(math.max(500 * try, last.retry_after_ms or 0), 30000))
      if not ok then return nil, e end
    end
  end
  return nil, job:ends("failed", "start_failed", "no box could be made: " .. provider.words(last))
end

local function new_row(job)
  local row = { id = "b" .. core.sys.random_id(12), provider = job.provider.kind, generation = job.provider.generation,
    nonce = core.sys.random_id(24), state = "creating" }
  local ok, e = job.engine.store:add_box(row, job.id, job:fence(), wall())
  if not ok then return nil, e end
  job.row.box_id, job.box_row = row.id, row
  fault.at("box_row_written")
  return true
end

-- ---- the lease keeper ----------------------------------------------------------------------

local function keep(job)
  local engine = job.engine
  local stream, e = engine.loop:stream(engine.watch:lease {
    provider = job.provider.verbs, box = job.box, lease_s = job.provider.sandbox.default_timeout_seconds,
  })
  if not stream then
    engine:log(("run %s: the lease of its box is not kept: %s"):format(job.id, provider.words(e)))
    return
  end
  while true do
    local event = stream:next()
    if not event then break end
    if event.event == "renewed" or event.event == "capped" then
      if event.end_at then
        job.lease_end_at = event.end_at
        engine.store:box_lease(job.box_row.id, event.end_at, job:fence(), wall())
      end
      if event.event == "capped" then events.tell(job, "lease_capped", { end_at = event.end_at }) end
    elseif event.event == "gone" then
      job.box_gone = true
      job:poke()
    elseif event.event == "unreachable" then
      engine:server_lost(job.provider)
    end
  end
  stream:close()
end

--- The box of this run: the one its row names, else a new one as long as nothing of the agent has
--- started. Its lease is kept from here on.
--- @async
--- @return true? ok
--- @return crewbox.Error? err
function M.acquire(job)
  local engine, ok, e = job.engine
  if not job.provider.remote then -- whoever prepared the run has just looked, perhaps in this process
    ok, e = local_server.ensure(engine, job.provider, FRESH_MS)
    if not ok then return nil, e end
  end

  if job.row.box_id then
    job.box_row, e = engine.store:box(job.row.box_id)
    if e then return nil, e end
  end
  local row = job.box_row
  if row and row.state ~= "gone" then
    ok, e = engine.store:take_box(row.id, job:fence(), wall())
    if not ok then return nil, e end
    if row.generation ~= job.provider.generation then
      return nil, job:ends("lost", "box_lost", "the box belongs to other provider settings than today's; it was left alone")
    end
    if row.remote_id then
      job.box, e = info(job, row.remote_id)
      if not job.box and e.code ~= "box_lost" then return nil, e end
      if not job.box then
        ok, e = engine.store:box_gone(row.id, "gone when the engine came back", job:fence(), wall())
        if not ok then return nil, e end
      end
    else
      ok, e = make(job, true)
      if not ok then return nil, e end
    end
  end
  if not job.box then
    if job.row.state ~= "preparing" then return nil, job:ends("lost", "box_lost", "the box of the run is gone") end
    ok, e = new_row(job)
    if not ok then return nil, e end
    ok, e = make(job, false)
    if not ok then return nil, e end
  end
  fault.at("box_recorded")
  job.keeper = engine.loop:spawn(keep, job)
  events.tell(job, "box_live", { box = job.box_row.id, remote_id = job.box.id, provider = job.provider.kind })
  return true
end

-- ---- the end of a box ----------------------------------------------------------------------

local function settled(engine, row, message)
  local ok, e = engine.store:box_gone(row.id, message or core.null, engine.fence, wall())
  if not ok then return nil, e end
  return true
end

-- Boxes with the nonce of a row that never learnt their ids.
local function kill_by_nonce(engine, p, row)
  local box, e = M.look(engine, p, row.nonce)
  if box == nil then return nil, e end
  if box then
    local _
    _, e = engine.loop:await(p.verbs:kill { id = box.id })
    if e then return nil, e end
  end
  return settled(engine, row)
end

--- Kills a box until its provider says that it is gone. Gives up after a while: the sweep comes
--- back to it.
--- @async
--- @return true? gone
--- @return crewbox.Error? err
function M.kill(engine, p, row)
  local pause, last = 200, nil
  for _ = 1, KILL_TRIES do
    if not row.remote_id then
      local ok
      ok, last = kill_by_nonce(engine, p, row)
      if ok then return true end
    else
      local value
      value, last = engine.loop:await(p.verbs:kill { id = row.remote_id })
      if value and value.gone then return settled(engine, row) end
      if last and last.code == "not_found" then return settled(engine, row) end
    end
    if last and last.code == "unreachable" then engine:server_lost(p) end
    if last and (last.code == "fenced" or last.code == "closed") then break end
    local ok, e = engine.loop:sleep(pause)
    if not ok then return nil, e end
    pause = math.min(pause * 2, 5000)
  end
  return nil, last
end

return M
