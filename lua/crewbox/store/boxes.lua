-- SPDX-License-Identifier: MIT
-- Queries on `box`. A row is written before a box is asked for; `creating -> live -> gone`.
local M = {}

--- A box row in `creating` for a run, and the run's pointer to it, in one transaction.
--- @async
--- @param box table {id, provider, generation, nonce}
--- @param fence table {owner, epoch}
--- @return true? added
--- @return crewbox.Error? err `fenced`
function M:add_box(box, run_id, fence, now)
  local ok, e = self:batch {
    { [[INSERT INTO box(id, provider, generation, nonce, state, owner, epoch, created_at, updated_at)
        VALUES(?, ?, ?, ?, 'creating', ?, ?, ?, ?)]],
      { box.id, box.provider, box.generation, box.nonce, fence.owner, fence.epoch, now, now } },
    { [[UPDATE run SET box_id = ?, updated_at = ? WHERE id = ? AND claim_owner = ?
        AND (epoch IS NULL OR epoch <= ?) AND accepted_at IS NULL]],
      { box.id, now, run_id, fence.owner, fence.epoch }, changes = 1 },
  }
  if not ok then return nil, e end
  return true
end

--- @async
--- @return table? box nil without an error: there is none
--- @return crewbox.Error? err
function M:box(id)
  local rows, e = self:rows("SELECT * FROM box WHERE id = ?", { id })
  if not rows then return nil, e end
  return rows[1]
end

--- The box of a run goes to the engine that has claimed the run.
--- @async
function M:take_box(id, fence, now)
  return self:fenced([[UPDATE box SET owner = ?, epoch = ?, updated_at = ?
    WHERE id = ? AND (epoch IS NULL OR epoch <= ?)]], { fence.owner, fence.epoch, now, id, fence.epoch })
end

--- The box is there: its id at the provider.
--- @async
function M:box_live(id, remote_id, domain, lease_until, fence, now)
  return self:fenced([[UPDATE box SET state = 'live', remote_id = ?, domain = ?, lease_until = ?, error = NULL,
    updated_at = ? WHERE id = ? AND state != 'gone' AND (epoch IS NULL OR epoch <= ?)]],
    { remote_id, domain, lease_until, now, id, fence.epoch })
end

--- The unknown outcome of a create was settled: no box. The row gets a new nonce for the next try.
--- @async
function M:box_new_nonce(id, nonce, fence, now)
  return self:fenced([[UPDATE box SET nonce = ?, updated_at = ?
    WHERE id = ? AND state = 'creating' AND (epoch IS NULL OR epoch <= ?)]],
    { nonce, now, id, fence.epoch })
end

--- @async
function M:box_lease(id, lease_until, fence, now)
  return self:fenced([[UPDATE box SET lease_until = ?, updated_at = ?
    WHERE id = ? AND (epoch IS NULL OR epoch <= ?)]], { lease_until, now, id, fence.epoch })
end

--- The provider said that it is gone.
--- @async
function M:box_gone(id, message, fence, now)
  return self:fenced([[UPDATE box SET state = 'gone', error = ?, updated_at = ?
    WHERE id = ? AND (epoch IS NULL OR epoch <= ?)]], { message, now, id, fence.epoch })
end

--- Boxes that nobody needs any more: their run is over, or there is no run, and no living engine
--- holds them.
--- @async
--- @return table[]? boxes
--- @return crewbox.Error? err
function M:boxes_to_kill(me)
  return self:rows([[SELECT box.* FROM box WHERE box.state != 'gone'
    AND NOT EXISTS (SELECT 1 FROM run WHERE run.box_id = box.id AND run.accepted_at IS NULL)
    AND (box.owner IS NULL OR box.owner = ? OR NOT EXISTS (SELECT 1 FROM engine WHERE engine.owner = box.owner))
    ORDER BY box.created_at]], { me })
end

--- Number of boxes that are not gone.
--- @async
function M:count_boxes()
  local rows, e = self:rows("SELECT count(*) AS n FROM box WHERE state != 'gone'")
  if not rows then return nil, e end
  return rows[1].n
end

--- Nonces of the rows that are not gone, as a set: what the provider may show with our label.
--- @async
--- @return table<string, boolean>? nonces
--- @return crewbox.Error? err
function M:living_nonces(provider)
  local rows, e = self:rows("SELECT nonce FROM box WHERE state != 'gone' AND provider = ?", { provider })
  if not rows then return nil, e end
  local set = {}
  for _, row in ipairs(rows) do set[row.nonce] = true end
  return set
end

return M
