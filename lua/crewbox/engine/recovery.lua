-- SPDX-License-Identifier: MIT
-- One sweep: engines that died are taken out, their runs are taken over, boxes that nobody needs
-- are killed. Runs at the start of an engine and every few seconds after.
local box = require "crewbox.engine.box"
local core = require "crewbox.core"
local provider = require "crewbox.engine.provider"

local M = {}

local LIST_EVERY_MS = 60000
-- A run that needs values from memory is left for so long to the client that has them, which asks
-- again when the engine it asked died.
local CLIENT_S = 3

-- Rows of an engine newer than this one that has gone: a new epoch puts us above it.
local function rise_above(engine, rows)
  for _, row in ipairs(rows) do
    if row.epoch and row.epoch > engine.fence.epoch then
      local epoch, e = engine.store:raise_epoch(engine.fence.owner)
      if not epoch then return nil, e end
      engine.fence.epoch = epoch
    end
  end
  return true
end

-- A box whose provider cannot be asked is gone when its lease has surely run out.
local LEASE_MARGIN_S = 60

local function has_run_out(row)
  return (row.lease_until or row.updated_at) < core.sys.wall() - LEASE_MARGIN_S
end

local function is_surely_over(engine, run)
  if not run.box_id then return true end
  local row, e = engine.store:box(run.box_id)
  if e then return nil, e end
  return row == nil or row.state == "gone" or has_run_out(row)
end

local function adopt_orphans(engine)
  local orphans, e = engine.store:orphans(core.sys.wall())
  if not orphans then return nil, e end
  local risen
  risen, e = rise_above(engine, orphans)
  if not risen then return nil, e end
  engine.unfit = {}
  for _, row in ipairs(orphans) do
    local for_client = row.state == "preparing" and #row.env_names > 0 and row.updated_at > core.sys.wall() - CLIENT_S
    local put_off = (engine.later[row.id] or 0) > engine.now_ms()
    if not engine.jobs[row.id] and not for_client and not put_off then
      local p, over = engine:provider_for(row)
      if not p then over, e = is_surely_over(engine, row) end
      if e then return nil, e end
      if not p and not over then
        engine.unfit[row.id] = true
      else
        local ok, why = engine:adopt(row.id, { anyway = true })
        if not ok and why.code ~= "already_claimed" then engine:log(("run %s: %s"):format(row.id, provider.words(why))) end
      end
    end
  end
  return true
end

local function kill_left_over(engine)
  local rows, e = engine.store:boxes_to_kill(engine.fence.owner)
  if not rows then return nil, e end
  local risen
  risen, e = rise_above(engine, rows)
  if not risen then return nil, e end
  for _, row in ipairs(rows) do
    if not engine.killing[row.id] then
      local p = engine:provider_for { options = { provider = row.provider, generation = row.generation } }
      if not p and has_run_out(row) then
        engine.store:box_gone(row.id, "its lease has run out", engine.fence, core.sys.wall())
      elseif p then
        engine.killing[row.id] = true
        engine:background(function()
          local gone, why = box.kill(engine, p, row)
          engine.killing[row.id] = nil
          if not gone and why then engine:log(("box %s is not gone yet: %s"):format(row.id, provider.words(why))) end
        end)
      end
    end
  end
  return true
end

-- Boxes with our label that no row knows: their create was given up, or their row is over. The
-- list is asked for first: a box that is in it had its row written before.
local function kill_unknown(engine, p)
  local value, e = engine.loop:await(p.verbs:list { metadata = { crewbox_installation = engine.store.meta.installation } })
  if not value then return nil, e end
  local nonces
  nonces, e = engine.store:living_nonces(p.kind)
  if not nonces then return nil, e end
  for _, b in ipairs(value.boxes) do
    local nonce = type(b.metadata) == "table" and b.metadata.crewbox_nonce
    if nonce and not nonces[nonce] then
      engine:log(("killing box %s, which no run needs"):format(b.id))
      engine.loop:await(p.verbs:kill { id = b.id })
    end
  end
  return true
end

--- @async
--- @return true? ok
--- @return crewbox.Error? err
function M.sweep(engine)
  local store = engine.store
  local dropped, e = store:drop_dead_engines(engine.fence.owner, core.sys.wall(), core.sys.alive)
  if not dropped then return nil, e end
  local ok
  ok, e = adopt_orphans(engine)
  if not ok then return nil, e end
  local ids
  ids, e = store:cancels_for(engine.fence.owner)
  if not ids then return nil, e end
  for _, id in ipairs(ids) do
    if engine.jobs[id] then engine.jobs[id]:cancel() end
  end
  ok, e = kill_left_over(engine)
  if not ok then return nil, e end
  local now = core.sys.now_ms()
  for _, p in pairs(engine.providers) do
    if not p.listed_at or now - p.listed_at >= LIST_EVERY_MS then
      p.listed_at = now
      engine:background(function() kill_unknown(engine, p) end)
    end
  end
  return true
end

return M
