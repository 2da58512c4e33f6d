-- SPDX-License-Identifier: MIT
-- Trees on this side: which files of a checkout travel, the frozen pack of them, and what a run
-- changed as a patch. Git is asked for names only; every byte is read and written by the core.
--
-- Git runs with nothing of the caller's GIT_* variables, without the programs a repository's own
-- configuration may name, and never touches the index. `loop` is what crewbox.async gives, or
-- anything with `loop.io` and `loop:await(op) -> value | nil, err`.
local core = require "crewbox.core"
local err = require "crewbox.err"

local M = {}

local LIST_MAX = 256 * 1024 * 1024  -- bytes of names git may list
local PATCH_MAX = 512 * 1024 * 1024 -- bytes of a patch
local GIT_MS = 120000
local PIECE = 1024 * 1024
local NAMED = 5                     -- paths named in a message

-- Text for people: control bytes and what is not ASCII become escapes.
local function shown(path)
  return (path:gsub("[^\32-\126]", function(c) return ("\\x%02x"):format(c:byte()) end))
end

local function name_some(paths)
  local out = {}
  for i = 1, math.min(#paths, NAMED) do out[i] = shown(paths[i]) end
  if #paths > NAMED then out[#out + 1] = ("and %d more"):format(#paths - NAMED) end
  return table.concat(out, ", ")
end

local function join(root, path)
  return root == "/" and "/" .. path or root .. "/" .. path
end

-- ---- git -----------------------------------------------------------------------------------

-- The caller's environment without what would lead git elsewhere. `extra` wins.
local function environment(extra)
  local env = {}
  for name, value in pairs(core.sys.environ()) do
    if not name:find("^GIT_") then env[name] = value end
  end
  env.LC_ALL = "C"
  env.LANGUAGE = nil
  env.GIT_OPTIONAL_LOCKS = "0"
  env.GIT_TERMINAL_PROMPT = "0"
  for name, value in pairs(extra or {}) do env[name] = value end
  return env
end

-- Runs git; nil, err only when it could not run or did not end.
local function run(loop, o)
  local argv = { "git", "-c", "core.fsmonitor=false", "-c", "core.untrackedCache=false" }
  for _, arg in ipairs(o.args) do argv[#argv + 1] = arg end
  local r, e = loop:await(loop.io:spawn {
    argv = argv, cwd = o.dir, env = environment(o.env), timeout_ms = GIT_MS, max_bytes = o.max_bytes or LIST_MAX,
  })
  if not r then
    if e.code == "not_found" and core.sys.stat(o.dir) then
      return nil, err.new("not_found", "git is not installed: install it (apt-get install git) and try again")
    end
    return nil, err.wrap(e, "git " .. o.args[1])
  end
  if r.timed_out then return nil, err.new("timeout", ("git %s did not end within %d s"):format(o.args[1], GIT_MS / 1000)) end
  if r.signal then return nil, err.new("system", ("git %s was ended by signal %s"):format(o.args[1], tostring(r.signal))) end
  return r
end

local function failed(r, what)
  local line = (r.stderr or ""):match("[^\n]+") or ("exit " .. tostring(r.exit))
  return err.new("system", ("git %s: %s"):format(what, shown(line)))
end

local function git(loop, dir, env, ...)
  local args = { ... }
  local r, e = run(loop, { dir = dir, env = env, args = args })
  if not r then return nil, e end
  if r.exit ~= 0 then return nil, failed(r, args[1]) end
  if r.truncated then return nil, err.new("too_large", ("git %s lists more than %d MiB of names"):format(args[1], LIST_MAX / 1048576)) end
  return r.stdout
end

local function first_line(text)
  return text and text:match("^([^\n]+)") or nil
end

-- The nearest folder with a .git in it, at or above dir. Git finds the same one; it has to be
-- known before, for safe.directory.
local function nearest_checkout(dir)
  local at = dir
  while true do
    if core.sys.stat(join(at, ".git"), true) then return at end
    if at == "/" then return nil end
    at = at:match("^(.*)/[^/]*$")
    if at == "" then at = "/" end
  end
end

local function not_a_checkout(dir, why)
  return err.new("not_a_checkout", ("%s is not a git checkout%s"):format(shown(dir), why or ""))
end

-- Root of the checkout that dir lies in, and the environment git needs for it.
local function find_root(loop, dir)
  local real, e = core.sys.realpath(dir)
  if not real then return nil, err.wrap(e, "the checkout " .. shown(dir)) end
  local root = nearest_checkout(real)
  if not root then return nil, not_a_checkout(dir) end
  -- Git refuses repositories of other owners. This one was named by the person who asks (often
  -- root, for a checkout of theirs): it, and no other, is allowed, for these calls only.
  local env = { GIT_CONFIG_COUNT = "1", GIT_CONFIG_KEY_0 = "safe.directory", GIT_CONFIG_VALUE_0 = root }
  local r
  r, e = run(loop, { dir = real, env = env, args = { "rev-parse", "--show-toplevel" } })
  if not r then return nil, e end
  local top = r.exit == 0 and core.sys.realpath((r.stdout:gsub("\n$", ""))) or nil
  if not top then
    return nil, not_a_checkout(dir, ": " .. shown((r.stderr or ""):match("[^\n]+") or "git finds no working tree"))
  end
  -- core.worktree of the repository can name any folder: only what holds dir is its checkout.
  if top ~= root then
    return nil, not_a_checkout(dir, (": its git configuration says its files are in %s"):format(shown(top)))
  end
  return root, env
end

-- ---- selection -----------------------------------------------------------------------------

local function records(text)
  return text:gmatch("([^%z]+)%z")
end

-- What the index says: refuses what cannot travel, gives the tracked paths.
local function read_index(loop, root, env)
  local text, e = git(loop, root, env, "ls-files", "--stage", "-z")
  if not text then return nil, e end
  local unmerged, submodules, seen = {}, {}, {}
  for record in records(text) do
    local mode, stage, path = record:match("^(%d+) %x+ (%d)\t(.*)$")
    if not mode then return nil, err.new("protocol", "git ls-files answered in a way that is not known") end
    if stage ~= "0" and not seen[path] then
      seen[path] = true
      unmerged[#unmerged + 1] = path
    end
    if mode == "160000" then submodules[#submodules + 1] = path end
  end
  if #unmerged > 0 then
    return nil, err.new("merge_conflict", ("a merge is not finished in %s: %s; resolve it first")
      :format(shown(root), name_some(unmerged)), { paths = unmerged })
  end
  if #submodules > 0 then
    return nil, err.new("has_submodules", ("checkouts with submodules are not supported: %s in %s")
      :format(name_some(submodules), shown(root)), { paths = submodules })
  end
  return true
end

-- Paths that a sparse checkout keeps off the disk: absent, and not deleted for that.
local function read_sparse(loop, root, env)
  local text, e = git(loop, root, env, "ls-files", "-v", "-z")
  if not text then return nil, e end
  local sparse = {}
  for record in records(text) do
    local tag, path = record:match("^(%a) (.*)$")
    if tag == "S" or tag == "s" then sparse[path] = true end
  end
  return sparse
end

-- Where does a listed path belong? "keep", "deleted", or nil and why it stays here.
local function sort_out(root, path, sparse)
  if path:sub(-1) == "/" then return nil, "nested repository" end
  local st, e = core.sys.stat(join(root, path), true)
  if not st then
    if sparse[path] then return nil, "sparse" end
    if e.code == "not_found" or e.errno == 20 then return "deleted" end -- ENOTDIR
    return nil, e.message
  end
  if st.type == "file" or st.type == "symlink" then return "keep" end
  if st.type == "dir" then return "deleted" end -- a folder where a file was
  return nil, "not a regular file"
end

--- Which files of the checkout that holds `dir` travel: what git tracks and what it does not
--- ignore, as it is on disk now. Names are bytes.
--- @async
--- @return {root: string, paths: string[], deleted: string[], excluded: {path, reason}[],
---   head: string?, branch: string?}? selection
--- @return crewbox.Error? err `not_a_checkout` | `merge_conflict` | `has_submodules` (both with
---   `paths`) | `not_found` | `timeout` | `system`
function M.select(loop, dir)
  local root, env = find_root(loop, dir)
  if not root then return nil, env end
  local ok, e = read_index(loop, root, env)
  if not ok then return nil, e end
  local sparse
  sparse, e = read_sparse(loop, root, env)
  if not sparse then return nil, e end
  local text
  text, e = git(loop, root, env, "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate")
  if not text then return nil, e end

  local selection = { root = root, paths = {}, deleted = {}, excluded = {}, head = nil, branch = nil }
  for path in records(text) do
    local where, why = sort_out(root, path, sparse)
    if where == "keep" then
      selection.paths[#selection.paths + 1] = path
    elseif where == "deleted" then
      selection.deleted[#selection.deleted + 1] = path
    else
      selection.excluded[#selection.excluded + 1] = { path = path, reason = why }
    end
  end
  local r
  r, e = run(loop, { dir = root, env = env, args = { "rev-parse", "--quiet", "--verify", "HEAD" } })
  if not r then return nil, e end
  selection.head = r.exit == 0 and first_line(r.stdout) or nil -- none before the first commit
  r, e = run(loop, { dir = root, env = env, args = { "symbolic-ref", "--quiet", "--short", "HEAD" } })
  if not r then return nil, e end
  selection.branch = r.exit == 0 and first_line(r.stdout) or nil -- none when detached
  return selection
end

-- Takes what lies below `folder` out of a selection, when that is inside the checkout.
local function leave_out(selection, folder, reason)
  local real = core.sys.realpath(folder)
  local inside = join(selection.root, "")
  if not real or real:sub(1, #inside) ~= inside then return end
  local prefix, kept = real:sub(#inside + 1) .. "/", {}
  for _, path in ipairs(selection.paths) do
    if path:sub(1, #prefix) ~= prefix then kept[#kept + 1] = path end
  end
  if #kept < #selection.paths then
    selection.paths = kept
    selection.excluded[#selection.excluded + 1] = { path = prefix, reason = reason }
  end
end

--- Selects and packs: the files of the checkout as they are now, in `o.pack`.
--- @async
--- @param o {repo: string, pack: string, state: string?, max_bytes: number?, max_files: number?, exclude: string[]?}
---   state: crewbox's own folder, left out should it lie in the checkout; exclude: shell patterns
--- @return {root, digest, count, bytes, excluded: {path, reason}[], deleted: string[], head?, branch?}? frozen
--- @return crewbox.Error? err as select; `too_large` (with `largest`), `conflict` with `reason` =
---   `changed_while_reading` and `path`
function M.freeze(loop, o)
  local selection, e = M.select(loop, o.repo)
  if not selection then return nil, e end
  if o.state then leave_out(selection, o.state, "never uploaded: crewbox's own state") end
  local frozen
  frozen, e = loop:await(core.tree_freeze(loop.io, {
    root = selection.root, paths = selection.paths, pack = o.pack,
    max_bytes = o.max_bytes, max_files = o.max_files, exclude = o.exclude,
  }))
  if not frozen then return nil, e end
  for _, entry in ipairs(frozen.excluded) do
    if entry.reason == "deleted" then -- since it was selected
      selection.deleted[#selection.deleted + 1] = entry.path
    else
      selection.excluded[#selection.excluded + 1] = entry
    end
  end
  return {
    root = selection.root, digest = frozen.digest, count = frozen.count, bytes = frozen.bytes,
    excluded = selection.excluded, deleted = selection.deleted, head = selection.head, branch = selection.branch,
  }
end

-- ---- patch ---------------------------------------------------------------------------------

-- A git folder of our own, bare: so the attribute files of the two trees, which may come from a
-- box, say nothing about how their contents are read.
local function make_git_folder(path)
  local steps = {
    function() return core.sys.mkdirs(path .. "/objects", 448) end,
    function() return core.sys.mkdirs(path .. "/refs", 448) end,
    function() return core.sys.write_file(path .. "/HEAD", "ref: refs/heads/none\n", 384) end,
    function()
      return core.sys.write_file(path .. "/config", "[core]\n\trepositoryformatversion = 0\n\tbare = true\n", 384)
    end,
  }
  for _, step in ipairs(steps) do
    local ok, e = step()
    if not ok then return nil, e end
  end
  return true
end

-- "diff --git b/x b/x" (an added file) becomes "diff --git a/x b/x": both names are the same.
local function fix_header(names)
  local half = (#names - 1) / 2
  local first, second = names:sub(1, half), names:sub(half + 2)
  return first:gsub('^("?)[ab]/', "%1a/") .. " " .. second:gsub('^("?)[ab]/', "%1b/")
end

-- No other line of a patch begins so: lines of files have a mark in front of them.
local function fix_headers(patch)
  local fixed = ("\n" .. patch):gsub("\ndiff %-%-git ([^\n]*)", function(names)
    return "\ndiff --git " .. fix_header(names)
  end)
  return fixed:sub(2)
end

local function diff(loop, dir)
  local ok, e = make_git_folder(dir .. "/git")
  if not ok then return nil, err.wrap(e, "prepare the patch") end
  local r
  r, e = run(loop, {
    dir = dir, max_bytes = PATCH_MAX,
    env = {
      GIT_DIR = dir .. "/git", GIT_CONFIG_NOSYSTEM = "1", GIT_CONFIG_GLOBAL = "/dev/null", GIT_ATTR_NOSYSTEM = "1",
      HOME = dir, XDG_CONFIG_HOME = dir .. "/git",
    },
    args = { "-c", "core.fileMode=true", "-c", "core.symlinks=true", "-c", "core.autocrlf=false", "-c", "core.quotePath=true",
      "diff", "--no-index", "--binary", "--no-ext-diff", "--no-textconv", "--no-renames", "--no-color", "--no-prefix",
      "--", "a", "b" },
  })
  if not r then return nil, e end
  if r.exit ~= 0 and r.exit ~= 1 then return nil, failed(r, "diff") end
  if r.truncated then return nil, err.new("too_large", ("the patch has more than %d MiB"):format(PATCH_MAX / 1048576)) end
  return fix_headers(r.stdout)
end

-- Name of a secret in a file, read in pieces.
local function secret_in_file(redactor, path)
  local f = io.open(path, "rb")
  if not f then return nil end
  local stream, name = redactor:stream(), nil
  while not name do
    local piece = f:read(PIECE)
    if not piece then break end
    stream:feed(piece)
    name = stream:found()
  end
  stream:finish()
  name = name or stream:found()
  stream:close()
  f:close()
  return name
end

-- Bytes that will be applied are never rewritten: an exact secret in them is a refusal.
local function check_secrets(redactor, dir, changed, patch)
  local function refusal(name, path)
    return nil, err.new("contains_secret", ("the changes contain the value of %s%s; no patch was made")
      :format(name, path and " in " .. shown(path) or ""), { name = name, path = path })
  end
  for _, change in ipairs(changed) do
    local name = redactor:find(change.path)
    if name then return refusal(name) end
    local st = core.sys.stat(dir .. "/b/" .. change.path, true)
    if st and st.type == "file" then
      name = secret_in_file(redactor, dir .. "/b/" .. change.path)
      if name then return refusal(name, change.path) end
    end
  end
  local name = redactor:find(patch)
  if name then return refusal(name) end
  return true
end

--- What a run changed, as a patch that `git apply` takes in the checkout. Both trees are compared in
--- private folders below `o.dir`, which is removed first and left for the caller to remove.
--- @async
--- @param o {base: string, result: string, dir: string, patch: string?, redactor: userdata?}
---   base, result: packs; patch: file to write (0600)
--- @return {changed: {path, change}[], bytes: number, patch: string?, base_digest: string, digest: string}? patch
---   `patch` holds the text only when no file was asked for
--- @return crewbox.Error? err `contains_secret` (with `name`), `corrupt`, `protocol`, `too_large`, ...
function M.patch(loop, o)
  core.sys.rmtree(o.dir)
  local compared, e = loop:await(core.tree_compare(loop.io, { base = o.base, result = o.result, dir = o.dir }))
  if not compared then return nil, e end
  local text = ""
  if #compared.changed > 0 then
    text, e = diff(loop, o.dir)
    if not text then return nil, e end
  end
  if o.redactor then
    local ok
    ok, e = check_secrets(o.redactor, o.dir, compared.changed, text)
    if not ok then return nil, e end
  end
  if o.patch then
    local ok
    ok, e = loop:await(loop.io:write_file { path = o.patch, data = text })
    if not ok then return nil, err.wrap(e, "write the patch") end
  end
  return {
    changed = compared.changed, bytes = #text, patch = not o.patch and text or nil,
    base_digest = compared.base_digest, digest = compared.digest,
  }
end

--- Takes a result into a checkout: all targets are checked first, one refusal writes nothing.
--- @async
--- @param o {root: string, base: string, result: string, dry_run: boolean?}
--- @return {written: string[], deleted: string[]}? applied
--- @return crewbox.Error? err `conflict` with `refused` = {path, reason}[]: nothing was written
function M.apply(loop, o)
  return loop:await(core.tree_apply(loop.io, {
    root = o.root, base = o.base, result = o.result, dry_run = o.dry_run or nil,
  }))
end

return M
