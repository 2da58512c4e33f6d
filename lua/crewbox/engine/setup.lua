-- SPDX-License-Identifier: MIT
-- Setup steps of the configuration (`providers.sandbox.setup`): files, then commands, as root of
-- the box, before the agent starts. Each step is a supervised run of its own below the run's id:
-- a connection that breaks is no unknown outcome, and an engine that comes after another does not
-- repeat a step that has begun.
local core = require "crewbox.core"
local err = require "crewbox.err"
local log = require "crewbox.engine.log"
local orders = require "crewbox.engine.orders"
local paths = require "crewbox.paths"

local M = {}

-- Values that only setup steps get lie among the run's values under this prefix.
local PREFIX = "setup:"
local INTERVAL_MS = 500
local SAID_MAX = 300

--- The values that the steps' `${VAR}` refer to.
--- @param steps table[]
--- @param environ table<string, string>
--- @return table<string, string>? values
--- @return crewbox.Error? err `invalid`, naming what is not set
function M.values(steps, environ)
  local values = {}
  for _, step in ipairs(steps or {}) do
    for name, text in pairs(step.env or {}) do
      for _, reference in ipairs(core.references(text)) do
        local value = environ[reference]
        if not value or value == "" then
          return nil, err.new("invalid", ("setup step %s: %s needs %s, which is not set in the environment")
            :format(step.name, name, reference))
        end
        values[PREFIX .. reference] = value
      end
    end
  end
  return values
end

--- The values that are the agent's.
function M.without(values)
  local own = {}
  for name, value in pairs(values) do
    if name:sub(1, #PREFIX) ~= PREFIX then own[name] = value end
  end
  return own
end

--- What the steps tell the agent, to be put behind the person's brief.
function M.briefs(steps)
  local parts = {}
  for _, step in ipairs(steps or {}) do
    if step.brief and step.brief ~= "" then parts[#parts + 1] = "\n\n" .. step.brief end
  end
  return table.concat(parts)
end

local function environment(job, step)
  local known = {}
  for name, value in pairs(job.values or {}) do
    if name:sub(1, #PREFIX) == PREFIX then known[name:sub(#PREFIX + 1)] = value end
  end
  local env = { HOME = job.as_root and "/root" or job.home, USER = job.as_root and "root" or "user", LANG = "C.UTF-8",
    TERM = "dumb", PATH = job.box_path, DEBIAN_FRONTEND = "noninteractive" }
  for name, text in pairs(step.env or {}) do env[name] = (core.resolve(text, known)) end
  return env
end

-- The step as a job: a run of its own in the same box.
local function job_of(job, i)
  local id = ("%ss%d"):format(job.id, i)
  return setmetatable({
    id = id,
    row = { launch_seq = 1 },
    run_dir = ("%s/.crewbox/runs/%s"):format(job.home, id),
  }, { __index = job })
end

local function send(sub, step, launch)
  local ok, e = launch.make_folders(sub)
  if not ok then return nil, e end
  local script = sub.run_dir .. "/script"
  local files = {
    { path = script, data = table.concat(step.commands or {}, "\n") .. "\n" },
    { path = launch.orders_file(sub), data = orders.encode {
      run = sub.id, launch_seq = 1, kind = "command", run_dir = sub.run_dir, cwd = sub.home .. "/project", user = "",
      argv = { "sh", "-e", script }, env = environment(sub, step), secrets = sub.secrets, streams = "merged",
      guard_ms = math.floor((step.timeout_seconds or 600) * 1000),
    } },
  }
  local own = {}
  for path, bytes in pairs(step.files or {}) do
    local below_home = path:sub(1, 1) ~= "/"
    if below_home then
      path = sub.home .. "/" .. path
      own[#own + 1] = path
    end
    files[#files + 1] = { path = path, data = bytes }
  end
  return launch.send(sub, files, own)
end

-- Follows the step to its end. Gives its last state and what it said.
local function follow(sub, out)
  local engine, provider = sub.engine, sub.provider
  local stream, e = engine.loop:stream(engine.watch:run {
    provider = provider.verbs, box = sub.box, run = sub.id, launch_seq = 1, run_dir = sub.run_dir, interval_ms = INTERVAL_MS,
  })
  if not stream then return nil, e end
  local state, lost
  while true do
    local event
    event, e = stream:next()
    if not event then break end
    if event.event == "progress" then
      out:add(event.out or "", false)
    elseif event.event == "finished" then
      state = event.state
    elseif event.event == "lost" then
      lost = sub:ends("lost", event.reason, "the box or its supervisor was lost during a setup step")
    end
  end
  stream:close()
  out:add("", true)
  if state then return state end
  return nil, lost or e or sub:ends("lost", "supervisor_lost", "a setup step ended without a word")
end

local function last_line(path)
  local last
  for line in (core.sys.read_file(path, 64 * 1024 * 1024) or ""):gmatch("[^\n]+") do last = line end
  return last and ": " .. last:gsub("%c", " "):sub(1, SAID_MAX) or ""
end

local function run_step(job, i, step, launch)
  local sub = job_of(job, i)
  local state, e = launch.begun(sub)
  if not state then return nil, e end
  if state ~= "begun" then
    local ok
    ok, e = send(sub, step, launch)
    if not ok then return nil, e end
  end
  local ok
  ok, e = launch.start_once(sub)
  if not ok then return nil, e end
  local file = paths.run_file(job.engine.state, job.id, ("setup-%d.log"):format(i))
  local last
  last, e = follow(sub, log.open(file, job.redactor, 0, 0))
  if not last then return nil, e end
  if last.exit == 0 and last.why == "exited" then return true end
  local how = last.why == "guard" and ("did not end within %s s"):format(tostring(step.timeout_seconds or 600)) or
    last.signal and ("was ended by signal %d"):format(last.signal) or ("failed with status %s"):format(tostring(last.exit))
  return nil, job:ends("failed", "setup_failed", ("setup step %s %s%s"):format(step.name, how, last_line(file)))
end

--- Runs the steps, one after the other; the first that fails ends the run.
--- @async
--- @param launch table engine/launch.lua, which stands above this file
--- @return true? ok
--- @return crewbox.Error? err
function M.run(job, launch)
  for i, step in ipairs(job.provider.sandbox.setup or {}) do
    local ok, e = job:checkpoint()
    if not ok then return nil, e end
    ok, e = run_step(job, i, step, launch)
    if not ok then return nil, e end
  end
  return true
end

return M
