-- SPDX-License-Identifier: MIT
local network = require "crewbox.engine.network"

describe("the network rules of a box", function()
  local function rules(o)
    o.endpoints = o.endpoints or {}
    return network.rules(o)
  end

  local function has(list, rule)
    for _, r in ipairs(list) do
      if r == rule then return true end
    end
    return false
  end

  for _, c in ipairs {
    { "https://api.example.com", "api.example.com:443" },
    { "http://api.example.com", "api.example.com:80" },
    { "HTTPS://API.Example.com/v1?key=1", "api.example.com:443" },
    { "https://me:secret@api.example.com:8443/x", "api.example.com:8443" },
    { "http://10.0.0.7:8080", "10.0.0.7:8080" },
  } do
    it("allow " .. c[2] .. " for " .. c[1], function()
      assert.is_true(has(assert(rules { endpoints = { c[1] }, remote = true }).allow, c[2]))
    end)
  end

  for _, c in ipairs {
    { "http://127.0.0.1:8080/v1", 8080, "127.0.0.1:8080" },
    { "http://localhost:9", 9, "localhost:9" },
    { "https://localhost", 443, "localhost:443" },
    { "http://[::1]:8080", 8080, "[::1]:8080" },
  } do
    it("forward port " .. c[2] .. " for " .. c[1], function()
      assert.same({ { port = c[2], to = c[3] } }, assert(rules { endpoints = { c[1] } }).forward)
    end)

    it("refuse " .. c[1] .. " for a remote box and say why", function()
      local r, e = rules { endpoints = { c[1] }, remote = true }
      assert.is_nil(r)
      assert.equal("invalid", e.code)
      assert.truthy(e.message:find("loopback", 1, true))
    end)
  end

  for _, url in ipairs { "", "api.example.com", "ftp://api.example.com", "https://", "https://a b/", "http://h:0", "http://h:65536",
    "http://h:12x" } do
    it(("refuse %q without repeating it"):format(url), function()
      local r, e = rules { endpoints = { url } }
      assert.is_nil(r)
      assert.equal("invalid", e.code)
      assert.is_true(url == "" or not e.message:find(url, 1, true))
    end)
  end

  it("never repeat a password of a URL", function()
    local _, e = rules { endpoints = { "http://me:hunter22@localhost:80" }, remote = true }
    assert.is_nil(e.message:find("hunter22", 1, true))
  end)

  it("name each host once, what was asked for first, then the usual hosts", function()
    local r = assert(rules { endpoints = { "https://github.com" }, allow = { "github.com:443", "db.example.com:5432" } })
    assert.equal("github.com:443", r.allow[1])
    assert.equal("db.example.com:5432", r.allow[2])
    local n = 0
    for _, rule in ipairs(r.allow) do
      if rule == "github.com:443" then n = n + 1 end
      assert.truthy(rule:find("^[%w.-]+:%d+$"))
    end
    assert.equal(1, n)
  end)
end)
