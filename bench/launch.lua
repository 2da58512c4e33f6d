-- SPDX-License-Identifier: MIT
-- From the call to the agent's first instruction, on a crewboxd that runs already: engine:run with
-- a checkout of 100 files, beside the same way written with the e2b SDK, against the same
-- crewboxd. Requests are counted by a tap in between, in rounds of their own; times are taken
-- without it, by the agent's own clock.
local core = require "crewbox.core"
local crewbox = require "crewbox"
local lib = require "bench.lib"

local ROUNDS, WARM, COUNTED = 11, 2, 3
local FILES, FILE_BYTES = 100, 4096
local AGENT = "date +%s%N"

local function checkout(folder)
  local repo = folder .. "/repo"
  for i = 1, FILES do
    local dir = ("%s/d%d"):format(repo, i % 10)
    assert(core.sys.mkdirs(dir, 493)) -- 0755
    local line = ("line of file %d, like any other\n"):format(i)
    assert(core.sys.write_file(("%s/f%d.txt"):format(dir, i), line:rep(math.ceil(FILE_BYTES / #line)), 420, false))
  end
  assert(lib.capture { "sh", "-c", ("cd '%s' && git init -q -b main && git add -A && " ..
    "git -c user.name=b -c user.email=b@example.com -c commit.gpgsign=false commit -q -m start"):format(repo) })
  return repo
end

-- Requests that went through the tap since the last time it was asked.
local function counter(socket, pid)
  return function()
    core.sys.unlink(socket .. ".count")
    core.sys.kill(pid, 10) -- SIGUSR1
    for _ = 1, 500 do
      local text = core.sys.read_file(socket .. ".count", 64)
      if text and text:find "\n" then return tonumber(text) end
      os.execute "sleep 0.01"
    end
    error "the tap does not say its count"
  end
end

-- Milliseconds of each round; on_started is called when the engine has told of the agent.
local function ours(folder, name, socket, repo, rounds, on_started)
  local state = folder .. "/" .. name
  local started
  local engine = assert(crewbox.open { state = state,
    config = { providers = { sandbox = { type = "local", socket = socket } } },
    on_event = function(event) started = started or event.event == "agent_started" end })
  local list = {}
  for round = 1, rounds do
    started = false
    if on_started then -- the end of the box before is not this round's
      engine.loop:call(engine.loop.sleep, engine.loop, 1000)
      on_started(nil)
    end
    local at = core.sys.wall()
    local run = assert(engine:run { agent = "command", brief = AGENT, repo = repo })
    local deadline = core.sys.now_ms() + 60000
    while not started do
      assert(core.sys.now_ms() < deadline, "the agent did not start in a minute")
      engine.loop:call(engine.loop.sleep, engine.loop, 1)
    end
    if on_started then on_started(round) end
    assert(run:wait(60))
    local out = core.sys.read_file(("%s/runs/%s/out.log"):format(state, run.id), 64) or ""
    list[#list + 1] = assert(tonumber(out:match "^(%d+)\n"), "the agent said nothing") / 1e6 - at * 1000
  end
  engine:close()
  return list
end

-- The same of the SDK's program: it says `started`, and waits for a line before each step.
local function theirs(folder, sdk, url, key, repo, rounds, on_started)
  local pipe = folder .. "/go"
  assert(lib.capture { "sh", "-c", ("rm -f '%s' && mkfifo '%s'"):format(pipe, pipe) })
  local p = assert(io.popen(("exec node '%s/launch_e2b.mjs' %d '%s' '%s' '%s' < '%s'"):format(sdk, rounds, url, key, repo, pipe)))
  local go = assert(io.open(pipe, "w"))
  go:setvbuf "line"
  local list = {}
  for round = 1, rounds do
    if on_started then on_started(nil) end
    go:write "\n"
    assert(p:read "*l" == "started", "the e2b SDK's program failed")
    if on_started then on_started(round) end
    go:write "\n"
    list[#list + 1] = assert(tonumber((p:read "*l" or ""):match "^ms=([%d.]+)$"), "the e2b SDK's program failed")
  end
  go:close()
  p:close()
  return list
end

-- Counts by round; called with nil before each.
local function counting(count)
  local list = {}
  return list, function(round)
    local n = count()
    if round then list[round] = n end
  end
end

local function warm(list)
  local kept = {}
  for i = WARM + 1, #list do kept[#kept + 1] = list[i] end
  return kept
end

lib.session(function(folder, own)
  local socket = folder .. "/api.sock"
  local url = own({ lib.program "crewboxd", "--state", folder .. "/boxd", "--socket", socket, "--listen", "127.0.0.1:0",
    "--init", lib.program "crewbox-init" }):match "^ready (http.*)$"
  local key = assert(core.sys.read_file(folder .. "/boxd/key", 4096)):gsub("%s+$", "")
  local line, tap_pid = own { lib.program "tap", socket, folder .. "/tap.sock" }
  local tap_url = "http://127.0.0.1:" .. line:match "^ready (%d+)$"
  local count = counter(folder .. "/tap.sock", tap_pid)
  local repo = checkout(folder)
  local sdk = lib.sdk()

  local ms = warm(ours(folder, "s1", socket, repo, ROUNDS + WARM))
  local n, on = counting(count)
  ours(folder, "s2", folder .. "/tap.sock", repo, COUNTED, on)
  local ms2, n2 = {}, {}
  if sdk then
    ms2 = warm(theirs(folder, sdk, assert(url), key, repo, ROUNDS + WARM))
    local on2
    n2, on2 = counting(count)
    theirs(folder, sdk, tap_url, key, repo, COUNTED, on2)
  end
  local function median(list) return #list > 0 and lib.median(list) or nil end
  local peer = "e2b SDK"
  lib.row("launch", "call to agent running, 100 files", "ms", median(ms), peer, median(ms2))
  lib.row("launch", "the slowest of the rounds", "ms", lib.quantile(ms, 1), peer, #ms2 > 0 and lib.quantile(ms2, 1) or nil)
  lib.row("launch", "requests until the agent is told to run", "", median(n), peer, median(n2))
  lib.note("launch: ours also stores the run durably, keeps its lease (two of the requests, meanwhile), reads every file back " ..
    "in the box and starts a supervisor that survives us")
end)
