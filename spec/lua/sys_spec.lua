-- SPDX-License-Identifier: MIT
local core = require "crewbox.core"
local help = require "spec.support.core"

local sys = core.sys
local OWN = 384 -- 0600

describe("crewbox.core sys", function()
  local folder, before

  setup(function()
    folder = help.folder()
    before = help.held()
  end)

  teardown(function()
    help.remove(folder)
    assert.is_true(help.nothing_leaked(before))
  end)

  local function path(name) return folder .. "/" .. name end

  local function daemon(script, o)
    o = o or {}
    return sys.daemon {
      argv = { "sh", "-c", script }, env = o.env, log = path "log", ready_timeout_ms = o.ms or help.BOUND_MS,
    }
  end

  -- Waits until fn gives something true.
  local function eventually(fn)
    local deadline = sys.now_ms() + help.BOUND_MS
    local h = help.open()
    local value
    repeat
      value = fn()
      if not value then h.wait(h.io:sleep(5)) end
    until value or sys.now_ms() > deadline
    h.io:close()
    return value
  end

  describe("processes", function()
    it("knows itself", function()
      assert.equal(tonumber((assert(io.open "/proc/self/stat"):read "n")), sys.pid())
      assert.is_true(sys.alive(sys.pid()))
      assert.is_true(sys.alive(sys.pid(), sys.pid_start(sys.pid())))
      assert.is_true(sys.alive(sys.pid(), tostring(sys.pid_start(sys.pid())))) -- as a store gives it back
      assert.is_true(sys.uid() >= 0)
      assert.is_true(#sys.hostname() > 0)
      assert.equal(os.getenv "PATH", sys.environ().PATH)
    end)

    it("bug-B3: takes a pid with another start time for dead", function()
      assert.is_false(sys.alive(sys.pid(), sys.pid_start(sys.pid()) + 1))
      assert.is_false(sys.alive(0))
      assert.is_false(sys.alive(-1))
      local ok, e = sys.kill(sys.pid(), "KILL", sys.pid_start(sys.pid()) + 1) -- or this would be the end
      assert.is_nil(ok)
      assert.equal("not_found", e.code)
      assert.is_true(sys.kill(sys.pid(), 0, sys.pid_start(sys.pid())))
      local start, err = sys.pid_start(2 ^ 22 + 5)
      assert.is_nil(start)
      assert.equal("not_found", err.code)
    end)

    it("bug-B1: takes a zombie for dead", function()
      -- The shell starts a child, becomes sleep, which reaps nobody, and the child ends.
      local d = assert(daemon [[sh -c 'echo $$; exec sleep 600' & exec sleep 600]])
      local child = tonumber(d.line)
      local start = sys.pid_start(child)
      assert.is_true(sys.alive(child, start))
      assert.is_true(sys.kill(child, "KILL"))
      assert.is_true(eventually(function() return not sys.alive(child, start) end))
      assert.equal(start, sys.pid_start(child)) -- it is still there
      assert.is_true(sys.kill(d.pid, "KILL"))
    end)

    it("signals one process, never a group", function()
      for _, pid in ipairs { 0, -1, -sys.pid() } do
        assert.has_error(function() sys.kill(pid, "TERM") end)
      end
      assert.has_error(function() sys.kill(sys.pid(), "NOSUCH") end)
      local ok, err = sys.kill(2 ^ 22 + 5, "TERM")
      assert.is_nil(ok)
      assert.equal("not_found", err.code)
      assert.is_true(sys.kill(sys.pid(), 0))
    end)
  end)

  describe("daemon", function()
    it("starts a program in a session of its own and gives its first line", function()
      local d = assert(daemon(
        [[echo "ready $A $(ls /proc/self/fd | tr '\n' ' ')"; cat /proc/self/stat; echo late >&2; exec sleep 600]],
        { env = { A = "b", PATH = "/usr/bin:/bin" } }))
      assert.equal("ready b 0 1 2 3 ", d.line) -- 3 is that of ls
      local session = sys.read_file(("/proc/%d/stat"):format(d.pid)):match "%) %S %d+ (%d+)"
      assert.equal(tostring(d.pid), session)
      assert.equal("/dev/null", sys.realpath(("/proc/%d/fd/0"):format(d.pid)))
      assert.is_true(eventually(function() return (sys.read_file(path "log") or ""):find "late" end) ~= nil)
      assert.equal(OWN, sys.stat(path "log").mode)
      assert.is_true(sys.kill(d.pid, "KILL"))
      -- Not a child of ours: nobody here has to reap it.
      assert.is_true(eventually(function() return not sys.stat("/proc/" .. d.pid) end))
    end)

    it("has default signals, whatever its parent ignores", function()
      local d = assert(daemon [[grep -E '^Sig(Blk|Ign)' /proc/self/status | tr -d '\n'; echo; exec sleep 600]])
      assert.is_true(sys.kill(d.pid, "KILL"))
      assert.equal("SigBlk:0000000000000000SigIgn:0000000000000000", (d.line:gsub("%s", "")))
    end)

    it("tells with the last words of the log why it did not start", function()
      local d, err = daemon "echo first >&2; echo 'no such key' >&2; exit 3"
      assert.is_nil(d)
      assert.equal("system", err.code)
      assert.is_truthy(err.message:find("no such key", 1, true))
      assert.is_nil(err.message:find "first")
    end)

    it("kills what is not ready in time", function()
      local d, err = daemon("echo $$ > " .. path "pid" .. "; echo slow >&2; sleep 600", { ms = 300 })
      assert.is_nil(d)
      assert.equal("timeout", err.code)
      local pid = tonumber((sys.read_file(path "pid") or ""))
      assert.is_true(pid == nil or eventually(function() return not sys.alive(pid) end))
    end)

    it("names a program that is not there", function()
      local d, err = sys.daemon { argv = { "no-such-program" }, log = path "log" }
      assert.is_nil(d)
      assert.equal("not_found", err.code)
      d, err = sys.daemon { argv = { "/nowhere/at/all" }, log = path "log" }
      assert.is_nil(d)
      assert.equal("not_found", err.code)
      for _, o in ipairs { {}, { argv = {} }, { argv = { "true" } }, { argv = { "true" }, log = 1 }, { argv = { 1 }, log = "x" } } do
        assert.has_error(function() sys.daemon(o) end)
      end
    end)
  end)

  describe("files", function()
    it("writes whole, reads bounded, appends", function()
      local bytes = "a\0b\255"
      assert.is_true(sys.write_file(path "f", bytes, OWN, true))
      assert.equal(bytes, sys.read_file(path "f"))
      assert.equal(OWN, sys.stat(path "f").mode)
      assert.is_true(sys.append(path "f", "more"))
      assert.equal(bytes .. "more", sys.read_file(path "f", 8))
      local got, err = sys.read_file(path "f", 7)
      assert.is_nil(got)
      assert.equal("too_large", err.code)
      assert.is_true(sys.write_file(path "f", "", tonumber("644", 8)))
      assert.equal("", sys.read_file(path "f"))
      assert.equal(tonumber("644", 8), sys.stat(path "f").mode)
    end)

    it("reads what has no size and refuses what would hang", function()
      assert.is_true(#sys.read_file "/proc/self/status" > 0)
      os.execute("mkfifo " .. path "fifo")
      local got, err = sys.read_file(path "fifo")
      assert.is_nil(got)
      assert.equal("invalid", err.code)
    end)

    it("tells what a path is", function()
      assert.is_true(sys.write_file(path "target", "x"))
      os.execute(("ln -sf target %s"):format(path "link"))
      assert.equal("dir", sys.stat(folder).type)
      assert.equal("file", sys.stat(path "link").type)
      assert.equal("symlink", sys.stat(path "link", true).type)
      assert.equal(1, sys.stat(path "target").size)
      assert.equal(path "target", sys.realpath(path "link"))
      local st, err = sys.stat(path "nothing")
      assert.is_nil(st)
      assert.equal("not_found", err.code)
    end)

    it("makes, lists and removes folders", function()
      assert.is_true(sys.mkdirs(path "d/e/f", 448))
      assert.is_true(sys.mkdirs(path "d/e/f", 448))
      assert.equal(448, sys.stat(path "d/e/f").mode)
      for _, name in ipairs { "b", "a", "c d" } do assert(sys.write_file(path("d/" .. name), "")) end
      assert.same({ "a", "b", "c d", "e" }, sys.list(path "d"))
      assert(sys.write_file(path "file", ""))
      local ok, err = sys.mkdirs(path "file", 448)
      assert.is_nil(ok)
      assert.equal("exists", err.code)
      assert.is_true(sys.rmtree(path "d"))
      assert.is_true(sys.rmtree(path "d")) -- absent is fine
      assert.is_nil(sys.list(path "d"))
    end)

    it("never follows a link while it removes", function()
      assert.is_true(sys.mkdirs(path "keep", 448))
      assert(sys.write_file(path "keep/file", "x"))
      assert.is_true(sys.mkdirs(path "tree", 448))
      os.execute(("ln -s ../keep %s"):format(path "tree/link"))
      assert.is_true(sys.rmtree(path "tree"))
      assert.equal("x", sys.read_file(path "keep/file"))
    end)

    it("copies, renames, unlinks", function()
      assert(sys.write_file(path "one", ("x"):rep(200000), tonumber("755", 8)))
      assert.is_true(sys.copy(path "one", path "two"))
      assert.equal(200000, sys.stat(path "two").size)
      assert.equal(tonumber("755", 8), sys.stat(path "two").mode)
      assert.is_true(sys.copy(path "one", path "two", OWN))
      assert.equal(OWN, sys.stat(path "two").mode)
      assert.is_true(sys.rename(path "two", path "three"))
      assert.is_true(sys.unlink(path "three"))
      assert.is_true(sys.unlink(path "three")) -- absent is fine
      local ok, err = sys.copy(path "two", path "four")
      assert.is_nil(ok)
      assert.equal("not_found", err.code)
      assert.is_true(sys.free_bytes(folder) > 0)
    end)

    it("leaves no temporary file behind", function()
      local ok, err = sys.write_file(path "keep", "over a folder")
      assert.is_nil(ok)
      assert.is_truthy(err.code)
      for _, name in ipairs(sys.list(folder)) do assert.is_nil(name:find "^%.tmp") end
    end)

    it("refuses paths with a zero byte", function()
      for _, name in ipairs { "stat", "read_file", "unlink", "rmtree", "list", "mkdirs", "realpath", "lock" } do
        assert.has_error(function() sys[name](path "x\0y") end)
        assert.has_error(function() sys[name] "" end)
      end
    end)
  end)

  describe("lock", function()
    it("is held by one, until it is released or collected", function()
      local lock = assert(sys.lock(path "lock"))
      local other, err = sys.lock(path "lock")
      assert.is_nil(other)
      assert.equal("busy", err.code)
      assert.is_true(lock:release())
      assert.is_true(lock:release())
      assert(sys.lock(path "lock")) -- dropped at once
      collectgarbage()
      collectgarbage()
      lock = assert(sys.lock(path "lock"))
      lock:release()
    end)

    it("is not inherited by what is started", function()
      local lock = assert(sys.lock(path "lock"))
      local d = assert(daemon "echo ready; exec sleep 600")
      lock:release()
      lock = assert(sys.lock(path "lock"))
      lock:release()
      assert.is_true(sys.kill(d.pid, "KILL"))
    end)
  end)

  describe("the rest", function()
    it("has clocks and random names", function()
      local a = sys.now_ms()
      assert.is_true(sys.now_ms() >= a)
      assert.is_true(math.abs(sys.wall() - os.time()) <= 2)
      assert.is_truthy(sys.random_id(24):find "^[a-z0-9]+$")
      assert.equal(24, #sys.random_id(24))
      assert.is_true(sys.random_id(24) ~= sys.random_id(24))
      assert.has_error(function() sys.random_id(0) end)
      assert.equal("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", sys.sha256 "")
      assert.is_false(sys.isatty(-1))
    end)

    -- In a program of its own: the handlers of this one belong to busted.
    local function run(script, input)
      local h = help.open()
      local own = sys.realpath "/proc/self/exe"
      local v, err = h.wait(h.io:spawn {
        argv = { own, "-e", script }, stdin = input, timeout_ms = help.BOUND_MS,
        env = { PATH = os.getenv "PATH", LUA_PATH = package.path, LUA_CPATH = package.cpath },
      })
      h.io:close()
      return v, err
    end

    it("tells of an interrupt and wakes a step for it", function()
      local v = assert(run [[
        local core = require "crewbox.core"
        local io_ = core.io()
        assert(core.sys.interrupted() == nil)
        assert(core.sys.catch_interrupt())
        core.sys.kill(core.sys.pid(), "INT")
        assert(io_:step(-1) == false)
        local name, count = core.sys.interrupted()
        assert(name == "INT" and count == 1)
        io_:sleep(0)
        assert(io_:step(20000) == true)
        core.sys.kill(core.sys.pid(), "TERM")
        local name, count = core.sys.interrupted()
        assert(name == "TERM" and count == 2)
        print "fine"
      ]])
      assert.same({ exit = 0, stdout = "fine\n", stderr = "" }, v)
    end)

    it("reads standard input to its end, bounded", function()
      local v = assert(run([[
        local core = require "crewbox.core"
        local s, e = core.sys.stdin(5)
        io.write(s or e.code)
      ]], "a\0bcd"))
      assert.equal("a\0bcd", v.stdout)
      v = assert(run([[
        local core = require "crewbox.core"
        local s, e = core.sys.stdin(5)
        io.write(s or e.code)
      ]], "123456"))
      assert.equal("too_large", v.stdout)
    end)
  end)
end)
