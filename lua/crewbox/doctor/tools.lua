-- SPDX-License-Identifier: MIT
-- doctor, tools: programs of others that crewbox calls on this machine.
local M = { name = "tools" }

local core = require "crewbox.core"

local ASK_MS = 20000 -- npm on a busy machine

local TOOLS = {
  { name = "git", bad = "fail", why = "it says which files of a checkout are sent", fix = "apt-get install git" },
  { name = "node", bad = "warn", why = "only needed to install an agent", fix = "apt-get install nodejs" },
  { name = "npm", bad = "warn", why = "only needed to install an agent", fix = "apt-get install npm" },
}

local function find(ctx, name)
  for folder in (ctx.environ.PATH or ""):gmatch("[^:]+") do
    local path = folder .. "/" .. name
    local st = core.sys.stat(path)
    if st and st.type == "file" then return path end
  end
end

function M.run(ctx, say)
  for _, tool in ipairs(TOOLS) do
    local path = find(ctx, tool.name)
    if not path then
      say(tool.bad, tool.name, ("not in PATH (%s)"):format(tool.why), ("%s (Debian), or the like of it"):format(tool.fix))
    else
      local out, e = ctx.spawn { argv = { path, "--version" }, timeout_ms = ASK_MS, max_bytes = 64 * 1024 }
      local version = out and out.exit == 0 and out.stdout:match("(%d[%w.+-]*)")
      if version then
        say("ok", tool.name, ("%s in %s"):format(version, path))
      else
        say(tool.bad, tool.name, ("%s --version fails: %s"):format(path,
          e and e.message or out.timed_out and "no end" or out.stderr:match("[^\n]+") or "no version"), "install it again")
      end
    end
  end
end

return M
