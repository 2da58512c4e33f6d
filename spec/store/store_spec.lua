-- SPDX-License-Identifier: MIT
local async = require "crewbox.async"
local core = require "crewbox.core"
local schema = require "crewbox.store.schema"
local store = require "crewbox.store"

describe("the store", function()
  local io, loop, dir, db

  local function open() return assert(loop:call(store.open, loop, dir .. "/crewbox.db")) end
  local function call(method, ...) return loop:call(db[method], db, ...) end
  local function now() return core.sys.wall() end

  local function add_run(id, claim, claim_s)
    assert(call("add_run", { id = id, kind = "agent", agent = "command", title = "t", options = { a = 1 },
      env_names = { "A" }, claim_owner = claim or "cnobody", claim_s = claim_s or -7200 }, now()))
  end

  local function add_engine(owner) return { owner = owner, epoch = assert(call("add_engine", owner, now())) } end

  before_each(function()
    io = core.io()
    loop = async.new(io)
    dir = os.tmpname()
    os.remove(dir)
    core.sys.mkdirs(dir, 448)
    db = open()
  end)

  after_each(function()
    db:close()
    io:close()
    core.sys.rmtree(dir)
  end)

  it("brings an empty file to the newest schema and leaves a current one alone", function()
    assert.equal(tostring(#schema), db.meta.schema)
    local again = open()
    assert.equal(db.meta.installation, again.meta.installation)
    again:close()
  end)

  it("refuses a file of a newer crewbox", function()
    call("change", "UPDATE meta SET value = '999' WHERE key = 'schema'")
    local other, e = loop:call(store.open, loop, dir .. "/crewbox.db")
    assert.is_nil(other)
    assert.equal("unsupported", e.code)
  end)

  it("is opened by many at once and migrated once", function()
    local path = dir .. "/fresh.db"
    local opened = loop:call(function()
      local tasks, n = {}, 0
      for i = 1, 6 do tasks[i] = loop:spawn(store.open, loop, path) end
      for _, task in ipairs(tasks) do
        local s = assert(task:join())
        n = n + 1
        s:close()
      end
      return n
    end)
    assert.equal(6, opened)
  end)

  it("gives every engine a higher epoch, also after all others have left", function()
    local a, b = add_engine("ea"), add_engine("eb")
    assert.is_true(b.epoch > a.epoch)
    assert(call("drop_engine", "ea"))
    assert(call("drop_engine", "eb"))
    assert.is_true(add_engine("ec").epoch > b.epoch)
  end)

  it("keeps JSON columns as what they are", function()
    add_run("r1")
    local run = call("run", "r1")
    assert.same({ a = 1 }, run.options)
    assert.same("A", run.env_names[1])
    assert.is_nil(run.outcome)
    assert.is_nil(run.accepted_at)
    assert.is_false(run.cancel_asked)
  end)

  describe("a claim", function()
    it("is given to one of two who ask at once (bug-D1)", function()
      add_run("r1")
      local a, b = add_engine("ea"), add_engine("eb")
      local got, refused = 0, 0
      loop:call(function()
        local tasks = {}
        for i = 1, 8 do
          local fence = i % 2 == 0 and a or b
          tasks[i] = loop:spawn(db.claim_run, db, "r1", fence, now())
        end
        for _, task in ipairs(tasks) do
          local run, e = task:join()
          if run then got = got + 1 else
            refused = refused + 1
            assert.equal("already_claimed", e.code)
          end
        end
      end)
      assert.equal(1, got)
      assert.equal(7, refused)
    end)

    it("is given to one of several processes that race (bug-D1)", function()
      add_run("r1")
      local program = [[
        local core, async, store = require "crewbox.core", require "crewbox.async", require "crewbox.store"
        local loop = async.new(core.io())
        loop:call(function()
          local db = assert(store.open(loop, arg[1]))
          local fence = { owner = arg[2] }
          fence.epoch = assert(db:add_engine(fence.owner, core.sys.wall()))
          local run, e = db:claim_run("r1", fence, core.sys.wall())
          io.stdout:write(run and "won" or e.code)
          db:close()
        end)
        loop.io:close()
      ]]
      local file = dir .. "/claim.lua"
      assert(core.sys.write_file(file, program, 420, false))
      local exe = core.sys.realpath("/proc/self/exe")
      local results = loop:call(function()
        local tasks, out = {}, {}
        local env = {}
        for k, v in pairs(core.sys.environ()) do env[#env + 1] = k .. "=" .. v end
        for i = 1, 4 do
          tasks[i] = loop:spawn(function()
            return assert(loop:await(io:spawn { argv = { exe, file, dir .. "/crewbox.db", "e" .. i }, env = env, timeout_ms = 60000 }))
          end)
        end
        for i, task in ipairs(tasks) do
          local r = assert(task:join())
          assert.equal("", r.stderr)
          out[i] = r.stdout
        end
        table.sort(out)
        return out
      end)
      assert.same({ "already_claimed", "already_claimed", "already_claimed", "won" }, results)
    end)

    it("that is handed over goes to the one it is handed to", function()
      add_run("r1", "cclient", 60)
      local a = add_engine("ea")
      assert.equal("already_claimed", select(2, call("claim_run", "r1", a, now())).code)
      assert.equal("r1", call("claim_run", "r1", a, now(), "cclient").id)
    end)

    it("of an engine that stopped renewing can be taken, and its writes are refused from then on", function()
      add_run("r1")
      local a = add_engine("ea")
      assert(call("claim_run", "r1", a, now() - 3600))
      local b = add_engine("eb")
      assert.equal(1, #call("orphans", now()))
      assert(call("claim_run", "r1", b, now()))
      assert.equal("fenced", select(2, call("run_starting", "r1", 1, {}, a, now())).code)
      assert.equal("fenced", select(2, call("run_progress", "r1", {}, 1, 1, a, now())).code)
      local final = { state = "failed", reason = "agent_exit", outcome = {}, finished_at = now() }
      assert.equal("fenced", select(2, call("accept_run", "r1", final, a, now())).code)
      assert.is_true(call("run_starting", "r1", 1, {}, b, now()))
    end)

    it("of an older epoch cannot take what a newer one has", function()
      add_run("r1")
      local a = add_engine("ea")
      local b = add_engine("eb")
      assert(call("claim_run", "r1", b, now() - 3600))
      assert.equal("already_claimed", select(2, call("claim_run", "r1", a, now())).code)
    end)

    it("of a newer engine that left can be taken by an older one, which rises above it", function()
      add_run("r1")
      local a = add_engine("ea")
      local b = add_engine("eb")
      assert(call("claim_run", "r1", b, now()))
      assert(call("drop_engine", "eb"))
      assert.equal("already_claimed", select(2, call("claim_run", "r1", a, now())).code)
      a.epoch = assert(call("raise_epoch", "ea"))
      assert.is_true(a.epoch > b.epoch)
      assert.equal("r1", call("claim_run", "r1", a, now()).id)
      assert.is_true(add_engine("ec").epoch > a.epoch)
      assert.equal("fenced", select(2, call("raise_epoch", "eb")).code)
    end)

    it("of a dead process is let go at once", function()
      add_run("r1")
      local a, b = add_engine("ea"), add_engine("eb")
      assert(call("claim_run", "r1", a, now()))
      local none_alive = function() return false end
      assert.equal(1, call("drop_dead_engines", "eb", now(), none_alive))
      assert.equal("r1", call("claim_run", "r1", b, now()).id)
      assert.equal("fenced", select(2, call("renew_engine", "ea", now())).code)
    end)

    it("of a living process stays when another engine sweeps", function()
      add_run("r1")
      local a = add_engine("ea")
      assert(call("claim_run", "r1", a, now()))
      assert.equal(0, call("drop_dead_engines", "eb", now(), core.sys.alive))
    end)

    it("is told from one whose process number was given to another (bug-B3)", function()
      add_engine("ea")
      call("change", "UPDATE engine SET pid_start = '1' WHERE owner = 'ea'")
      assert.equal(1, call("drop_dead_engines", "eb", now(), core.sys.alive))
    end)
  end)

  describe("a run", function()
    local fence

    before_each(function()
      add_run("r1")
      fence = add_engine("ea")
      assert(call("claim_run", "r1", fence, now()))
    end)

    local function accept(state)
      return call("accept_run", "r1", { state = state, outcome = { text = "x" }, finished_at = now() }, fence, now())
    end

    it("is accepted once (bug-D5)", function()
      assert.is_true(accept("succeeded"))
      assert.equal("fenced", select(2, accept("failed")).code)
      local run = call("run", "r1")
      assert.equal("succeeded", run.state)
      assert.same({ text = "x" }, run.outcome)
      assert.is_nil(run.claim_owner)
    end)

    for _, final in ipairs { "succeeded", "failed", "cancelled", "timed_out", "lost" } do
      it("does not leave the state " .. final .. ", whoever writes", function()
        assert.is_true(accept(final))
        for _, sql in ipairs { "UPDATE run SET state = 'preparing'", "UPDATE run SET state = 'running'",
          "UPDATE run SET state = CASE state WHEN 'lost' THEN 'failed' ELSE 'lost' END",
          "UPDATE run SET accepted_at = NULL", "UPDATE run SET accepted_at = 1", "UPDATE run SET outcome = '{}'" } do
          local changes, e = call("change", sql)
          assert.is_nil(changes)
          assert.truthy(e.message)
        end
        assert.equal(final, call("run", "r1").state)
      end)
    end

    it("does not go back", function()
      assert(call("run_starting", "r1", 1, {}, fence, now()))
      assert(call("run_running", "r1", {}, fence, now()))
      assert.is_nil((call("change", "UPDATE run SET state = 'starting'")))
      assert.is_nil((call("change", "UPDATE run SET state = 'preparing'")))
      assert.equal("running", call("run", "r1").state)
    end)

    it("refuses a state that is none", function()
      assert.has_error(function() accept("done") end)
      assert.is_nil((call("change", "UPDATE run SET state = 'done'")))
    end)

    it("is found by the beginning of its id, and by `last`", function()
      add_run("r2")
      assert.equal("r2", call("find_run", "r2").id)
      assert.equal("r2", call("find_run", "last").id)
      assert.equal("invalid", select(2, call("find_run", "r")).code)
      assert.equal("not_found", select(2, call("find_run", "nope")).code)
      assert.equal("not_found", select(2, call("find_run", "%")).code)
    end)

    it("hears of a cancel through its row, until it is over", function()
      assert.is_true(call("ask_cancel", "r1", now()))
      assert.same({ "r1" }, call("cancels_for", "ea"))
      assert.is_true(accept("cancelled"))
      assert.is_false(call("ask_cancel", "r1", now()))
      assert.same({}, call("cancels_for", "ea"))
    end)
  end)

  describe("a box", function()
    local fence

    before_each(function()
      add_run("r1")
      fence = add_engine("ea")
      assert(call("claim_run", "r1", fence, now()))
      assert(call("add_box", { id = "b1", provider = "local", generation = "g", nonce = "n1" }, "r1", fence, now()))
    end)

    it("is written with the run that points at it, or not at all", function()
      assert.equal("b1", call("run", "r1").box_id)
      local late = { owner = "ea", epoch = fence.epoch - 1 }
      local ok, e = call("add_box", { id = "b2", provider = "local", generation = "g", nonce = "n2" }, "r1", late, now())
      assert.is_nil(ok)
      assert.truthy(e)
      assert.is_nil(call("box", "b2"))
    end)

    it("is not killed while its run is not over, and is when it is", function()
      assert.same({}, call("boxes_to_kill", "ea"))
      assert(call("accept_run", "r1", { state = "failed", outcome = {}, finished_at = now() }, fence, now()))
      assert.equal("b1", call("boxes_to_kill", "ea")[1].id)
      assert(call("box_gone", "b1", core.null, fence, now()))
      assert.same({}, call("boxes_to_kill", "ea"))
      assert.same({}, call("living_nonces", "local"))
    end)

    it("does not come back once it is gone", function()
      assert(call("box_gone", "b1", core.null, fence, now()))
      assert.equal("fenced", select(2, call("box_live", "b1", "x", core.null, now(), fence, now())).code)
      assert.is_nil((call("change", "UPDATE box SET state = 'live'")))
    end)

    it("obeys the epoch of its writer", function()
      local b = add_engine("eb")
      assert(call("take_box", "b1", b, now()))
      assert.equal("fenced", select(2, call("box_live", "b1", "x", core.null, now(), fence, now())).code)
      assert(call("box_live", "b1", "x", core.null, now(), b, now()))
    end)
  end)

  it("lets a seat have one call that is not over", function()
    local function add(turn, handle, status)
      return call("change", "INSERT INTO pending_sandbox_run(turn_id, agent_handle, status, created_at, updated_at) VALUES(?, ?, ?, 0, 0)",
        { turn, handle, status })
    end
    assert.equal(1, add("t1", "dev", "running"))
    for _, status in ipairs { "launching", "running", "awaiting_clarification", "resumed", "reseed" } do
      assert.is_nil((add("t2", "dev", status)))
    end
    assert.equal(1, add("t3", "dev", "done"))
    assert.equal(1, add("t4", "ops", "running"))
    assert.is_nil((add("t5", "qa", "sleeping")))
  end)

  it("notices that another connection has written", function()
    local other = open()
    local before = call("version")
    loop:call(other.change, other, "INSERT INTO meta(key, value) VALUES('x', 'y')")
    assert.is_true(call("version") ~= before)
    other:close()
  end)
end)
