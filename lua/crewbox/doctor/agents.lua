-- SPDX-License-Identifier: MIT
-- doctor, agents: which coding agents could be used now: their CLIs and the names of their keys.
-- What is missing is a warning: the agent `command` needs neither.
local agents = require "crewbox.agents"
local harness = require "crewbox.harness"

local M = { name = "agents" }

local function key(ctx, say, h)
  if #h.credentials == 0 then return true end
  local set = {}
  for _, name in ipairs(h.credentials) do
    if ctx.environ[name] and ctx.environ[name] ~= "" then set[#set + 1] = name end
  end
  if #set > 0 then return say("ok", h.name .. " key", table.concat(set, ", ") .. " set") or true end
  say("warn", h.name .. " key", ("none of %s is set"):format(table.concat(h.credentials, ", ")),
    ("export %s=..."):format(h.credentials[1]))
end

local function cli(ctx, say, h)
  if not h.package then return true end
  if ctx.remote or ctx.sandbox.template ~= "" then
    local template = ctx.sandbox.template ~= "" and ctx.sandbox.template or h.remote_template or "base"
    return say("ok", h.name, ("not checked here: the template %s must hold it"):format(template)) or true
  end
  local found, e = agents.find(h.name, nil, ctx.environ)
  if not found then
    return say("warn", h.name, e.message:gsub(": run .*", ""), agents.install_command(h.name))
  end
  local other = found.version ~= h.package.version and (", not the tested %s"):format(h.package.version) or ""
  return say(other == "" and "ok" or "warn", h.name, ("%s%s in %s"):format(found.version, other, found.dir),
    other ~= "" and agents.install_command(h.name) or nil) or true
end

function M.run(ctx, say)
  local ready = {}
  for _, name in ipairs(harness.names()) do
    local h = harness.get(name)
    local installed, has_key = cli(ctx, say, h), key(ctx, say, h)
    if installed and has_key then ready[#ready + 1] = name end
  end
  say(#ready > 0 and "ok" or "warn", "ready", #ready > 0 and table.concat(ready, ", ") or "none", nil)
end

return M
