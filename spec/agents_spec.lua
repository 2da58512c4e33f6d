-- SPDX-License-Identifier: MIT
-- The cache of agents, with an npm of the test's own that makes the folder npm would make (the
-- real one is in spec/agents/install_spec.lua).
local shell = require "spec.support.shell"

-- Makes node_modules/.bin/claude below --prefix; NPM_MODE makes it fail in the ways npm fails.
local NPM = [[#!/bin/sh
prefix= ; last=
while [ $# -gt 0 ]; do
  case $1 in --prefix) shift; prefix=$1 ;; esac
  last=$1
  shift
done
echo "$last" >>"$HOME/npm-calls"
case ${NPM_MODE:-} in
offline) echo "npm error code ENOTFOUND" >&2; echo "npm error network request failed" >&2; exit 1 ;;
empty) exit 0 ;;
slow) mkdir -p "$prefix/node_modules"; echo half >"$prefix/node_modules/half"; : >"$HOME/npm-slow"; sleep 30 ;;
esac
mkdir -p "$prefix/node_modules/.bin" "$prefix/node_modules/pkg"
if [ "${NPM_MODE:-}" = broken ]; then
  printf '#!/bin/sh\necho "cannot run here" >&2\nexit 126\n' >"$prefix/node_modules/pkg/claude"
else
  printf '#!/bin/sh\necho "%s (Fake Code)"\n' "${last##*@}" >"$prefix/node_modules/pkg/claude"
fi
chmod 700 "$prefix/node_modules/pkg/claude"
ln -s ../pkg/claude "$prefix/node_modules/.bin/claude"
]]

local PINNED = require("crewbox.harness").get("claude-code").package.version

describe("crewbox agents", function()
  local place, path
  before_each(function()
    place = shell.place()
    os.execute("mkdir -p " .. place.dir .. "/bin")
    shell.write(place.dir .. "/bin/npm", NPM)
    os.execute("chmod +x " .. place.dir .. "/bin/npm")
    path = place.dir .. "/bin:" .. os.getenv "PATH"
  end)
  after_each(function() place.remove() end)

  local function install(env, ...)
    env = env or {}
    env.PATH = env.PATH or path
    return place.crewbox { "agents", "install", "claude-code", env = env, ... }
  end
  local function dir(version) return ("%s/agents/claude-code/%s"):format(place.cache, version or PINNED) end
  local function calls()
    local _, n = (shell.read(place.home .. "/npm-calls") or ""):gsub("\n", "")
    return n
  end

  it("installs the pinned version and says where", function()
    local r = install()
    assert.are.equal(0, r.status, r.err)
    assert.are.equal(("claude-code %s installed in %s\n"):format(PINNED, dir()), r.out)
    assert.are.equal("@anthropic-ai/claude-code@" .. PINNED .. "\n", shell.read(place.home .. "/npm-calls"))
    local marker = require("crewbox.json").decode(shell.read(dir() .. "/installed.json"))
    assert.are.equal(PINNED, marker.version)
    local sum = place.run { "sha256sum", dir() .. "/node_modules/.bin/claude" }
    assert.are.equal(sum.out:match "^%x+", marker.sha256)
  end)

  it("makes it readable for a box's user", function()
    install()
    local r = place.run { "find", dir(), "!", "-type", "l", "!", "-perm", "-o=r" }
    assert.are.equal("", r.out)
    r = place.run { "stat", "-Lc", "%a", dir() .. "/node_modules/.bin/claude" }
    assert.are.equal("755\n", r.out)
  end)

  it("does nothing the second time", function()
    install()
    local r = install { NPM_MODE = "offline" }
    assert.are.equal(0, r.status, r.err)
    assert.are.equal(("claude-code %s is already installed in %s\n"):format(PINNED, dir()), r.out)
    assert.are.equal(1, calls())
  end)

  it("keeps versions beside each other and uses the one installed last", function()
    install()
    local r = install(nil, "--version", "9.9.9")
    assert.are.equal(0, r.status, r.err)
    r = place.crewbox { "agents" }
    assert.is_truthy(r.out:find(("claude%%-code%%s+9%%.9%%.9 %%(tested: %s%%) in "):format(PINNED:gsub("%.", "%%."))), r.out)
    install()
    r = place.crewbox { "agents", "--json" }
    local first = require("crewbox.json").decode(r.out:match "^[^\n]*")
    assert.are.equal(PINNED, first.version)
    assert.are.same({ PINNED, "9.9.9" }, { first.versions[1], first.versions[2] })
    assert.is_true(first.installed)
  end)

  it("lists what is built in and what is missing", function()
    local r = place.crewbox { "agents" }
    assert.is_truthy(r.out:find("claude%-code%s+not installed: run crewbox agents install claude%-code\n"), r.out)
    assert.is_truthy(r.out:find("command%s+built in\n"), r.out)
  end)

  local failures = {
    { "a registry that does not answer", "offline", "npm could not install @anthropic-ai/claude-code@" .. PINNED ..
      ": code ENOTFOUND; network request failed" },
    { "a package without the program", "empty", "holds no program called claude" },
    { "a program that does not run here", "broken", "does not run here" },
  }
  for _, c in ipairs(failures) do
    it("says in one line what went wrong and leaves nothing: " .. c[1], function()
      local r = install { NPM_MODE = c[2] }
      assert.are.equal(5, r.status)
      assert.is_truthy(r.err:find(c[3], 1, true), r.err)
      assert.is_truthy(r.err:find("crewbox: [^\n]+\n$"))
      local left = place.run { "find", place.cache, "-mindepth", "3" }
      assert.are.equal(place.cache .. "/agents/claude-code/lock\n", left.out)
    end)
  end

  it("says how to get npm", function()
    os.execute(("mkdir %s/none; for p in env sh timeout lua5.4 luajit; do ln -s $(command -v $p) %s/none/; done")
      :format(place.dir, place.dir))
    local r = install { PATH = place.dir .. "/none" }
    assert.are.equal(5, r.status, r.err)
    assert.is_truthy(r.err:find("npm is not in PATH; it installs the agent. Install it (Debian: apt-get install npm)", 1, true), r.err)
  end)

  it("starts afresh after an installation that was killed", function()
    local r = place.run { "sh", "-c", ([[
      %s/crewbox agents install claude-code >/dev/null 2>&1 & pid=$!
      i=0; while [ ! -e "$HOME/npm-slow" ] && [ $i -lt 200 ]; do sleep 0.05; i=$((i+1)); done
      kill -KILL $pid; wait $pid 2>/dev/null; true]]):format(os.getenv "CREWBOX_BUILD"),
      env = { PATH = path, NPM_MODE = "slow" } }
    assert.is_truthy(shell.exists(place.home .. "/npm-slow"), r.err)
    assert.is_truthy(place.crewbox({ "agents" }).out:find("not installed", 1, true))
    r = install()
    assert.are.equal(0, r.status, r.err)
    assert.is_false(shell.exists(dir() .. "/node_modules/half"))
  end)

  it("installs once when two do it at the same time", function()
    local one = ("%s/crewbox agents install claude-code"):format(os.getenv "CREWBOX_BUILD")
    local r = place.run { "sh", "-c", one .. " & " .. one .. " & " .. one .. " & wait", env = { PATH = path } }
    local _, installed = r.out:gsub("claude%-code [%d.]+ installed in ", "")
    local _, already = r.out:gsub(" is already installed in ", "")
    assert.are.same({ 1, 2 }, { installed, already }, r.out .. r.err)
    assert.are.equal(1, calls())
  end)
end)
