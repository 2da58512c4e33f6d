-- SPDX-License-Identifier: MIT
-- Brings a run into its box and starts it. `put`: one exec that learns the box and makes the
-- folders, one upload of everything, one exec that settles modes and applies the tree; state `starting`. `start`:
-- the supervisor, which refuses a second start of the same launch; state `running`. Both may be
-- repeated by an engine that comes after.
local brief = require "crewbox.brief"
local core = require "crewbox.core"
local err = require "crewbox.err"
local events = require "crewbox.engine.events"
local fault = require "crewbox.engine.fault"
local orders = require "crewbox.engine.orders"
local paths = require "crewbox.paths"
local provider = require "crewbox.engine.provider"
local setup = require "crewbox.engine.setup"

local unpack = table.unpack or unpack -- luacheck: ignore

local M = {}

local APPLY_MS = 10 * 60 * 1000
local START_TRIES = 5
local RECALL_MAX = 16 * 1024 * 1024

-- What the box is, and the folders of the run. As root of the box where that is allowed: the
-- supervisor then is not the agent's to kill by accident. A local box's root cannot chown to the
-- agent's user, whose files they are anyway.
local LEARN = [[
set -eu
id=$1 seq=$2 make=$3
if [ "$(id -u)" = 0 ]; then
  home=$(awk -F: '$1 == "user" { print $6 }' /etc/passwd)
  [ -n "$home" ] || { echo "the box has no user called user" >&2; exit 9; }
else
  home=$HOME
fi
run=$home/.crewbox/runs/$id
if [ "$make" = 1 ]; then
  umask 077
  mkdir -p "$home/.crewbox/bin" "$run"
  rm -rf "/dev/shm/crewbox-$id-$seq" "/dev/shm/crewbox-$id-values"
  mkdir -m 700 "/dev/shm/crewbox-$id-$seq" "/dev/shm/crewbox-$id-values"
  rm -f "$home/.crewbox/findings.md" "$run/stop"
  [ -d "$home/project" ] || { mkdir "$home/project"; chmod 755 "$home/project"; }
  if [ "$(id -u)" = 0 ]; then
    chown user: "$home/.crewbox" "$home/.crewbox/bin" "$home/.crewbox/runs" "$run" "$home/project" 2>/dev/null || :
  fi
fi
printf '%s\n%s\n%s\n%s\n' "$(uname -m)" "$(id -u)" "$home" "$PATH"
]]

