-- SPDX-License-Identifier: MIT
local core = require "crewbox.core"
local help = require "spec.support.core"

local sys = core.sys

describe("crewbox.core io", function()
  local folder, peer, url, before, h

  setup(function()
    folder = help.folder()
    peer = help.peer(folder)
    url = "http://127.0.0.1:" .. peer.address
    before = help.held()
  end)

  teardown(function()
    peer.stop()
    help.remove(folder)
  end)

  before_each(function() h = help.open() end)

  after_each(function()
    h.io:close()
    h = nil
    assert.is_true(help.nothing_leaked(before))
  end)

  it("starts no thread before the first op", function()
    assert.equal(before.threads, help.held().threads)
    assert.is_true(h.wait(h.io:sleep(0)))
    assert.equal(before.threads + 1, help.held().threads)
  end)

  it("waits no longer than it is told to", function()
    assert.is_false(h.io:step(0))
    assert.is_false(h.io:step(1))
    local op = h.io:sleep(0)
    assert.is_true(h.io:step(math.huge))
    assert.equal(op, h.io:drain()[1].op)
    assert.same({}, h.io:drain())
  end)

  it("makes its descriptor readable while completions wait", function()
    local op = h.io:sleep(0)
    assert.is_true(h.io:step(help.BOUND_MS))
    assert.is_true(h.io:step(0))
    assert.is_true(h.io:fd() >= 0)
    assert.same({ { op = op, value = true } }, h.io:drain())
    assert.is_false(h.io:step(0))
  end)

  it("cancels a sleep", function()
    local op = h.io:sleep(600000)
    assert.equal(1, h.io:work_count())
    assert.is_true(h.io:cancel(op))
    local value, err = h.wait(op)
    assert.is_nil(value)
    assert.equal("cancelled", err.code)
    assert.equal(0, h.io:work_count())
    assert.is_true(h.io:cancel(op)) -- over: ignored
  end)

  it("carries bytes both ways over HTTP", function()
    local body = "a\0b\255\r\n"
    local v = assert(h.wait(h.io:http {
      url = url .. "/echo?x=1", method = "POST", body = body, headers = { "X-Mine: yes" },
    }))
    assert.equal(200, v.status)
    assert.equal(body, v.body:sub(-#body))
    assert.is_truthy(v.body:find("X-Mine: yes", 1, true))
    assert.equal("Text/Plain; charset=utf-8", v.headers["content-type"])
    assert.equal("a, b", v.headers["x-two"])
  end)

  it("speaks HTTP over a unix socket", function()
    local other = help.peer(folder, folder .. "/s")
    local v = assert(h.wait(h.io:http { url = "http://box/echo", unix_socket = other.address }))
    other.stop()
    assert.equal(200, v.status)
  end)

  for _, case in ipairs {
    { path = "/reset", code = "unreachable" },
    { path = "/close", code = "unreachable" },
    { path = "/torn", code = "unreachable", status = 200 },
    { path = "/garbage", code = "protocol" },
    { path = "/headers", code = "too_large" },
    { path = "/body", code = "too_large", status = 200 },
    { path = "/slow", code = "timeout", timeout_ms = 50 },
  } do
    it("names what " .. case.path .. " does: " .. case.code, function()
      local v, err = h.wait(h.io:http {
        url = url .. case.path, max_bytes = 100000, timeout_ms = case.timeout_ms,
      })
      assert.is_nil(v)
      assert.equal(case.code, err.code)
      assert.equal(case.status, err.status)
      assert.equal(err.code .. ": " .. err.message, tostring(err))
      assert.equal(core.error_mt, getmetatable(err))
    end)
  end

  it("raises for options it does not know or of another kind", function()
    for _, o in ipairs {
      {}, { url = 1 }, { url = url, urll = url }, { url = url, headers = "X: y" },
      { url = url, headers = { 1 } }, { url = url, timeout_ms = "1" }, { url = url, fresh = 1 },
      { url = url, body = {} }, { url },
    } do
      assert.has_error(function() h.io:http(o) end)
    end
    assert.has_error(function() h.io:http() end)
    assert.has_error(function() h.io:sleep(-1) end)
    assert.has_error(function() h.io:sleep "x" end)
    assert.equal(0, h.io:work_count())
  end)

  it("runs a child to its end", function()
    local v = assert(h.wait(h.io:spawn {
      argv = { "sh", "-c", "cat; echo $A >&2; exit 3" }, stdin = "x\0y", env = { A = "b", PATH = "/usr/bin:/bin" },
    }))
    assert.same({ exit = 3, stdout = "x\0y", stderr = "b\n" }, v)
    v = assert(h.wait(h.io:spawn { argv = { "pwd" }, cwd = folder, env = { "PATH=/usr/bin:/bin" } }))
    assert.equal(folder .. "\n", v.stdout)
  end)

  it("bounds a child in bytes and time", function()
    local v = assert(h.wait(h.io:spawn { argv = { "head", "-c", "1000000", "/dev/zero" }, max_bytes = 10 }))
    assert.equal(("\0"):rep(10), v.stdout)
    assert.is_true(v.truncated)
    v = assert(h.wait(h.io:spawn { argv = { "sh", "-c", "sleep 600 & sleep 600" }, timeout_ms = 30 }))
    assert.is_true(v.timed_out)
    assert.equal(9, v.signal)
  end)

  it("tells why a child did not start", function()
    local _, err = h.wait(h.io:spawn { argv = { "no-such-program" } })
    assert.equal("not_found", err.code)
    _, err = h.wait(h.io:spawn { argv = { "true" }, cwd = "/nowhere" })
    assert.equal("not_found", err.code)
    assert.has_error(function() h.io:spawn { argv = {} } end)
    assert.has_error(function() h.io:spawn { argv = { "a\0b" } } end)
  end)

  it("serves lines to its own user and answers them", function()
    local path = folder .. "/lines"
    local server = h.io:serve { path = path }
    assert.is_true(h.next(server).value.ready)
    assert.equal(384, sys.stat(path).mode) -- 0600
    local question = h.io:ask { path = path, line = "a\0b" }
    local c = h.next(server)
    assert.is_true(c.more)
    assert.equal("a\0b", c.value.line)
    assert.is_true(h.io:answer(c.value.conn, "yes"))
    assert.same({ line = "yes" }, (h.wait(question)))
    assert.is_true(h.next(server).value.closed)
    assert.is_false(h.io:answer(c.value.conn, "too late"))
    h.io:cancel(server)
    local _, err = h.wait(server)
    assert.equal("cancelled", err.code)
    assert.is_nil(sys.stat(path))
    _, err = h.wait(h.io:ask { path = path, line = "x" })
    assert.equal("unreachable", err.code)
  end)

  it("closes a connection once its last line is written", function()
    local path = folder .. "/lines"
    local server = h.io:serve { path = path }
    local question = h.io:ask { path = path, line = "bye" }
    local c
    repeat c = h.next(server) until c.value.line
    assert.is_true(h.io:answer(c.value.conn, nil, true))
    local _, err = h.wait(question)
    assert.equal("closed", err.code)
    assert.has_error(function() h.io:answer(c.value.conn, "two\nlines") end)
  end)

  it("writes and removes files without waiting for the disk", function()
    local path = folder .. "/written"
    assert.is_true(h.wait(h.io:write_file { path = path, data = "a\0b" }))
    assert.equal("a\0b", sys.read_file(path))
    assert.equal(384, sys.stat(path).mode)
    assert(sys.mkdirs(folder .. "/tree/below", 448))
    assert.is_true(h.wait(h.io:write_file { path = folder .. "/tree/below/f", data = "x", mode = 420 }))
    assert.is_true(h.wait(h.io:remove_tree { path = folder .. "/tree" }))
    assert.is_nil(sys.stat(folder .. "/tree"))
    local _, err = h.wait(h.io:write_file { path = folder .. "/no/such/folder", data = "x" })
    assert.equal("not_found", err.code)
    assert.has_error(function() h.io:write_file { path = "a\0b", data = "x" } end)
  end)

  it("starts a program that outlives it, and says why one did not start", function()
    local d = assert(h.wait(h.io:daemon { argv = { "sh", "-c", "echo ready $K; exec sleep 600" }, log = folder .. "/log",
      env = { K = "v", PATH = "/usr/bin:/bin" } }))
    assert.equal("ready v", d.line)
    assert(sys.kill(d.pid, "KILL"))
    local _, err = h.wait(h.io:daemon { argv = { "sh", "-c", "echo because >&2" }, log = folder .. "/log" })
    assert.truthy(err.message:find("because", 1, true), err.message)
    assert.has_error(function() h.io:daemon { argv = {}, log = "/x" } end)
  end)

  it("bug-Q5: gives nil and closed after close, for every method", function()
    h.io:sleep(600000)
    assert.is_true(h.io:close())
    assert.is_true(h.io:close())
    for name, args in pairs {
      fd = {}, step = { 0 }, drain = {}, cancel = { 1 }, work_count = {}, sleep = { 1 },
      http = { { url = url } }, spawn = { { argv = { "true" } } }, serve = { { path = "/x" } },
      answer = { 1, "x" }, ask = { { path = "/x", line = "x" } }, wake_socket = { "/x" },
      daemon = { { argv = { "true" }, log = "/x" } }, write_file = { { path = "/x", data = "" } },
      remove_tree = { { path = "/x" } },
    } do
      local v, err = h.io[name](h.io, args[1], args[2])
      assert.is_nil(v)
      assert.equal("closed", err.code)
    end
    assert.equal("crewbox.io (closed)", tostring(h.io))
  end)

  it("bug-Q5: may be collected with everything in flight", function()
    for _ = 1, 5 do
      local io = assert(core.io())
      io:http { url = url .. "/slow" }
      io:http { url = url .. "/body" }
      io:http { url = url .. "/drip" }
      io:sleep(600000)
      io:spawn { argv = { "sleep", "600" } }
      io:serve { path = folder .. "/gone" }
      io:ask { path = folder .. "/gone", line = "x" }
      assert(core.store(io, folder .. "/gone.db")):query "SELECT 1"
      io = nil -- luacheck: ignore
      collectgarbage()
      collectgarbage()
    end
    assert.is_nil(sys.stat(folder .. "/gone"))
  end)

  it("keeps many ops apart while garbage is collected", function()
    local ops = {}
    for i = 1, 50 do ops[i] = h.io:http { url = url .. (i % 2 == 0 and "/zero" or "/chunked") } end
    for i = 1, 50 do
      collectgarbage()
      assert.equal(i % 2 == 0 and "a\0b\0" or "onetwothree", h.wait(ops[i]).body)
    end
  end)

  if _VERSION >= "Lua 5.4" then
    it("ends with its scope", function()
      local closed = load([[
        local core = ...
        local kept
        do
          local io <close> = core.io()
          io:sleep(600000)
          kept = io
        end
        return kept
      ]])(core)
      assert.equal("crewbox.io (closed)", tostring(closed))
    end)
  end
end)
