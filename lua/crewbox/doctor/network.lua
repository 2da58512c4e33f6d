-- SPDX-License-Identifier: MIT
-- doctor, network: the ways out of a box, tried in one. A forward rule must carry bytes to a server
-- on this machine's loopback, the resolver must know an allowed name and no other, and nothing may
-- be reached past it.
local core = require "crewbox.core"
local fixes = require "crewbox.doctor.fixes"
local isolation = require "crewbox.doctor.isolation"
local lab = require "crewbox.doctor.lab"

local M = { name = "network" }

-- One HTTP request over the forward, with whatever the box's toolchain has.
M.FORWARD = [[
exec 2>/dev/null
url=http://127.0.0.1:$CB_PORT/health
if command -v curl >/dev/null; then curl -s -m 10 "$url"
elif command -v bash >/dev/null; then
  timeout 10 bash -c 'exec 3<>/dev/tcp/127.0.0.1/$CB_PORT; printf "GET /health HTTP/1.0\r\n\r\n" >&3; cat <&3'
elif command -v wget >/dev/null; then wget -q -T 10 -O - "$url"
else echo @none; fi
]]

M.NAMES = [[
exec 2>/dev/null
command -v getent >/dev/null || { echo @none; exit; }
echo "allowed $(getent ahostsv4 "$CB_ALLOWED" | head -n 1)"
echo "refused $(getent ahostsv4 "$CB_REFUSED" | head -n 1)"
]]

local function forward(ctx, say, l)
  if not l.loopback then return say("warn", "forward", "not checked: no server on the loopback could be made for it") end
  local answer, e = lab.run(ctx, l, M.FORWARD, { CB_PORT = tostring(lab.FORWARD_PORT) })
  if answer and answer:find("@none", 1, true) then
    return say("warn", "forward", "not checked: a box has neither curl, bash nor wget")
  end
  if answer and answer:find('"server":"crewboxd"', 1, true) then
    return say("ok", "forward", "a request from a box reached a server on this machine's loopback, and its answer came back")
  end
  say("fail", "forward", "bytes do not pass a forward rule" .. (e and ": " .. e.message or ""),
    "look at a firewall between programs on 127.0.0.1, and at the box server's log")
end

local function names(ctx, say, l)
  local answer, e = lab.run(ctx, l, M.NAMES, { CB_ALLOWED = lab.ALLOWED, CB_REFUSED = lab.REFUSED })
  if not answer or answer:find("@none", 1, true) then
    return say("warn", "resolver", "not checked: " .. (e and e.message or "a box has no getent"))
  end
  local address = answer:match("allowed (198%.1[89]%.[%d.]+)")
  local refused = answer:match("refused ([^\n]*)")
  if not address then
    return say("fail", "resolver", "a name that is allowed is not known in a box", fixes.OTHERWISE)
  end
  if refused ~= "" then
    return say("fail", "resolver", ("a name that is not allowed is known in a box: %s"):format(refused),
      "do not run agents here; report it as a defect of crewbox")
  end
  say("ok", "resolver", "a box knows an allowed name and refuses another")
end

-- What the host itself can look up; without it even allowed names end nowhere.
local function host(say)
  local text = core.sys.read_file("/etc/resolv.conf", 64 * 1024)
  if not text or not ("\n" .. text):find("\n%s*nameserver%s") then
    return say("warn", "this machine", "/etc/resolv.conf names no server: names a box may reach may not be found",
      "configure name resolution of this machine")
  end
  say("ok", "this machine", "has a resolver; whether hosts answer is not checked, no request leaves this machine")
end

function M.run(ctx, say)
  local l = isolation.lab(ctx, say, "boxes")
  if not l then return end
  forward(ctx, say, l)
  names(ctx, say, l)
  host(say)
end

return M
