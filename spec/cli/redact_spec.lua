-- SPDX-License-Identifier: MIT
-- crewbox redact: the redactor as a filter. The filters themselves first, in this VM, then the verb
-- as a child process with real pipes.
local core = require "crewbox.core"
local json = require "crewbox.json"
local mask = require "crewbox.cli.shell.mask"
local shell = require "spec.support.shell"

local TOKEN = "zq9-FAKE+tok/en=77$x"
local PIN = "48151623420"

local function redactor(...)
  local list = {}
  for _, pair in ipairs { ... } do list[#list + 1] = { name = pair[1], value = pair[2] } end
  return (core.redactor(list))
end

local function through(filter, bytes, cuts)
  local out, at = {}, 1
  for _, n in ipairs(cuts or {}) do
    out[#out + 1] = filter:feed(bytes:sub(at, at + n - 1))
    at = at + n
  end
  out[#out + 1] = filter:feed(bytes:sub(at))
  out[#out + 1] = filter:finish()
  return table.concat(out)
end

describe("the JSON lines filter", function()
  local r = redactor({ "TOKEN", TOKEN }, { "PIN", PIN })
  local function lines(s, cuts) return through(mask.lines(r), s, cuts) end

  local cases = {
    { "leaves clean lines as they are", '{"a":1}\n["x"]\n"y"\n12\nnull\n', '{"a":1}\n["x"]\n"y"\n12\nnull\n' },
    { "masks inside strings", '{"a":"x ' .. TOKEN .. ' y"}\n', '{"a":"x [REDACTED:TOKEN] y"}\n' },
    { "quotes a number of an object", '{"n":' .. PIN .. '}\n', '{"n":"[REDACTED:PIN]"}\n' },
    { "replaces a line that a marker would break", '{"ok":1}\n[1,' .. PIN .. ',2]\n{"ok":2}\n',
      '{"ok":1}\n{"crewbox_redacted":["PIN"]}\n{"ok":2}\n' },
    { "replaces a line that is a bare number", PIN .. "\n", '{"crewbox_redacted":["PIN"]}\n' },
    { "names each secret of such a line once", "[" .. PIN .. "," .. PIN .. ',"' .. TOKEN .. '"]\n',
      '{"crewbox_redacted":["PIN","TOKEN"]}\n' },
    { "masks text between", "plain " .. TOKEN .. '\n{"a":1}\n', 'plain [REDACTED:TOKEN]\n{"a":1}\n' },
    { "masks what only looks like JSON", "{plain " .. TOKEN .. "}\n", "{plain [REDACTED:TOKEN]}\n" },
    { "keeps carriage returns and blanks", '  {"a":"' .. TOKEN .. '"} \r\n', '  {"a":"[REDACTED:TOKEN]"} \r\n' },
    { "keeps empty lines", '\n\n{"a":1}\n\n', '\n\n{"a":1}\n\n' },
    { "masks a last line without an end", '{"a":"' .. TOKEN .. '"}', '{"a":"[REDACTED:TOKEN]"}' },
    { "keeps bytes that are no text", "\0\255\254\n{\"a\":1}\n", "\0\255\254\n{\"a\":1}\n" },
    { "ends a private key before the next record",
      "x -----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG\n{\"a\":1}\n", 'x [REDACTED:private_key]\n{"a":1}\n' },
    { "keeps a marker that was there before", '{"a":"[REDACTED:OLD]","b":"' .. TOKEN .. '"}\n',
      '{"a":"[REDACTED:OLD]","b":"[REDACTED:TOKEN]"}\n' },
  }
  for _, c in ipairs(cases) do
    it(c[1], function() assert.are.equal(c[3], lines(c[2])) end)
  end

  it("gives the same wherever the input is cut, and keeps every valid line valid", function()
    local seed = 7
    local function random(n)
      seed = (seed * 1103515245 + 12345) % 2147483648
      return math.floor(seed / 65536) % n + 1
    end
    local kinds = {
      function() return json.encode { msg = "step " .. TOKEN, n = random(1000) } end,
      function() return '{"pin":' .. PIN .. ',"list":[1,2]}' end,
      function() return "[" .. PIN .. ", true]" end,
      function() return "plain text, " .. (random(2) == 1 and TOKEN or "nothing") end,
      function() return PIN end,
      function() return json.encode { deep = { { { "ok" } } }, s = ("x"):rep(random(300)) } end,
      function() return "" end,
      function() return '"' .. TOKEN:gsub("/", "\\/") .. '"' end,
    }
    for _ = 1, 20 do
      local input = {}
      for i = 1, 60 do input[i] = kinds[random(#kinds)]() end
      local bytes = table.concat(input, "\n") .. "\n"
      local whole = lines(bytes)
      assert.is_nil(whole:find(TOKEN, 1, true))
      assert.is_nil(whole:find(PIN, 1, true))
      local out = {}
      for line in whole:gmatch("([^\n]*)\n") do out[#out + 1] = line end
      assert.are.equal(#input, #out)
      for i, line in ipairs(input) do
        if json.decode(line) ~= nil then assert.is_truthy(json.decode(out[i]) ~= nil, out[i]) end
      end
      local cuts = {}
      for i = 1, 80 do cuts[i] = random(150) end
      assert.are.equal(whole, lines(bytes, cuts))
    end
  end)

  it("gives a record out with its newline", function()
    local filter = mask.lines(r)
    assert.are.equal("", filter:feed '{"a":1}')
    assert.are.equal('{"a":1}\n', filter:feed "\n")
    assert.are.equal('{"b":2}\n', filter:feed '{"b":2}\n{"c"')
    assert.are.equal('{"c":3}', filter:feed ":3}" .. filter:finish())
  end)

  it("does not gather a line without end", function()
    local filter = mask.lines(r)
    local piece, given = ("x"):rep(1024 * 1024), 0
    for _ = 1, 40 do
      given = given + #filter:feed(piece)
    end
    assert.is_true(given >= 23 * #piece, "held back: " .. 40 * #piece - given)
    given = given + #filter:feed(" " .. TOKEN .. '\n{"a":1}\n') + #filter:finish()
    assert.are.equal(40 * #piece + #' [REDACTED:TOKEN]\n{"a":1}\n', given)
  end)
end)

describe("the counter", function()
  it("counts by name, without the markers that were there", function()
    local counter = mask.count(redactor({ "TOKEN", TOKEN }, { "PIN", PIN }))
    local bytes = "[REDACTED:PIN] " .. TOKEN .. " " .. PIN .. " " .. TOKEN .. " [REDACTED:X] [REDACTED:"
    assert.are.equal("", through(counter, bytes, { 3, 9, 40 }))
    local found, list = counter:result()
    assert.is_true(found)
    assert.are.same({ { name = "PIN", count = 1 }, { name = "TOKEN", count = 2 } }, list)
  end)
  it("finds nothing in clean bytes", function()
    local counter = mask.count(redactor { "TOKEN", TOKEN })
    through(counter, "clean [REDACTED:TOKEN] " .. TOKEN:sub(1, 15), { 7, 13 })
    local found, list = counter:result()
    assert.is_false(found)
    assert.are.same({}, list)
  end)
end)

describe("crewbox redact", function()
  local place
  setup(function() place = shell.place() end)
  teardown(function() place.remove() end)

  local function redact(words, stdin)
    table.insert(words, 1, "redact")
    words.env, words.stdin = { TOKEN = TOKEN, PIN = PIN, SHORT = "abc", EMPTY = "" }, stdin
    return place.crewbox(words)
  end
  local CREWBOX = "CREWBOX_LUA=" .. (jit and "luajit " or "lua5.4 ") .. shell.quoted(os.getenv "CREWBOX_BUILD" .. "/crewbox")
  local function script(text)
    return place.run { "bash", "-c", text:gsub("CREWBOX", function() return CREWBOX end), env = { TOKEN = TOKEN }, seconds = 120 }
  end

  it("masks named values and shapes, and passes the rest byte by byte", function()
    local key = "sk-ant-api03-" .. ("aB3dE6gH9jK2"):rep(8) .. "AA"
    local r = redact({ "--env", "TOKEN" }, "a " .. TOKEN .. " b\0\255\n" .. key .. "\nlast without end")
    assert.are.equal(0, r.status, r.err)
    assert.is_nil(r.out:find(key, 1, true))
    assert.is_truthy(r.out:find("^a %[REDACTED:TOKEN%] b%z\255\n%[REDACTED:[%w_]+%]\nlast without end$"), ("%q"):format(r.out))
    assert.are.equal("", r.err)
  end)

  it("masks JSON lines so that they stay JSON", function()
    local r = redact({ "--json", "--env", "TOKEN", "--env", "PIN" }, '{"a":"' .. TOKEN .. '"}\n[' .. PIN .. "]\n")
    assert.are.equal('{"a":"[REDACTED:TOKEN]"}\n{"crewbox_redacted":["PIN"]}\n', r.out)
    assert.are.equal(0, r.status)
  end)

  it("refuses a variable that is not set, naming it", function()
    local r = redact({ "--env", "NOPE_TOKEN" }, "x\n")
    assert.are.equal(2, r.status)
    assert.is_truthy(r.err:find("^crewbox: NOPE_TOKEN is not set in the environment: [^\n]+\n$"), r.err)
    assert.are.equal("", r.out)
  end)
  it("refuses a value on the command line without repeating it", function()
    local r = redact({ "--env", "TOKEN=" .. TOKEN }, "x\n")
    assert.are.equal(2, r.status)
    assert.is_truthy(r.err:find("not TOKEN=VALUE", 1, true))
    assert.is_nil(r.err:find("zq9", 1, true))
  end)
  it("warns of a value that is too short, and goes on", function()
    for _, name in ipairs { "SHORT", "EMPTY" } do
      local r = redact({ "--env", name }, "abc\n")
      assert.are.equal(0, r.status)
      assert.are.equal("abc\n", r.out)
      assert.is_truthy(r.err:find("^crewbox: " .. name .. " has fewer than 8 bytes and is not masked[^\n]*\n$"), r.err)
    end
  end)

  it("checks: names and counts, never a value, status 1", function()
    local r = redact({ "--check", "--env", "TOKEN", "--env", "PIN" }, TOKEN .. "\n" .. TOKEN .. " " .. PIN .. "\n")
    assert.are.equal(1, r.status)
    assert.are.equal("PIN 1\nTOKEN 2\n", r.out)
    r = redact({ "--check", "--env", "TOKEN" }, "clean\n")
    assert.are.equal(0, r.status)
    assert.are.equal("", r.out)
  end)

  it("gives a finished line at once", function()
    local r = script [[mkfifo go
      (printf 'one %s\n' "$TOKEN"; cat go >/dev/null; echo two) | CREWBOX redact --env TOKEN >out.txt &
      i=0; while [ $i -lt 400 ] && ! [ -s out.txt ]; do sleep 0.05; i=$((i+1)); done
      cat out.txt; echo --; : >go; wait; cat out.txt]]
    assert.are.equal("one [REDACTED:TOKEN]\n--\none [REDACTED:TOKEN]\ntwo\n", r.out, r.err)
  end)

  it("ends with its reader", function()
    local r = script [[CREWBOX redact </dev/zero | head -c 100000 | wc -c; echo "${PIPESTATUS[@]}"]]
    assert.is_truthy(r.out:find "^100000\n", r.out .. r.err)
    r = script [[trap '' PIPE; CREWBOX redact </dev/zero | head -c 100000 | wc -c]] -- the signal ignored
    assert.are.equal("100000\n", r.out)
    assert.are.equal("", r.err)
  end)

  -- Not under a sanitizer: that one reserves terabytes of addresses, which are what is bounded here.
  local it_bounded = os.getenv "CREWBOX_SANITIZED" and function() end or it
  it_bounded("needs no more memory for more input", function()
    for _, flag in ipairs { "", "--json" } do
      local r = script(([[head -c 150000000 /dev/zero | (ulimit -v 600000; CREWBOX redact %s --env TOKEN) | wc -c]]):format(flag))
      assert.are.equal("150000000\n", r.out, r.err)
    end
  end)

  it("says when its output cannot be written", function()
    local r = script [[head -c 1000000 /dev/zero | CREWBOX redact >/dev/full]]
    assert.are.equal(5, r.status)
    assert.is_truthy(r.err:find("^crewbox: standard output: [^\n]+\n$"), r.err)
  end)

  it("gives what it held when it is interrupted", function()
    local r = script [[mkfifo in; sleep 100 >in & s=$!
      (echo $BASHPID >pid; trap - INT; exec env CREWBOX redact --env TOKEN <in >out2.txt) & c=$!
      printf 'tail %s' "${TOKEN:0:15}" >in
      i=0; while [ $i -lt 400 ] && ! [ -s out2.txt ]; do sleep 0.05; i=$((i+1)); done
      kill -TERM $(cat pid); wait $c; echo "rc $?" >>out2.txt; kill $s; cat out2.txt]]
    assert.are.equal("tail " .. TOKEN:sub(1, 15) .. "rc 130\n", r.out, r.err)
  end)
end)
