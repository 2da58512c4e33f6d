-- SPDX-License-Identifier: MIT
-- Lua 5.4 only; both VMs run this.
-- luacheck: read globals math.type math.tointeger math.maxinteger math.mininteger
local core = require "crewbox.core"
local help = require "spec.support.core"

describe("crewbox.core store", function()
  local folder, before, h, db, path

  setup(function()
    folder = help.folder()
    before = help.held()
  end)

  teardown(function() help.remove(folder) end)

  before_each(function()
    h = help.open()
    path = folder .. "/" .. core.sys.random_id(8)
    db = assert(core.store(h.io, path))
  end)

  after_each(function()
    db:close()
    h.io:close()
    db, h = nil, nil
    assert.is_true(help.nothing_leaked(before))
  end)

  local function query(sql, params)
    return h.wait(db:query(sql, params))
  end

  it("gives rows as tables and counts changes", function()
    assert.same({ rows = {}, changes = 0 }, (query "CREATE TABLE t(a, b)"))
    assert.same({ rows = {}, changes = 1 }, (query("INSERT INTO t VALUES(?, ?)", { 1, "x" })))
    assert.same({ rows = { { a = 1, b = "x" } }, changes = 0 }, (query "SELECT * FROM t"))
  end)

  it("bug-Q7: carries numbers, bytes and NULL exactly", function()
    local big = 9007199254740993
    if _VERSION < "Lua 5.4" then big = "9007199254740993" end -- text: a double cannot hold it
    query "CREATE TABLE t(n INTEGER, r REAL, s TEXT, b BLOB, x)"
    assert(query("INSERT INTO t VALUES(:n, :r, :s, :b, :x)",
      { n = big, r = 0.1, s = "12", b = { bytes = "a\0\255" }, x = core.null }))
    local row = assert(query "SELECT n, r, s, b, x, typeof(b) tb, typeof(s) ts, typeof(n) tn FROM t").rows[1]
    assert.same({ n = big, r = 0.1, s = "12", b = "a\0\255", tb = "blob", ts = "text", tn = "integer" }, row)
    assert.same({ yes = 1, no = 0 }, query("SELECT ? yes, ? no", { true, false }).rows[1])
    if math.type then assert.equal("integer", math.type(row.n)) end
  end)

  it("rolls a batch back when a statement changes another number of rows", function()
    query "CREATE TABLE t(k PRIMARY KEY)"
    local v = assert(h.wait(db:batch {
      { "INSERT INTO t VALUES(?)", { 1 } }, { "DELETE FROM t WHERE k = ?", { 9 }, changes = 1 },
    }))
    assert.same({ failed = 2 }, v)
    assert.same({ n = 0 }, query "SELECT count(*) n FROM t".rows[1])
    v = assert(h.wait(db:batch { { "INSERT INTO t VALUES(1)", changes = 1 }, { "SELECT k FROM t" } }))
    assert.equal(1, v.results[1].changes)
    assert.same({ { k = 1 } }, v.results[2].rows)
    local _, err = h.wait(db:batch { { "INSERT INTO t VALUES(2)" }, { "INSERT INTO t VALUES(1)" } })
    assert.equal("conflict", err.code)
    assert.same({ n = 1 }, query "SELECT count(*) n FROM t".rows[1])
    assert.same({}, h.wait(db:batch {}).results)
  end)

  it("sees that another connection has written", function()
    query "CREATE TABLE t(k)"
    local one = h.wait(db:data_version())
    local other = assert(core.store(h.io, path))
    assert(h.wait(other:query "INSERT INTO t VALUES(1)"))
    assert.is_true(h.wait(db:data_version()) ~= one)
    other:close()
  end)

  it("keeps what was answered after a crash of the process", function()
    query "CREATE TABLE t(k)"
    assert.equal(1, query("INSERT INTO t VALUES(7)").changes)
    local copy = path .. "-copy" -- what a killed process leaves: the files as they are
    for _, e in ipairs { "", "-wal" } do assert(core.sys.copy(path .. e, copy .. e)) end
    local other = assert(core.store(h.io, copy))
    assert.same({ { k = 7 } }, h.wait(other:query "SELECT k FROM t").rows)
    other:close()
  end)

  it("raises for misuse and names failures of the world", function()
    assert.has_error(function() db:query() end)
    assert.has_error(function() db:query("SELECT ?", { nil, 1 }) end)
    assert.has_error(function() db:query("SELECT ?", 1) end)
    assert.has_error(function() db:query("SELECT ?", { print }) end)
    assert.has_error(function() db:batch "x" end)
    assert.has_error(function() db:batch { "x" } end)
    assert.has_error(function() db:batch { {} } end)
    local _, err = query "SELEC"
    assert.equal("invalid", err.code)
    _, err = core.store(h.io, "/nowhere/db")
    assert.equal("not_found", err.code)
  end)

  it("bug-Q5: gives nil and closed after close, and may be collected at work", function()
    for _ = 1, 20 do db:query "SELECT 1" end
    assert.is_true(db:close())
    assert.is_true(db:close())
    for _, name in ipairs { "query", "batch", "data_version" } do
      local v, err = db[name](db, name == "batch" and {} or "SELECT 1")
      assert.is_nil(v)
      assert.equal("closed", err.code)
    end
    assert.equal("crewbox.store (closed)", tostring(db))
    local other = assert(core.store(h.io, path))
    other:query "SELECT 1"
    other = nil -- luacheck: ignore
    collectgarbage()
    collectgarbage()
    local third = assert(core.store(h.io, path))
    h.io:close()
    local v, err = third:query "SELECT 1"
    assert.is_nil(v)
    assert.equal("closed", err.code)
    v, err = core.store(h.io, path)
    assert.is_nil(v)
    assert.equal("closed", err.code)
  end)

  it("keeps its io alive", function()
    local store
    do
      local io = assert(core.io())
      store = assert(core.store(io, path))
    end
    collectgarbage()
    collectgarbage()
    assert.is_truthy(store:query "SELECT 1")
    store:close()
  end)
end)
