-- SPDX-License-Identifier: MIT
-- The E2B provider against a real crewboxd and real boxes, through its Lua face.
local core = require "crewbox.core"
local box_server = require "support.box_server"

describe("provider e2b over crewboxd", function()
  local server, p

  local function call(name, args) return server:next(p[name](p, args)) end

  local function make(args)
    args = args or {}
    args.nonce = args.nonce or "n" .. core.sys.random_id(23)
    args.timeout_s = args.timeout_s or 120
    return assert(call("create", args))
  end

  setup(function()
    server = box_server.start()
    p = server:provider()
  end)

  teardown(function()
    p:close()
    server:stop()
  end)

  it("says who is there", function()
    local v = assert(call "health")
    assert.equal("crewboxd", v.server)
    assert.is_string(v.version)
  end)

  it("makes a box, finds it by its label, kills it", function()
    local nonce = "n" .. core.sys.random_id(23)
    local box = make { nonce = nonce, metadata = { crewbox_box = "b1" } }
    assert.is_string(box.token)
    local info = assert(call("info", { id = box.id }))
    assert.equal("running", info.state)
    assert.equal(nonce, info.metadata.crewbox_nonce)
    assert.equal("b1", info.metadata.crewbox_box)
    assert.equal(box.token, info.token)
    assert.is_true(info.end_at > info.started_at)
    local found = assert(call("list", { metadata = { crewbox_nonce = nonce } })).boxes
    assert.equal(1, #found)
    assert.equal(box.id, found[1].id)
    assert.same({ gone = true, existed = true }, call("kill", { id = box.id }))
    assert.same({ gone = true, existed = false }, call("kill", { id = box.id }))
    local v, e = call("info", { id = box.id })
    assert.is_nil(v)
    assert.equal("not_found", e.code)
    assert.equal(0, #assert(call("list", { metadata = { crewbox_nonce = nonce } })).boxes)
  end)

  it("runs commands and tells how they ended", function()
    local box = make()
    local cases = {
      { name = "exit", script = "echo out; echo err >&2; exit 3", exit = 3, stdout = "out\n", stderr = "err\n" },
      { name = "success", script = "printf 'a\\0b'", exit = 0, stdout = "a\0b", stderr = "" },
      { name = "signal", script = "kill -9 $$", signal = 9, stdout = "", stderr = "" },
      { name = "stdin is closed", script = "cat; echo end", exit = 0, stdout = "end\n", stderr = "" },
    }
    for _, c in ipairs(cases) do
      local v = assert(call("exec", { box = box, cmd = "/bin/sh", args = { "-c", c.script } }))
      assert.equal(c.exit, v.exit, c.name)
      assert.equal(c.signal, v.signal, c.name)
      assert.equal(c.stdout, v.stdout, c.name)
      assert.equal(c.stderr, v.stderr, c.name)
      assert.is_false(v.truncated)
    end
    local v = assert(call("exec", { box = box, cmd = "/bin/sh", args = { "-c", 'echo "$A $PWD"; id -un' },
      env = { A = "x y" }, cwd = "/tmp" }))
    assert.equal("x y /tmp\nuser\n", v.stdout)
    v = assert(call("exec", { box = box, cmd = "/usr/bin/id", args = { "-un" }, user = "root" }))
    assert.equal("root\n", v.stdout)
    v = assert(call("exec", { box = box, cmd = "/bin/sh", args = { "-c", "head -c 300000 /dev/zero | tr '\\0' x" }, max_bytes = 1000 }))
    assert.equal(("x"):rep(1000), v.stdout)
    assert.is_true(v.truncated)
    call("kill", { id = box.id })
  end)

  it("ends a stuck command in the box itself", function()
    local box = make()
    local v, e = call("exec", { box = box, cmd = "/bin/sleep", args = { "4711" }, timeout_ms = 300 })
    assert.is_nil(v)
    assert.equal("timeout", e.code)
    assert.is_nil(e.unknown)
    server:wait_for(function()
      local seen = assert(call("exec", { box = box, cmd = "/bin/sh", args = { "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '" } }))
      return not seen.stdout:find("sleep 4711", 1, true)
    end, "the end of the command")
    v, e = call("exec", { box = box, cmd = "/bin/true", cwd = "/no/such/folder" })
    assert.is_nil(v)
    assert.equal("invalid", e.code)
    call("kill", { id = box.id })
  end)

  it("starts a process that outlives the stream, and signals it", function()
    local box = make()
    local pid = assert(call("start", { box = box, cmd = "/bin/sh", args = { "-c", "echo up > /tmp/up; exec sleep 600" } })).pid
    server:wait_for(function() return call("read", { box = box, path = "/tmp/up", max_bytes = 10 }) ~= nil end, "the process")
    local probe = { box = box, cmd = "/bin/sh", args = { "-c", "kill -0 " .. pid .. " && echo lives" } }
    assert.equal("lives\n", assert(call("exec", probe)).stdout)
    assert(call("signal", { box = box, pid = pid, signal = "KILL" }))
    server:wait_for(function() return assert(call("exec", probe)).stdout == "" end, "the end of the process")
    local v, e = call("signal", { box = box, pid = pid, signal = "TERM" })
    assert.is_true(v ~= nil or e.code == "not_found")
    call("kill", { id = box.id })
  end)

  it("carries files there and back byte for byte", function()
    local box = make()
    local bytes = "\0\255\r\n--x\"" .. ("0123456789"):rep(40000)
    local source = server.dir .. "/source"
    assert(core.sys.write_file(source, "from a file\0", 384, false))
    assert(call("upload", { box = box, files = { { path = '/home/user/deep/er/a "b" %22', data = bytes } } }))
    assert(call("upload", { box = box, files = {
      { path = "empty", data = "" },
      { path = "/tmp/sourced", source = source },
    } }))
    local v = assert(call("read", { box = box, path = '/home/user/deep/er/a "b" %22', max_bytes = 1000000 }))
    assert.is_true(v.data == bytes)
    assert.equal(#bytes, v.size)
    v = assert(call("read", { box = box, path = '/home/user/deep/er/a "b" %22', offset = #bytes - 5, max_bytes = 100 }))
    assert.equal("56789", v.data)
    v = assert(call("read", { box = box, path = '/home/user/deep/er/a "b" %22', offset = #bytes, max_bytes = 100 }))
    assert.equal("", v.data)
    assert.equal(#bytes, v.size)
    v = assert(call("read", { box = box, path = "empty", max_bytes = 10 }))
    assert.equal("", v.data)
    assert.equal(0, v.size)
    assert.equal("from a file\0", assert(call("read", { box = box, path = "/tmp/sourced", max_bytes = 100 })).data)
    local names = {}
    for _, entry in ipairs(assert(call("ls", { box = box, path = "/home/user/deep" })).entries) do
      names[entry.name] = entry.type
    end
    assert.same({ er = "dir" }, names)
    assert(call("remove", { box = box, path = "/home/user/deep" }))
    assert(call("remove", { box = box, path = "/home/user/deep" }))
    local e
    v, e = call("read", { box = box, path = "/home/user/deep/er/x", max_bytes = 10 })
    assert.is_nil(v)
    assert.equal("not_found", e.code)
    call("kill", { id = box.id })
  end)

  it("moves the end of a box and reads it back", function()
    local box = make { timeout_s = 60 }
    local before = assert(call("info", { id = box.id })).end_at
    local after = assert(call("timeout", { id = box.id, timeout_s = 600 })).end_at
    assert.is_true(after > before + 500)
    local again = assert(call("connect", { id = box.id, timeout_s = 30 })) -- bug-C7: never shortens
    assert.equal(box.id, again.id)
    assert.equal(box.token, again.token)
    assert.is_false(again.resumed)
    assert.is_true(math.abs(after - assert(call("info", { id = box.id })).end_at) < 1)
    call("kill", { id = box.id })
    local v, e = call("timeout", { id = box.id, timeout_s = 60 })
    assert.is_nil(v)
    assert.equal("not_found", e.code)
  end)

  it("names the port of a box by socket and headers", function()
    local v = assert(call("url", { box = { id = "i1" }, port = 3000 }))
    assert.equal("http://localhost", v.url)
    assert.equal(server.socket, v.socket)
    assert.same({ "E2b-Sandbox-Id: i1", "E2b-Sandbox-Port: 3000" }, setmetatable(v.headers, nil))
  end)

  it("gives typed errors for a box that is not there and a server that is not there", function()
    local v, e = call("exec", { box = { id = "inone", token = "t" }, cmd = "/bin/true" })
    assert.is_nil(v)
    assert.equal("unreachable", e.code)
    assert.equal(502, e.status)
    local nobody = assert(core.provider(server.io, "local", { socket = server.dir .. "/nobody.sock" }))
    v, e = server:next(nobody:create { nonce = "n", timeout_s = 5 })
    assert.is_nil(v)
    assert.equal("unreachable", e.code)
    assert.is_nil(e.unknown)
    nobody:close()
  end)

  it("raises for misuse and fails for what the world does", function()
    assert.has_error(function() p:create("x") end)
    assert.has_error(function() p:create { [{}] = 1 } end)
    assert.has_error(function() core.provider("no io", "e2b", {}) end)
    local v, e = core.provider(server.io, "e2b", { api_kye = "x" })
    assert.is_nil(v)
    assert.equal("invalid", e.code)
    v, e = call("create", { nonce = "n", timeout_s = 0 }) -- bug-C5
    assert.is_nil(v)
    assert.equal("invalid", e.code)
  end)

  it("ends an op that is cancelled, and all of them when it is closed", function()
    local box = make()
    local q = server:provider()
    local op = q:exec { box = box, cmd = "/bin/sleep", args = { "600" } }
    server.io:cancel(op)
    local v, e = server:next(op)
    assert.is_nil(v)
    assert.equal("cancelled", e.code)
    op = q:exec { box = box, cmd = "/bin/sleep", args = { "600" } }
    assert.equal("running", assert(call("info", { id = box.id })).state) -- so that it is under way
    assert.is_true(q:close())
    assert.is_true(q:close())
    v, e = server:next(op)
    assert.is_nil(v)
    assert.equal("closed", e.code)
    v, e = q:health()
    assert.is_nil(v)
    assert.equal("closed", e.code)
    assert.equal("crewbox.provider (closed)", tostring(q))
    call("kill", { id = box.id })
    assert.equal(0, server.io:work_count())
  end)

  it("is collected with transfers in flight", function()
    local box = make()
    local function leave_behind()
      server:provider():exec { box = box, cmd = "/bin/sleep", args = { "600" } }
    end
    leave_behind()
    collectgarbage()
    collectgarbage()
    server:wait_for(function() return server.io:work_count() == 0 end, "the end of the op")
    call("kill", { id = box.id })
  end)
end)

describe("provider e2b over loopback TCP", function()
  it("does the same with a key, and nothing with a wrong one", function()
    local server = box_server.start(true)
    local p = server:provider()
    local box = assert(server:next(p:create { nonce = "n1", timeout_s = 60, allow = {} }))
    local v = assert(server:next(p:exec { box = box, cmd = "/bin/echo", args = { "hi" } }))
    assert.equal("hi\n", v.stdout)
    assert(server:next(p:upload { box = box, files = { { path = "f", data = "x" } } }))
    assert.equal("x", assert(server:next(p:read { box = box, path = "f", max_bytes = 5 })).data)
    local wrong = server:provider { api_key = "e2b_00000000" }
    local e
    v, e = server:next(wrong:info { id = box.id })
    assert.is_nil(v)
    assert.equal("unauthorized", e.code)
    assert.is_nil(tostring(e):find("e2b_00000000", 1, true))
    wrong:close()
    p:close()
    server:stop()
  end)
end)
