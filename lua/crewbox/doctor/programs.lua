-- SPDX-License-Identifier: MIT
-- doctor, programs: ours are there, run, and are of one version.
local core = require "crewbox.core"
local paths = require "crewbox.paths"

local M = { name = "programs" }

local ASK_MS = 10000
local PROGRAMS = {
  { name = "crewboxd", word = "--version", here = true },
  { name = "crewbox-init", word = "--version", here = true },
  { name = "crewbox-supervise", word = "version" },
}
local REBUILD = "run `make` in the source tree, or install crewbox again"

local function version_of(ctx, path, word)
  local out, e = ctx.spawn { argv = { path, word }, timeout_ms = ASK_MS, max_bytes = 64 * 1024 }
  if not out then return nil, e.message end
  if out.exit ~= 0 then return nil, out.timed_out and "it does not end" or (out.stderr:match("[^\n]+") or "it fails") end
  return out.stdout:match("(%d[%w.+-]*)%s*$")
end

local function check(ctx, say, program)
  -- What only local boxes need is no reason against runs elsewhere.
  local bad = program.here and ctx.remote and "warn" or "fail"
  local path, e = paths.program(program.name, ctx.environ)
  if not path then
    return say(bad, program.name, e.message, REBUILD .. ", or set CREWBOX_LIBEXEC to the folder that holds it")
  end
  local version, why = version_of(ctx, path, program.word)
  if not version then
    return say(bad, program.name, ("%s does not run: %s"):format(path, why or "it says no version"), REBUILD)
  end
  if version ~= core.version then
    return say(bad, program.name, ("%s is version %s, but crewbox is %s"):format(path, version, core.version), REBUILD)
  end
  say("ok", program.name, ("%s in %s"):format(version, path))
end

function M.run(ctx, say)
  for _, program in ipairs(PROGRAMS) do check(ctx, say, program) end
end

return M