-- After the upload, as whoever uploaded; then, in the same round trip, a program.
local SETTLE = [[
set -eu
sup=$1 orders=$2 own=$3; shift 3
chmod 755 "$sup"
chmod 600 "$orders"
while [ "$own" -gt 0 ]; do
  chmod 600 "$1"
  chown user: "$1" 2>/dev/null || :
  shift; own=$((own - 1))
done
[ $# = 0 ] || exec "$@"
]]

-- Whether this launch has begun: the supervisor's lock holds the last launch that did.
local BEGUN = [[
run=$1 seq=$2 orders=$3
n=$(cat "$run/lock" 2>/dev/null || :)
if [ -n "$n" ] && [ "$n" -ge "$seq" ]; then echo begun
elif [ -e "$orders" ]; then echo waiting
else echo nothing
fi
]]

local function sh(job, o)
  local value, e = job:exec {
    cmd = "/bin/sh", args = { "-c", o.script, "sh", unpack(o.args) }, user = o.user, timeout_ms = o.timeout_ms or 60000,
  }
  if not value then return nil, e end
  if value.exit == 0 then return value end
  local said = (value.stderr or ""):match("[^\n]+") or "no words"
  return nil, job:ends("failed", "start_failed", ("%s: %s (exit %s)")
    :format(o.what or "the box is not as it should be", said, tostring(value.exit or value.signal)))
end

--- Runs a script of ours in the box; a status that is not 0 ends the run.
--- @async
function M.sh(job, script, user, ...)
  return sh(job, { script = script, user = user, args = { ... } })
end

function M.user_of(job) return job.as_root and "root" or nil end

function M.orders_file(job) return ("/dev/shm/crewbox-%s-%d/orders"):format(job.id, job.row.launch_seq) end

-- Codes with which a provider says that it lets nobody be root.
local NO_ROOT = { unauthorized = true, denied = true, invalid = true, unsupported = true, not_found = true }

local function learnt(job, value)
  local arch, uid, home, path = value.stdout:match("^([%w_]+)\n(%d+)\n(/[^\n]*)\n([^\n]*)\n$")
  if not arch then return nil, job:ends("failed", "start_failed", "the box did not say what it is") end
  job.as_root = uid == "0"
  job.arch, job.home, job.box_path = arch, home, path
  job.run_dir = ("%s/.crewbox/runs/%s"):format(home, job.id)
  job.supervisor = home .. "/.crewbox/bin/crewbox-supervise"
  return true
end

--- Learns the box: architecture, home, who we are in it.
--- @async
--- @param make boolean? also make the folders of this launch
function M.learn(job, make)
  local function ask(user)
    return M.sh(job, LEARN, user, job.id, ("%d"):format(job.row.launch_seq), make and "1" or "0")
  end
  local value, e = ask("root")
  job.as_root = value ~= nil
  if not value and NO_ROOT[e.code] and not e.final_state then value, e = ask(nil) end
  if not value then return nil, e end
  return learnt(job, value)
end

--- The folders of a further run in a box that is known.
--- @async
function M.make_folders(job)
  return M.sh(job, LEARN, M.user_of(job), job.id, ("%d"):format(job.row.launch_seq), "1")
end

--- The supervisor that runs in a box of an architecture, as `uname -m` names it.
--- @param arch string of the box
--- @param host_arch string of this machine
--- @return string? path
--- @return crewbox.Error? err `not_found`, naming the program that is missing
function M.supervisor_for(arch, host_arch, environ)
  if arch == host_arch then return paths.program("crewbox-supervise", environ) end
  local name = "crewbox-supervise-" .. arch
  local path, e = paths.program(name, environ)
  if path then return path end
  return nil, err.new("not_found", ("the box is %s, this machine is %s, and %s: install the compiler %s-linux-gnu-gcc and make it anew")
    :format(arch, host_arch, e.message:match("^(.-):") or name .. " is missing", arch))
end

local function supervisor_file(job)
  local path, e = M.supervisor_for(job.arch, job.engine.arch, job.engine.environ)
  if path then return path end
  return nil, job:ends("failed", "start_failed", e.message)
end

-- ---- what goes in ---------------------------------------------------------------------------

local SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

local function environment(job, plan)
  local path = job.box_path ~= "" and job.box_path or SYSTEM_PATH
  local env = {
    HOME = job.home, USER = "user", LOGNAME = "user", SHELL = "/bin/bash", LANG = "C.UTF-8", TERM = "dumb",
    PATH = job.home .. "/.local/bin:" .. path,
  }
  for name, value in pairs(plan.env or {}) do env[name] = value end
  return env
end

local function plan_of(job)
  local raw, e = core.sys.read_file(paths.run_file(job.engine.state, job.id, "brief"), 64 * 1024 * 1024)
  if not raw then return nil, e end
  local project, findings = job.home .. "/project", job.home .. "/.crewbox/findings.md"
  local has_tree = job.row.options.tree ~= nil
  if not job.harness.raw_brief then raw = raw .. setup.briefs(job.provider.sandbox.setup) end
  local text = brief.compose {
    brief = raw, harness = job.harness, home = job.home, project = project, findings = findings,
    tree = has_tree, base_commit = has_tree,
  }
  return job.harness:plan {
    brief = text, model = job.row.model, env = setup.without(job.values or {}), home = job.home, project = project,
    run_dir = job.run_dir, findings = findings, session_id = job.row.session_id, tree = has_tree,
    options = job.row.options.harness,
  }
end

local function ms(seconds) return math.floor((seconds or 0) * 1000) end

local function orders_of(job, plan)
  return orders.encode {
    run = job.id, launch_seq = job.row.launch_seq, kind = job.row.kind, run_dir = job.run_dir,
    cwd = job.home .. "/project", user = job.as_root and "user" or "", argv = plan.argv,
    env = environment(job, plan), secrets = job.secrets, stdin = plan.stdin and "brief" or "",
    streams = plan.streams, start_deadline_ms = ms(job.harness.start_deadline_s),
    guard_ms = ms(job.row.options.timeout_s), findings = job.home .. "/.crewbox/findings.md",
  }
end

-- The secrets once more, in the box's memory, closed to all but root: an engine that comes after
-- this one masks logs and refuses patches with them. The agent has them as its environment anyway.
local function values_file(job) return ("/dev/shm/crewbox-%s-values/values"):format(job.id) end

local function transmit(job, files)
  return job:try(function()
    return job.engine.loop:await(job.provider.verbs:upload { box = job.box, user = M.user_of(job), files = files })
  end)
end

-- The modes of what was sent, then the program `run` {words, what, timeout_ms}, if any.
local function settle(job, own, run)
  local args = { job.supervisor, M.orders_file(job), ("%d"):format(#own) }
  for _, list in ipairs { own, run and run.words or {} } do
    for _, word in ipairs(list) do args[#args + 1] = word end
  end
  return sh(job, { script = SETTLE, user = M.user_of(job), args = args, what = run and run.what,
    timeout_ms = run and run.timeout_ms })
end

--- Sends files in one request and settles their modes: orders closed to all but their owner, `own`
--- files given to the agent's user.
--- @async
function M.send(job, files, own)
  local ok, e = transmit(job, files)
  if not ok then return nil, e end
  return settle(job, own)
end

-- What a launch needs in the box, and which of it is the agent's.
local function files_of(job, plan)
  local supervisor, e = supervisor_file(job)
  if not supervisor then return nil, e end
  local files = {
    { path = job.supervisor, source = supervisor },
    { path = M.orders_file(job), data = orders_of(job, plan) },
  }
  if #job.secrets > 0 then
    files[#files + 1] = { path = values_file(job), data = orders.encode_secrets(job.secrets) }
  end
  local own = {}
  local function add(file)
    files[#files + 1] = file
    own[#own + 1] = file.path
  end
  if plan.stdin then add { path = job.run_dir .. "/brief", data = plan.stdin } end
  if job.row.options.tree then
    add { path = job.run_dir .. "/tree.pack", source = paths.run_file(job.engine.state, job.id, "tree.pack") }
  end
  for _, file in ipairs(plan.files or {}) do add(file) end
  return files, own
end

-- The supervisor makes what it writes the project's owner's, whoever it runs as.
local function tree_apply(job)
  if not job.row.options.tree then return nil end
  return {
    words = { job.supervisor, "tree-apply", "--project", job.home .. "/project", "--pack", job.run_dir .. "/tree.pack",
      "--run-dir", job.run_dir, "--base-commit" },
    what = "the tree could not be put into the box", timeout_ms = APPLY_MS,
  }
end

-- ---- the two steps --------------------------------------------------------------------------

local function launched_ms(job) return core.sys.now_ms() - job.began_ms end

--- `preparing -> starting`.
--- @async
function M.put(job)
  local ok, e = M.learn(job, true)
  if not ok then return nil, e end
  local plan
  plan, e = plan_of(job)
  if not plan then return nil, e end
  local files, own = files_of(job, plan)
  if not files then return nil, own end
  ok, e = transmit(job, files)
  if not ok then return nil, e end
  fault.at("uploaded")
  ok, e = settle(job, own, tree_apply(job))
  if not ok then return nil, e end
  fault.at("tree_applied")
  ok, e = setup.run(job, M)
  if not ok then return nil, e end
  ok, e = job:checkpoint()
  if not ok then return nil, e end
  job.row.progress.launch_ms = launched_ms(job)
  ok, e = job.engine.store:run_starting(job.id, job.row.launch_seq, job.row.progress, job:fence(), core.sys.wall())
  if not ok then return nil, e end
  job.row.state = "starting"
  job.unstarted = true
  fault.at("starting_written")
  return true
end

--- Whether this launch has `begun`, its orders are `waiting`, or there is `nothing` of it.
--- @async
function M.begun(job)
  local value, e = M.sh(job, BEGUN, M.user_of(job), job.run_dir, ("%d"):format(job.row.launch_seq), M.orders_file(job))
  if not value then return nil, e end
  return value.stdout:match("%S+")
end

local function start(job)
  return job.engine.loop:await(job.provider.verbs:start {
    box = job.box, cmd = job.supervisor, args = { "run", M.orders_file(job) }, user = M.user_of(job),
  })
end

--- Starts the supervisor unless this launch has begun. An answer that was lost is looked into.
--- @async
function M.start_once(job)
  local last
  for try = 1, START_TRIES do
    -- Who has just put it there need not ask whether it has begun.
    local state, e = "waiting"
    if not job.unstarted then state, e = M.begun(job) end
    job.unstarted = false
    if not state then return nil, e end
    if state == "begun" then return true end
    if state == "nothing" and try == START_TRIES then
      return nil, job:ends("failed", "start_failed", "the orders of the supervisor are gone from the box")
    end
    if state == "waiting" then
      local ok
      ok, last = start(job)
      if ok then return true end
      if not provider.is_passing(last) then
        return nil, job:ends("failed", "start_failed", "the supervisor did not start: " .. provider.words(last))
      end
      if last.code == "unreachable" then job.engine:server_lost(job.provider) end
    end
    local ok
    ok, e = job.engine.loop:sleep(300 * try)
    if not ok then return nil, e end
  end
  return nil, job:ends("failed", "start_failed", "the supervisor did not start: " .. provider.words(last))
end

--- `starting -> running`.
--- @async
function M.start(job)
  local ok, e = M.start_once(job)
  if not ok then return nil, e end
  fault.at("supervisor_started")
  job.row.progress.launch_ms = job.row.progress.launch_ms or launched_ms(job)
  ok, e = job.engine.store:run_running(job.id, job.row.progress, job:fence(), core.sys.wall())
  if not ok then return nil, e end
  job.row.state, job.row.started_at = "running", core.sys.wall()
  fault.at("running_written")
  events.tell(job, "agent_started", { launch_seq = job.row.launch_seq, launch_ms = job.row.progress.launch_ms })
  return true
end

--- A second launch in the same box, after the first one is over: new orders, nothing else.
--- @async
function M.again(job)
  local first = job.row.launch_seq
  job.row.launch_seq = first + 1
  local ok, e = M.learn(job, true)
  local plan
  if ok then plan, e = plan_of(job) end
  if not plan then return nil, e end
  local files, own = files_of(job, plan)
  if not files then return nil, own end
  ok, e = M.send(job, files, own)
  if not ok then return nil, e end
  job.row.progress.out_size, job.row.progress.err_size = 0, 0
  job.row.out_offset, job.row.err_offset = 0, 0
  ok, e = job.engine.store:run_relaunched(job.id, job.row.launch_seq, job.row.progress, job:fence(), core.sys.wall())
  if not ok then return nil, e end
  job.unstarted = true
  ok, e = M.start_once(job)
  if not ok then return nil, e end
  job.over = false
  events.tell(job, "agent_started", { launch_seq = job.row.launch_seq, again = true })
  return true
end

--- The secrets of a run that another engine launched, from the box's memory.
--- @async
--- @return boolean? known false: the box has them no more
--- @return crewbox.Error? err nothing is known: try again later
function M.recall(job)
  if #job.row.env_names == 0 then return true end
  local value, e = job:try(function()
    return job.engine.loop:await(job.provider.verbs:read {
      box = job.box, path = values_file(job), max_bytes = RECALL_MAX, user = M.user_of(job),
    })
  end)
  if not value and not provider.is_staying(e) then return nil, e end
  local list = value and orders.decode_secrets(value.data)
  if not list then return false end
  job:set_secrets(list)
  return true
end

return M
