-- SPDX-License-Identifier: MIT
-- Leases and runs watched for real: crewboxd, a box, crewbox-supervise in it, through the Lua face.
local core = require "crewbox.core"
local orders = require "crewbox.engine.orders"
local box_server = require "support.box_server"

describe("watch", function()
  local server, p, w

  local function call(name, args) return server:next(p[name](p, args)) end

  local function sh(box, script)
    return assert(call("exec", { box = box, cmd = "/bin/sh", args = { "-c", script } }))
  end

  local function make()
    local box = assert(call("create", { nonce = "n" .. core.sys.random_id(23), timeout_s = 120 }))
    sh(box, "mkdir -p ~/.crewbox/bin ~/project")
    assert(call("upload", { box = box, files = {
      { path = "/home/user/.crewbox/bin/crewbox-supervise", source = os.getenv("CREWBOX_LIBEXEC") .. "/crewbox-supervise" },
    } }))
    sh(box, "chmod 755 ~/.crewbox/bin/crewbox-supervise")
    return box
  end

  -- Starts `script` under a supervisor in the box; gives what watch:run wants of it.
  local function supervise(box, script)
    local run = "r" .. core.sys.random_id(12)
    local dir = "/home/user/.crewbox/runs/" .. run
    local folder = ("/dev/shm/crewbox-%s-1"):format(run)
    sh(box, ("mkdir -p %s && mkdir -m 700 %s"):format(dir, folder))
    assert(call("upload", { box = box, files = { { path = folder .. "/orders", data = orders.encode {
      run = run, launch_seq = 1, kind = "command", run_dir = dir, cwd = "/home/user/project", user = "",
      argv = { "/bin/sh", "-c", script }, env = { PATH = "/usr/bin:/bin", HOME = "/home/user" }, secrets = {}, beat_ms = 100,
    } } } }))
    sh(box, "chmod 600 " .. folder .. "/orders")
    assert(call("start", { box = box, cmd = "/home/user/.crewbox/bin/crewbox-supervise", args = { "run", folder .. "/orders" } }))
    return { provider = p, box = box, run = run, launch_seq = 1, run_dir = dir, interval_ms = 100 }
  end

  local function follow(args, till)
    local op = assert(w:run(args))
    local out, err = {}, {}
    local last -- the last event
    repeat
      local event, e, more = server:next(op)
      assert(event, e)
      if event.event == "progress" then
        out[#out + 1], err[#err + 1] = event.out, event.err
        assert.equal(0, #event.gaps)
        assert.equal(#table.concat(out) + (args.out_offset or 0), event.out_offset)
      end
      last = event
    until not more or event.event == till
    return last, table.concat(out), table.concat(err), op
  end

  setup(function()
    server = box_server.start()
    p = server:provider()
    w = assert(core.watch(server.io, { max_parallel = 8 }))
  end)

  teardown(function()
    w:close()
    p:close()
    server:stop()
  end)

  it("brings every byte of a run once and in order, then its end", function()
    local box = make()
    local script = "i=0; while [ $i -lt 30000 ]; do echo line $i; i=$((i+1)); done; echo done >&2; exit 7"
    local want = {}
    for i = 0, 29999 do want[#want + 1] = "line " .. i .. "\n" end
    want = table.concat(want)
    local args = supervise(box, script)
    args.max_bytes = 50000
    local last, out, err = follow(args)
    assert.equal("finished", last.event)
    assert.equal(7, last.state.exit)
    assert.equal("exited", last.state.why)
    assert.is_true(out == want)
    assert.equal("done\n", err)
    -- A watch that begins later goes on from its offsets.
    args.out_offset, args.err_offset = #want - 6, 5
    last, out, err = follow(args)
    assert.equal("finished", last.event)
    assert.equal(" 29999\n", " " .. out)
    assert.equal("", err)
    call("kill", { id = box.id })
  end)

  it("tells a stopped process, and never takes it for a dead one (bug-B5)", function()
    local box = make()
    local last, _, _, op = follow(supervise(box, "echo up; kill -STOP $$; echo on"), "stalled")
    assert.equal("stalled", last.event)
    assert.equal("stopped", last.why)
    assert.is_true(last.state.stopped)
    sh(box, "kill -CONT " .. last.state.pid)
    local event, more
    repeat event, _, more = server:next(op) until not more
    assert.equal("finished", event.event)
    assert.equal(0, event.state.exit)
    call("kill", { id = box.id })
  end)

  it("calls a supervisor lost only when its process is proven gone", function()
    local box = make()
    local last, _, _, op = follow(supervise(box, "sleep 600"), "progress")
    sh(box, "kill -9 " .. last.state.sup_pid)
    local event, more, _
    repeat event, _, more = server:next(op) until not more
    assert.same({ event = "lost", reason = "supervisor_lost" }, event)
    call("kill", { id = box.id })
  end)

  it("calls a box lost at once when the provider says twice that it is gone (bug-C9)", function()
    local box = make()
    local _, _, _, op = follow(supervise(box, "sleep 600"), "progress")
    local lease = assert(w:lease { provider = p, box = box, lease_s = 4 })
    local event = assert(server:next(lease))
    assert.equal("renewed", event.event)
    assert.is_true(event.end_at > core.sys.wall())
    assert(call("kill", { id = box.id }))
    local more, _
    repeat event, _, more = server:next(op) until not more
    assert.same({ event = "lost", reason = "box_lost" }, event)
    repeat event, _, more = server:next(lease) until not more
    assert.equal("gone", event.event)
  end)

  it("keeps a box alive beyond the life it was given", function()
    local box = assert(call("create", { nonce = "n" .. core.sys.random_id(23), timeout_s = 3 }))
    local first = assert(call("info", { id = box.id })).end_at
    local lease = assert(w:lease { provider = p, box = box, lease_s = 4 })
    server:wait_for(function() return core.sys.wall() > first + 1 end, "the first end of the box")
    assert.equal("running", assert(call("info", { id = box.id })).state)
    server.io:cancel(lease)
    local e, more, _
    repeat _, e, more = server:next(lease) until not more
    assert.equal("cancelled", e.code)
    server:wait_for(function() return call("info", { id = box.id }) == nil end, "the end of the box")
  end)

  it("goes on when the box server was killed and came back", function()
    local box = make()
    local args = supervise(box, "echo before; while [ ! -e ~/go ]; do sleep 0.05; done; echo after; exit 4")
    local _, out, _, op = follow(args, "progress")
    server:kill()
    local event, e
    repeat
      event, e = server:next(op)
      assert(event, e)
      out = out .. (event.out or "")
    until event.event == "unreachable"
    server:begin()
    sh(box, "touch ~/go")
    local more
    repeat
      event, e, more = server:next(op)
      assert(event, e)
      out = out .. (event.out or "")
    until not more
    assert.equal("finished", event.event)
    assert.equal(4, event.state.exit)
    assert.equal("before\nafter\n", out)
    call("kill", { id = box.id })
  end)

  it("says that a run never started", function()
    local box = make()
    local last = follow { provider = p, box = box, run = "rnever", launch_seq = 1, run_dir = "/home/user/none", interval_ms = 100,
      start_deadline_ms = 300 }
    assert.same({ event = "lost", reason = "start_failed" }, last)
    call("kill", { id = box.id })
  end)

  it("polls at once when poked, and ends when cancelled", function()
    local box = make()
    local args = supervise(box, "echo a; while [ ! -e ~/go ]; do sleep 0.05; done; echo b; sleep 600")
    args.interval_ms = 3600000
    local segment = args.run_dir .. "/out." .. ("0"):rep(16)
    server:wait_for(function() return call("read", { box = box, path = segment, max_bytes = 10 }) ~= nil end, "output")
    local op = assert(w:run(args))
    assert.equal("progress", assert(server:next(op)).event)
    sh(box, "touch ~/go; while ! grep -q b " .. segment .. "; do sleep 0.05; done; sleep 0.3")
    assert.is_true(w:poke(op))
    local event = assert(server:next(op))
    assert.is_truthy(event.out:find("b\n", 1, true))
    server.io:cancel(op)
    local v, e, more = server:next(op)
    assert.is_nil(v)
    assert.equal("cancelled", e.code)
    assert.is_falsy(more)
    call("kill", { id = box.id })
  end)

  it("survives the end of the I/O handle with everything in flight", function()
    local box = make()
    local other = core.io()
    local q = assert(core.provider(other, "local", { socket = server.socket }))
    local v = assert(core.watch(other))
    q:exec { box = box, cmd = "/bin/sleep", args = { "600" } }
    v:lease { provider = q, box = box, lease_s = 60 }
    v:run { provider = q, box = box, run = "r1", launch_seq = 1, run_dir = "/r", interval_ms = 50 }
    other:step(1000)
    assert.is_true(other:close())
    local op, e = q:health()
    assert.is_nil(op)
    assert.equal("closed", e.code)
    op, e = v:run { provider = q, box = box }
    assert.is_nil(op)
    assert.equal("closed", e.code)
    assert.is_true(v:close())
    assert.is_true(q:close())
    call("kill", { id = box.id })
  end)

  it("raises for misuse and ends its jobs when it is closed", function()
    assert.has_error(function() w:run { provider = "x" } end)
    assert.has_error(function() core.watch(server.io, { max_parallel = 0 }) end)
    local v, e = server:next(w:run { provider = p, box = { id = "i1" } })
    assert.is_nil(v)
    assert.equal("invalid", e.code)
    local other = assert(core.watch(server.io))
    local op = assert(other:run { provider = p, box = { id = "i1", token = "t" }, run = "r1", launch_seq = 1, run_dir = "/r",
      interval_ms = 100 })
    assert.is_true(other:close())
    local more, _
    repeat _, e, more = server:next(op) until not more
    assert.equal("closed", e.code)
    v, e = other:run { provider = p, box = { id = "i1" } }
    assert.is_nil(v)
    assert.equal("closed", e.code)
    assert.equal("crewbox.watch (closed)", tostring(other))
    assert.equal(0, server.io:work_count())
  end)
end)
