-- SPDX-License-Identifier: MIT
-- What works on this machine, topic by topic, and for what does not the command that fixes it. A
-- topic is one file, `{name, run(ctx, say)}`, and a word in the list below. Nothing here changes
-- anything that stays, and no run is disturbed: what must be tried is tried in a folder and with a
-- box server of the doctor's own (lab.lua).
local config = require "crewbox.config"
local core = require "crewbox.core"
local err = require "crewbox.err"
local lab = require "crewbox.doctor.lab"
local paths = require "crewbox.paths"

local M = {}

M.TOPICS = { "host", "programs", "tools", "state", "store", "provider", "isolation", "limits", "network", "agents" }

local FILE_MAX = 1024 * 1024

-- `ok`: works. `warn`: runs work, but something is missing, or could not be checked. `fail`: runs
-- would not work.
local STATES = { ok = true, warn = true, fail = true }

--- @class crewbox.DoctorContext
--- @field loop table            crewbox.async
--- @field io userdata
--- @field environ table<string, string>
--- @field uid number
--- @field state string?         the state folder; nil: there is no place for one
--- @field state_error crewbox.Error?
--- @field config table          a checked configuration; that of no file when the file is wrong
--- @field config_error crewbox.Error?
--- @field sandbox table         config.providers.sandbox
--- @field remote boolean        boxes come from elsewhere
--- @field read fun(path: string): string?  a small file of the host
--- @field spawn fun(o: table): table?, crewbox.Error?  as io:spawn, waited for
--- @field lab fun(): table?, crewbox.Error?  a box to try things in, made at the first call

--- @param o {loop: table, config: string?, environ: table?}
--- @return crewbox.DoctorContext
function M.context(o)
  local environ = o.environ or core.sys.environ()
  local ctx = { loop = o.loop, io = o.loop.io, environ = environ, uid = core.sys.uid() }
  ctx.state, ctx.state_error = paths.state(environ)
  ctx.config, ctx.config_error = config.load { path = o.config, env = environ }
  if not ctx.config then ctx.config = assert(config.check({}, { env = environ })) end
  ctx.sandbox = ctx.config.providers.sandbox
  ctx.remote = ctx.sandbox.type ~= "local"
  function ctx.read(path) return (core.sys.read_file(path, FILE_MAX)) end
  function ctx.spawn(what) return ctx.loop:await(ctx.io:spawn(what)) end
  local made, failure
  function ctx.lab()
    if not made and not failure then made, failure = lab.open(ctx) end
    return made, failure
  end
  function ctx.close()
    if made then lab.close(ctx, made) end
    made = nil
  end
  return ctx
end

local function one(ctx, topic, checks)
  local function say(state, name, text, fix)
    assert(STATES[state], "no such state")
    checks[#checks + 1] = { topic = topic.name, name = name, state = state, text = text, fix = fix }
  end
  local ok, problem = xpcall(topic.run, function(e) return debug.traceback(tostring(e), 2) end, ctx, say)
  if not ok then
    say("fail", topic.name, "the check itself is defective: " .. tostring(problem):match("^[^\n]*"),
      "report this as a defect of crewbox")
  end
end

--- Runs all topics.
--- @async
--- @param ctx crewbox.DoctorContext
--- @param tell fun(topic: string)? called before each
--- @return {works: boolean, checks: {topic, name, state, text, fix?}[]}? report
--- @return crewbox.Error? err `cancelled`
function M.run(ctx, tell)
  local checks = {}
  for _, name in ipairs(M.TOPICS) do
    local ok = ctx.loop:sleep(0)
    if not ok then break end
    if tell then tell(name) end
    one(ctx, require("crewbox.doctor." .. name), checks)
  end
  local whole = ctx.loop:sleep(0)
  ctx.loop:shield(ctx.close)
  if not whole then return nil, err.new("cancelled", "interrupted") end
  local works = true
  for _, check in ipairs(checks) do works = works and check.state ~= "fail" end
  return { works = works, checks = checks }
end

return M
