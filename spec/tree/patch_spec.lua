-- SPDX-License-Identifier: MIT
-- The patch of a run: what it says, that git takes it in the checkout, what it refuses.
local core = require "crewbox.core"
local tree = require "crewbox.tree"
local trees = require "support.trees"

local loop = trees.loop()

teardown(function() loop.io:close() end)
local BASE_ENV = "GIT_CONFIG_GLOBAL=/dev/null "

describe("tree.patch", function()
  local dir, work
  before_each(function() work = trees.folder() end)
  after_each(function()
    trees.remove(work)
    if dir then trees.remove(dir) end
    dir = nil
  end)

  -- Freezes the checkout, and the same folder changed by `script` as the result.
  local function change(files, script)
    dir = trees.repository(files)
    assert(tree.freeze(loop, { repo = dir, pack = work .. "/base.pack" }))
    trees.sh(work, "cp -a " .. dir .. " after")
    trees.sh(work .. "/after", script)
    assert(tree.freeze(loop, { repo = work .. "/after", pack = work .. "/result.pack" }))
  end

  local function patch(o)
    o = o or {}
    o.base, o.result, o.dir = work .. "/base.pack", work .. "/result.pack", work .. "/compare"
    return tree.patch(loop, o)
  end

  local function listing(folder)
    return trees.sh(folder, [[find . -path ./.git -prune -o \( -type f -o -type l \) -printf '%P %y %m %l\n' | LC_ALL=C sort
      find . -path ./.git -prune -o -type f -print0 | LC_ALL=C sort -z | xargs -0r sha256sum]])
  end

  local function changes(p)
    local out = {}
    for _, c in ipairs(p.changed) do out[c.path] = c.change end
    return out
  end

  local cases = {
    { name = "edits, adds and deletes", files = { a = "1\n2\n3\n", gone = "x\n", ["sub/b"] = "y\n" },
      script = "printf '1\\n2b\\n3\\n' > a; rm gone; echo n > sub/new; mkdir n; echo m > n/m",
      want = { a = "modified", gone = "deleted", ["sub/new"] = "added", ["n/m"] = "added" } },
    { name = "carries bytes, also without a last line end", files = { bin = "\0\1\2\255", text = "no end" },
      script = "printf '\\377\\000x' > bin; printf 'no end at all' > text; head -c 5000 /dev/zero > new.bin",
      want = { bin = "modified", text = "modified", ["new.bin"] = "added" } },
    { name = "carries modes and links", files = { run = "#!/bin/sh\n", plain = "x\n", other = "y\n" },
      script = "chmod +x run; ln -s plain l; rm other; ln -s run other",
      want = { run = "mode", l = "added", other = "type" } },
    { name = "swaps files and folders", files = { f = "1\n", ["d/x"] = "2\n", ["d/y"] = "3\n" },
      script = "rm f; mkdir f; echo in > f/in; rm -r d; echo file > d",
      want = { f = "deleted", ["f/in"] = "added", d = "added", ["d/x"] = "deleted", ["d/y"] = "deleted" } },
    { name = "keeps hostile names apart (bug-K3)",
      files = { ["caf\195\169"] = "1\n", ['"q"'] = "2\n", ["a\nb"] = "3\n", [" lead"] = "4\n", ["b b/c c"] = "5\n", ["-rf"] = "6\n" },
      script = [[for f in *; do test -f "$f" && echo more >> "./$f"; done; echo x >> 'b b/c c'; echo n > 'new b/x'; true]],
      want = { ["caf\195\169"] = "modified", ['"q"'] = "modified", ["a\nb"] = "modified", [" lead"] = "modified",
        ["b b/c c"] = "modified", ["-rf"] = "modified" } },
    { name = "is not bent by attributes or lines that look like headers",
      files = { [".gitattributes"] = "* -diff text eol=lf\n*.x filter=evil diff=evil\n", crlf = "one\r\ntwo\r\n", ["f.x"] = "1\n" },
      script = "printf 'one\\r\\nTWO\\r\\ndiff --git b/x b/x\\n--- a/y\\n' > crlf; echo 2 > f.x; echo '* binary' >> .gitattributes",
      want = { crlf = "modified", ["f.x"] = "modified", [".gitattributes"] = "modified" }, no_attributes = true },
    { name = "has empty files", files = { e = "", full = "x\n" }, script = ": > new; : > full; echo y > e",
      want = { new = "added", full = "modified", e = "modified" } },
  }
  for _, c in ipairs(cases) do
    it(c.name .. ", and git apply makes the same tree of it", function()
      change(c.files, c.script)
      local p, e = patch { patch = work .. "/patch" }
      assert.is_nil(e)
      assert.same(c.want, changes(p))
      local text = trees.read(work, "patch")
      assert.equal(#text, p.bytes)
      assert.is_nil(p.patch)
      assert.is_nil(text:find(work, 1, true))
      for line in text:gmatch("[^\n]+") do
        if line:find("^diff %-%-git ") then assert.truthy(line:find('^diff %-%-git "?a/.* "?b/'), line) end
      end
      -- Attributes of the checkout bend what git apply does, not what the patch is.
      if c.no_attributes then trees.sh(dir, "mkdir -p .git/info; printf '* diff -text -filter\\n' > .git/info/attributes") end
      trees.sh(dir, BASE_ENV .. "git apply --whitespace=nowarn " .. work .. "/patch")
      assert.equal(listing(work .. "/after"), listing(dir))
    end)
  end

  it("is empty when nothing changed", function()
    change({ a = "1" }, "true")
    local p = patch()
    assert.same({}, p.changed)
    assert.equal("", p.patch)
    assert.equal(p.base_digest, p.digest)
  end)

  it("takes a result that holds only what differs, and copies what only got another mode", function()
    dir = trees.repository { a = "1\n", run = "x\n" }
    assert(tree.freeze(loop, { repo = dir, pack = work .. "/base.pack" }))
    trees.write(work, "result.pack", trees.pack {
      { path = "a", content = "1\n", left_out = true }, { path = "run", content = "x\n", mode = "100755", left_out = true },
      { path = "new", content = "n\n" },
    })
    local p, e = patch()
    assert.is_nil(e)
    assert.same({ run = "mode", new = "added" }, changes(p))
    assert.truthy(p.patch:find("new mode 100755", 1, true))
  end)

  it("refuses a secret in what would be applied, in any form and place", function()
    local S = "zq9-FAKE+tok/en=77$x"
    local redactor = core.redactor { { name = "S", value = S } }
    local scripts = {
      "printf '%s' 'x=" .. S .. "' > a",
      "printf '%s' '" .. S .. "' | base64 > new",
      "printf '\\000%s' '" .. S .. "' > bin",
      "ln -s '" .. S:gsub("/", "_") .. "' l; mkdir z; echo 1 > 'z/" .. S:gsub("/", "_") .. "'",
      "{ head -c 1048570 /dev/zero | tr '\\0' 'a'; printf '%s' '" .. S .. "'; } > edge",
    }
    local other = core.redactor { { name = "S", value = (S:gsub("/", "_")) } }
    for i, script in ipairs(scripts) do
      change({ a = "1\n" }, script)
      local p, e = patch { redactor = i == 4 and other or redactor, patch = work .. "/patch" }
      assert.is_nil(p, script)
      assert.equal("contains_secret", e.code)
      assert.equal("S", e.name)
      assert.is_nil(tostring(e):find("zq9", 1, true))
      assert.is_nil(core.sys.stat(work .. "/patch"))
      trees.remove(dir)
      trees.sh(work, "rm -rf after compare *.pack")
    end
    change({ a = S }, "echo fine > b")
    assert.truthy(patch { redactor = redactor }) -- it was in the base: not the run's doing
  end)

  it("cleans up after an earlier try, and says what is wrong with a pack", function()
    change({ a = "1\n" }, "echo 2 > a")
    assert.truthy(patch())
    assert.truthy(patch())
    local bytes = trees.read(work, "result.pack")
    trees.write(work, "result.pack", bytes:sub(1, #bytes - 1))
    local p, e = patch()
    assert.is_nil(p)
    assert.equal("protocol", e.code)
    trees.write(work, "result.pack", (bytes:gsub("2\nend", "3\nend")))
    p, e = patch()
    assert.is_nil(p)
    assert.equal("corrupt", e.code)
    trees.write(work, "result.pack", trees.pack { { path = "a", content = "9\n", left_out = true } })
    p, e = patch()
    assert.is_nil(p)
    assert.equal("corrupt", e.code)
    core.sys.unlink(work .. "/result.pack")
    p, e = patch()
    assert.is_nil(p)
    assert.equal("not_found", e.code)
  end)

  it("writes nowhere but below its folder, whatever the names (bug-L3)", function()
    dir = trees.repository { a = "1\n" }
    assert(tree.freeze(loop, { repo = dir, pack = work .. "/base.pack" }))
    for _, path in ipairs { "../x", "/tmp/crewbox-x", "a/../../x", "", ".", "a//b", "a/", "x\0y" } do
      trees.write(work, "result.pack", trees.pack { { path = path, content = "x" } })
      local p, e = patch()
      assert.is_nil(p, path)
      assert.equal("protocol", e.code)
    end
    trees.write(work, "result.pack", trees.pack {
      { path = "l", content = "/tmp", mode = "120000" }, { path = "l/x", content = "x" },
    })
    local p, e = patch()
    assert.is_nil(p)
    assert.equal("protocol", e.code)
    assert.is_nil(core.sys.stat("/tmp/x"))
  end)
end)
