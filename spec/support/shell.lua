-- SPDX-License-Identifier: MIT
-- Runs the real build/crewbox and other programs as child processes, as a person at a shell does: in
-- a folder of the test's own, with an environment of the test's own, and never without a bound.
local M = {}

local BUILD = assert(os.getenv "CREWBOX_BUILD", "spec/run sets CREWBOX_BUILD")

--- @return string s as one word of sh
function M.quoted(s) return "'" .. s:gsub("'", "'\\''") .. "'" end
local q = M.quoted

local function capture(command)
  local p = assert(io.popen(command, "r"))
  local out = p:read "*a"
  p:close()
  return out
end

--- @return string bytes nil when it is not there
function M.read(path)
  local f = io.open(path, "rb")
  if not f then return nil end
  local bytes = f:read "*a"
  f:close()
  return bytes
end

function M.write(path, bytes)
  local f = assert(io.open(path, "wb"))
  f:write(bytes)
  f:close()
end

function M.exists(path) return os.execute("test -e " .. q(path)) == (_VERSION == "Lua 5.1" and 0 or true) end

--- A folder of this test: home, state, cache and scratch. `place:remove()` ends what the test's
--- state folder still runs, and takes the folder away.
function M.place()
  local dir = capture("mktemp -d /tmp/cbspec.XXXXXX"):match "%S+"
  local place = { dir = dir, home = dir .. "/home", state = dir .. "/s", cache = dir .. "/cache" }
  os.execute(("mkdir -p %s/home %s/work"):format(dir, dir))
  place.work = dir .. "/work"

  --- Runs a program. Gives {status, out, err}.
  --- @param o string[] words, with env?, stdin?, cwd?, seconds?
  function place.run(o)
    local words = {}
    for i, w in ipairs(o) do words[i] = q(w) end
    local env = { HOME = place.home, PATH = os.getenv "PATH", CREWBOX_STATE = place.state,
      CREWBOX_CACHE = place.cache, LANG = "C.UTF-8" }
    for k, v in pairs(o.env or {}) do env[k] = v end
    local sets = {}
    for k, v in pairs(env) do
      if v ~= false then sets[#sets + 1] = q(k .. "=" .. v) end
    end
    local stdin = "/dev/null"
    if o.stdin then
      stdin = dir .. "/stdin"
      M.write(stdin, o.stdin)
    end
    os.execute(("cd %s && env -i %s timeout -k 5 %d %s >%s/out 2>%s/err <%s; echo $? >%s/rc"):format(q(o.cwd or place.work),
      table.concat(sets, " "), o.seconds or 60, table.concat(words, " "), dir, dir, stdin, dir))
    return { status = tonumber(M.read(dir .. "/rc")), out = M.read(dir .. "/out"), err = M.read(dir .. "/err") }
  end

  --- Runs crewbox with these words.
  function place.crewbox(o)
    local words = { BUILD .. "/crewbox" }
    for k, v in pairs(o) do
      if type(k) == "string" then words[k] = v end
    end
    for _, w in ipairs(o) do words[#words + 1] = w end
    words.env = {}
    for k, v in pairs(o.env or {}) do words.env[k] = v end
    -- A configuration that a spec puts in the current folder is named, as a person has to.
    for _, name in ipairs { "crewbox.yaml", "crewbox.lua", "company.yaml" } do
      if words.env.CREWBOX_CONFIG == nil and M.exists((o.cwd or place.work) .. "/" .. name) then
        words.env.CREWBOX_CONFIG = "./" .. name
      end
    end
    -- The same interpreter as the specs: both are supported.
    words.env.CREWBOX_LUA = jit and "luajit" or "lua5.4"
    return place.run(words)
  end

  --- Makes a checkout with these files (path = content) in the work folder.
  --- @return string dir
  function place.checkout(name, files)
    local root = place.work .. "/" .. name
    os.execute("mkdir -p " .. q(root))
    for path, bytes in pairs(files) do
      local folder = path:match "^(.*)/"
      if folder then os.execute("mkdir -p " .. q(root .. "/" .. folder)) end
      M.write(root .. "/" .. path, bytes)
    end
    local r = place.run { "sh", "-c", "git init -q . && git add -A && git -c user.name=t -c user.email=t@example.com commit -q -m first",
      cwd = root }
    assert(r.status == 0, r.err)
    return root
  end

  --- Processes of this place that live: engine, box server, boxes, whatever has its state folder on
  --- the command line or in the environment.
  --- @return string[] "PID command line"
  function place.processes()
    local list = {}
    -- Two greps over all processes: one process a look-up would be slow.
    for line in capture(([[exec 2>/dev/null
      { grep -laF -e %s /proc/[0-9]*/cmdline; grep -laF -e %s /proc/[0-9]*/environ; } | cut -d / -f 3 | sort -u |
      while read -r pid; do
        case $(cat /proc/$pid/comm) in '' | sh | grep | cut | sort) ;;
        *) echo "$pid $(tr '\0' ' ' <"/proc/$pid/cmdline")" ;; esac
      done]]):format(q(place.state .. "/"), q("CREWBOX_STATE=" .. place.state))):gmatch "[^\n]+" do
      list[#list + 1] = line
    end
    return list
  end

  function place.remove()
    -- Engine and box server of this place, by the folder on their command line or in their
    -- environment; nothing else has it.
    for _ = 1, 20 do -- one of them may start another while we look
      local list = place.processes()
      if #list == 0 then break end
      for _, line in ipairs(list) do os.execute("kill -KILL " .. line:match "^%d+" .. " 2>/dev/null") end
    end
    os.execute("rm -rf " .. q(dir))
  end
  return place
end

return M
