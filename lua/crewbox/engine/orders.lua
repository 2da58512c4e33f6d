-- SPDX-License-Identifier: MIT
-- The orders of a supervisor (docs/reference/interfaces.md section 5): what to run, with which
-- environment, and which values to mask.
local M = {}

local function record(out, name, value)
  value = type(value) == "number" and ("%d"):format(value) or value
  out[#out + 1] = ("%s %d\n"):format(name, #value)
  out[#out + 1] = value
  out[#out + 1] = "\n"
end

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
  local out = {}
  record(out, "crewbox_orders", 1)
  record(out, "run", o.run)
  record(out, "launch_seq", o.launch_seq)
  record(out, "kind", o.kind)
  record(out, "run_dir", o.run_dir)
  record(out, "cwd", o.cwd)
  record(out, "user", o.user)
  for _, word in ipairs(o.argv) do record(out, "argv", word) end
  for _, name in ipairs(sorted(o.env)) do record(out, "env", name .. "=" .. o.env[name]) end
  for _, secret in ipairs(o.secrets) do record(out, "secret", secret.name .. "=" .. secret.value) end
  record(out, "stdin", o.stdin or "")
  record(out, "streams", o.streams or "split")
  record(out, "grace_ms", o.grace_ms or 5000)
  record(out, "start_deadline_ms", o.start_deadline_ms or 0)
  record(out, "guard_ms", o.guard_ms or 0)
  record(out, "findings", o.findings or "")
  record(out, "beat_ms", o.beat_ms or 1000)
  return table.concat(out)
end

--- Secrets alone, as records: what `decode_secrets` reads.
function M.encode_secrets(secrets)
  local out = {}
  record(out, "crewbox_values", 1)
  for _, secret in ipairs(secrets) do record(out, "secret", secret.name .. "=" .. secret.value) end
  return table.concat(out)
end

--- @param bytes string from a box: anything may stand in it
--- @return {name: string, value: string}[]? secrets
function M.decode_secrets(bytes)
  local list, at = {}, 1
  while at <= #bytes do
    local name, length, from = bytes:match("^([a-z][a-z0-9_]*) (%d+)\n()", at)
    length = tonumber(length)
    if not name or from + length > #bytes or bytes:sub(from + length, from + length) ~= "\n" then return nil end
    if at == 1 and name ~= "crewbox_values" then return nil end
    if name == "secret" then
      local key, value = bytes:sub(from, from + length - 1):match("^([^=]+)=(.*)$")
      if not key then return nil end
      list[#list + 1] = { name = key, value = value }
    end
    at = from + length + 1
  end
  return list
end

return M
