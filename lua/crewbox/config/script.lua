-- SPDX-License-Identifier: MIT
-- Runs an operator's Lua file: a text chunk in an environment that holds only what it is given,
-- with a budget of instructions and of memory. What the chunk returns is the result.
--
-- The string methods are out of reach while it runs: s:rep(1e9) and a costly pattern are single
-- instructions to the hook that counts. Without pcall, coroutines and metatables in the
-- environment nothing in the chunk can catch the budget's error or outlive the call.
local M = {}

local INSTRUCTIONS = 1000000
local MEMORY_KIB = 32 * 1024
local STEP = 10 -- few, because each may double what it holds

--- @param source string   text of the chunk
--- @param name string     shown in errors
--- @param env table?      its globals; default none
--- @return any result     nil with a message when it failed
--- @return string? problem
function M.run(source, name, env)
  if source:sub(1, 1) == "\27" then return nil, name .. " is bytecode; only text is read" end
  env = env or {}
  local chunk, problem
  if setfenv then -- LuaJIT
    chunk, problem = loadstring(source, "@" .. name)
    if chunk then
      setfenv(chunk, env)
      jit.off(chunk, true) -- count hooks do not fire in compiled loops
    end
  else
    chunk, problem = load(source, "@" .. name, "t", env)
  end
  if not chunk then return nil, problem end

  local left = INSTRUCTIONS / STEP
  local ceiling = collectgarbage("count") + MEMORY_KIB
  local strings = getmetatable("")
  local methods = strings.__index
  local hook, mask, count = debug.gethook()
  strings.__index = nil
  debug.sethook(function()
    left = left - 1
    local over = left < 0 and "too many instructions" or
      collectgarbage("count") > ceiling and "too much memory"
    if over then
      debug.sethook() -- or it fires again outside the pcall
      error(over, 0)
    end
  end, "", STEP)
  local ok, result = pcall(chunk)
  debug.sethook(hook, mask, count)
  strings.__index = methods

  if not ok then
    local text = type(result) == "string" and result or "an error that is not text"
    if not text:find(name, 1, true) then text = name .. ": " .. text end
    return nil, text
  end
  return result
end

return M
