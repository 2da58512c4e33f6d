-- SPDX-License-Identifier: MIT
-- What the verbs stand in: a loop over the C core, or a client of the state folder, that ends with
-- the verb.
local async = require "crewbox.async"
local client = require "crewbox.engine.client"
local core = require "crewbox.core"
local status = require "crewbox.cli.shell.status"

local M = {}

local function closing(what, ...)
  what:close()
  return ...
end

--- Adds the option that names the configuration; `args.config` then.
function M.define_config(command)
  command:option("--config", "The configuration file. Default: CREWBOX_CONFIG, ~/.config/crewbox/crewbox.yaml.")
    :argname "<file>"
end

--- Adds the argument that names a run; `args.id` then.
function M.define_run(command)
  command:argument("id", "The run: its id, the beginning of it, or `last`.")
end

--- Runs fn(loop) to its end as a task.
--- @param fn fun(loop: table): any, any
function M.loop(fn)
  local io = core.io()
  local loop = async.new(io)
  return closing(io, loop:call(fn, loop))
end

--- Runs fn(client) to its end; outside a task, so that Ctrl-C is noticed between two waits.
--- @param args table of the command line: config
--- @param fn fun(client: table): any, any
function M.client(args, fn)
  local c, e = client.open { config = args.config }
  if not c then return nil, e end
  return closing(c, fn(c))
end

--- The same with the run that args.id means.
--- @param fn fun(client: table, run: table): any, any
function M.run(args, fn)
  return M.client(args, function(c)
    local run, e = c:find(args.id)
    if not run then
      if e.code == "not_found" then e.exit_status = status.USAGE end -- the person named it
      return nil, e
    end
    return fn(c, run)
  end)
end

return M
