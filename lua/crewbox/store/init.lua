-- SPDX-License-Identifier: MIT
-- Opens the database of a state folder and brings it to the newest schema. The store's methods
-- are the named queries of engines.lua, boxes.lua and runs.lua; SQL is nowhere else.
--
-- Every write of an engine is fenced: it carries the engine's epoch and changes nothing where a
-- newer engine has taken the row. Such a write answers `nil, {code="fenced"}`: stop working on it.
local core = require "crewbox.core"
local err = require "crewbox.err"
local schema = require "crewbox.store.schema"

local M = {}

local Store = {}
Store.__index = Store

for _, name in ipairs { "engines", "boxes", "runs" } do
  for method, fn in pairs(require("crewbox.store." .. name)) do Store[method] = fn end
end

--- Rows of a query.
--- @async
--- @return table[]? rows
--- @return crewbox.Error? err
function Store:rows(sql, params)
  local value, e = self.loop:await(self.db:query(sql, params))
  if not value then return nil, e end
  return value.rows
end

--- Rows changed by a query.
--- @async
--- @return number? changes
--- @return crewbox.Error? err
function Store:change(sql, params)
  local value, e = self.loop:await(self.db:query(sql, params))
  if not value then return nil, e end
  return value.changes
end

--- A change that must hit: no row changed means that another engine has taken over.
--- @async
--- @return true? done
--- @return crewbox.Error? err `fenced`
function Store:fenced(sql, params)
  local changes, e = self:change(sql, params)
  if not changes then return nil, e end
  if changes == 0 then return nil, err.new("fenced", "another engine has taken this over") end
  return true
end

--- Statements in one transaction; where one that names `changes` changes another number of
--- rows, everything is rolled back.
--- @async
--- @return table? results
--- @return crewbox.Error? err `fenced` when rolled back, with `index`
function Store:batch(statements)
  local value, e = self.loop:await(self.db:batch(statements))
  if not value then return nil, e end
  if value.failed then
    return nil, err.new("fenced", "another engine has taken this over", { index = value.failed })
  end
  return value.results
end

-- One migration, in a transaction that only the connection that still sees version n-1 wins.
local function migrate(store, n)
  local statements = { { "UPDATE meta SET value = ? WHERE key = 'schema' AND value = ?",
    { tostring(n), tostring(n - 1) }, changes = 1 } }
  for _, sql in ipairs(schema[n]) do statements[#statements + 1] = { sql } end
  local _, e = store:batch(statements)
  if e and e.code ~= "fenced" then return nil, e end -- fenced: somebody else just did it
  return true
end

local function bring_up(store)
  local _, e = store:batch {
    { "CREATE TABLE IF NOT EXISTS meta(key TEXT PRIMARY KEY, value TEXT NOT NULL)" },
    { "INSERT OR IGNORE INTO meta(key, value) VALUES('schema', '0')" },
    { "INSERT OR IGNORE INTO meta(key, value) VALUES('installation', ?)", { core.sys.random_id(12) } },
  }
  if e then return nil, e end
  while true do
    local rows
    rows, e = store:rows("SELECT key, value FROM meta")
    if not rows then return nil, e end
    for _, row in ipairs(rows) do store.meta[row.key] = row.value end
    local version = tonumber(store.meta.schema)
    if version == #schema then return true end
    if version > #schema then
      return nil, err.new("unsupported", ("the state folder was written by a newer crewbox (schema %d, this one knows %d)")
        :format(version, #schema))
    end
    local ok
    ok, e = migrate(store, version + 1)
    if not ok then return nil, e end
  end
end

--- @async
--- @param loop table   crewbox.async
--- @param path string  the database file; its folder must be there
--- @return table? store
--- @return crewbox.Error? err
function M.open(loop, path)
  local db, e = core.store(loop.io, path)
  if not db then return nil, e end
  local store = setmetatable({
    loop = loop,
    db = db,
    meta = {},   -- table meta as it was at opening: schema, installation
  }, Store)
  local ok
  ok, e = bring_up(store)
  if not ok then
    db:close()
    return nil, e
  end
  return store
end

--- A number that changes when another connection has written.
--- @async
function Store:version()
  return self.loop:await(self.db:data_version())
end

function Store:close()
  self.db:close()
end

return M
