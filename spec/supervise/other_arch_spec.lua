-- SPDX-License-Identifier: MIT
-- The supervisor for boxes of the other architecture: built, and run by qemu's user emulation with
-- programs of this machine as its agent; and how the engine finds it.
local core = require "crewbox.core"
local launch = require "crewbox.engine.launch"
local orders = require "crewbox.engine.orders"
local records = require "crewbox.engine.records"
local shell = require "spec.support.shell"

local BUILD = os.getenv "CREWBOX_BUILD"
local HERE = assert(io.popen "uname -m"):read "*l"
local OTHER = HERE == "aarch64" and "x86_64" or "aarch64"
local PROGRAM = ("%s/crewbox-supervise-%s"):format(BUILD, OTHER)

describe("the supervisor for " .. OTHER, function()
  local place
  setup(function() place = shell.place() end)
  teardown(function() place.remove() end)

  local function emulated(...) return place.run { "qemu-" .. OTHER, PROGRAM, ... } end

  it("is a static program of that architecture", function()
    local bytes = assert(shell.read(PROGRAM), PROGRAM .. " was not built")
    assert.are.equal("\127ELF", bytes:sub(1, 4))
    assert.are.equal(OTHER == "aarch64" and 183 or 62, bytes:byte(19) + 256 * bytes:byte(20))
    -- No loader is asked for: the box may have another libc, or none.
    assert.are.equal("", place.run({ "sh", "-c", "readelf -lW '" .. PROGRAM .. "' | grep INTERP" }).out)
  end)

  it("tells its version", function()
    local r = emulated "version"
    assert.are.equal(0, r.status, r.err)
    assert.are.equal(place.run({ BUILD .. "/crewbox-supervise", "version" }).out, r.out)
  end)

  it("runs an agent to its end, masks its output and keeps its findings", function()
    local id = core.sys.random_id(10)
    local memory = ("/dev/shm/crewbox-%s-1"):format(id)
    local run_dir = place.dir .. "/run"
    assert(core.sys.mkdirs(memory, 448))
    assert(core.sys.mkdirs(run_dir, 448))
    assert(core.sys.write_file(run_dir .. "/brief", "the brief\n", 384, false))
    assert(core.sys.write_file(memory .. "/orders", orders.encode {
      run = id, launch_seq = 1, kind = "agent", run_dir = run_dir, cwd = place.work, user = "",
      argv = { "/bin/sh", "-c", "cat; echo $TOKEN; echo word >&2; echo '# Report' > ../findings.md; exit 7" },
      env = { PATH = os.getenv "PATH", TOKEN = "zq9-FAKE+tok/en" }, secrets = { { name = "TOKEN", value = "zq9-FAKE+tok/en" } },
      stdin = "brief", findings = place.dir .. "/findings.md", beat_ms = 100,
    }, 384, false))
    -- As pid 1, which gets all orphans: the emulation lacks the call that makes another process get them.
    local r = place.run { "unshare", "-Ur", "-pf", "--mount-proc", "qemu-" .. OTHER, PROGRAM, "run", memory .. "/orders" }
    core.sys.rmtree(memory)
    assert.are.equal(0, r.status, r.err)
    local state = {}
    for _, record in ipairs(assert(records.decode(shell.read(run_dir .. "/state")))) do state[record[1]] = record[2] end
    assert.are.same({ "finished", "exited", "7" }, { state.phase, state.why, state.exit })
    assert.are.equal("the brief\n[REDACTED:TOKEN]\n", shell.read(run_dir .. "/out.0000000000000000"))
    assert.are.equal("word\n", shell.read(run_dir .. "/err.0000000000000000"))
    assert.are.equal("# Report\n", shell.read(run_dir .. "/findings.md"))
  end)

  it("is what a box of that architecture gets", function()
    local environ = { CREWBOX_LIBEXEC = BUILD }
    assert.are.equal(PROGRAM, launch.supervisor_for(OTHER, HERE, environ))
    assert.are.equal(BUILD .. "/crewbox-supervise", launch.supervisor_for(HERE, HERE, environ))
  end)

  it("is named when it is missing, with what to do", function()
    local path, e = launch.supervisor_for("riscv64", HERE, { CREWBOX_LIBEXEC = BUILD })
    assert.is_nil(path)
    assert.is_truthy(e.message:find("crewbox-supervise-riscv64 is not in " .. BUILD, 1, true), e.message)
    assert.is_truthy(e.message:find("riscv64-linux-gnu-gcc", 1, true), e.message)
  end)
end)
