-- SPDX-License-Identifier: MIT
-- Queries on `engine`: who may write, and until when. An engine is its owner id and its epoch.
local core = require "crewbox.core"

local M = {}

M.LEASE_S = 15

-- Rows of engines go; the highest epoch stays.
local KEEP_HIGHEST = [[INSERT INTO meta(key, value) SELECT 'epoch', CAST(epoch AS TEXT) FROM engine WHERE owner = ?
  ON CONFLICT(key) DO UPDATE SET value = excluded.value]]

--- Enters an engine; its epoch is the highest so far plus one.
--- @async
--- @return number? epoch
--- @return crewbox.Error? err
function M:add_engine(owner, now)
  local pid = core.sys.pid()
  local results, e = self:batch {
    { [[INSERT INTO engine(owner, epoch, pid, pid_start, host, started_at, expires_at)
        SELECT ?, 1 + max(coalesce((SELECT max(epoch) FROM engine), 0),
          coalesce((SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'epoch'), 0)), ?, ?, ?, ?, ?]],
      { owner, pid, tostring(core.sys.pid_start(pid) or ""), core.sys.hostname(), now, now + M.LEASE_S }, changes = 1 },
    { KEEP_HIGHEST, { owner } },
    { "SELECT epoch FROM engine WHERE owner = ?", { owner } },
  }
  if not results then return nil, e end
  return results[3].rows[1].epoch
end

--- Gives an engine a new, highest epoch: it takes over what a newer engine left behind.
--- @async
--- @return number? epoch
--- @return crewbox.Error? err `fenced`: it was declared dead meanwhile
function M:raise_epoch(owner)
  local results, e = self:batch {
    { [[UPDATE engine SET epoch = 1 + max((SELECT max(epoch) FROM engine),
          coalesce((SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'epoch'), 0)) WHERE owner = ?]], { owner }, changes = 1 },
    { KEEP_HIGHEST, { owner } },
    { "SELECT epoch FROM engine WHERE owner = ?", { owner } },
  }
  if not results then return nil, e end
  return results[3].rows[1].epoch
end

--- Renews an engine and every claim it holds.
--- @async
--- @return true? renewed
--- @return crewbox.Error? err `fenced`: it was declared dead meanwhile
function M:renew_engine(owner, now)
  local ok, e = self:batch {
    { "UPDATE engine SET expires_at = ? WHERE owner = ?", { now + M.LEASE_S, owner }, changes = 1 },
    { [[UPDATE run SET claim_until = ? WHERE claim_owner = ? AND accepted_at IS NULL]], { now + M.LEASE_S, owner } },
  }
  if not ok then return nil, e end
  return true
end

--- @async
--- @return table[]? engines
--- @return crewbox.Error? err
function M:engines()
  return self:rows("SELECT * FROM engine ORDER BY epoch")
end

--- Takes an engine out and lets go of what it held. For one that leaves, and for one that is
--- known to be dead.
--- @async
function M:drop_engine(owner)
  return self:batch {
    { "UPDATE run SET claim_owner = NULL, claim_until = NULL WHERE claim_owner = ? AND accepted_at IS NULL", { owner } },
    { "UPDATE box SET owner = NULL WHERE owner = ?", { owner } },
    { "DELETE FROM engine WHERE owner = ?", { owner } },
  }
end

--- Takes out the engines whose processes on this host have ended, and those whose lease ran out
--- long ago. `alive(pid, pid_start)` says whether such a process lives.
--- @async
--- @return number? dropped
--- @return crewbox.Error? err
function M:drop_dead_engines(me, now, alive)
  local engines, e = self:engines()
  if not engines then return nil, e end
  local dropped, host = 0, core.sys.hostname()
  for _, engine in ipairs(engines) do
    local dead = engine.host == host and not alive(engine.pid, engine.pid_start)
    if engine.owner ~= me and (dead or engine.expires_at < now - 4 * M.LEASE_S) then
      local ok
      ok, e = self:drop_engine(engine.owner)
      if not ok then return nil, e end
      dropped = dropped + 1
    end
  end
  return dropped
end

return M
