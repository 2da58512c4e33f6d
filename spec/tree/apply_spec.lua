-- SPDX-License-Identifier: MIT
-- Taking a result into a checkout: every row of the table in src/tree/apply.c, links, swaps,
-- owners, and that a refusal writes nothing. Failures half way are in spec/c/tree_test.c.
local core = require "crewbox.core"
local tree = require "crewbox.tree"
local trees = require "support.trees"

local loop = trees.loop()

teardown(function() loop.io:close() end)

describe("tree.apply", function()
  local dir, work
  before_each(function()
    dir, work = trees.folder(), trees.folder()
  end)
  after_each(function()
    trees.remove(dir)
    trees.remove(work)
  end)

  local function files(list)
    local out = {}
    for path, content in pairs(list) do
      local mode
      if type(content) == "table" then content, mode = content[1], content[2] end
      out[#out + 1] = { path = path, content = content, mode = mode }
    end
    return out
  end

  -- base, result: path -> content or {content, mode}. The checkout is what the spec put there.
  local function apply(base, result, o)
    o = o or {}
    trees.write(work, "base.pack", trees.pack(files(base)))
    trees.write(work, "result.pack", trees.pack(files(result)))
    o.root, o.base, o.result = dir, work .. "/base.pack", work .. "/result.pack"
    return tree.apply(loop, o)
  end

  local function put(list)
    for path, content in pairs(list) do trees.write(dir, path, content) end
  end

  local function listing()
    return trees.sh(dir, "find . -printf '%P %y %m %l %T@\\n' | LC_ALL=C sort; find . -type f -print0 | LC_ALL=C sort -z | xargs -0r sha256sum")
  end

  local function refused(base, result, path, reason)
    local before = listing()
    local done, e = apply(base, result)
    assert.is_nil(done)
    assert.equal("conflict", e.code)
    local found
    for _, r in ipairs(e.refused) do
      if r.path == path then found = r.reason end
    end
    assert.truthy(found and found:find(reason, 1, true), tostring(found))
    assert.equal(before, listing())
  end

  it("creates, replaces, deletes, changes modes, and keeps the rest", function()
    put { a = "1", gone = "2", ["sub/only"] = "3", run = "4", mine = "local", ["sub2/x"] = "5" }
    local done, e = apply(
      { a = "1", gone = "2", ["sub/only"] = "3", run = "4", ["sub2/x"] = "5" },
      { a = "1b", run = { "4", "100755" }, ["n/e/w"] = "6", l = { "a", "120000" }, ["sub2/x"] = "5" })
    assert.is_nil(e)
    table.sort(done.written)
    table.sort(done.deleted)
    assert.same({ "a", "l", "n/e/w", "run" }, done.written)
    assert.same({ "gone", "sub/only" }, done.deleted)
    assert.equal("1b", trees.read(dir, "a"))
    assert.equal("6", trees.read(dir, "n/e/w"))
    assert.equal("local", trees.read(dir, "mine"))
    assert.equal("a\n", trees.sh(dir, "readlink l"))
    assert.equal("-rwxr-xr-x\n", trees.sh(dir, "stat -c %A run"))
    assert.equal("a l mine n run sub2\n", trees.sh(dir, "echo $(ls -A)")) -- sub was left empty: gone
  end)

  it("keeps the mode of what it replaces, but for the executable bit", function()
    put { a = "1", b = "1", c = "1" }
    trees.sh(dir, "chmod 600 a; chmod 640 b; chmod 750 c")
    assert(apply({ a = "1", b = "1", c = { "1", "100755" } }, { a = "2", b = { "2", "100755" }, c = "2" }))
    assert.equal("600 750 640\n", trees.sh(dir, "echo $(stat -c %a a b c)"))
  end)

  it("is done already where the checkout equals the result", function()
    put { a = "2", new = "n" }
    local before = listing()
    local done = apply({ a = "1", gone = "x" }, { a = "2", new = "n" })
    assert.same({}, done.written)
    assert.same({}, done.deleted)
    assert.equal(before, listing())
  end)

  it("says what it would do, and does nothing", function()
    put { a = "1", gone = "x" }
    local before = listing()
    local done = apply({ a = "1", gone = "x" }, { a = "2", new = "n" }, { dry_run = true })
    assert.same({ "a", "new" }, done.written)
    assert.same({ "gone" }, done.deleted)
    assert.equal(before, listing())
  end)

  it("refuses what changed since (bug-L7), and then everything", function()
    put { a = "1 edited", b = "1" }
    refused({ a = "1", b = "1" }, { a = "2", b = "2", c = "new" }, "a", "stale_base")
  end)

  it("refuses to delete or change what is not as it was", function()
    put { del = "edited", mode = "edited" }
    refused({ del = "1" }, {}, "del", "stale_base")
    refused({ mode = "1" }, { mode = { "1", "100755" } }, "mode", "stale_base")
    trees.sh(dir, "printf 1 > mode; chmod +x mode")
    refused({ mode = "1" }, { mode = "2" }, "mode", "stale_base") -- its mode changed
    refused({ lost = "1" }, { lost = "2" }, "lost", "deleted since")
  end)

  it("refuses to add over something that is there", function()
    put { new = "mine", ["folder/x"] = "mine" }
    refused({}, { new = "theirs" }, "new", "there already")
    refused({}, { folder = "theirs" }, "folder", "a folder with other files")
    refused({}, { ["new/below"] = "theirs" }, "new/below", "where a folder is needed")
    trees.sh(dir, "mkfifo pipe")
    refused({}, { pipe = "x" }, "pipe", "not a regular file")
  end)

  it("never writes through a link, last or on the way (bug-L1)", function()
    local victim = trees.folder()
    trees.write(victim, "f", "untouched")
    trees.sh(dir, "ln -s " .. victim .. "/f notes.md; ln -s " .. victim .. " folder; mkdir real; ln -s real here")
    refused({ ["notes.md"] = "untouched" }, { ["notes.md"] = "evil" }, "notes.md", "stale_base")
    refused({}, { ["notes.md"] = "evil" }, "notes.md", "there already")
    refused({}, { ["folder/new"] = "evil" }, "folder/new", "a link")
    refused({ ["folder/f"] = "untouched" }, {}, "folder/f", "a link")
    refused({}, { ["here/new"] = "x" }, "here/new", "a link")
    assert.equal("untouched", trees.read(victim, "f"))
    assert.equal("f\n", trees.sh(victim, "ls -A"))
    trees.remove(victim)
  end)

  it("takes links that stay inside, and no others", function()
    put { a = "1", ["s/x"] = "1" }
    assert(apply({}, { l = { "a", "120000" }, ["s/up"] = { "../a", "120000" }, dangling = { "no/where", "120000" } }))
    for path, text in pairs { abs = "/etc/passwd", ["s/out"] = "../../x", mid = "s/../../x", trick = "l/..", up = ".." } do
      refused({}, { [path] = { text, "120000" } }, path, "link leaves checkout")
    end
  end)

  it("refuses paths that never travel, and those of other systems (bug-L3)", function()
    for _, path in ipairs {
      ".git/hooks/post-checkout", ".GIT/config", "sub/.git/config", ".git./x", ".git /x", "git~1/x", ".g\226\128\140it/x",
      ".git::$INDEX_ALLOCATION/x", ".env", "a/id_rsa", "x.pem",
    } do
      refused({}, { [path] = "x" }, path, "never uploaded")
    end
    refused({}, { ["C:\\x"] = "x" }, "C:\\x", "not a path inside")
    for _, path in ipairs { "../x", "/x", "", "a\0b", "a/./b", "a/../b" } do
      local done, e = apply({}, { [path] = "x" })
      assert.is_nil(done)
      assert.equal("protocol", e.code)
    end
    assert.equal("", trees.sh(dir, "ls -A"))
  end)

  it("swaps files and folders and links", function()
    put { f = "1", ["d/x"] = "2", ["d/y/z"] = "3" }
    trees.sh(dir, "ln -s f l; mkdir d/empty")
    local done, e = apply(
      { f = "1", ["d/x"] = "2", ["d/y/z"] = "3", l = { "f", "120000" } },
      { ["f/in"] = "4", d = "5", ["l/in"] = "6" })
    assert.is_nil(e)
    assert.equal(6, #done.written + #done.deleted - 1)
    assert.equal("4", trees.read(dir, "f/in"))
    assert.equal("5", trees.read(dir, "d"))
    assert.equal("6", trees.read(dir, "l/in"))
    assert.equal("d f l\n", trees.sh(dir, "echo $(ls -A)"))
  end)

  it("keeps a folder with a file of one's own in it from becoming a file", function()
    put { ["d/x"] = "2", ["d/mine"] = "m" }
    refused({ ["d/x"] = "2" }, { d = "5" }, "d", "a folder with other files")
  end)

  it("gives what it makes the owner of its folder", function()
    if core.sys.uid() ~= 0 then return end -- only root can
    put { a = "1", ["theirs/b"] = "1" }
    trees.sh(dir, "chown -R 12345:12346 theirs; chown 12340:12341 . a")
    assert(apply({ a = "1", ["theirs/b"] = "1" },
      { a = "2", ["theirs/b"] = "2", ["theirs/n/c"] = "3", l = { "a", "120000" } }))
    assert.equal("12340:12341 12340:12341 12345:12346 12345:12346 12345:12346\n",
      trees.sh(dir, "echo $(stat -c %u:%g a l theirs/b theirs/n theirs/n/c)"))
  end)

  it("works for hostile names (bug-K3)", function()
    local names = { "caf\195\169", "a\nb", '"q"', "-rf", " lead", "\255\254", "x y/z z" }
    local base, result = {}, {}
    for _, n in ipairs(names) do base[n], result[n] = "1", "2" end
    put(base)
    local done, e = apply(base, result)
    assert.is_nil(e)
    assert.equal(#names, #done.written)
    for _, n in ipairs(names) do assert.equal("2", trees.read(dir, n)) end
  end)

  it("leaves packs as they are when it refuses, so that nothing is lost (bug-K9)", function()
    put { a = "edited" }
    refused({ a = "1" }, { a = "2" }, "a", "stale_base")
    trees.write(dir, "a", "1")
    local done = tree.apply(loop, { root = dir, base = work .. "/base.pack", result = work .. "/result.pack" })
    assert.same({ "a" }, done.written)
  end)

  it("names what is wrong with a pack or a folder", function()
    local done, e = tree.apply(loop, { root = dir .. "/no", base = work .. "/b", result = work .. "/r" })
    assert.is_nil(done)
    assert.equal("not_found", e.code)
    trees.write(work, "base.pack", "nonsense")
    done, e = tree.apply(loop, { root = dir, base = work .. "/base.pack", result = work .. "/base.pack" })
    assert.is_nil(done)
    assert.equal("protocol", e.code)
  end)
end)

describe("core.tree_unpack", function()
  it("makes exactly the tree, in an empty folder only", function()
    local work = trees.folder()
    trees.write(work, "p", trees.pack { { path = "a/b", content = "1" }, { path = "x", content = "#!", mode = "100755" } })
    local u, e = loop:await(core.tree_unpack(loop.io, { pack = work .. "/p", dir = work .. "/d" }))
    assert.is_nil(e)
    assert.equal(2, u.count)
    assert.equal("1", trees.read(work, "d/a/b"))
    u, e = loop:await(core.tree_unpack(loop.io, { pack = work .. "/p", dir = work .. "/d" }))
    assert.is_nil(u)
    assert.equal("exists", e.code)
    u, e = loop:await(core.tree_unpack(loop.io, { pack = work .. "/p", dir = work .. "/e", max_bytes = 2 }))
    assert.is_nil(u)
    assert.equal("too_large", e.code)
    trees.write(work, "q", trees.pack { { path = "a", content = "1", left_out = true }, { path = "b", content = "2" } })
    u, e = loop:await(core.tree_unpack(loop.io, { pack = work .. "/q", dir = work .. "/f" }))
    assert.is_nil(u)
    assert.equal("corrupt", e.code)
    trees.remove(work)
  end)
end)
