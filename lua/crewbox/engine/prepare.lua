-- SPDX-License-Identifier: MIT
-- The first step of a run, in the process of whoever asks for it: everything that can be wrong is
-- looked at before anything is spent, the tree is frozen, the row is written. On a failure
-- nothing stays behind.
local agents = require "crewbox.agents"
local core = require "crewbox.core"
local err = require "crewbox.err"
local harnesses = require "crewbox.harness"
local local_server = require "crewbox.engine.local_server"
local nearest = require "crewbox.config.nearest"
local network = require "crewbox.engine.network"
local json = require "crewbox.json"
local paths = require "crewbox.paths"
local secrets = require "crewbox.engine.secrets"
local setup = require "crewbox.engine.setup"
local tree = require "crewbox.tree"

local M = {}

M.BRIEF_MAX = 8 * 1024 * 1024
M.FREE_MIN = 64 * 1024 * 1024 -- what must be free in the state folder
M.CLAIM_S = 60                -- from the row to the engine taking it over

local TITLE_MAX = 80
local ENV_NAME = "^[%a_][%w_]*$"
local ENV_MAX = 128 * 1024 -- of one NAME=VALUE with its NUL; execve refuses more

-- ---- what is asked for -------------------------------------------------------------------

local FIELDS = { brief = "string", repo = "string", no_repo = "boolean", agent = "string", model = "string",
  env = "table", title = "string", timeout_s = "number", options = "table" }

