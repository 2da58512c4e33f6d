-- SPDX-License-Identifier: MIT
-- What a box may reach by default, and how a model's URL becomes a rule. A box reaches names,
-- each NAME:PORT; everything else does not answer.
local err = require "crewbox.err"

local M = {}

--- Common code hosts and package registries, by what they serve.
M.DEFAULT_ALLOW = {
  -- code hosts
  "github.com:443", "github.com:22", "api.github.com:443", "codeload.github.com:443",
  "raw.githubusercontent.com:443", "objects.githubusercontent.com:443",
  "release-assets.githubusercontent.com:443", "gitlab.com:443", "gitlab.com:22",
  "bitbucket.org:443", "bitbucket.org:22", "codeberg.org:443",
  -- JavaScript
  "registry.npmjs.org:443", "registry.yarnpkg.com:443",
  -- Python
  "pypi.org:443", "files.pythonhosted.org:443",
  -- Rust
  "crates.io:443", "index.crates.io:443", "static.crates.io:443",
  -- Go
  "proxy.golang.org:443", "sum.golang.org:443",
  -- Ruby, Lua, PHP, Java
  "rubygems.org:443", "index.rubygems.org:443", "luarocks.org:443",
  "packagist.org:443", "repo.packagist.org:443", "repo.maven.apache.org:443", "repo1.maven.org:443",
  -- Debian and Ubuntu
  "deb.debian.org:80", "deb.debian.org:443", "security.debian.org:80", "security.debian.org:443",
  "archive.ubuntu.com:80", "security.ubuntu.com:80",
}

local DEFAULT_PORT = { http = 80, https = 443 }

--- Host and port of a URL; nothing else of it is looked at or repeated.
--- @return {scheme: string, host: string, port: number}? at
--- @return crewbox.Error? err `invalid`
function M.parse_url(url)
  local scheme, rest = url:match("^(%a[%w+.-]*)://(.*)$")
  scheme = scheme and scheme:lower()
  local default = scheme and DEFAULT_PORT[scheme]
  if not default then return nil, err.new("invalid", "the model's URL must begin with http:// or https://") end
  local authority = rest:match("^[^/?#]*"):gsub("^.*@", "")
  local host, port = authority:match("^(%[[%x:.]+%]):?(%d*)$")
  if not host then host, port = authority:match("^([%w._-]+):?(%d*)$") end
  if not host then return nil, err.new("invalid", "the model's URL has no host that can be read") end
  port = port == "" and default or tonumber(port)
  if not port or port < 1 or port > 65535 then return nil, err.new("invalid", "the model's URL has an impossible port") end
  return { scheme = scheme, host = host:lower(), port = port }
end

local function is_loopback(host)
  return host == "localhost" or host:find("%.localhost$") ~= nil or host:find("^127%.") ~= nil or host == "[::1]"
end

--- The rules of a box: what its agent's endpoints need, what the configuration allows, and the
--- usual hosts. A URL on this machine's loopback becomes a forward of a local box: the same port
--- on the box's loopback leads to the host's.
--- @param o {endpoints: string[], allow: string[]?, remote: boolean, forward: table[]?}
--- @return {allow: string[], forward: {port: number, to: string}[]}? rules
--- @return crewbox.Error? err `invalid`
function M.rules(o)
  local allow, forward, seen = {}, {}, {}
  local function add(rule)
    if seen[rule] then return end
    seen[rule] = true
    allow[#allow + 1] = rule
  end
  for _, url in ipairs(o.endpoints) do
    local at, e = M.parse_url(url)
    if not at then return nil, e end
    if not is_loopback(at.host) then
      add(("%s:%d"):format(at.host, at.port))
    elseif o.remote then
      return nil, err.new("invalid", ("the model's URL is on this machine's loopback (%s:%d), which a remote box cannot reach: "
        .. "use a local box, or a URL that the box can reach"):format(at.host, at.port))
    elseif not seen[at.port] then
      seen[at.port] = true
      forward[#forward + 1] = { port = at.port, to = ("%s:%d"):format(at.host, at.port) }
    end
  end
  for _, rule in ipairs(o.allow or {}) do add(rule) end
  for _, rule in ipairs(M.DEFAULT_ALLOW) do add(rule) end
  return { allow = allow, forward = forward }
end

return M
