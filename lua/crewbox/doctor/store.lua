-- SPDX-License-Identifier: MIT
-- doctor, store: the database of runs opens, is whole, of a schema this crewbox knows, and can be
-- written. Nothing in it is changed; what was not there is not made.
local core = require "crewbox.core"
local paths = require "crewbox.paths"
local schema = require "crewbox.store.schema"

local M = { name = "store" }

local CHECK_MS = 30000
local RESTORE = "move %s* away, or put a backup there; a new store knows nothing of earlier runs"

local function whole(ctx, say, db, path)
  local value, e = ctx.loop:await(db:query("PRAGMA quick_check(1)"), CHECK_MS)
  if not value and e.code == "timeout" then
    return say("warn", "integrity", ("not checked: it takes more than %d s"):format(CHECK_MS / 1000)) or true
  end
  local word = value and value.rows[1] and value.rows[1].quick_check
  if word == "ok" then return say("ok", "integrity", "PRAGMA quick_check finds nothing wrong") or true end
  say("fail", "integrity", ("%s is damaged: %s"):format(path, word or e.message), RESTORE:format(path))
end

local function version(ctx, say, db, path)
  local value, e = ctx.loop:await(db:query "SELECT value FROM meta WHERE key = 'schema'", CHECK_MS)
  if not value then return say("fail", "schema", ("%s is no store of crewbox: %s"):format(path, e.message), RESTORE:format(path)) end
  local number = value.rows[1] and tonumber(value.rows[1].value)
  if not number or number > #schema then
    return say("fail", "schema", ("schema %s, this crewbox knows up to %d"):format(tostring(number), #schema),
      "use the newer crewbox that wrote it, or set CREWBOX_STATE to another folder")
  end
  say("ok", "schema", number == #schema and ("%d, the newest"):format(number)
    or ("%d; the next run brings it to %d"):format(number, #schema))
end

-- A transaction that takes the write lock, changes a row to itself and is rolled back: the number
-- of changed rows it asks for is one that cannot be.
local function writable(ctx, say, db, path)
  local value, e = ctx.loop:await(db:batch {
    { "UPDATE meta SET value = value WHERE key = 'schema'", changes = 2 } }, CHECK_MS)
  if value and value.failed == 1 then return say("ok", "writable", "a change was tried and taken back") end
  local why = e and e.message or "it took a change that should have failed"
  if e and (e.code == "busy" or e.code == "timeout") then
    return say("warn", "writable", "not checked: another process holds it: " .. why,
      "look for a crewbox that hangs: crewbox engine --status")
  end
  say("fail", "writable", why, ("look at the owner, mode and file system of %s"):format(path))
end

function M.run(ctx, say)
  if not ctx.state then return say("warn", "database", "not checked: there is no state folder") end
  local path = paths.database(ctx.state)
  if not core.sys.stat(path) then return say("ok", "database", "none yet; the first run makes it") end
  local db, e = core.store(ctx.io, path)
  local opened
  if db then opened, e = ctx.loop:await(db:data_version(), CHECK_MS) end
  if not opened then
    if db then db:close() end
    return say("fail", "database", ("%s does not open: %s"):format(path, e.message), RESTORE:format(path))
  end
  say("ok", "database", path .. " opens")
  if whole(ctx, say, db, path) then
    version(ctx, say, db, path)
    writable(ctx, say, db, path)
  end
  db:close()
end

return M