local function check_shape(request)
  local known = {}
  for name in pairs(FIELDS) do known[#known + 1] = name end
  for name, value in pairs(request) do
    if not FIELDS[name] then
      error(("unknown field %s%s"):format(tostring(name), nearest.hint(tostring(name), known)), 4)
    end
    if type(value) ~= FIELDS[name] then error(("%s must be a %s"):format(name, FIELDS[name]), 4) end
  end
end

local function harness_of(ctx, request)
  local name = request.agent or ctx.config.providers.sandbox.default_coding_agent
  local harness = harnesses.get(name)
  if harness then return harness end
  return nil, err.new("invalid", ("unknown agent %s%s; there is %s")
    :format(name, nearest.hint(name, harnesses.names()), table.concat(harnesses.names(), ", ")))
end

-- The values a run takes along: what `env` names or gives, and the harness's own, from the
-- caller's environment.
local function values_of(harness, request, environ)
  local values = {}
  for _, list in ipairs { harness.credentials, harness.settings } do
    for _, name in ipairs(list) do
      if environ[name] and environ[name] ~= "" then values[name] = environ[name] end
    end
  end
  for key, value in pairs(request.env or {}) do
    local name = type(key) == "number" and value or key
    if type(name) ~= "string" or not name:find(ENV_NAME) then
      return nil, err.new("invalid", "not a name of an environment variable: " .. tostring(name):sub(1, 60):gsub("=.*", "=..."))
    end
    if type(key) == "number" then value = environ[name] end
    if value == nil then
      return nil, err.new("invalid", ("%s is not set in the environment: export it, or leave out --env %s"):format(name, name))
    end
    value = tostring(value)
    if value:find("%z") then return nil, err.new("invalid", name .. " holds a NUL byte, which no environment can") end
    if #name + #value + 2 > ENV_MAX then
      return nil, err.new("too_large", ("%s has %d bytes, an environment variable can have %d at most")
        :format(name, #value, ENV_MAX - #name - 2))
    end
    if not M.is_utf8(value) then
      return nil, err.new("invalid", name .. " holds bytes that are no UTF-8 text: encode them, for instance as base64")
    end
    values[name] = value
  end
  return values
end

local function check_brief(brief)
  if type(brief) ~= "string" or not brief:find("%S") then
    return nil, err.new("invalid", "the brief is empty: say what is to be done")
  end
  if #brief > M.BRIEF_MAX then
    return nil, err.new("too_large", ("the brief has %d bytes, the most is %d"):format(#brief, M.BRIEF_MAX))
  end
  return true
end

-- A secret belongs in the agent's environment; in the brief it would lie on disk here and in the
-- box, and go to the model.
local function check_no_secret(brief, redactor)
  local name = redactor:find(brief)
  if not name then return true end
  return nil, err.new("contains_secret", ("the brief holds the value of %s: write $%s instead, the agent has it in its environment")
    :format(name, name))
end

local function title_of(request, redactor)
  local title = request.title or request.brief
  title = redactor:mask(title:sub(1, 4096))
  title = title:match("^%s*([^\r\n]*)"):gsub("[%c\127]", " ")
  if #title > TITLE_MAX then
    title = title:sub(1, TITLE_MAX):gsub("[\192-\255][\128-\191]*$", "") .. "..."
  end
  -- Bytes that are no text must not reach a database column of text.
  return (title:gsub("[\128-\255]+", function(s) return M.is_utf8(s) and s or "?" end))
end

--- Whether s is well-formed UTF-8 (without surrogates and overlong forms).
function M.is_utf8(s)
  local i, n = 1, #s
  while i <= n do
    local b = s:byte(i)
    local len = b < 128 and 1 or b >= 194 and b < 224 and 2 or b >= 224 and b < 240 and 3 or b >= 240 and b < 245 and 4
    if not len or i + len - 1 > n then return false end
    for k = 1, len - 1 do
      local c = s:byte(i + k)
      local low = k == 1 and (b == 224 and 160 or b == 240 and 144) or 128
      local high = k == 1 and (b == 237 and 159 or b == 244 and 143) or 191
      if c < low or c > high then return false end
    end
    i = i + len
  end
  return true
end

-- ---- the state folder --------------------------------------------------------------------

--- Makes the state folder; everything in it is the person's alone.
--- @return true? ok
--- @return crewbox.Error? err
function M.state_folder(state)
  local ok, e = core.sys.mkdirs(state, 448) -- 0700
  if ok then ok, e = core.sys.mkdirs(paths.runs(state), 448) end
  if not ok then return nil, err.new(e.code, ("the state folder %s cannot be made: %s"):format(state, e.message)) end
  return true
end

local function check_space(state)
  local free = core.sys.free_bytes(state)
  if free and free < M.FREE_MIN then
    return nil, err.new("disk_full", ("the file system of %s has %d MiB left, a run needs %d: free some, or set CREWBOX_STATE elsewhere")
      :format(state, math.floor(free / 1048576), M.FREE_MIN / 1048576))
  end
  return true
end

-- ---- the steps ---------------------------------------------------------------------------

-- The box server, before anything is spent: is it there, and can it isolate?
local function check_server(ctx)
  local provider = ctx.provider
  if provider.remote then return true end
  local health, e = local_server.ensure(ctx, provider)
  if not health then return nil, e end
  local isolation = health.isolation
  if type(isolation) == "table" and isolation.state == "unavailable" then
    return nil, err.new("isolation_unavailable", tostring(isolation.reason or "this host cannot isolate a box"))
  end
  return true
end

local function frozen(ctx, request, id)
  if not request.repo then return nil end
  return tree.freeze(ctx.loop, {
    repo = request.repo, pack = paths.run_file(ctx.state, id, "tree.pack"), state = ctx.state,
  })
end

--- @param ctx {loop, io, store, state, config, provider, environ}
--- @param request table {brief, repo | no_repo = true, agent?, model?, env? = {"NAME"} or {K = V},
---   title?, timeout_s?, options?}
--- @return {id: string, claim: string, values: table<string, string>}? prepared
--- @return crewbox.Error? err
--- @async
function M.run(ctx, request)
  check_shape(request)
  local began = core.sys.now_ms()
  local sandbox = ctx.config.providers.sandbox
  local ok, harness, values, rules, e
  harness, e = harness_of(ctx, request)
  if not harness then return nil, e end
  ok, e = check_brief(request.brief)
  if not ok then return nil, e end
  if not request.repo and not request.no_repo then
    return nil, err.new("invalid", "no checkout given: name one, or ask for a run without (--no-repo)")
  end
  values, e = values_of(harness, request, ctx.environ)
  if not values then return nil, e end
  local for_setup
  for_setup, e = setup.values(sandbox.setup, ctx.environ)
  if not for_setup then return nil, e end
  ok, e = harness:check(values, request.model)
  if not ok then return nil, e end
  rules, e = network.rules {
    endpoints = harness:endpoints(values, request.model), allow = sandbox.network.allow, remote = ctx.provider.remote,
  }
  if not rules then return nil, e end
  if harness.package and not ctx.provider.remote and sandbox.template == "" then
    ok, e = agents.find(harness.name, nil, ctx.environ)
    if not ok then return nil, e end
  end
  ok, e = check_space(ctx.state)
  if not ok then return nil, e end
  for name, value in pairs(for_setup) do values[name] = value end
  local redactor = secrets.redactor(secrets.list(values, harness.settings))
  ok, e = check_no_secret(request.brief, redactor)
  if not ok then return nil, e end

  local id = "r" .. core.sys.random_id(12)
  local folder = paths.run(ctx.state, id)
  local prepared
  prepared, e = M.store(ctx, request, {
    id = id, folder = folder, harness = harness, values = values, redactor = redactor, rules = rules, began = began,
  })
  if not prepared then core.sys.rmtree(folder) end
  return prepared, e
end

-- What lies on disk and in the row. The caller removes the folder when this fails.
function M.store(ctx, request, o)
  local ok, e = core.sys.mkdirs(o.folder, 448) -- 0700
  if not ok then return nil, e end
  ok, e = ctx.loop:await(ctx.loop.io:write_file { path = paths.run_file(ctx.state, o.id, "brief"), data = request.brief })
  if not ok then return nil, e end
  local pack
  pack, e = frozen(ctx, request, o.id)
  if e then return nil, e end
  -- After all that can be said without it: a bad checkout starts no server.
  ok, e = check_server(ctx)
  if not ok then return nil, e end

  local names = {}
  for name in pairs(o.values) do names[#names + 1] = name end
  table.sort(names)
  local claim = "c" .. core.sys.random_id(12)
  local options = {
    provider = ctx.provider.kind,
    generation = ctx.provider.generation,
    config = ctx.config.source,
    allow = json.array(o.rules.allow),
    forward = json.array(o.rules.forward),
    timeout_s = request.timeout_s,
    prepare_ms = core.sys.now_ms() - o.began,
    harness = request.options or ctx.config.providers.sandbox.agents[o.harness.name],
    tree = pack and { digest = pack.digest, count = pack.count, bytes = pack.bytes, excluded = pack.excluded } or nil,
  }
  -- Whoever gives up waiting now must still know whether there is a row.
  ok, e = ctx.loop:shield(ctx.store.add_run, ctx.store, {
    id = o.id, kind = "agent", agent = o.harness.name, model = request.model, title = title_of(request, o.redactor),
    repo = pack and pack.root or request.repo, options = options, env_names = names, claim_owner = claim, claim_s = M.CLAIM_S,
  }, core.sys.wall())
  if not ok then return nil, e end
  return { id = o.id, claim = claim, values = o.values }
end

--- Takes back what `run` made, for a run that no engine has taken.
--- @async
function M.undo(ctx, prepared)
  if ctx.store:remove_unclaimed(prepared.id, prepared.claim) then
    core.sys.rmtree(paths.run(ctx.state, prepared.id))
  end
end

return M
