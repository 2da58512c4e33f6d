-- SPDX-License-Identifier: MIT
-- What travels: real repositories, every case of the selection and the never-list.
local core = require "crewbox.core"
local tree = require "crewbox.tree"
local trees = require "support.trees"

local loop = trees.loop()

teardown(function() loop.io:close() end)

local function set(list)
  local out = {}
  for _, v in ipairs(list) do out[v] = true end
  return out
end

local function reasons(list)
  local out = {}
  for _, v in ipairs(list) do out[v.path] = v.reason end
  return out
end

describe("tree.select", function()
  local dirs = {}
  local function repository(files)
    local dir = trees.repository(files)
    dirs[#dirs + 1] = dir
    return dir
  end
  local function folder()
    local dir = trees.folder()
    dirs[#dirs + 1] = dir
    return dir
  end
  after_each(function()
    for _, dir in ipairs(dirs) do trees.remove(dir) end
    dirs = {}
  end)

  local function select(dir)
    local s, e = tree.select(loop, dir)
    assert.is_nil(e)
    return s
  end

  it("takes tracked and untracked files, modified or not, and no ignored ones", function()
    local dir = repository { ["a.txt"] = "1", ["sub/b.txt"] = "2", [".gitignore"] = "*.log\nbuild/\n", ["kept.log"] = "tracked" }
    trees.write(dir, "a.txt", "changed")
    trees.write(dir, "new.txt", "x")
    trees.write(dir, "x.log", "x")
    trees.write(dir, "build/out", "x")
    local s = select(dir)
    assert.same(set { "a.txt", "sub/b.txt", ".gitignore", "kept.log", "new.txt" }, set(s.paths))
    assert.same({}, s.deleted)
    assert.same({}, s.excluded)
    assert.equal(core.sys.realpath(dir), s.root)
    assert.equal("main", s.branch)
    assert.equal(trees.sh(dir, "git rev-parse HEAD"):sub(1, 40), s.head)
  end)

  it("finds the root from a folder inside", function()
    local dir = repository { ["sub/deep/b"] = "2", ["a"] = "1" }
    local s = select(dir .. "/sub/deep")
    assert.equal(core.sys.realpath(dir), s.root)
    assert.same(set { "a", "sub/deep/b" }, set(s.paths))
  end)

  it("sorts out deletions, swaps and staged states", function()
    local dir = repository { gone = "1", cached = "2", ["d/x"] = "3", f = "4", g = "5" }
    trees.sh(dir, [[rm gone; git rm -q --cached cached; rm -r d; echo file > d; rm f; mkdir f; echo y > f/y
      rm g; git rm -q --cached g; echo new > intent; git add -N intent; mkdir empty; mkfifo fifo]])
    local s = select(dir)
    assert.same(set { "cached", "d", "f/y", "intent" }, set(s.paths))
    assert.same(set { "gone", "d/x", "f" }, set(s.deleted))
    assert.same({}, s.excluded)
  end)

  it("keeps links as links and lists nested repositories", function()
    local dir = repository { a = "1" }
    trees.sh(dir, [[ln -s a l; ln -s /etc/passwd abs; mkdir nested; cd nested; git init -q .
      git -c user.name=t -c user.email=t@e commit -q --allow-empty -m x; echo z > z]])
    local s = select(dir)
    assert.same(set { "a", "l", "abs" }, set(s.paths))
    assert.same({ ["nested/"] = "nested repository" }, reasons(s.excluded))
  end)

  it("never deletes what a sparse checkout keeps away", function()
    local dir = repository { ["in/a"] = "1", ["out/b"] = "2", c = "3" }
    trees.sh(dir, "git sparse-checkout set --no-cone /in/ /c 2>/dev/null; test ! -e out/b")
    local s = select(dir)
    assert.same(set { "in/a", "c" }, set(s.paths))
    assert.same({}, s.deleted)
    assert.same({ ["out/b"] = "sparse" }, reasons(s.excluded))
  end)

  it("sees a change that git was told not to look for", function()
    local dir = repository { a = "1" }
    trees.sh(dir, "git update-index --assume-unchanged a; echo changed > a")
    assert.same({ "a" }, select(dir).paths)
  end)

  it("keeps every byte of hostile names (bug-K3)", function()
    local names = { "caf\195\169.py", "a\nb", '"q"', "-rf", " lead", "trail ", "tab\there", "back\\slash", "\255\254bad", "a'b", "*?[" }
    local files = {}
    for _, n in ipairs(names) do files[n] = n end
    local dir = repository(files)
    trees.write(dir, "new\n\1", "x")
    names[#names + 1] = "new\n\1"
    assert.same(set(names), set(select(dir).paths))
  end)

  it("works before the first commit and on a detached head", function()
    local dir = folder()
    trees.sh(dir, "git init -q -b trunk . && echo 1 > a")
    local s = select(dir)
    assert.same({ "a" }, s.paths)
    assert.is_nil(s.head)
    assert.equal("trunk", s.branch)
    local other = repository { a = "1" }
    trees.sh(other, "git checkout -q --detach")
    s = select(other)
    assert.is_nil(s.branch)
    assert.equal(40, #s.head)
  end)

  it("refuses what is no checkout, bare, or inside .git (bug-K5)", function()
    local plain = folder()
    local bare = folder()
    trees.sh(bare, "git init -q --bare .")
    local dir = repository { a = "1" }
    for _, d in ipairs { plain, bare, dir .. "/.git" } do
      local s, e = tree.select(loop, d)
      assert.is_nil(s)
      assert.equal("not_a_checkout", e.code)
    end
    local s, e = tree.select(loop, plain .. "/missing")
    assert.is_nil(s)
    assert.equal("not_found", e.code)
  end)

  it("refuses an unfinished merge and names the paths (bug-K5)", function()
    local dir = repository { a = "1" }
    trees.sh(dir, [[git checkout -q -b other; echo 2 > a; git commit -qam 2; git checkout -q main; echo 3 > a; git commit -qam 3
      git merge other > /dev/null 2>&1 || true]])
    local s, e = tree.select(loop, dir)
    assert.is_nil(s)
    assert.equal("merge_conflict", e.code)
    assert.same({ "a" }, e.paths)
  end)

  it("refuses submodules, initialised or not (bug-K5)", function()
    local dir = repository { a = "1" }
    trees.sh(dir, "git update-index --add --cacheinfo 160000,$(git rev-parse HEAD),sub")
    local s, e = tree.select(loop, dir)
    assert.is_nil(s)
    assert.equal("has_submodules", e.code)
    assert.same({ "sub" }, e.paths)
  end)

  it("runs nothing the repository names, and touches nothing", function()
    local dir = repository { a = "1" }
    trees.write(dir, ".git/evil", "#!/bin/sh\ntouch " .. dir .. "/ran\n")
    trees.sh(dir, "chmod +x .git/evil; git config core.fsmonitor .git/evil; git config core.hooksPath .git; touch a")
    local before = trees.sh(dir, "sha256sum .git/index; stat -c %y .git/index")
    select(dir)
    assert.is_nil(core.sys.stat(dir .. "/ran"))
    assert.equal(before, trees.sh(dir, "sha256sum .git/index; stat -c %y .git/index"))
  end)

  it("does not follow core.worktree to another folder", function()
    local dir, other = repository { a = "1" }, folder()
    trees.write(other, "private", "x")
    trees.sh(dir, "git config core.worktree " .. trees.quote(other))
    local s, e = tree.select(loop, dir)
    assert.is_nil(s)
    assert.equal("not_a_checkout", e.code)
  end)

  it("takes a checkout of another owner, without any configuration kept", function()
    if core.sys.uid() ~= 0 then return end -- only root can make one
    local dir = repository { a = "1" }
    trees.sh(dir, "chown -R 12345 .")
    assert.same({ "a" }, select(dir).paths)
    assert.truthy((trees.try(dir, "git status")) ~= 0) -- still not trusted by git itself
  end)

  it("is not led elsewhere by the caller's GIT_ variables", function()
    local dir = repository { a = "1" }
    -- The environment of this process cannot be set from Lua: a child does the same.
    local script = ([[
      package.path = %q
      package.cpath = %q
      local loop = require("support.trees").loop()
      local s, e = require("crewbox.tree").select(loop, %q)
      io.write(s and table.concat(s.paths, ",") or tostring(e))
    ]]):format(package.path, package.cpath, dir)
    trees.write(dir, ".git/probe.lua", script)
    local lua = jit and "luajit" or "lua5.4" -- luacheck: ignore
    local out = trees.sh(dir, "GIT_DIR=/nonexistent GIT_WORK_TREE=/ GIT_INDEX_FILE=/nonexistent " .. lua .. " .git/probe.lua")
    assert.equal("a", out)
  end)
end)

describe("tree.freeze", function()
  local dir, out
  before_each(function() out = trees.folder() end)
  after_each(function()
    trees.remove(out)
    if dir then trees.remove(dir) end
    dir = nil
  end)

  local function freeze(o)
    o = o or {}
    o.repo, o.pack = dir, out .. "/tree.pack"
    return tree.freeze(loop, o)
  end

  it("packs the tree so that it comes out the same", function()
    dir = trees.repository { a = "1\n", ["sub/run.sh"] = "#!/bin/sh\n", empty = "", ["caf\195\169"] = "\0\255" }
    trees.sh(dir, "chmod 755 sub/run.sh; chmod 4711 a; ln -s sub/run.sh l")
    local f, e = freeze()
    assert.is_nil(e)
    assert.equal(5, f.count)
    assert.equal(2 + 10 + 2 + 10, f.bytes)
    assert.equal("-rw-------", trees.sh(out, "stat -c %A tree.pack"):sub(1, 10))
    assert.equal("tree.pack\n", trees.sh(out, "ls -A"))
    local u = assert(loop:await(core.tree_unpack(loop.io, { pack = out .. "/tree.pack", dir = out .. "/t" })))
    assert.equal(f.digest, u.digest)
    assert.equal("1\n", trees.read(out .. "/t", "a"))
    assert.equal("\0\255", trees.read(out .. "/t", "caf\195\169"))
    assert.equal("sub/run.sh\n", trees.sh(out .. "/t", "readlink l"))
    assert.equal("-rwxr-xr-x -rwxr-xr-x\n", trees.sh(out .. "/t", "echo $(stat -c %A a sub/run.sh)")) -- only owner-x counts
    local again = freeze()
    assert.equal(f.digest, again.digest)
  end)

  it("leaves secrets out, whatever their case and depth, and says so (bug-K1)", function()
    local never = {
      ".env", ".env.local", "sub/.ENV", ".envrc", "server.pem", "a/b/Key.KEY", "x.p12", "x.pfx", "x.jks", "x.keystore",
      "x.kdbx", "x.ppk", "id_rsa", "id_rsa.pub", "id_ed25519", "id_dsa_x", "id_ecdsa", ".netrc", "_netrc", ".npmrc",
      ".yarnrc.yml", ".pypirc", ".git-credentials", ".htpasswd", ".ssh/config", ".gnupg/x", ".aws/credentials", ".azure/x",
      ".kube/config", ".docker/config.json", ".config/gcloud/x", "terraform.tfstate", "terraform.tfstate.backup",
      "prod.tfvars", "credentials.json", "service-account-1.json", "my-credentials.json", "x/.Config/GCloud/y",
    }
    local fine = {
      ".env.example", ".env.sample", ".env.template", ".env.local.dist", "env", "x.environment", ".config/x", "keys.txt",
      "credentials.json.md", "pem", "id_rs", ".github/x", "docker/x", "git/x", ".gitignore", ".gitattributes",
    }
    local files = {}
    for _, n in ipairs(never) do files[n] = "x" end
    for _, n in ipairs(fine) do files[n] = "x" end
    dir = trees.repository(files)
    trees.write(dir, "untracked/.env", "x")
    local f, e = freeze()
    assert.is_nil(e)
    assert.equal(#fine, f.count)
    local excluded = reasons(f.excluded)
    for _, n in ipairs(never) do assert.truthy((excluded[n] or ""):find("never uploaded", 1, true), n) end
    assert.truthy(excluded["untracked/.env"])
    for _, n in ipairs(fine) do assert.is_nil(excluded[n], n) end
    assert.is_nil(trees.read(out, "tree.pack"):find("\0.env\0", 1, true))
  end)

  it("leaves out a private key under another name, links that leave, and what a rule says", function()
    dir = trees.repository { notes = "x\n-----BEGIN RSA PRIVATE KEY-----\nabc\n", ["sub/a"] = "1", ["big/b"] = "2" }
    trees.sh(dir, [[ln -s /etc/passwd abs; ln -s ../../x up; ln -s ../a sub/fine; ln -s sub/../../x leaves; ln -s . self]])
    local f, e = freeze { exclude = { "BIG" } }
    assert.is_nil(e)
    local excluded = reasons(f.excluded)
    assert.equal("never uploaded: a private key is inside", excluded.notes)
    assert.equal("link leaves checkout", excluded.abs)
    assert.equal("link leaves checkout", excluded.up)
    assert.equal("link leaves checkout", excluded.leaves)
    assert.equal("excluded by a rule of yours", excluded["big/b"])
    assert.equal(3, f.count) -- sub/a, sub/fine, self
  end)

  it("refuses a tree over the limit at the byte, naming the largest (bug-K5)", function()
    dir = trees.repository { a = ("x"):rep(600), b = ("y"):rep(400) }
    assert.equal(1000, freeze({ max_bytes = 1000 }).bytes)
    core.sys.unlink(out .. "/tree.pack")
    local f, e = freeze { max_bytes = 999 }
    assert.is_nil(f)
    assert.equal("too_large", e.code)
    assert.same({ { path = "a", size = 600 }, { path = "b", size = 400 } }, e.largest)
    assert.is_nil(core.sys.stat(out .. "/tree.pack"))
    f, e = freeze { max_files = 1 }
    assert.is_nil(f)
    assert.equal("too_large", e.code)
    assert.equal("", trees.sh(out, "ls -A"))
  end)

  it("leaves its own state out, should it lie in the checkout", function()
    dir = trees.repository { a = "1" }
    trees.write(dir, "state dir/runs/x", "1")
    trees.write(dir, "state dirs", "1")
    local f, e = freeze { state = dir .. "/state dir" }
    assert.is_nil(e)
    assert.equal(2, f.count)
    assert.same({ ["state dir/"] = "never uploaded: crewbox's own state" }, reasons(f.excluded))
    assert.equal(3, freeze({ state = out }).count)
  end)

  it("says which file cannot be read", function()
    if core.sys.uid() == 0 then return end -- root reads everything
    dir = trees.repository { a = "1" }
    trees.sh(dir, "chmod 000 a")
    local f, e = freeze()
    assert.is_nil(f)
    assert.equal("denied", e.code)
  end)

  it("raises for misuse and names the option", function()
    assert.has_error(function() core.tree_freeze(loop.io, { root = "/", paths = {} }) end)
    assert.has_error(function() core.tree_freeze(loop.io, { root = "/", paths = {}, pack = "/x", no = 1 }) end)
    assert.has_error(function() core.tree_apply(loop.io, { root = 1, base = "/x", result = "/x" }) end)
  end)
end)
