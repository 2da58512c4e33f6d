-- SPDX-License-Identifier: MIT
-- crewbox redact: the redactor as a filter for any pipeline. Values come from the environment by
-- name, so that none is on an argument list.
local core = require "crewbox.core"
local err = require "crewbox.err"
local mask = require "crewbox.cli.shell.mask"
local status = require "crewbox.cli.shell.status"

local M = {
  summary = "Mask secrets in what passes through.",
  description = "Copies standard input to standard output and masks the values of the variables that --env names, in the " ..
    "forms programs print them in (raw, base64, hex, percent, JSON, shell, UTF-16), and what looks like a credential: " ..
    "provider keys, private keys, JWTs, passwords in URLs. Finished lines go on at once; any bytes may pass.",
  epilog = [[Examples:
   make 2>&1 | crewbox redact --env NPM_TOKEN --env DB_PASSWORD | tee build.log
   crewbox redact --json < events.jsonl
   crewbox redact --check --env NPM_TOKEN < build.log
Every --env is the name of a variable that is set. --check prints what would be masked, as names
and counts, and exits with 1 when there is something.]],
}

local PIECE = 256 * 1024
local EPIPE = 32

function M.define(command)
  command:option("--env", "Mask the value of this variable of your environment."):argname("<name>"):count "*"
  command:flag("--json", "The input is JSON lines: what is valid JSON stays valid JSON.")
  command:flag("--check", "Print no output, only what would be masked.")
end

local function values_of(names, environ)
  local list = {}
  for _, name in ipairs(names) do
    if not name:find("^[%a_][%w_]*$") then
      return nil, err.new("invalid", ("--env takes the name of a variable and its value from your environment, not %s")
        :format(name:find("=", 1, true) and name:match("^[^=]*") .. "=VALUE" or name))
    end
    if not environ[name] then
      return nil, err.new("invalid", ("%s is not set in the environment: export it, or leave out --env %s"):format(name, name))
    end
    list[#list + 1] = { name = name, value = environ[name] }
  end
  return list
end

local function redactor_of(args)
  local list, e = values_of(args.env, core.sys.environ())
  if not list then return nil, e end
  local redactor, skipped = core.redactor(list)
  if not redactor then return nil, skipped end
  for _, name in ipairs(skipped) do
    io.stderr:write(("crewbox: %s has fewer than 8 bytes and is not masked: it would be found everywhere\n"):format(name))
  end
  return redactor
end

-- True, false when nobody reads any more, or nil and an error.
local function put(bytes)
  if bytes == "" then return true end
  local ok, why, errno = io.stdout:write(bytes)
  if ok then return true end
  if errno == EPIPE then return false end
  return nil, err.new("system", "standard output: " .. tostring(why))
end

-- To the end of the input, or until nobody reads any more. An interrupt ends the input, so that
-- what was held is not lost.
local function pump(filter)
  while true do
    local bytes, e = core.sys.stdin_some(PIECE)
    if not bytes and e.code ~= "cancelled" then return nil, e end
    local over = not bytes or bytes == ""
    local clean
    if over then clean, e = filter:finish() else clean, e = filter:feed(bytes) end
    if not clean then return nil, e end
    local ok
    ok, e = put(clean)
    if ok == nil then return nil, e end
    if over or not ok then return true end
  end
end

function M.run(args)
  local redactor, e = redactor_of(args)
  if not redactor then return nil, e end
  io.stdout:setvbuf "no" -- each piece is written once and at once
  core.sys.catch_interrupt()
  local filter = (args.check and mask.count or args.json and mask.lines or mask.bytes)(redactor)
  local ok
  ok, e = pump(filter)
  if not ok then return nil, e end
  if core.sys.interrupted() then return status.INTERRUPTED end
  if not args.check then return status.DONE end
  local found, list = filter:result()
  for _, entry in ipairs(list) do print(("%s %d"):format(entry.name, entry.count)) end
  return found and status.FAILED or status.DONE
end

return M
