-- SPDX-License-Identifier: MIT
-- Takes the changes of a finished run into a checkout (core.tree_apply does the work: all targets
-- are checked before anything is written) and says what was written or refused.
local core = require "crewbox.core"
local err = require "crewbox.err"
local figures = require "crewbox.cli.shell.figures"
local json = require "crewbox.json"
local paths = require "crewbox.paths"
local text = require "crewbox.cli.shell.text"

local M = {}

local SHOWN = 20

local function say(line) io.stderr:write(line, "\n") end

local function tell_refused(refused)
  for i, entry in ipairs(refused) do
    if i > SHOWN then
      say(("  ... and %d more"):format(#refused - SHOWN))
      break
    end
    say(("  refused %s: %s"):format(text.line(tostring(entry.path), 200), text.line(tostring(entry.reason), 200)))
  end
end

--- @param client table
--- @param result table of client:result
--- @param o {repo: string?, dry_run: boolean?, quiet: boolean?}
--- @return {root: string, written: string[], deleted: string[], dry_run: boolean}? applied
--- @return crewbox.Error? err `conflict` when one file was refused: nothing was written
function M.apply(client, result, o)
  local run = result.run
  if not result.patch then
    return nil, err.new("conflict", ("the run %s has no patch: it had no checkout, or changed nothing"):format(run.id))
  end
  local root = core.sys.realpath(o.repo or run.repo)
  if not root then
    return nil, err.new("invalid", ("the checkout %s is not there; name one with `crewbox apply --repo DIR %s`")
      :format(o.repo or run.repo, run.id))
  end
  local done, e = client.loop:call(function()
    return client.loop:await(core.tree_apply(client.io, {
      root = root,
      base = paths.run_file(client.state, run.id, "tree.pack"),
      result = paths.run_file(client.state, run.id, "result.pack"),
      dry_run = o.dry_run or nil,
    }))
  end)
  if not done then
    if type(e.refused) == "table" and #e.refused > 0 then
      tell_refused(e.refused)
      e = err.new("conflict", ("nothing was written to %s: %s would be overwritten or cannot be; the patch is in %s")
        :format(root, figures.count(#e.refused, "file"), result.patch))
    end
    return nil, e
  end
  if not o.quiet then
    say(("%s %s in %s"):format(o.dry_run and "would change" or "changed", figures.count(#done.written + #done.deleted, "file"), root))
  end
  return { root = root, written = json.array(done.written), deleted = json.array(done.deleted), dry_run = o.dry_run == true }
end

return M
