-- SPDX-License-Identifier: MIT
local orders = require "crewbox.engine.orders"
local prepare = require "crewbox.engine.prepare"
local secrets = require "crewbox.engine.secrets"

describe("the secrets of a run", function()
  local function names(values, settings)
    local list = {}
    for i, s in ipairs(secrets.list(values, settings)) do list[i] = s.name end
    return list
  end

  for _, c in ipairs {
    { "zq9-FAKE+tok/en=77$x", true },
    { "correct horse battery", true },
    { "https://me:hunter22@example.com/", true },
    { "https://example.com/?token=abcdef", true },
    { "/usr/local/bin", false },
    { "https://example.com:8443/v1", false },
    { "@backend-dev", false },
    { "short", true }, -- named as not masked
  } do
    it(("count %q as %s"):format(c[1], c[2] and "one" or "none"), function()
      assert.equal(c[2] and 1 or 0, #names { NAME = c[1] })
    end)
  end

  it("leave out settings, but not one that carries a password", function()
    assert.same({ "B" }, names({ A = "claude-something-4", B = "http://u:longpassword@h" }, { "A", "B" }))
  end)

  it("travel through their record file byte for byte, and broken files are none", function()
    local list = { { name = "A", value = "a=b\n\0c" }, { name = "B", value = "" } }
    local bytes = orders.encode_secrets(list)
    assert.same(list, orders.decode_secrets(bytes))
    for cut = 1, #bytes - 1 do
      local got = orders.decode_secrets(bytes:sub(1, cut))
      assert.is_true(got == nil or #got < 2)
    end
    for _, bad in ipairs { "x", "other 1\n1\n", "crewbox_values 1\n1\nsecret 99999999\nA=b\n", "crewbox_values 1\n1\nsecret 1\nA\n" } do
      assert.is_nil(orders.decode_secrets(bad))
    end
  end)
end)

describe("orders", function()
  it("are records in a fixed order with every byte as it is", function()
    local bytes = orders.encode {
      run = "rabc", launch_seq = 2, kind = "agent", run_dir = "/home/user/.crewbox/runs/rabc", cwd = "/home/user/project",
      user = "user", argv = { "sh", "-c", "x\ny" }, env = { B = "2", A = "1\n" }, secrets = { { name = "B", value = "2" } },
      stdin = "", streams = "split", findings = "/home/user/.crewbox/findings.md", guard_ms = 60000,
    }
    assert.equal("crewbox_orders 1\n1\nrun 4\nrabc\nlaunch_seq 1\n2\nkind 5\nagent\nrun_dir 29\n/home/user/.crewbox/runs/rabc\n" ..
      "cwd 18\n/home/user/project\nuser 4\nuser\nargv 2\nsh\nargv 2\n-c\nargv 3\nx\ny\nenv 4\nA=1\n\nenv 3\nB=2\nsecret 3\nB=2\n" ..
      "stdin 0\n\nstreams 5\nsplit\ngrace_ms 4\n5000\nstart_deadline_ms 1\n0\nguard_ms 5\n60000\n" ..
      "findings 31\n/home/user/.crewbox/findings.md\nbeat_ms 4\n1000\nend 0\n\n", bytes)
  end)
end)

describe("is_utf8", function()
  for _, c in ipairs { { "", true }, { "plain", true }, { "caf\195\169", true }, { "\240\159\152\128", true },
    { "\195", false }, { "\192\128", false }, { "\237\160\128", false }, { "\244\144\128\128", false }, { "a\255b", false } } do
    it(("is %s of %q"):format(tostring(c[2]), c[1]), function() assert.equal(c[2], prepare.is_utf8(c[1])) end)
  end
end)
