-- SPDX-License-Identifier: MIT
-- The orders of a supervisor (docs/reference/interfaces.md section 5): what to run, with which
-- environment, and which values to mask.
local records = require "crewbox.engine.records"

local M = {}

local function sorted(t)
  local names = {}
  for name in pairs(t) do names[#names + 1] = name end
  table.sort(names)
  return names
end

--- @param o table {run, launch_seq, kind, run_dir, cwd, user, argv, env = {K = V}, secrets =
---   {{name, value}}, stdin (file or ""), streams, grace_ms, start_deadline_ms, guard_ms,
---   findings, beat_ms}
--- @return string bytes
function M.encode(o)
  local list = {}
  local function record(name, value) list[#list + 1] = { name, value } end
  record("crewbox_orders", 1)
  record("run", o.run)
  record("launch_seq", o.launch_seq)
  record("kind", o.kind)
  record("run_dir", o.run_dir)
  record("cwd", o.cwd)
  record("user", o.user)
  for _, word in ipairs(o.argv) do record("argv", word) end
  for _, name in ipairs(sorted(o.env)) do record("env", name .. "=" .. o.env[name]) end
  for _, secret in ipairs(o.secrets) do record("secret", secret.name .. "=" .. secret.value) end
  record("stdin", o.stdin or "")
  record("streams", o.streams or "split")
  record("grace_ms", o.grace_ms or 5000)
  record("start_deadline_ms", o.start_deadline_ms or 0)
  record("guard_ms", o.guard_ms or 0)
  record("findings", o.findings or "")
  record("beat_ms", o.beat_ms or 1000)
  record("end", "")
  return records.encode(list)
end

--- Secrets alone: what `decode_secrets` reads.
function M.encode_secrets(secrets)
  local list = { { "crewbox_values", 1 } }
  for _, secret in ipairs(secrets) do list[#list + 1] = { "secret", secret.name .. "=" .. secret.value } end
  return records.encode(list)
end

--- @param bytes string from a box: anything may stand in it
--- @return {name: string, value: string}[]? secrets
function M.decode_secrets(bytes)
  local list = records.decode(bytes)
  if not list or not list[1] or list[1][1] ~= "crewbox_values" then return nil end
  local secrets = {}
  for _, r in ipairs(list) do
    if r[1] == "secret" then
      local name, value = r[2]:match("^([^=]+)=(.*)$")
      if not name then return nil end
      secrets[#secrets + 1] = { name = name, value = value }
    end
  end
  return secrets
end

return M
