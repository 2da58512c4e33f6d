-- SPDX-License-Identifier: MIT
-- For specs of trees: throwaway folders and git repositories, a loop over a plain io, packs.
local core = require "crewbox.core"

local M = {}

local AWAIT_MS = 60000

--- A loop as tree.lua wants it, with nothing but an io.
function M.loop()
  local loop = { io = core.io() }
  function loop:await(op, e) -- luacheck: ignore self
    if op == nil then return nil, e end
    local deadline = core.sys.now_ms() + AWAIT_MS
    while true do
      for _, c in ipairs(loop.io:drain()) do
        if c.op == op then
          if c.err then return nil, c.err end
          return c.value == nil and true or c.value
        end
      end
      local left = deadline - core.sys.now_ms()
      assert(left > 0, "an op did not end in time")
      loop.io:step(math.min(left, 1000))
    end
  end
  return loop
end

local function run(command)
  local f = assert(io.popen(command .. "; echo $?", "r"))
  local out = f:read("*a")
  f:close()
  local text, code = out:match("^(.-)(%d+)\n$")
  return text, tonumber(code)
end

local function quote(s) return "'" .. s:gsub("'", "'\\''") .. "'" end
M.quote = quote

function M.folder()
  local text = run("mktemp -d")
  return (text:gsub("\n", ""))
end

function M.remove(dir)
  assert(dir:find("^/tmp/"), dir)
  os.execute("rm -rf " .. quote(dir))
end

--- Runs a shell script in dir; its output, and an error when it fails.
function M.sh(dir, script)
  local text, code = run("cd " .. quote(dir) .. " && { " .. script .. "\n} 2>&1")
  if code ~= 0 then error(script .. "\n" .. text, 2) end
  return text
end

--- The exit code of a script, and its output.
function M.try(dir, script)
  local text, code = run("cd " .. quote(dir) .. " && { " .. script .. "\n} 2>&1")
  return code, text
end

--- A repository with a configuration of its own and one commit of `files` (path -> content).
function M.repository(files)
  local dir = M.folder()
  M.sh(dir, "git init -q -b main . && git config user.email t@example.com && git config user.name t && git config commit.gpgsign false")
  for path, content in pairs(files or {}) do M.write(dir, path, content) end
  M.sh(dir, "git add -A -f && git commit -q --allow-empty -m base")
  return dir
end

function M.write(dir, path, content)
  local folder = path:match("^(.*)/")
  if folder then os.execute("mkdir -p " .. quote(dir .. "/" .. folder)) end
  local f = assert(io.open(dir .. "/" .. path, "wb"))
  f:write(content)
  f:close()
end

function M.read(dir, path)
  local f = io.open(dir .. "/" .. path, "rb")
  if not f then return nil end
  local content = f:read("*a")
  f:close()
  return content
end

--- The bytes of a pack of {path, content, mode?, left_out?}: written here, by another program
--- than the one that reads it, so that it may also be wrong. `mode` 120000 makes a link.
function M.pack(entries, o)
  o = o or {}
  table.sort(entries, function(a, b) return a.path < b.path end)
  local manifest, files = {}, {}
  for i, e in ipairs(entries) do
    manifest[i] = ("%s %d %s %s\0"):format(e.mode or "100644", #e.content, o.digest or core.sys.sha256(e.content), e.path)
    if not e.left_out then
      files[#files + 1] = ("file %d %d\n%s"):format(i - 1, #e.content, e.content)
    end
  end
  local bytes = table.concat(manifest)
  local text = ("crewbox-pack 1\nmanifest %d\n%s%s"):format(#bytes, bytes, table.concat(files))
  return text .. "end " .. core.sys.sha256(text) .. "\n"
end

return M
